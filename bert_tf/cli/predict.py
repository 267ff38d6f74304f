"""Answers of a model to texts: a line in, a line of JSON out.

    bert-tf predict --model=/serving/mrpc --input_file=pairs.tsv --output_file=answers.jsonl
    bert-tf predict --model=/serving/squad < questions.jsonl
    echo "A fine film." | bert-tf predict --model=/models/sst2

The model is an export of bert-tf export, or the folder of a checkpoint. A file of any size takes
the same memory. Typed into a terminal, each line is answered at once.
"""

import contextlib
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from absl import flags, logging

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.cli import served_model
from bert_tf.serving.options import INPUT_FORMATS

FLAGS = flags.FLAGS
STDIN = "standard input"


def define_flags() -> None:
    """The flags of this script."""
    flags.DEFINE_string("model", None, "An export, or a folder with weights; local or remote.")
    served_model.define_flags()
    flags.DEFINE_string("input_file", None, "What is asked, one a line; default: standard input.")
    flags.DEFINE_string("output_file", None, "JSON lines; default: standard output.")
    flags.DEFINE_enum(
        "input_format",
        None,
        INPUT_FORMATS,
        "text: a text a line. tsv: texts with tabs between. jsonl: JSON strings, lists or objects; "
        "of an object, `id` is passed on. Default: by the file's ending, else text, or tsv for "
        "models of several texts.",
    )
    shared_flags.define_count("batch_size", 32, "Lines of a batch at most.")
    flags.DEFINE_bool(
        "interactive",
        None,
        "Answer each line before the next is read. Default: if it is typed into a terminal.",
    )
    shared_flags.mark_required("model")


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

import tensorflow as tf

from bert_tf import files
from bert_tf.serving import rows
from bert_tf.serving.predictor import Predictor
from bert_tf.serving.rows import num_lines
from bert_tf.terminal import counted, number_of


def main(_: Sequence[str]) -> None:
    """Flags -> model -> lines -> answers -> lines."""
    with open_output() as file:  # before the model is loaded: it may be refused
        predictor = served_model.make_predictor(FLAGS.model, batch_size=FLAGS.batch_size)
        answers = answer(predictor, read_input(predictor))
        if FLAGS.output_file:  # otherwise the answers themselves show how far it is
            total = num_lines(FLAGS.input_file) if FLAGS.input_file else None
            answers = counted(answers, "answer", total, "lines")
        count = write_lines(file, answers)
    if FLAGS.output_file:
        logging.info("Wrote %s to %s", number_of(count, "answers"), FLAGS.output_file)


def read_input(predictor: Predictor) -> Iterator[Any]:
    """What is asked, an item for each line."""
    metadata, path = predictor.model.metadata, FLAGS.input_file
    return rows.read_items(
        files.read_lines(path) if path else rows.lines_of(sys.stdin.buffer, STDIN),
        metadata,
        input_format=FLAGS.input_format or rows.format_of(path, metadata),
        name=path or STDIN,
    )


def answer(predictor: Predictor, items: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The answer to each item, with its `id` if it has one."""
    interactive = FLAGS.interactive
    if interactive is None:
        interactive = not FLAGS.input_file and sys.stdin.isatty()
    name = FLAGS.input_file or STDIN
    asked, again = itertools.tee(items)
    found = predictor.stream(
        asked, window=1 if interactive else None, place=lambda number: rows.place(name, number)
    )
    for one, item in zip(found, again, strict=False):  # the answer first: it reads the item
        has_id = isinstance(item, Mapping) and "id" in item
        yield ({"id": item["id"]} if has_id else {}) | one


@contextlib.contextmanager
def open_output() -> Iterator[BinaryIO]:
    """--output_file, which appears when it is whole, or standard output."""
    if not FLAGS.output_file:
        yield sys.stdout.buffer
        return
    with (
        files.whole_file(FLAGS.output_file) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as file,
    ):
        yield file


def write_lines(file: BinaryIO, answers: Iterable[dict[str, Any]]) -> int:
    """Writes answers as they come; returns how many there were."""
    count = 0
    for count, one in enumerate(answers, 1):  # noqa: B007
        # A lone surrogate, which JSON may hold and UTF-8 may not, becomes its JSON escape.
        file.write(json.dumps(one, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        if not FLAGS.output_file:
            file.flush()  # someone may wait for it
    return count


if __name__ == "__main__":
    cli.run(main)
