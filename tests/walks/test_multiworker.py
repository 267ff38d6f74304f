"""Several processes are one run: the same weights, and it survives the loss of each of them."""

import json
import pathlib
import re
import signal

import numpy as np
import pytest
import tensorflow as tf
from several import Processes
from walking import (
    SIZES,
    contents,
    in_process,
    index_with_blocks_of,
    random_example,
    read_tensors,
    results_of,
    squad_file,
    write_encoder,
    write_records,
)

from bert_tf.data.batches import number_of_lanes
from bert_tf.data.records import pretraining_record
from bert_tf.training import distribution
from bert_tf.training.options import StepConfig
from bert_tf.training.trainer import Trainer

pytestmark = pytest.mark.walk
RECORDS_OF_FILES, BATCH = (23, 14), 12
PRETRAIN = {
    "do_train": True, "train_batch_size": BATCH, "gradient_accumulation_steps": 2,
    "num_train_steps": 9999, "num_warmup_steps": 5, "learning_rate": 1e-3,
    "save_checkpoints_steps": 1, "keep_checkpoint_max": 0, "iterations_per_loop": 3, "log_steps": 2,
    "xla": "false", **SIZES,
}  # fmt: skip
FINE_TUNE = {
    **dict.fromkeys(["do_train", "do_predict"], True),
    "max_seq_length": 17,
    "num_train_epochs": 2,
    "learning_rate": "1e-4",
    "xla": "false",
}
CLASSIFY = FINE_TUNE | {
    "task_name": "csv", "text_a_column": "words", "label_column": "kind", "test_file": "dev.csv",
    "do_eval": True, "train_batch_size": 8, "eval_batch_size": 4, "gradient_accumulation_steps": 2,
}  # fmt: skip
SQUAD = FINE_TUNE | {
    "version_2_with_negative": True,
    "doc_stride": 6,
    "max_query_length": 4,
    "train_batch_size": 12,
}


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> pathlib.Path:
    """Records and rows, and an encoder with dropout as if it had been pre-trained."""
    folder = tmp_path_factory.mktemp("given")
    for number, rows in enumerate(RECORDS_OF_FILES):
        index_with_blocks_of(1, write_records(folder / f"{number}.tfrecord", rows, seed=number))
    assert number_of_lanes(BATCH, sum(RECORDS_OF_FILES)) == 2  # each record is a block
    write_encoder(folder, num_hidden_layers=1)
    rng = np.random.default_rng(5)
    # Of two lengths: batches are bucketed, and each length is compiled.
    texts = [" ".join(f"w{n}" for n in rng.integers(2, 60, rng.choice([5, 13]))) for _ in range(29)]
    for name, part in (("train", texts[:16]), ("dev", texts[16:])):
        rows = [f"{text},{'even' if len(text) % 2 else 'odd'}" for text in part]
        (folder / f"{name}.csv").write_text("\n".join(["words,kind", *rows]) + "\n")
        (folder / f"{name}.json").write_text(json.dumps(squad_file(len(part), seed=len(part))))
    return folder


def pretraining_flags(given: pathlib.Path) -> dict:
    files = {"input_file": given / "*.tfrecord", "bert_config_file": given / "bert_config.json"}
    return PRETRAIN | files


def fine_tuning_flags(script: str, given: pathlib.Path) -> dict:
    if script == "run_classifier.py":
        return CLASSIFY | {"data_dir": given, "init_checkpoint": given}
    files = {"train_file": given / "train.json", "predict_file": given / "dev.json"}
    return SQUAD | files | {"init_checkpoint": given}


