"""Bad input of every kind: a message in three parts, exit code 1, no damaged or half-made file."""

import contextlib
import dataclasses
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from frames import framed
from walking import (
    SIZES,
    SPECIAL_PIECES,
    TINY,
    attempt,
    describe,
    in_process,
    write_config,
    write_records,
    write_vocabulary,
)

from bert_tf.checkpoints.tf1 import write_checkpoint
from bert_tf.errors import InputError
from bert_tf.files import LONGEST_LINE

pytestmark = pytest.mark.walk
PRETRAIN, CREATE = "run_pretraining.py", "create_pretraining_data.py"
# What a process adds: the exit code, the message without a traceback, and no waiting at the end,
# also where the error comes out of the pipeline of the data while it trains.
THROUGH_THE_SCRIPT = ("ids beyond the table", "text not UTF-8")


@dataclasses.dataclass(frozen=True)
class Case:
    """Flags that differ from those of a good run, what must be said, and how to make the input."""

    name: str
    script: str
    says: str
    flags: dict[str, Any]  # {} in a value stands for the folder
    prepare: Callable[[pathlib.Path], Any] = lambda folder: None


def file(name: str, content: bytes) -> Callable[[pathlib.Path], Any]:
    """Writes a file."""
    return lambda folder: (folder / name).write_bytes(content)


def changed(name: str, change: Callable[[bytearray], bytes]) -> Callable[[pathlib.Path], Any]:
    """Writes a changed copy of the good records."""
    return lambda folder: (folder / name).write_bytes(
        change(bytearray((folder / "good.tfrecord").read_bytes()))
    )


