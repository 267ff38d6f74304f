"""The verbs that ask a model: predict, serve, fill-mask, score.

Their functions import what loads TensorFlow: flags are parsed first.
"""

import codecs
import contextlib
import csv
import dataclasses
import io
import itertools
import json
import re
import sys
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from absl import flags, logging

from bert_tf import files
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import model_flags
from bert_tf.cli.flags import YES_OR_NO, Choice, Count, Number, Path, verb
from bert_tf.errors import InputError
from bert_tf.serving.options import INPUT_FORMATS, MASK, STDIN, TASKS
from bert_tf.terminal import Progress, counted, number_of

FLAGS = flags.FLAGS
TABLES = ("csv", "tsv")  # outputs of `predict`
ANSWERED = ("classification", "multi_label", "regression")  # with a cell or some, unless empty
UNSURE = "unsure"


class Files:
    """What is asked, and where the answers go.

    Attributes:
      input_file: The inputs, one a line; default: standard input.
      output_file: JSON lines; default: standard output.
      batch_size: Rows computed at a time.
    """

    input_file = Path()
    output_file = Path()
    batch_size = 32


class Model:
    """What the files of a folder with weights do not say.

    Attributes:
      task: Of a folder with weights: what the model does, where its files do not say it.
      labels: Of a folder with weights: names of the classes, in order where its files do not name
        them.
      pairs: Of a folder with weights: it was trained on pairs of texts.
      max_seq_length: Of a folder with weights: most tokens of a text.
    """

    task = Choice(None, TASKS)
    labels = ()
    pairs = YES_OR_NO
    max_seq_length = Count(None)


def make_predictor(path: str, **arguments: Any) -> Any:
    """The `Predictor` of the model at a path, by the flags of `Model` and further arguments."""
    from bert_tf.serving.predictor import Predictor

    names = ("task", "pairs", "max_seq_length", "bert_config_file", "vocab_file")
    options = {name: FLAGS[name].value for name in names}
    options |= {"do_lower_case": shared_flags.given_case(), "labels": tuple(FLAGS.labels) or None}
    with Progress(f"load {path}"):
        return Predictor(path, **arguments, **options)


# ---------------------------------------------------------------------------- predict


class Predict:
    """The flags of predict.

    Attributes:
      model: An export (its latest version, or that of serving/topics/3), or a folder with
        weights, local or remote; or hf:OWNER/NAME[@REVISION].
      input_format: text: a text a line. tsv: texts with tabs between, or columns as in training.
        csv: columns. conll: a word a line. jsonl: JSON strings, lists or objects. Of columns and
        objects, `id` is passed on. Default: by the file's ending, or the tags in its first lines;
        else text, or tsv for models of several texts.
      text_a_column: The column of the text; default: as in training.
      text_b_column: The column of the second text; default: as in training.
      id_column: The column that is passed on as `id`.
      encoding: Of the input, such as cp1252. Default: UTF-8, or UTF-16 with its mark.
      probabilities: In a .csv or .tsv, also a column for the probability of each label.
      min_probability: Of one of several labels: below it the answer is "unsure".
    """

    _acts = """
        output_file=*.csv output_file=*.tsv: probabilities"""
    model = Path(required=True)
    input_format = Choice(None, INPUT_FORMATS)
    text_a_column = None
    text_b_column = None
    id_column = "id"
    encoding = ""
    probabilities = False
    min_probability = Number(0.0, 0.0, 1.0)


