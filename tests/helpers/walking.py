"""Tiny input files, and the real scripts run in new processes or in this one."""

import contextlib
import importlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest.mock
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import BertConfig, BertModel
from bert_tf.__main__ import VERBS
from bert_tf.checkpoints.tf1 import CheckpointReader, write_checkpoint
from bert_tf.cli.flags import parse
from bert_tf.cli.main import options_class
from bert_tf.data import records as record_files
from bert_tf.data.records import Record, description_path, pretraining_record
from bert_tf.data.shards import find_blocks
from bert_tf.modeling.names import checkpoint_name
from bert_tf.options import options_of
from bert_tf.serving.signatures import Signature
from bert_tf.tokenization.wordpiece import vocabulary_sha256

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 900  # a script that runs longer hangs; generous, because the machine may be busy
TINY = {
    "vocab_size": 101, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 20, "max_position_embeddings": 24, "type_vocab_size": 2,
}  # fmt: skip
SIZES = {"max_seq_length": 17, "max_predictions_per_seq": 5}
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Small models do not train faster with better compiled code, and this saves a third of the time.
COMPILE_QUICKLY = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}


def write_config(path: pathlib.Path, **changes: Any) -> pathlib.Path:
    """Writes a bert_config.json of the tiny model; returns the path."""
    path.write_text(json.dumps(TINY | changes), encoding="utf-8")
    return path


def write_vocabulary(path: pathlib.Path, num_pieces: int = TINY["vocab_size"]) -> pathlib.Path:
    """Writes a vocabulary of the special pieces and of different words; returns the path."""
    words = [f"w{number}" for number in range(num_pieces - len(SPECIAL_PIECES))]
    path.write_text("\n".join([*SPECIAL_PIECES, *words]) + "\n", encoding="utf-8")
    return path


def write_encoder(folder: pathlib.Path, *, scale: float = 1.0, **config: Any) -> None:
    """Writes an encoder with random weights in the layout of a pre-trained one.

    Args:
      folder: the folder for configuration, vocabulary and checkpoint.
      scale: a factor for all weights but those of normalizations. Large weights learn in few steps.
      **config: changes of the tiny configuration.
    """
    config = BertConfig.from_json_file(write_config(folder / "bert_config.json", **config))
    write_vocabulary(folder / "vocab.txt")
    keras.utils.set_random_seed(3)
    tensors = {checkpoint_name(v): v.numpy() for v in BertModel(config).trainable_variables}
    tensors = {name: v if "LayerNorm" in name else scale * v for name, v in tensors.items()}
    write_checkpoint(str(folder / "bert_model.ckpt"), tensors, temporary=str(folder / "new"))


def write_records(
    path: pathlib.Path, num_records: int, *, seed: int, next_sentence: bool = True
) -> pathlib.Path:
    """Writes a TFRecord file of random examples of all lengths; returns its path."""
    record = pretraining_record(**SIZES, next_sentence=next_sentence)
    generator = np.random.default_rng(seed)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(num_records):
            writer.write(record.serialize(random_example(generator, record)))
    return path


def index_with_blocks_of(num_bytes: int, *paths: pathlib.Path) -> None:
    """Writes indexes of smaller blocks than usual, so that a few records have several blocks."""
    with unittest.mock.patch.object(record_files, "BLOCK_BYTES", num_bytes):
        for path in paths:
            with path.open("rb") as file:
                index = find_blocks(file, path.stat().st_size)
            pathlib.Path(record_files.index_path(str(path))).write_text(index.to_json_string())


def describe(records: pathlib.Path, vocab_file: pathlib.Path, **changes: Any) -> None:
    """Writes the description that data generation writes beside records."""
    pieces = vocab_file.read_text(encoding="utf-8").splitlines()
    values = {
        "bert_tf_version": "0.2.0", "do_lower_case": False, "vocab_file": vocab_file.name,
        "vocab_sha256": vocabulary_sha256(pieces), "vocab_size": len(pieces), **SIZES,
        "masked_lm_prob": 0.15, "short_seq_prob": 0.1, "do_whole_word_mask": True, "dupe_factor": 5,
        "random_seed": 12345, "shard": 1, "num_shards": 1,
        "num_records": sum(1 for _ in tf.data.TFRecordDataset(str(records))),
        "num_bytes": records.stat().st_size,
    }  # fmt: skip
    description = pathlib.Path(description_path(str(records)))
    description.write_text(json.dumps(values | changes), encoding="utf-8")