def flip(content: bytearray) -> bytes:
    """One bit of the third quarter, the other way."""
    content[len(content) * 3 // 4] ^= 4
    return content


def checkpoint(name: str, **tensors: np.ndarray) -> Callable[[pathlib.Path], Any]:
    """Writes a checkpoint of those tensors."""
    return lambda folder: write_checkpoint(
        str(folder / name), tensors, temporary=str(folder / "temporary")
    )


def half_a_checkpoint(folder: pathlib.Path) -> None:
    """A checkpoint whose data are cut off."""
    checkpoint("half", **{"bert/pooler/dense/bias": np.zeros(4096, np.float32)})(folder)
    data = folder / "half.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])


EMPTY = file("empty", b"")
LATIN = file("latin.txt", b"A good line.\nCaf\xe9 au lait.\n\nMore.\n")
WORDS = [f"{letter}{n}" for letter, count in (("w", 1100), ("W", 50)) for n in range(count)]
CASED = file("cased.txt", "\n".join([*SPECIAL_PIECES, *WORDS]).encode())


def described(name: str = "good.tfrecord", **changes: Any) -> Callable[[pathlib.Path], Any]:
    """Writes the description of the good records, or of a copy."""

    def write(folder: pathlib.Path) -> None:
        if name != "good.tfrecord":
            shutil.copy(folder / "good.tfrecord", folder / name)
            describe(folder / "good.tfrecord", folder / "vocab.txt")
        describe(folder / name, folder / "vocab.txt", **changes)

    return write


def cut_at_the_end_of_a_record(folder: pathlib.Path) -> None:
    """Seven of eight records, and the description of all."""
    good, seven = folder / "good.tfrecord", folder / "seven.tfrecord"
    describe(good, folder / "vocab.txt")
    with tf.io.TFRecordWriter(str(seven)) as writer:
        for record in tf.data.TFRecordDataset(str(good)).take(7):
            writer.write(record.numpy())
    seven.replace(good)


def model_of_another_case(folder: pathlib.Path) -> None:
    """A folder whose model says that its text was lower-cased."""
    described()(folder)
    tensors = {"bert/pooler/dense/bias": np.zeros(3, np.float32)}
    (folder / "lower").mkdir()
    write_checkpoint(str(folder / "lower/model.ckpt"), tensors, temporary=str(folder / "temporary"))
    (folder / "lower/model_facts.json").write_text('{"do_lower_case": true}')


NO_MASK = file("no_mask.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
OTHER = checkpoint("other", wte=np.zeros([3, 2], np.float32))
CASES = (
    Case("neither train nor eval", PRETRAIN, "--do_train", {"do_train": None}),
    Case(
        "a TPU of another machine", PRETRAIN, "with the TPU node-1",
        {"strategy": None, "tpu": "node-1"},
    ),
    Case("no such file", PRETRAIN, "matches no file", {"input_file": "{}/nothing*"}),
    Case("empty records", PRETRAIN, "empty file", {"input_file": "{}/empty"}, EMPTY),
    Case(
        "truncated records", PRETRAIN, "cut off after 7 records", {"input_file": "{}/cut"},
        changed("cut", lambda content: content[:-9]),
    ),
    Case(
        "flipped bit", PRETRAIN, "damaged", {"input_file": "{}/flipped"}, changed("flipped", flip)
    ),
    Case(
        "other predictions", PRETRAIN, "--max_predictions_per_seq=5", {"max_predictions_per_seq": 6}
    ),
    Case("beyond positions", PRETRAIN, "max_position_embeddings", {"max_seq_length": 25}),
    Case(
        "ids beyond the table", PRETRAIN, "good.tfrecord, record",
        {"bert_config_file": "{}/small.json"},
        lambda folder: write_config(folder / "small.json", vocab_size=23),
    ),
    Case(
        "segments beyond the table", PRETRAIN, "with the segment_ids 1",
        {"bert_config_file": "{}/small.json"},
        lambda folder: write_config(folder / "small.json", type_vocab_size=1),
    ),
    Case(
        "a record of 2**62 bytes", PRETRAIN, "cut off after 8 records", {"input_file": "{}/long"},
        changed("long", lambda content: content + framed(b"", length=2**62)),
    ),
    Case(
        "a later record that is none", PRETRAIN, "record 9, a record that is not a tf.train.Exa",
        {"input_file": "{}/other", "train_batch_size": 9},
        changed("other", lambda content: content + framed(b"\xff" * 60)),
    ),
    Case(
        "vocabulary beyond the table", PRETRAIN, "vocab_size",
        {"vocab_file": "{}/long.txt", "do_lower_case": True},
        lambda folder: write_vocabulary(folder / "long.txt", TINY["vocab_size"] + 1),
    ),
    Case(
        "case not told", PRETRAIN, "--nodo_lower_case",
        {"vocab_file": "{}/vocab.txt", "export_dir": "{}/serving"},
    ),
    Case("loss not finite", PRETRAIN, "finite", {"learning_rate": 1e30, "num_train_steps": 30}),
    Case(
        "output below a file", PRETRAIN, "cannot be written", {"output_dir": "{}/good.tfrecord/run"}
    ),
    Case("checkpoint missing", PRETRAIN, "no checkpoint", {"init_checkpoint": "{}/nowhere"}),
    Case("checkpoint of another model", PRETRAIN, "without a BERT encoder",
         {"init_checkpoint": "{}/other"}, OTHER),
    Case("half a checkpoint", PRETRAIN, "half", {"init_checkpoint": "{}/half"}, half_a_checkpoint),
    Case(
        "case of other data", PRETRAIN, "False in info_*.json", {"do_lower_case": True}, described()
    ),
    Case(
        "data of two cases", PRETRAIN, "do_lower_case",
        {"eval_input_file": "{}/x", "do_eval": True}, described("x", do_lower_case=True),
    ),
    Case(
        "data of two vocabularies", PRETRAIN, "vocab_sha256",
        {"input_file": "{}/good.tfrecord,{}/x"}, described("x", vocab_sha256="12"),
    ),
    Case(
        "some data described", PRETRAIN, "x, without",
        {"input_file": "{}/*.tfrecord,{}/x", "vocab_file": "{}/vocab.txt"},
        lambda folder: (described("x")(folder), (folder / "info_x.json").unlink()),
    ),
    Case(
        "vocabulary of other data", PRETRAIN, "another vocabulary: vocab.txt with 101",
        {"vocab_file": "{}/fewer.txt"},
        lambda folder: (write_vocabulary(folder / "fewer.txt", 99), described()(folder)),
    ),
    Case(
        "vocabulary of data beyond the table", PRETRAIN, "vocab_size",
        {"bert_config_file": "{}/small.json"},
        lambda folder: (write_config(folder / "small.json", vocab_size=99), described()(folder)),
    ),
    Case("cut at the end of a record", PRETRAIN, "7 records", {}, cut_at_the_end_of_a_record),
    Case("model of another case", PRETRAIN, "whose model says do_lower_case True",
         {"init_checkpoint": "{}/lower"}, model_of_another_case),
    Case("description of another kind", PRETRAIN, "info_good.tfrecord.json with",
         {}, described(do_lower_case="no")),
    Case(
        "cased vocabulary", CREATE, "use --nodo_lower_case", {"vocab_file": "{}/cased.txt"}, CASED
    ),
    Case("case of a small vocabulary", CREATE, "--do_lower_case or --nodo_lower_case",
         {"vocab_file": "{}/small.txt"},
         file("small.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nParis\nthe\n")),
    Case("wikiextractor", CREATE, "wiki.txt, line 2", {"input_file": "{}/wiki.txt"},
         file("wiki.txt", b'One.\n<doc id="1" url="http://x" title="T">\nT\n')),
    Case("endless line", CREATE, "long.txt, line 2, which is longer than",
         {"input_file": "{}/long.txt"}, file("long.txt", b"w.\n" + b"w" * (LONGEST_LINE + 1))),
    Case("text not UTF-8", CREATE, "latin.txt, line 2", {"input_file": "{}/latin.txt"}, LATIN),
    Case("no [MASK]", CREATE, "[MASK]", {"vocab_file": "{}/no_mask.txt"}, NO_MASK),
    Case("records below a file", CREATE, "text.txt", {"output_file": "{}/text.txt/x.tfrecord"}),
)  # fmt: skip
GOOD_FLAGS = {
    CREATE: {
        "input_file": "{}/text.txt",
        "output_file": "{}/made.tfrecord",
        "vocab_file": "{}/vocab.txt",
        "num_workers": 1,
    },
    PRETRAIN: {
        "input_file": "{}/good.tfrecord",
        "bert_config_file": "{}/bert_config.json",
        "output_dir": "{}/run",
        "do_train": True,
        "strategy": "one",
        "train_batch_size": 4,
        "num_train_steps": 2,
        "num_warmup_steps": 0,
        **SIZES,
    },
}


def prepare(case: Case, folder: pathlib.Path) -> None:
    """Good input, and the bad one."""
    write_config(folder / "bert_config.json")
    write_vocabulary(folder / "vocab.txt")
    write_records(folder / "good.tfrecord", 8, seed=9)
    (folder / "text.txt").write_text("w1 w2 w3.\nw4 w5.\n\nw6 w7.\nw8 w9 w1.\n")
    case.prepare(folder)


def flags_of(case: Case, folder: pathlib.Path) -> dict[str, Any]:
    """The flags of a case in its folder."""
    return {
        name: value.replace("{}", str(folder)) if isinstance(value, str) else value
        for name, value in (GOOD_FLAGS[case.script] | case.flags).items()
    }


def check_what_is_left(folder: pathlib.Path, before: set[pathlib.Path]) -> None:
    """A run that began may leave its configuration and summaries: no checkpoint, no results."""
    left = (p.relative_to(folder) for p in folder.rglob("*") if p not in before and p.is_file())
    allowed = (
        "run/bert_config.json",
        "run/model_facts.json",
        "run/events.out.tfevents.",
        "run/eval/events.out.tfevents.",
        "index_",  # of whole records
    )
    assert [name for name in map(str, left) if not name.startswith(allowed)] == []


@pytest.fixture(scope="module")
def mains():
    """The scripts' mains by name, without processes of their own; one after the other.

    Both define some flags alike, so only one is there at a time.
    """
    with contextlib.ExitStack() as stack:
        current: list[tuple[str, Callable]] = []

        def main(script: str) -> Callable:
            if not current or current[-1][0] != script:
                stack.close()
                current.append((script, stack.enter_context(in_process(script))))
            return current[-1][1]

        yield main


def cases(*, through_the_script: bool):
    chosen = [case for case in CASES if (case.name in THROUGH_THE_SCRIPT) is through_the_script]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.name)


@cases(through_the_script=False)
def test_bad_input(case, mains, tmp_path):
    prepare(case, tmp_path)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(InputError) as caught:
        mains(case.script)(**flags_of(case, tmp_path))
    parts = (caught.value.received, caught.value.expected, caught.value.remedy)
    assert all(parts)
    assert case.says in "\n".join(parts)
    check_what_is_left(tmp_path, before)


@cases(through_the_script=True)
def test_bad_input_through_the_script(case, tmp_path):
    prepare(case, tmp_path)
    before = set(tmp_path.rglob("*"))
    ended = attempt(case.script, **flags_of(case, tmp_path))
    message = ended.stderr
    assert ended.returncode == 1, message
    assert "Traceback" not in message
    parts = [message.find(f"\n{part}: ") for part in ("Received", "Expected", "To do")]
    assert -1 < parts[0] < parts[1] < parts[2], message
    assert case.says in message[parts[0] :], message
    check_what_is_left(tmp_path, before)
