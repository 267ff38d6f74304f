"""Every verb and public function that takes a model or paths: its call and its answer.

In command lines MODEL is the path of the model, IN/... an input, OUT/... an output. A new verb, and
a new flag that takes a path, need an entry here: tests/matrix fails without it.
"""

import contextlib
import functools
import hashlib
import io
import json
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

import matrix_functions
import matrix_inputs
import matrix_models
import numpy as np
import walking

from bert_tf import Predictor
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import WRITTEN
from bert_tf.http.page import Page
from bert_tf.serving import options, portable
from bert_tf.serving.export import arrays_of

ALL = frozenset(matrix_models.HEADS)
FILL_MASK = frozenset({"pretraining", "fill_mask"})
WEIGHTS = frozenset(matrix_models.FORMATS) - {*matrix_models.EXPORTS}
SERVED = WEIGHTS | {options.SAVED_MODEL}
SECONDS = 600


class Ended(NamedTuple):
    """How a process ended.

    Attributes:
      code: its exit code.
      printed: its standard output.
      said: its standard error.
    """

    code: int
    printed: str
    said: str


class Answering(NamedTuple):
    """The places where a call that has ended left its results.

    Attributes:
      printed: what it printed on standard output.
      out: the folder of outputs.
      model: the path of the model.
    """

    printed: str
    out: pathlib.Path
    model: pathlib.Path


class Call(NamedTuple):
    """A command line, or a public function.

    Attributes:
      words: the words after bert-tf; empty for a function.
      answer: returns what the call computed, as plain data; tests compare it.
      heads: the heads of the models that it must answer for; it may refuse others. None: the call
        takes no model.
      formats: the formats that it must accept; it must refuse others.
      further: more words, for the calls whose style of paths is not "absolute".
      writes_model: whether its outputs lie in the folder of the model.
      refused: a part of the message, where this machine may have to refuse the call.
      start: runs the call in a new process; None: `run_apart` does.
    """

    words: str
    answer: Callable[[Answering], Any]
    heads: frozenset[str] | None = ALL
    formats: frozenset[str] = WEIGHTS
    further: str = ""
    writes_model: bool = False
    refused: str = ""
    start: Callable[..., Ended] | None = None


# ---------------------------------------------------------------------------- answers


def printed(ended: Answering) -> str:
    return ended.printed


def weights_printed(ended: Answering) -> list[str]:
    """The lines about weights, without those that name the file and the format."""
    return re.findall(r"^  (\S+ \[.*\]|\d+ weights.*)$", ended.printed, re.MULTILINE)


def lines_in(name: str) -> Callable[[Answering], list]:
    """Reads an output of JSON lines."""
    return lambda ended: [*map(json.loads, (ended.out / name).read_text().splitlines())]


def json_in(name: str) -> Callable[[Answering], Any]:
    return lambda ended: json.loads((ended.out / name).read_text())


def bytes_in(name: str) -> Callable[[Answering], str]:
    return lambda ended: hashlib.sha256((ended.out / name).read_bytes()).hexdigest()


def scores_in(name: str) -> Callable[[Answering], dict]:
    return lambda ended: walking.read_results(ended.out / name)


def weights_in(ended: Answering) -> list:
    """The weights that `convert` wrote."""
    return matrix_functions.of_weights(open_weights(ended.out / "new"))


def predictions_in(ended: Answering) -> list:
    """The scores, and the probabilities of the test data.

    The step is left out, because some formats do not store it.
    """
    table = (ended.out / "run/test_results.tsv").read_text()
    scores = walking.read_results(ended.out / "run")
    return [scores | {"global_step": None}, [*map(float, table.split())]]


def predictions_beside(ended: Answering) -> list:
    """As `predictions_in`, for outputs in the folder of the model."""
    return predictions_in(ended._replace(out=link_to(ended.model)))


def link_to(model: pathlib.Path) -> pathlib.Path:
    """A folder in which run is a link to the model."""
    folder = model.parent.parent / "seen"
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / "run").symlink_to(model)
    return folder


def export_in(ended: Answering) -> list:
    """The predictions of an exported SavedModel."""
    predictor = Predictor(ended.out / "export")
    return predictor.predict(matrix_functions.items_for(predictor))


def portable_in(name: str) -> Callable[[Answering], list]:
    """Runs an exported file for another runtime on random ids."""

    def answer(ended: Answering) -> list:
        folder = ended.out / "export/1"
        file = portable.FORMATS[name].file_name
        model = portable.FORMATS[name].load(str(folder / file), 1)
        specs = json.loads((folder / "export.json").read_text())["signatures"][options.FROM_IDS]
        outputs = model(random_features(specs))
        return [[key, matrix_functions.digest(outputs[key])] for key in sorted(outputs)]

    return answer


