"""Several processes are one run: the same weights, and it survives the loss of each of them."""

import json
import os
import pathlib
import re
import signal

import keras
import numpy as np
import pytest
from several import Processes
from walking import (
    SIZES,
    contents,
    in_process,
    index_with_blocks_of,
    read_tensors,
    run,
    write_config,
    write_records,
    write_vocabulary,
)

from bert_tf import BertConfig, BertModel
from bert_tf.checkpoints.tf1 import checkpoint_name, write_checkpoint
from bert_tf.data import shards
from bert_tf.data.batches import number_of_lanes
from bert_tf.data.records import pretraining_record
from bert_tf.training.settings import StepConfig
from bert_tf.training.trainer import Trainer

pytestmark = pytest.mark.walk
RECORDS_OF_FILES, BATCH = (23, 14), 12
EARLY, LATE = 8, 160  # rounding grows with the steps: devices are compared after the first few


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> pathlib.Path:
    """Records, questions and rows, and an encoder with dropout as if it had been pre-trained."""
    folder = tmp_path_factory.mktemp("given")
    for number, rows in enumerate(RECORDS_OF_FILES):
        index_with_blocks_of(1, write_records(folder / f"{number}.tfrecord", rows, seed=number))
    assert number_of_lanes(BATCH, sum(RECORDS_OF_FILES)) == 2  # each record is a block
    config = BertConfig.from_json_file(
        write_config(folder / "bert_config.json", num_hidden_layers=1)
    )
    assert config.hidden_dropout_prob > 0
    write_vocabulary(folder / "vocab.txt")
    keras.utils.set_random_seed(3)
    tensors = {checkpoint_name(v): v.numpy() for v in BertModel(config).trainable_variables}
    write_checkpoint(str(folder / "bert_model.ckpt"), tensors, temporary=str(folder / "new"))
    rng = np.random.default_rng(5)
    # Of two lengths: batches are bucketed, and each length is compiled.
    texts = [" ".join(f"w{n}" for n in rng.integers(2, 60, rng.choice([5, 13]))) for _ in range(29)]
    for name, part in (("train", texts[:16]), ("dev", texts[16:])):
        rows = [f"{text},{'even' if len(text) % 2 else 'odd'}" for text in part]
        (folder / f"{name}.csv").write_text("\n".join(["words,kind", *rows]) + "\n")
        (folder / f"{name}.json").write_text(json.dumps(squad(part)))
    return folder


def squad(texts: list[str]) -> dict:
    """Questions whose answer is the second word."""
    paragraphs = []
    for number, text in enumerate(texts):
        word = text.split()[1]
        answer = {"text": word, "answer_start": text.index(f" {word}") + 1}
        question = {"id": f"q{number}", "question": "w1 w60", "answers": [answer]}
        paragraphs.append({"context": text, "qas": [question]})
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def pretraining_flags(given: pathlib.Path) -> dict:
    return {
        "input_file": given / "*.tfrecord",
        "eval_input_file": given / "1.tfrecord",
        "bert_config_file": given / "bert_config.json",
        "do_train": True,
        "do_eval": True,
        "train_batch_size": BATCH,
        "eval_batch_size": 6,
        "gradient_accumulation_steps": 2,
        "num_train_steps": LATE,
        "num_warmup_steps": 5,
        "learning_rate": 1e-3,
        "save_checkpoints_steps": 4,
        "keep_checkpoint_max": 0,
        "iterations_per_loop": 3,
        "log_steps": 2,
        **SIZES,
    }


def assert_same_weights(one: pathlib.Path, several: pathlib.Path) -> None:
    ours, theirs = read_tensors(several), read_tensors(one)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if name.startswith(("bert/", "cls/", "output_")):
            assert np.abs(ours[name] - value).max() < 1e-6, name


def numbers_in(path: pathlib.Path) -> list[float]:
    """All that can be read as a number, in order."""
    numbers = []
    for word in path.read_text().replace(",", " ").replace(":", " ").split():
        try:
            numbers.append(float(word.strip('"[]{}')))
        except ValueError:
            continue
    return numbers


@pytest.fixture(scope="module")
def two(given, tmp_path_factory) -> pathlib.Path:
    """What two processes make of it that nobody disturbs."""
    folder = tmp_path_factory.mktemp("two")
    flags = pretraining_flags(given) | {"output_dir": folder / "run"}
    with Processes(2, folder, "run_pretraining.py", **flags) as processes:
        assert processes.wait() == [0, 0], processes.all_said()
        assert "train: 160 of 160 steps" in processes.said(1)  # they all say how it goes
    return folder / "run"


@pytest.fixture(scope="module")
def one(given, tmp_path_factory) -> pathlib.Path:
    """What one process makes of it."""
    folder = tmp_path_factory.mktemp("one") / "run"
    with in_process("run_pretraining.py") as main:
        main(**pretraining_flags(given), strategy="one", output_dir=folder)
    return folder


