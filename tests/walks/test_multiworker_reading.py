"""Several hosts read the batches of one, each its own blocks; one that fails ends the others."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from reading_host import VOCABULARY, one_epoch
from several import Processes
from walking import SIZES, index_with_blocks_of

from bert_tf.data.records import pretraining_record
from bert_tf.data.samplers import number_of_lanes
from data_gen.instances import serialize

pytestmark = pytest.mark.walk
HOST = "tests/helpers/reading_host.py"
RECORDS_OF_FILES = (6200, 1100, 2300)
BATCH, LANES = 132, 44  # three hosts do not divide the lanes
RESUMED = 47


def write_many(path: pathlib.Path, count: int, *, seed: int, wrong_row: int | None = None) -> None:
    """Random records, maybe one with an id that is none, and an index with blocks of two."""
    record, rng = pretraining_record(**SIZES), np.random.default_rng(seed)
    values = {
        feature.name: rng.integers(0, min(VOCABULARY, feature.most + 1), [count, feature.size])
        for feature in record.features
    }
    values["masked_lm_weights"] = np.ones([count, SIZES["max_predictions_per_seq"]], np.float32)
    if wrong_row is not None:
        values["input_ids"][wrong_row, 1] = VOCABULARY
    with tf.io.TFRecordWriter(str(path)) as writer:
        for serialized in serialize(record, values):
            writer.write(serialized)
    index_with_blocks_of(500, path)


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("given")
    for number, count in enumerate(RECORDS_OF_FILES):
        write_many(folder / f"{number}.tfrecord", count, seed=number)
    return folder


@pytest.fixture(scope="module")
def of_one(given) -> list[dict[str, np.ndarray]]:
    """The batches of a process alone."""
    batches = one_epoch(f"{given}/*.tfrecord", BATCH)
    blocks = sum(RECORDS_OF_FILES) // 2  # and some more
    assert number_of_lanes(BATCH, blocks) == LANES
    found = list(batches.dataset().as_numpy_iterator())
    real = np.concatenate([batch["is_real_example"] for batch in found])
    assert real.sum() == sum(RECORDS_OF_FILES) == len(real) - 36  # the last batch is short
    return found


def hosts(count: int, given: pathlib.Path, folder: pathlib.Path, **flags) -> Processes:
    """Processes that read an epoch, then from a step on."""
    flags |= {"input_file": given / "*.tfrecord", "batch_size": BATCH, "starts": f"0,{RESUMED}"}
    return Processes(count, folder / "logs", HOST, output_dir=folder, **flags)


def check_what_was_read(
    said: list[str], share: float, given: pathlib.Path, of_one: list, folder: pathlib.Path
) -> None:
    """Byte for byte the rows of each host; and no more of the files than its share."""
    total = sum(path.stat().st_size for path in given.glob("*.tfrecord"))
    rows, left = BATCH // len(said), 1 - RESUMED / len(of_one)
    for host, log in enumerate(said):
        here = slice(rows * host, rows * (host + 1))
        for start in (0, RESUMED):
            expected = [b[name][here].tobytes() for b in of_one[start:] for name in sorted(b)]
            found = (folder / f"host_{host}_from_{start}").read_bytes()
            assert found == b"".join(expected), (host, start)
        read = {n: int(size) / total for n, size in re.findall(r"from (\d+): (\d+) bytes", log)}
        print(f"host {host} of {len(said)}: {read}")
        assert read["0"] < share
        # The blocks that were open are read again.
        assert read[str(RESUMED)] < share * left + 0.05


def test_two_hosts_read_the_batches_of_one_and_one_that_cannot_ends_the_other(
    given, of_one, tmp_path
):
    """One host alone reads what is wrong; the other would wait for it for ever."""
    bad = tmp_path / "bad.tfrecord"
    write_many(bad, RECORDS_OF_FILES[1], seed=1, wrong_row=600)
    with hosts(2, given, tmp_path, last_input_file=bad) as processes:
        assert processes.wait() == [1, 1], processes.all_said()
        said = [processes.said(index) for index in range(2)]
    check_what_was_read(said, 0.55, given, of_one, tmp_path)
    received = f"{bad}, record 601, with the input_ids {VOCABULARY}"
    ends = [f"failed.\nReceived: {received}", "as another process of this run did: its log"]
    assert [sum(end in one for one in said) for end in ends] == [1, 1], processes.all_said()
    assert not any("of at most" in one or "Traceback" in one for one in said)


def test_three_hosts_read_the_batches_of_one(given, of_one, tmp_path):
    """Two of the lanes are of two hosts."""
    with hosts(3, given, tmp_path) as processes:
        assert processes.wait() == [0, 0, 0], processes.all_said()
        said = [processes.said(index) for index in range(3)]
    check_what_was_read(said, 0.42, given, of_one, tmp_path)