@verb(Predict, Files, Model, model_flags.ModelFiles)
def predict(_: Sequence[str]) -> None:
    """Answers of a model to texts: for a line a line of JSON, or for a table its columns and more.

        bert-tf predict --model=/serving/mrpc --input_file=pairs.tsv --output_file=answers.jsonl
        bert-tf predict --model=/models/topics --input_file=test.csv --output_file=answers.csv
        bert-tf predict --model=/serving/squad < questions.jsonl
        echo "A fine film." | bert-tf predict --model=/models/sst2

    The model is an export of bert-tf export, or the folder of a checkpoint. A file of any size
    takes the same memory, but for csv, conll and tsv with columns, read whole as in training. A
    text that is empty has no label and no score: null, or an empty cell. A .csv is written as the
    .csv that is read: with its separator, and with a mark of UTF-8 unless that is plain UTF-8.
    """
    from bert_tf.serving import rows

    path, columns = FLAGS.input_file, (FLAGS.text_a_column, FLAGS.text_b_column)
    with open_output(*TABLES) as file:  # before the model is loaded: it may be refused
        predictor = make_predictor(FLAGS.model, batch_size=FLAGS.batch_size)
        told = {"input_format": FLAGS.input_format, "given": columns}
        told |= {"id_column": FLAGS.id_column, "encoding": FLAGS.encoding}
        items = rows.read_inputs(path, predictor.model.metadata, **told)
        options = {"least": FLAGS.min_probability, "id_key": FLAGS.id_column}
        answers = answer(predictor, items, **options)
        if FLAGS.output_file:  # otherwise the answers themselves show how far it is
            total = len(items) if isinstance(items, list) else path and rows.num_lines(path)
            answers = counted(answers, "answer", total, "inputs")
        kind = shared_flags.format_of(FLAGS.output_file or "", ("jsonl", *TABLES))
        if kind in TABLES:
            count = write_table(file, predictor, items, answers, kind)
        else:
            count = write_lines(file, answers)
    if FLAGS.output_file:
        logging.info("Wrote %s to %s", number_of(count, "answers"), FLAGS.output_file)


def answer(
    predictor: Any, items: Iterable[tuple[str, Any]], *, least: float = 0.0, id_key: str = "id"
) -> Iterator[dict[str, Any]]:
    """The answer to each item, of which the place is given too, with its `id` if it has one.

    One whose probability is below `least` is UNSURE; of empty texts there is none. In
    objects that are no rows of a table the id is at `id_key`.

    Raises:
      InputError: an object lacks an `id_key` that is not "id"; or as of `Predictor.stream`.
    """
    from bert_tf.serving.rows import Item, RowReader

    if least and predictor.task != "classification":
        received = f"--min_probability={least} for a model of {predictor.task}"
        raise InputError(received, "a model of one of several labels", "leave it out")
    reader, (asked, again) = RowReader(predictor.model.metadata), itertools.tee(items)
    num_unmasked = 0
    rows, held = itertools.tee(reader.read(item, place) for place, item in asked)
    for one, row, (place, item) in zip(predictor.stream(rows), held, again, strict=True):
        key = "id" if isinstance(item, Item) else id_key
        has_id = isinstance(item, Mapping) and key in item
        if key != "id" and not has_id:
            remedy = "correct --id_column"
            raise InputError(f"{place} without {key!r}", "an object with this key", remedy)
        if predictor.task in ANSWERED and not any(text.strip() for text in row.values()):
            one = dict.fromkeys(one)
        elif least and one["probability"] < least:
            one = one | {"label": UNSURE}
        num_unmasked += predictor.task == "fill_mask" and not one["num_masks"]
        yield ({"id": item[key]} if has_id else {}) | one
    if num_unmasked:
        says = "%s without %s: no answer. For vectors of texts give --task=embeddings."
        logging.warning(says, number_of(num_unmasked, "texts"), MASK)


def write_table(
    file: BinaryIO,
    predictor: Any,
    items: Iterable[tuple[str, Any]],
    answers: Iterable[dict[str, Any]],
    kind: str,
) -> int:
    """Writes the columns of a table, and behind them what is answered; returns the rows.

    Raises:
      InputError: the items are no rows of a table, or the answers no cells; or a cell of a tsv has
        a tab or a line end.
    """
    if predictor.task not in ANSWERED or not isinstance(items, list) or not items:
        received = f"{FLAGS.output_file} for answers of {predictor.task} to {FLAGS.input_file}"
        wanted = "a table with columns and rows, and a model that labels or scores its texts"
        raise InputError(received, wanted, "write JSON lines: name the output .jsonl")
    columns, delimiter, count = items[0][1].names, items[0][1].separator, 0
    if kind == "csv" and (FLAGS.encoding or files.is_marked(FLAGS.input_file)):
        file.write(codecs.BOM_UTF8)

    def write(*cells: Any) -> None:
        texts = ["" if cell is None else str(cell) for cell in cells]
        if kind == "tsv":  # where quotes are text
            if wrong := [text for text in texts if re.search(r"[\t\r\n]", text)]:
                received = f"{wrong[0]!r:.80} as a cell of {FLAGS.output_file}"
                raise InputError(received, "cells without tabs and line ends", "name it .csv")
            file.write("\t".join(texts).encode() + b"\n")
            return
        row = io.StringIO(newline="")
        csv.writer(row, delimiter=delimiter).writerow(texts)
        file.write(row.getvalue().encode())

    def new(name: str) -> str:
        name = f"predicted_{name}" if name in columns else name
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        return name if name not in columns else next(n for n in numbered if n not in columns)

    for count, ((_, item), one) in enumerate(zip(items, answers, strict=True), 1):
        cells = cells_of(one, predictor.model.metadata["options"].get("labels") or ())
        if count == 1:
            write(*columns, *map(new, cells))
        write(*item.cells, *cells.values())
    return count