def test_two_processes_are_one(one, two):
    """With dropout, clipping and parts."""
    assert_same_weights(one / f"model.ckpt-{EARLY}.index", two / f"model.ckpt-{EARLY}.index")
    # The chief alone has written: the same files, and no others.
    names = [{n for n in contents(f) if "tfevents" not in n} for f in (two, one)]
    assert names[0] == names[1]
    events = [n for n in contents(two) if "tfevents" in n]
    assert len(events) == 3  # of training, evaluations on the way, and the final one
    assert len({name.split(".")[-3] for name in events}) == 1  # the number of their process
    results = numbers_in(two / "eval_results.txt")
    assert results == pytest.approx(numbers_in(one / "eval_results.txt"), rel=1e-3)


def test_killed_and_asked_to_end_it_ends_the_same(given, two, tmp_path):
    """kill -9 of one process, which a supervisor starts again; SIGTERM to the other one."""
    flags = pretraining_flags(given) | {"output_dir": tmp_path / "run"}
    with Processes(2, tmp_path, "run_pretraining.py", **flags) as processes:
        processes.wait_until_said(0, "train: 20 of")
        processes.signal(1, signal.SIGKILL)
        processes.start_again(1)
        processes.wait_until_said(0, "Loaded checkpoint")
        assert "another process of this run was lost" in processes.said(0)
        processes.wait_until_said(1, "train: 60 of")
        processes.signal(1, signal.SIGTERM)
        last = re.findall(r"train: (\d+) of", processes.said(1))[-1]
        assert processes.wait() == [0, 0], processes.all_said()
        for index in range(2):
            assert "ended by SIGTERM, with a checkpoint of step" in processes.said(index)
    step = int(read_tensors(tmp_path / "run")["global_step"])
    assert 60 <= step < LATE
    # The loop that it was in, one that may have begun meanwhile, and steps not yet said.
    assert step - int(last) <= 2 * flags["iterations_per_loop"] + flags["log_steps"]
    with Processes(2, tmp_path / "again", "run_pretraining.py", **flags) as processes:
        assert processes.wait() == [0, 0], processes.all_said()
        for index in range(2):
            assert f"model.ckpt-{step}, step {step}." in processes.said(index)
    expected, found = read_tensors(two), read_tensors(tmp_path / "run")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.asarray(found[name]).tobytes() == np.asarray(value).tobytes(), name


def test_a_process_that_waits_for_a_stopped_one_says_so(given, tmp_path):
    """And both go on when that one does."""
    flags = pretraining_flags(given) | {"output_dir": tmp_path / "run", "num_train_steps": 9999}
    flags |= {"xla": "false", "hang_seconds": 2}
    with Processes(2, tmp_path, "run_pretraining.py", **flags) as processes:
        processes.wait_until_said(0, "] train: 6 of")
        before = processes.said(0)
        processes.signal(1, signal.SIGSTOP)
        frame = "bert_tf/training/trainer.py"  # among the stacks
        processes.wait_until_said(0, frame, times=1 + before.count(frame))
        processes.signal(1, signal.SIGCONT)
        said = processes.said(0).removeprefix(before)
        hang = re.search(
            r"\[worker 0\] WARNING: No progress for (\d+) s: (.*?), in process .*", said
        )
        assert int(hang[1]) >= 2
        assert re.match(r"train, (steps \d+ to|after step) \d+|wait for the other", hang[2])
        assert frame in said[hang.end() :]
        step = int(re.findall(r"train: (\d+) of", processes.said(1))[-1])
        for index in range(2):
            processes.wait_until_said(index, f"[worker {index}] train: {step + 20} of")


def test_operations_between_processes_leave_no_threads_and_a_late_process_is_waited_for(tmp_path):
    """A time-out of TensorFlow's would keep a thread for each operation until it has passed."""
    own = ["0 150", "6 150"]  # seconds late, operations
    with Processes(2, tmp_path, "tests/helpers/collectives.py", own=own) as processes:
        assert processes.wait() == [0, 0], processes.all_said()
    for index in range(2):
        early, late = map(int, re.findall(r"(\d+) threads", processes.said(index)))
        assert late - early <= 5
        assert "was stopped" not in processes.said(index)
    said = processes.said(0)
    assert "worker 0: waiting for all 2 processes." in said
    assert "in _multi_worker_strategy" in said  # while the other one does not come


def test_processes_that_are_not_of_one_run_are_refused(given, tmp_path):
    """One would wait where the other does not; other settings: test_trainer.py."""
    flags = pretraining_flags(given) | {"output_dir": tmp_path / "run", "iterations_per_loop": None}
    own = ["--iterations_per_loop=2", "--iterations_per_loop=3"]
    with Processes(2, tmp_path, "run_pretraining.py", own=own, **flags) as processes:
        assert processes.wait() == [1, 1], processes.all_said()
        assert all("other flags in this process" in processes.said(i) for i in range(2))
    assert not list((tmp_path / "run").glob("model.ckpt*"))