def random_example(generator: np.random.Generator, record: Record) -> dict:
    """An example as data generation makes it: padding at the end, few or many masked pieces."""
    sizes = {feature.name: feature.size for feature in record.features}
    length = int(generator.integers(sizes["input_ids"] // 2, sizes["input_ids"] + 1))
    num_masked = int(generator.integers(1, sizes["masked_lm_ids"] + 1))
    num_first = length // 2  # tokens of the first segment
    positions = generator.choice(np.arange(1, length), num_masked, replace=False)

    def ids(count: int) -> list[int]:
        return generator.integers(len(SPECIAL_PIECES), TINY["vocab_size"], count).tolist()

    example = {
        "input_ids": ids(length),
        "input_mask": [1] * length,
        "segment_ids": [0] * num_first + [1] * (length - num_first),
        "masked_lm_positions": sorted(positions.tolist()),
        "masked_lm_ids": ids(num_masked),
        "masked_lm_weights": [1.0] * num_masked,
        "next_sentence_labels": [int(generator.integers(2))],
    }
    padded = {}
    for name, size in sizes.items():
        padding = [0] * (size - len(example[name]))
        padded[name] = example[name] + padding
    return padded


def squad_file(num_questions: int, *, seed: int) -> dict:
    """Questions for the word that follows w1. A third of the contexts have no w1: no answer."""
    random = np.random.default_rng(seed)
    paragraphs = []
    for number in range(num_questions):
        words = [f"w{n}" for n in random.integers(2, 60, random.integers(3, 30))]
        answers = []
        impossible = bool(random.integers(3) == 0)
        if not impossible:
            place = int(random.integers(len(words) - 1))
            words[place] = "w1"
            start = len(" ".join(words[: place + 1])) + 1
            answers = [{"text": words[place + 1], "answer_start": start}]
        question = {"id": f"q{number}", "question": "w1 w60", "answers": answers}
        question["is_impossible"] = impossible
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}


def read_results(folder: pathlib.Path) -> dict[str, float]:
    """The numbers of an eval_results.txt."""
    results = {}
    for line in (folder / "eval_results.txt").read_text().splitlines():
        key, value = line.split(" = ")
        results[key] = float(value)
    return results


def read_tensors(path: pathlib.Path) -> dict[str, Any]:
    """All tensors of a checkpoint, or of the latest checkpoint of a folder."""
    reader = CheckpointReader(path)
    return {name: reader.read(name) for name in reader.shapes}


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Bytes of every file below a folder, by its path in the folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def results_of(folder: pathlib.Path) -> dict[str, bytes]:
    """All files of a run without its summaries and run.json, which hold the time of day."""
    timed = re.compile(r"tfevents|run\.json")
    return {name: data for name, data in contents(folder).items() if not timed.search(name)}


def command(script: str, *words: str, **flags: Any) -> list[str]:
    """The command line of a script or verb; True gives --flag, None leaves the flag out."""
    flag_words = []
    for name, value in flags.items():
        if value is True:
            flag_words.append(f"--{name}")
        elif value is not None:
            flag_words.append(f"--{name}={value}")
    program = [str(ROOT / script)] if script.endswith(".py") else ["-m", "bert_tf", script]
    return [sys.executable, *program, *words, *flag_words]


def run(script: str, *words: str, code: int = 0, **flags: Any) -> subprocess.CompletedProcess:
    """Runs a script in a new process, and asserts its exit code."""
    ended = subprocess.run(
        command(script, *words, **flags),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, **COMPILE_QUICKLY},
    )
    assert ended.returncode == code, ended.stderr
    return ended


def module_of(script: str) -> Any:
    """The module of a script or verb."""
    name = pathlib.Path(script).stem if script.endswith(".py") else VERBS[script][0]
    return importlib.import_module(name)


def flags_of(script: str) -> set[str]:
    """The names of the flags of a script or verb, without absl's."""
    options = options_of(options_class(module_of(script).main))
    return {option.flag for option in options if not option.says("words")}


def parsed(script: str, *words: str, **flags: Any) -> Any:
    """The options of a script or verb, parsed from a command line."""
    line = command(script, *words, **flags)
    program = line.index(script if script in VERBS else str(ROOT / script))
    return parse(options_class(module_of(script).main), line[program:])


@contextlib.contextmanager
def in_process(script: str) -> Iterator[Callable[..., None]]:
    """Yields a script's `main` as a function of words and flags, for calls in this process.

    The function raises `InputError` where the script would print a message. It restores the
    environment and the handler of SIGTERM, which a script sets for its process.
    """
    module = module_of(script)
    cls = options_class(module.main)
    program = script if script in VERBS else str(ROOT / script)
    has_strategy = any(option.name == "strategy" for option in options_of(cls))

    def call(*words: str, **flags: Any) -> None:
        names = {word.lstrip("-").partition("=")[0] for word in words}
        names |= flags.keys()
        if has_strategy and not names & {"strategy", "tpu"}:
            flags["strategy"] = "one"  # two mirrored strategies in a process disturb each other
        line = command(script, *words, **flags)
        handler = signal.getsignal(signal.SIGTERM)
        try:
            with unittest.mock.patch.dict(os.environ):
                module.main(parse(cls, line[line.index(program) :]))
        finally:
            signal.signal(signal.SIGTERM, handler)

    yield call


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Runs steps without graphs: for small models, tracing takes longer than it saves."""
    before = tf.config.functions_run_eagerly()
    with warnings.catch_warnings():
        # TensorFlow warns that the maps of tf.data are traced all the same.
        warnings.filterwarnings("ignore", "Even though the `tf.config")
        tf.config.run_functions_eagerly(True)
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(before)


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """As `eagerly`, and checkpoints answer without graphs too. Nothing can be exported."""
    plain = unittest.mock.patch.object(Signature, "traced", lambda self: self.function)
    with plain, eagerly():
        yield
