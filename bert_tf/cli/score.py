"""Scores lines of text by a pre-trained BERT: how likely it finds them.

    bert-tf score --init_checkpoint=/models/mine "The cat sat." "Cat the sat."
    bert-tf score --init_checkpoint=/models/mine --input_file=lines.txt --output_file=scores.jsonl

Each token is masked in turn and predicted from the others (Salazar et al., 2020). A line of JSON
for each line of text: `score`, the sum of the natural logarithms of the probabilities, higher for
the likelier; `tokens`, how many were predicted; `perplexity`, exp(-score / tokens), lower for the
likelier, to compare texts of different lengths. A token of a text that is longer than the model's
maximum is predicted from the tokens around it.

The folder of a run holds all that is needed; otherwise give --bert_config_file and --vocab_file.
"""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags, logging

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    shared_flags.define_pretrained()
    flags.DEFINE_string(
        "input_file", None, "A text a line; default: the texts given, else standard input."
    )
    flags.DEFINE_string("output_file", None, "JSON lines; default: standard output.")
    shared_flags.define_count("batch_size", 32, "Masked copies of a text computed at a time.")


def check_flags(texts: Sequence[str]) -> None:
    """Refuses texts of two sources."""
    if texts and FLAGS.input_file:
        raise InputError(
            f"--input_file with the text {texts[0]!r:.60}",
            "texts from one source",
            "leave out one of the two",
        )


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

from bert_tf import files
from bert_tf.cli import from_flags
from bert_tf.cli.predict import STDIN, open_output, write_lines
from bert_tf.serving import rows
from bert_tf.serving.pretrained import Scorer
from bert_tf.squad.evaluation import Score
from bert_tf.terminal import number_of


def main(argv: Sequence[str]) -> None:
    """Flags -> model -> lines -> scores -> lines."""
    with open_output() as file:  # before the model is loaded: it may be refused
        model, tokenizer, length = from_flags.open_masked_lm()
        scorer = Scorer(model, tokenizer, max_seq_length=length, batch_size=FLAGS.batch_size)
        total = Score(0.0, 0)

        def answers() -> Iterator[dict[str, Any]]:
            nonlocal total
            for text in read_texts(argv[1:]):
                found = scorer.score(text)
                total += found
                yield dataclasses.asdict(found) | {"perplexity": found.perplexity}

        count = write_lines(file, answers())
    counts = f"{number_of(count, 'texts')}, {number_of(total.tokens, 'tokens')}"
    perplexity = total.perplexity and f"{total.perplexity:.6g}"
    logging.info("%s, pseudo-perplexity %s", counts, perplexity or "unknown")


def read_texts(words: Sequence[str]) -> Iterator[str]:
    """The texts of the command, else the lines of a file."""
    yield from words
    if not words:
        name = FLAGS.input_file or STDIN
        stream = sys.stdin.buffer
        lines = files.read_lines(name) if FLAGS.input_file else rows.lines_of(stream, STDIN)
        yield from (files.decoded(line, name, number) for number, line in enumerate(lines, 1))


if __name__ == "__main__":
    cli.run(main)