def random_features(specs: dict[str, dict]) -> dict[str, np.ndarray]:
    """Random inputs of a signature, int32: one row of 6 tokens without padding.

    Args:
      specs: the shape of each input, by name; None stands for a size that is not fixed.
    """
    limits = {"input_mask": 2, "segment_ids": 2, "masked_lm_positions": 5}  # of others 30
    rng = np.random.default_rng(3)
    features = {}
    for key, spec in sorted(specs.items()):
        sizes = [1, *[6] * (len(spec["shape"]) - 1)]
        shape = [size or free for size, free in zip(spec["shape"], sizes, strict=True)]
        low = 1 if key == "input_mask" else 0
        features[key] = rng.integers(low, limits.get(key, 30), shape).astype(np.int32)
    return features


# ---------------------------------------------------------------------------- the page


def start_page(command: list[str], **process: Any) -> Ended:
    """Starts a page in a new process, asks it for an answer, and stops it."""
    # A process in the background may ignore SIGINT.
    command = ["env", "--default-signal=INT", *command]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **process) as page:
        said = []
        for line in page.stderr:
            said.append(line)
            if match := re.search(r"is served at (http://[^/]+/)", line):
                url = match[1]
                texts = json.dumps({"texts": texts_of(ask(f"{url}/api/model"))}).encode()
                answer = ask(f"{url}/api/answer", texts)["answer"]
                page.send_signal(signal.SIGINT)
                said += page.stderr.readlines()
                return Ended(page.wait(SECONDS), json.dumps(answer), "".join(said))
        return Ended(page.wait(SECONDS), "", "".join(said))


def ask(url: str, data: bytes | None = None) -> Any:
    """The JSON that a URL answers; data is sent by POST."""
    url = re.sub("(?<!:)//", "/", url)
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        return json.load(response)


def texts_of(described: dict[str, Any]) -> dict[str, Any]:
    """Texts for a model, from what the page says about it."""
    if described["task"] == "fill_mask":
        return matrix_functions.MASKED[0]
    names = tuple(text["name"] for text in described["texts"])
    return matrix_functions.ITEMS[names][0]


def page_here(model: str) -> dict[str, Any]:
    """The page's answer, computed in this process."""
    served = Predictor(model).model
    page = Page(served)
    row = page.row({"texts": texts_of(page.describe())})
    return page.answer(row, served.run(arrays_of([row])))["answer"]


def page_answer(ended: Answering) -> Any:
    return json.loads(ended.printed)


# ---------------------------------------------------------------------------- the verbs

TRAIN = "--num_train_epochs=1 --train_batch_size=4 --learning_rate=0.01 --do_train"
LENGTH = f"--max_seq_length={matrix_models.LENGTH}"
RUN = f"--noxla {LENGTH} --output_dir=OUT/run"
SQUAD = "--doc_stride=3 --max_query_length=4 --version_2_with_negative --predict_file=IN/squad.json"
SIZES = " ".join(f"--{name}={value}" for name, value in matrix_inputs.SIZES.items())
FILES = "--bert_config_file=IN/bert_config.json --vocab_file=IN/vocab.txt"
CSV = "--task_name=csv --data_dir=IN/topics"
DATA = f"""--input_file=IN/corpus.txt --output_file=OUT/a.tfrecord --vocab_file=IN/vocab.txt
{SIZES}"""
PRETRAIN = f"""--input_file=IN/records.tfrecord --eval_input_file=IN/records.tfrecord {SIZES}
{FILES} --do_lower_case --output_dir=OUT/run --do_eval --eval_batch_size=4 --num_train_steps=2
--num_warmup_steps=0 --train_batch_size=4 --do_train --noxla --max_eval_steps=4"""
VERBS = {  # a verb with several calls has one name for each: the verb and a second word
    "data": Call(f"{DATA} --dupe_factor=2 --num_workers=1", bytes_in("a.tfrecord"), None,
                 further="--temp_dir=OUT/temp"),
    "beam-data": Call(DATA, bytes_in("a.tfrecord-00000-of-00001"), None,
                      further="--temp_dir=OUT/temp", refused="apache-beam is not installed"),
    "vocab": Call("--input_file=IN/corpus.txt --output_file=OUT/v.txt --vocab_size=40"
                  " --num_workers=1", bytes_in("v.txt"), None),
    "pretrain": Call(f"{PRETRAIN} --init_checkpoint=MODEL", scores_in("run"),
                     further="--export_dir=OUT/export"),
    "classify train": Call(
        f"{CSV} {RUN} {TRAIN} --do_eval --do_predict --init_checkpoint=MODEL", predictions_in,
        further=f"{FILES} --export_dir=OUT/export --train_file=train.csv --dev_file=dev.csv"
                " --test_file=test.csv --class_weights=IN/topics/weights.json"),
    "classify": Call(f"{CSV} {RUN} --do_eval --do_predict --init_checkpoint=MODEL", predictions_in,
                     frozenset({"classification"})),
    "classify again": Call(
        f"{CSV} --noxla {LENGTH} --output_dir=MODEL --do_eval --do_predict",
        predictions_beside, frozenset({"classification"}), frozenset({"run"}), writes_model=True),
    "squad train": Call(
        f"{SQUAD} {RUN} {TRAIN} --train_file=IN/squad.json --do_predict --init_checkpoint=MODEL",
        json_in("run/nbest_predictions.json"), further=f"{FILES} --export_dir=OUT/export"),
    "squad": Call(f"{SQUAD} {RUN} --do_predict --init_checkpoint=MODEL",
                  json_in("run/nbest_predictions.json"), frozenset({"question_answering"})),
    "evaluate-squad": Call(
        "IN/squad.json IN/predictions.json --na_prob_file=IN/null_odds.json --na_prob_thresh=9",
        printed, None),
    "features": Call("--input_file=IN/texts.txt --output_file=OUT/f.jsonl --init_checkpoint=MODEL"
                     f" --layers=-1,-2 {LENGTH}", lines_in("f.jsonl"),
                     further=FILES),
    "fill-mask": Call("--init_checkpoint=MODEL 'w1 [MASK] w30'", printed, FILL_MASK,
                      further=FILES),
    "score": Call("--init_checkpoint=MODEL --input_file=IN/texts.txt --output_file=OUT/s.jsonl",
                  lines_in("s.jsonl"), FILL_MASK, further=FILES),
    "predict": Call("--model=MODEL --input_file=IN/ITEMS --output_file=OUT/p.jsonl",
                    lines_in("p.jsonl"), formats=SERVED, further=FILES),
    **{f"export {name}": Call(
        f"--init_checkpoint=MODEL --export_dir=OUT/export --format={name}",
        export_in if name == options.SAVED_MODEL else portable_in(name), further=FILES)
       for name in options.EXPORT_FORMATS},
    **{f"convert to {name}": Call(f"--from=MODEL --to=OUT/new --format={name}", weights_in,
                                  further=FILES)
       for name in sorted(WRITTEN)},
    "convert strip": Call("strip --from=MODEL --to=OUT/new", weights_in),
    "convert inspect": Call("inspect --from=MODEL", weights_printed),
    "plan": Call(f"--bert_config_file=IN/bert_config.json {LENGTH}", printed, None),
    "plot": Call("--output_dir=IN/run --output_file=OUT/p.png", bytes_in("p.png"), None),
    "serve": Call("MODEL --port=0", page_answer, formats=SERVED, further=FILES, start=start_page),
}  # fmt: skip
TAKES_EXPORTS = {"Predictor"}  # functions that take exports as well as weights
WITHOUT_A_MODEL = {"FullTokenizer", "BertConfig"}