def numbers_in(path: pathlib.Path) -> list[float]:
    """All that can be read as a number, in order."""
    words = re.split(r"[\s,:\"\[\]{}]+", path.read_text())
    return [float(word) for word in words if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", word)]


def test_stopped_killed_and_asked_to_end_two_processes_are_one(
    given, tmp_path, two_replicas, monkeypatch
):
    """With dropout, clipping and parts: byte for byte as one process with two undisturbed devices.

    SIGSTOP of one process, of which the other one tells; kill -9, which ends the other one too, and
    a supervisor starts both again; SIGTERM. Steps leave no threads: TensorFlow's time-outs would
    keep some of each.
    """
    one, two = tmp_path / "one", tmp_path / "two"
    flags = pretraining_flags(given)
    with Processes(
        2, tmp_path, "run_pretraining.py", **flags, output_dir=two, hang_seconds=2
    ) as processes:
        processes.wait_until_said(0, "train: 8 of")
        before, threads = processes.said(0), processes.threads(0)
        processes.signal(1, signal.SIGSTOP)
        frame = "bert_tf/training/trainer.py"  # among the stacks
        processes.wait_until_said(0, frame, times=1 + before.count(frame))
        processes.signal(1, signal.SIGCONT)
        assert "WARNING: No progress for " in processes.said(0)[len(before) :]
        processes.wait_until_said(0, "train: 30 of")  # it goes on
        assert processes.threads(0) < threads + 20  # one a step
        processes.signal(1, signal.SIGKILL)
        assert [processes.start_again(index) for index in (1, 0)] == [-signal.SIGKILL, 1]
        processes.wait_until_said(0, "Loaded checkpoint")
        assert "another process of this run was lost" in processes.said(0)
        processes.wait_until_said(1, "train: 40 of")
        processes.signal(1, signal.SIGTERM)
        last = re.findall(r"train: (\d+) of", processes.said(1))[-1]
        assert processes.wait() == [143, 143], processes.all_said()
        for index in range(2):
            assert "ended by SIGTERM, with a checkpoint of step" in processes.said(index)
    step = int(read_tensors(two)["global_step"])
    # The loop that it was in, one that may have begun meanwhile, and steps not yet said.
    assert 40 <= step <= int(last) + 2 * flags["iterations_per_loop"] + flags["log_steps"]
    monkeypatch.setattr(distribution, "make_strategy", lambda *_, **__: two_replicas)
    with in_process("run_pretraining.py") as main:
        main(**flags, output_dir=one, stop_at_step=step)
    assert results_of(two) == results_of(one)  # the checkpoint of every step


def test_one_that_fails_ends_the_other(given, tmp_path):
    """One host alone reads what is wrong; the other would wait for it for ever."""
    record, rng = pretraining_record(**SIZES), np.random.default_rng(1)
    examples = [random_example(rng, record) for _ in range(40 * BATCH)]
    examples[5]["input_ids"][1] = 10**6
    bad = tmp_path / "bad.tfrecord"
    with tf.io.TFRecordWriter(str(bad)) as writer:
        for example in examples:
            writer.write(record.serialize(example))
    index_with_blocks_of(1, bad)
    flags = pretraining_flags(given) | {"input_file": bad, "output_dir": tmp_path / "run"}
    with Processes(2, tmp_path, "run_pretraining.py", **flags) as processes:
        assert processes.wait() == [1, 1], processes.all_said()
        said = [processes.said(index) for index in range(2)]
    received = f"{bad}, record 6, with the input_ids 1000000"
    ends = [f"failed.\nReceived: {received}", "as another process of this run did"]
    assert [sum(end in one for one in said) for end in ends] == [1, 1], said
    assert not any("Traceback" in one for one in said)


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("run_classifier.py", "eval_results.txt dev_predictions.tsv test_results.tsv"),
        ("run_squad.py", "nbest_predictions.json null_odds.json"),
    ],
)
def test_fine_tuning_in_two_processes(script, names, given, tmp_path):
    """Training with length buckets, evaluation, prediction of every row once and in order."""
    flags = fine_tuning_flags(script, given)
    one, two = tmp_path / "one", tmp_path / "two"
    with in_process(script) as main:
        main(**flags, output_dir=one)
    with Processes(2, tmp_path, script, **flags, output_dir=two) as processes:
        assert processes.wait() == [0, 0], processes.all_said()
    ours, theirs = read_tensors(two), read_tensors(one)
    assert ours.keys() == theirs.keys()
    for name in (n for n in theirs if n.startswith(("bert/", "cls/", "output_"))):
        assert np.abs(ours[name] - theirs[name]).max() < 1e-6, name
    for name in names.split():
        ours, theirs = (numbers_in(folder / name) for folder in (two, one))
        assert len(theirs) > 2
        assert ours == pytest.approx(theirs, abs=1e-4), name
    # The chief alone has written: the same files, and no others.
    assert results_of(two).keys() == results_of(one).keys()
    events = [n for n in contents(two) if "tfevents" in n]
    assert len({name.split(".")[-3] for name in events}) == 1  # the number of their process


@pytest.mark.parametrize("script", ["run_pretraining.py", "run_classifier.py", "run_squad.py"])
def test_steps_are_computed_as_the_flags_say(script, given, tmp_path, monkeypatch):
    """Most of them change no result, or little, so that nothing else would show it."""

    def train(self, *_, **__):
        found.append(self.step_config)
        raise InterruptedError

    found: list[StepConfig] = []
    monkeypatch.setattr(Trainer, "train", train)
    is_pretraining = script == "run_pretraining.py"
    flags = pretraining_flags(given) if is_pretraining else fine_tuning_flags(script, given)
    chosen = {"precision": "bfloat16", "gradient_accumulation_steps": 4}
    flags = flags | chosen | {"xla": "false", "output_dir": tmp_path / "run"}
    with in_process(script) as main, pytest.raises(InterruptedError):
        main("--recompute", **flags)
    assert found == [StepConfig(**chosen, recompute=True, xla=False)]
