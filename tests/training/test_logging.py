"""TrainingLog: the line, and the summaries, read back as they were written."""

import pathlib
import struct

import numpy as np
import pytest
import tensorflow as tf
from frames import framed

from bert_tf.cli.plot import read_curves
from bert_tf.errors import InputError
from bert_tf.training import log
from bert_tf.training.log import TrainingLog, write_final_evaluation


def report(log: TrainingLog, step: int, loss: float) -> None:
    """One line, of one step; all so far took a second each."""
    log.add({"loss": loss}, 1)
    log.write(step, 0.1, np.array([step, step]))


def event_files(folder) -> list[pathlib.Path]:
    return sorted(pathlib.Path(folder).glob("events.out.tfevents.*"))


def test_what_is_logged_and_read_back(tmp_path, caplog):
    """Two strides of 3 steps and 1: means weighted by steps; 4 steps of 8 examples in 2 s."""
    run = TrainingLog(str(tmp_path), 8, 4000)
    with caplog.at_level("INFO", logger="absl"):
        run.write_evaluation(10, {"loss": 2.0, "accuracy": 0.5})  # whose time does not count
        run.add({"loss": 7.0, "masked_lm_loss": 6.0, "gradient_norm": 3.0}, 3)
        run.add({"loss": 3.0, "masked_lm_loss": 2.0, "gradient_norm": 3.0}, 1)
        run.write(14, 2e-5, np.array([4, 2.0]))
        run.add({"loss": 1.5}, 5)
        run.write(19, 0.1, np.array([8, 10.0]))  # one of the five compiled
        run.add({"loss": 1.0}, 1)
        run.write(20, 0.1, np.array([8, 10.0]))  # it compiled
    # 3,986 steps of half a second are 33 min 13 s.
    assert [record.getMessage() for record in caplog.records] == [
        "evaluation at step 10: accuracy 0.5000, loss 2.0000",
        "train: 14 of 4000 steps, 2 a second, 33 min 13 s left; 16.0 examples a second, "
        "loss 6.0000 (masked_lm 5.0000), learning rate 2e-05",
        "train: 19 of 4000 steps, 0.5 a second, 2 h 12 min left; 4.0 examples a second, "
        "loss 1.5000, learning rate 0.1",
        "train: 20 of 4000 steps; loss 1.0000, learning rate 0.1",
    ]
    assert read_curves(str(tmp_path)) == {
        "loss": {14: 6.0, 19: 1.5, 20: 1.0},
        "masked_lm_loss": {14: 5.0},
        "gradient_norm": {14: 3.0},
        "learning_rate": {14: pytest.approx(2e-5), 19: pytest.approx(0.1), 20: pytest.approx(0.1)},
        "examples_per_second": {14: 16.0, 19: 4.0},
        "eval/loss": {10: 2.0},
        "eval/accuracy": {10: 0.5},
    }


def test_the_final_evaluation_is_one_more_point(tmp_path):
    """Of its own step; where that was evaluated on the way, the later value counts."""
    TrainingLog(str(tmp_path), 8, 100).write_evaluation(3, {"loss": 2.0, "accuracy": 0.25})
    write_final_evaluation(str(tmp_path), {"global_step": 9, "loss": 1.5, "accuracy": 0.5})
    write_final_evaluation(str(tmp_path), {"global_step": 3, "accuracy": 0.75})
    assert read_curves(str(tmp_path)) == {
        "eval/loss": {3: 2.0, 9: 1.5},
        "eval/accuracy": {3: 0.75, 9: 0.5},
    }


def test_of_a_resumed_run_the_later_value_counts(tmp_path):
    """However often: of writers numbered 9 and 10 the names sort the other way round.

    What came after the first step of a later one, evaluations too, is of a run that was given up.
    """
    assert read_curves(str(tmp_path / "none")) == {}
    given_up = TrainingLog(str(tmp_path), 1, 100)
    for step in (6, 60):
        report(given_up, step, 1.0)
        given_up.write_evaluation(step, {"loss": 0.5})
    for attempt in range(12):
        report(TrainingLog(str(tmp_path), 1, 100), 7, 100.0 + attempt)
    report(TrainingLog(str(tmp_path), 1, 100), 9, 50.0)
    assert len(event_files(tmp_path)) == 14
    curves = read_curves(str(tmp_path))
    assert curves["loss"] == {6: 1.0, 7: 111.0, 9: 50.0}
    assert curves["eval/loss"] == {6: 0.5}


def test_a_killed_run_leaves_a_cut_off_file(tmp_path):
    """What is whole of it counts, and so does what the resumed run writes."""
    run = TrainingLog(str(tmp_path), 1, 100)
    for step in (1, 2):
        report(run, step, 10.0 * step)
    (path,) = event_files(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    curves = read_curves(str(tmp_path))
    assert curves["loss"] == {1: 10.0, 2: 20.0}
    assert curves["examples_per_second"] == {1: 1.0}
    report(TrainingLog(str(tmp_path), 1, 100), 3, 5.0)
    assert read_curves(str(tmp_path))["loss"] == {1: 10.0, 2: 20.0, 3: 5.0}


def test_what_is_no_scalar_and_what_is_no_summary(tmp_path):
    """Values of a size that no memory holds are left out; other records are refused."""
    event = tf.compat.v1.Event(step=3, wall_time=1.0)
    for name, size in (("loss", 0), ("huge", 1 << 40)):
        tensor = event.summary.value.add(tag=name).tensor
        tensor.CopyFrom(tf.make_tensor_proto(np.float32(1.5)))
        if size:
            tensor.tensor_shape.dim.add(size=size)
    (tmp_path / "events.out.tfevents.1").write_bytes(framed(event.SerializeToString()))
    assert read_curves(str(tmp_path)) == {"loss": {3: 1.5}}
    path = tmp_path / "events.out.tfevents.2"
    path.write_bytes(framed(b"\xff\xff"))
    with pytest.raises(InputError, match=f"{path}, which cannot be read"):
        read_curves(str(tmp_path))


def test_summaries_are_as_tensorboard_wants_them(tmp_path):
    """Events of version 2, with the scalars plug-in's name; needs no TensorBoard."""
    report(TrainingLog(str(tmp_path), 1, 100), 3, 0.5)
    (path,) = event_files(tmp_path)
    read = tf.compat.v1.Event.FromString
    events = [read(data.numpy()) for data in tf.data.TFRecordDataset(str(path))]
    assert events[0].file_version == "brain.Event:2"
    values = {value.tag: (event, value) for event in events for value in event.summary.value}
    event, value = values["loss"]
    assert event.step == 3
    assert value.metadata.plugin_data.plugin_name == "scalars"
    assert value.tensor.dtype == tf.float32.as_datatype_enum
    assert value.tensor.tensor_content in (b"", struct.pack("<f", 0.5))
    assert tf.make_ndarray(value.tensor) == 0.5


def test_eval_results(tmp_path, caplog):
    with caplog.at_level("INFO", logger="absl"):
        results = {"loss": 0.5, "eval_accuracy": 0.845588, "b": 2}
        log.write_eval_results(str(tmp_path), results)
    lines = ["b = 2", "eval_accuracy = 0.845588", "loss = 0.5"]
    assert (tmp_path / "eval_results.txt").read_text().splitlines() == lines
    (record,) = caplog.records
    assert record.getMessage() == "\n".join([f"{tmp_path}/eval_results.txt:", *lines])