def test_a_process_that_fails_ends_the_other(given, tmp_path):
    """One alone reads the record that is wrong; the other would wait for it for ever."""
    record, bad = pretraining_record(**SIZES), tmp_path / "bad.tfrecord"
    row = {f.name: [5000 if f.name == "input_ids" else 1] * f.size for f in record.features}
    shards.write_records(str(bad), record, [row])
    flags = pretraining_flags(given) | {"input_file": f"{given}/*.tfrecord,{bad}", "xla": False}
    with Processes(2, tmp_path, "run_pretraining.py", output_dir=tmp_path, **flags) as processes:
        assert processes.wait() == [1, 1], processes.all_said()
        said = [processes.said(index) for index in range(2)]
    received = f"{bad}, record 1, with the input_ids 5000"
    ends = [f"failed.\nReceived: {received}", f"as another process of this run did: {received}"]
    assert [sum(end in one for one in said) for end in ends] == [1, 1], said


FINE_TUNING = {
    "do_train": True,
    "do_predict": True,
    "max_seq_length": 17,
    "train_batch_size": 8,
    "predict_batch_size": 8,
    "num_train_epochs": 2,
    "learning_rate": 1e-4,
    "gradient_accumulation_steps": 2,
}
OWN = {  # flags of each script, and what it writes to compare
    "run_classifier.py": (
        {
            "task_name": "csv",
            "text_a_column": "words",
            "label_column": "kind",
            "test_file": "dev.csv",
            "do_eval": True,
            "eval_batch_size": 4,
        },
        ("eval_results.txt", "dev_predictions.tsv", "test_results.tsv"),
    ),
    "run_squad.py": ({"doc_stride": 6, "max_query_length": 4}, ("nbest_predictions.json",)),
}


def fine_tuning_flags(script: str, given: pathlib.Path) -> dict:
    flags = FINE_TUNING | OWN[script][0] | {"init_checkpoint": given}
    if script == "run_squad.py":
        return flags | {"train_file": given / "train.json", "predict_file": given / "dev.json"}
    return flags | {"data_dir": given}


def assert_same_end(script: str, one: pathlib.Path, other: pathlib.Path) -> None:
    """Weights, and the numbers in what is written at the end."""
    assert_same_weights(one, other)
    for name in OWN[script][1] if script in OWN else ("eval_results.txt",):
        ours, theirs = (numbers_in(folder / name) for folder in (other, one))
        assert len(theirs) > 2
        assert ours == pytest.approx(theirs, abs=1e-4), name


@pytest.mark.parametrize("script", ["run_pretraining.py", *OWN])
def test_steps_are_computed_as_the_flags_say(script, given, tmp_path, monkeypatch):
    """Most of them change no result, or little, so that nothing else would show it."""

    def train(self, *_, **__):
        found.append(self.step_config)
        raise InterruptedError

    found: list[StepConfig] = []
    monkeypatch.setattr(Trainer, "train", train)
    flags = pretraining_flags(given) | {"output_dir": tmp_path / "run"}
    if script in OWN:
        flags = fine_tuning_flags(script, given) | {"output_dir": tmp_path / "run"}
    flags |= {"precision": "bfloat16", "gradient_accumulation_steps": 4, "strategy": "one"}
    with in_process(script) as main, pytest.raises(InterruptedError):
        main("--noxla", "--recompute", "--clip_per_replica", **flags)
    wanted = StepConfig(
        precision="bfloat16",
        gradient_accumulation_steps=4,
        recompute=True,
        xla=False,
        clip_per_replica=True,
    )
    assert found == [wanted]


slow = pytest.mark.skipif("BERT_TF_SLOW" not in os.environ, reason="set BERT_TF_SLOW to run it")
THREE = [pytest.param(script, 3, marks=slow) for script in ("run_pretraining.py", *OWN)]


@pytest.mark.parametrize(("script", "count"), [*((script, 2) for script in OWN), *THREE])
def test_short_runs_in_processes_and_on_four_devices(script, count, given, tmp_path):
    """Training with length buckets, evaluation, prediction of every row once and in order."""
    if script in OWN:
        flags = fine_tuning_flags(script, given)
    else:
        flags = pretraining_flags(given) | {"num_train_steps": EARLY}
    if count == 3:  # in two parts each
        sizes = {"train_batch_size": 12, "predict_batch_size": 6, "eval_batch_size": 6}
        flags |= {name: size for name, size in sizes.items() if name in flags}
    with in_process(script) as main:
        main(**flags, strategy="one", output_dir=tmp_path / "one")
    output_dir = tmp_path / "several"
    with Processes(count, tmp_path / "logs", script, **flags, output_dir=output_dir) as processes:
        assert processes.wait() == [0] * count, processes.all_said()
    assert_same_end(script, tmp_path / "one", output_dir)
    if (script, count) == ("run_classifier.py", 2):
        run(script, "--noxla", **flags, num_cpu_devices=4, output_dir=tmp_path / "four")
        assert_same_end(script, tmp_path / "one", tmp_path / "four")