def function_call(name: str) -> Call:
    """The call of a public function."""
    heads = ALL
    if name in WITHOUT_A_MODEL:
        heads = None
    elif name == "Scorer":
        heads = FILL_MASK
    formats = SERVED if name in TAKES_EXPORTS else WEIGHTS
    return Call("", lambda ended: json.loads(ended.printed), heads, formats)


FUNCTIONS = {name: function_call(name) for name in matrix_functions.NAMES}
CALLS = VERBS | {f"bert_tf.{name}": call for name, call in FUNCTIONS.items()}
PATH = re.compile(r"\b(MODEL|IN|OUT)((?:/[\w.]+)*)")


def words_of(name: str, head: str | None, path: Callable[[str], str], *, further: bool) -> list:
    """The words of a verb's call after bert-tf.

    Args:
      name: a name of `VERBS`.
      head: the head of the model.
      path: returns how MODEL, IN/... or OUT/... is written in the command line.
      further: whether to add `Call.further`.
    """
    call = VERBS[name]
    line = f"{call.words} {call.further}" if further else call.words
    line = line.replace("IN/ITEMS", f"IN/{items_file(head)}")
    words = [PATH.sub(lambda match: path(match[0]), word) for word in shlex.split(line)]
    verb = name.split()[0]
    return [verb, *words]


@functools.cache
def items_file(head: str | None) -> str:
    """The name of the file of items for a model of this head."""
    if head in FILL_MASK:
        return "masked.jsonl"
    names = {
        "multiple_choice": "context_endings.jsonl",
        "question_answering": "question_context.jsonl",
    }
    return names.get(head, "text.jsonl")


def run_here(name: str, head: str | None, path: Callable[[str], str], *, further: bool) -> str:
    """Runs a call in this process; returns what it prints. Arguments as in `words_of`."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        if name not in VERBS:
            function = getattr(matrix_functions, name.removeprefix("bert_tf."))
            return json.dumps(function(path("MODEL"), path("IN"), path("OUT")))
        if name == "serve":
            return json.dumps(page_here(path("MODEL")))
        verb, *words = words_of(name, head, path, further=further)
        with walking.in_process(verb) as main:
            main(*words)
    return shown.getvalue()


def run_apart(
    name: str, head: str | None, path: Callable[[str], str], *, further: bool, **process: Any
) -> Ended:
    """Runs a call in a new process; `process` goes to `subprocess.run`."""
    if name not in VERBS:
        script = matrix_functions.__file__
        function = name.removeprefix("bert_tf.")
        command = [sys.executable, script, function, path("MODEL"), path("IN"), path("OUT")]
    else:
        words = words_of(name, head, path, further=further)
        command = [sys.executable, "-m", "bert_tf", *words]
    if name in VERBS and VERBS[name].start:
        return VERBS[name].start(command, **process)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **process)
    return Ended(ended.returncode, ended.stdout, ended.stderr)