def cells_of(answer: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The cells of an answer: label or labels, probability, score; with --probabilities each."""
    shares = answer.get("probabilities") or [None] * len(names)
    cells = {name: answer[name] for name in ("label", "probability", "score") if name in answer}
    if "applies" in answer:
        cells = {"labels": ";".join(itertools.compress(names, answer["applies"] or ()))}
    if FLAGS.probabilities:
        cells |= {f"probability_{name}": share for name, share in zip(names, shares, strict=True)}
    return cells


@contextlib.contextmanager
def open_output(*tables: str) -> Iterator[BinaryIO]:
    """--output_file, which appears when it is whole, or standard output."""
    import tensorflow as tf

    if not FLAGS.output_file:
        yield sys.stdout.buffer
        return
    shared_flags.written_format(FLAGS.output_file, ("jsonl", *tables))
    with (
        files.published(FLAGS.output_file) as temporary,
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


# ---------------------------------------------------------------------------- serve


def one_path(words: Sequence[str]) -> None:
    """Refuses all but one path."""
    if len(words) != 1:
        expected = "one: an export, or a folder with weights"
        raise InputError(f"{len(words)} paths", expected, "write the verb, then PATH")


class Service:
    """What a client of the model says.

    Attributes:
      name: The model's name in paths, /v1/models/NAME; default: that of its folder.
      host: The address to listen on; 0.0.0.0: all of this machine. The page is on loopback alone.
      port: The port to listen on; 0: one that is free.
    """

    name = None
    host = "127.0.0.1"
    port = Count(8501, 0, 2**16 - 1)


@verb(Service, Model, model_flags.ModelFiles, check=one_path)
def serve(argv: Sequence[str]) -> None:
    """Answers requests as TensorFlow Serving does, by its REST interface; and shows a page.

        bert-tf serve models/topics
        curl -d '{"instances": ["Rain in May"]}' http://localhost:8501/v1/models/topics:predict

    Takes an export of `bert-tf export`, or a folder with weights. Requests that come while the
    model runs are answered together. There is no log-in and no TLS: put a proxy before it.
    """
    from bert_tf.playground.api import Playground
    from bert_tf.playground.rest import RestModel
    from bert_tf.playground.server import Server

    parts = [part for part in argv[1].split("/") if not part.isdecimal()]  # versions
    name = FLAGS.name or next((one for one in reversed(parts) if one.strip(".")), "model")
    with Server(host=FLAGS.host, port=FLAGS.port) as server:  # at once: the port may be taken
        predictor = make_predictor(argv[1])
        server.rest, server.playground = RestModel(predictor.model, name), Playground(predictor)
        with Progress("compile"):
            server.playground.warm_up()
        shown = f", with a page at {server.url}" * server.has_page
        url = f"{server.url}v1/models/{urllib.parse.quote(name, safe='')}:predict"
        told = f"{argv[1]} is served at {url}{shown} (Ctrl-C stops it)"
        print(told, file=sys.stderr, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        print(file=sys.stderr)


# ---------------------------------------------------------------------------- fill-mask


class TopK:
    """How many guesses.

    Attributes:
      top_k: Guesses for each [MASK].
    """

    top_k = 5


@verb(TopK, model_flags.define_pretrained, check=lambda _: None)
def fill_mask(argv: Sequence[str]) -> None:
    """Shows which tokens a pre-trained BERT expects in the place of each [MASK].

        bert-tf fill-mask --init_checkpoint=/models/mine "Bread is made from [MASK] and water."

    The folder of a run holds all that is needed; otherwise give --bert_config_file and
    --vocab_file.
    """
    from bert_tf.serving.predictor import Predictor

    predictor = Predictor(
        FLAGS.init_checkpoint,
        task="fill_mask",
        top_k=FLAGS.top_k,
        bert_config_file=FLAGS.bert_config_file,
        vocab_file=FLAGS.vocab_file,
        do_lower_case=shared_flags.given_case(),
    )
    for text in argv[1:] or filter(None, map(str.strip, read_texts())):
        print(text)
        (found,) = predictor.predict([text])
        if not found["num_masks"]:
            expected = f"a text with {MASK} among the tokens that the model reads"
            raise InputError(f"{text!r:.200}", expected, "write it for the word to guess")
        guesses = zip(found["pieces"], found["probabilities"], strict=True)
        for number, (pieces, shares) in enumerate(guesses, 1):
            listed = (f"{p} {percent(share)}" for p, share in zip(pieces, shares, strict=True))
            print(f"  [MASK] {number}: {'  '.join(listed)}")


def percent(probability: float) -> str:
    """With one decimal; small ones with two digits."""
    return f"{probability:.1%}" if probability >= 0.001 else f"{100 * probability:.2g}%"


# ---------------------------------------------------------------------------- score


def one_source(texts: Sequence[str]) -> None:
    """Refuses texts of two sources, of which one would not be scored."""
    if texts and FLAGS.input_file:
        received = f"--input_file with the text {texts[0]!r:.60}"
        raise InputError(received, "texts from one source", "leave out one of the two")


@verb(Files, model_flags.define_pretrained, check=one_source)
def score(argv: Sequence[str]) -> None:
    """Scores lines of text by a pre-trained BERT: how likely it finds them.

        bert-tf score --init_checkpoint=/models/mine "The cat sat." "Cat the sat."
        bert-tf score --init_checkpoint=/models/mine --input_file=lines.txt --output_file=s.jsonl

    Each token is masked in turn and predicted from the others (Salazar et al., 2020). A line of
    JSON for each line of text: `score`, the sum of the natural logarithms of the probabilities,
    higher for the likelier; `tokens`, how many were predicted; `perplexity`, exp(-score / tokens),
    lower for the likelier, to compare texts of different lengths. A token of a text that is longer
    than the model's maximum is predicted from the tokens around it.

    The folder of a run holds all that is needed; otherwise give --bert_config_file and
    --vocab_file.
    """
    from bert_tf.checkpoints.loading import open_weights
    from bert_tf.checkpoints.matching import load_checkpoint
    from bert_tf.cli.from_flags import complete_model
    from bert_tf.heads import ENCODER, make_model
    from bert_tf.library.models import length_of
    from bert_tf.serving import pretrained

    with open_output() as file:  # before the model is loaded: it may be refused
        given = complete_model(open_weights(FLAGS.init_checkpoint))
        model = make_model("fill_mask", given.config)
        load_checkpoint(model, given.source, required=f"{ENCODER}|cls/predictions/")
        length = length_of(given.source, given.config)
        batch_size = FLAGS.batch_size
        scorer = pretrained.Scorer(
            model, given.tokenizer, max_seq_length=length, batch_size=batch_size
        )
        count, total = 0, pretrained.Score(0.0, 0)
        for text in argv[1:] or read_texts(FLAGS.input_file):
            found = scorer.score(text)
            count, total = count + 1, total + found
            write_lines(file, [dataclasses.asdict(found) | {"perplexity": found.perplexity}])
    counts = f"{number_of(count, 'texts')}, {number_of(total.tokens, 'tokens')}"
    perplexity = total.perplexity and f"{total.perplexity:.6g}"
    logging.info("%s, pseudo-perplexity %s", counts, perplexity or "unknown")


def read_texts(path: str | None = None) -> Iterator[str]:
    """The lines of a file, else of the standard input."""
    from bert_tf.serving.rows import lines_of

    lines = files.read_lines(path) if path else lines_of(sys.stdin.buffer, STDIN)
    return (files.decoded(line, path or STDIN, number) for number, line in enumerate(lines, 1))
