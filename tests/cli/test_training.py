"""What options of training stand for: strategies, steps, sizes of batches."""

import pathlib
import types
from typing import Any

import pytest
import tensorflow as tf
from walking import parsed

from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.cli import training
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.training import distribution
from bert_tf.training.options import StepConfig

BUCKET = ("--input_file=gs://b/in", "--output_dir=gs://b/run")


def given(*words: str) -> Any:
    """The options of a script that trains."""
    return parsed("run_pretraining.py", "--do_eval", *BUCKET, *words)


@pytest.fixture
def made(monkeypatch) -> list[tuple]:
    """The strategies that flags ask for, with their TPUs; none is made."""
    asked: list[tuple] = []

    def make_strategy(name, *, tpu, tpu_zone, gcp_project):
        assert (tpu_zone, gcp_project) == ("a-zone", "a-project")
        asked.append((name, tpu))
        return types.SimpleNamespace(num_replicas_in_sync=3)

    monkeypatch.setattr(distribution, "make_strategy", make_strategy)
    return asked


WHERE = ("--tpu_zone=a-zone", "--gcp_project=a-project")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--use_tpu", "--tpu_name=local"], ("tpu", "local")),
        (["--use_tpu", "--tpu_name=a", "--output_dir=gs://b/run"], ("tpu", "a")),
        (["--use_tpu"], ("tpu", None)),  # whichever TensorFlow finds
        (["--tpu=local", "--output_dir=run"], ("tpu", "local")),
        (["--tpu=grpc://10.0.0.2:8470"], ("tpu", "grpc://10.0.0.2:8470")),
        (["--tpu=local", "--strategy=tpu"], ("tpu", "local")),
        (["--strategy=tpu", "--tpu_name=local"], ("tpu", "local")),
        (["--tpu_name=a"], ("auto", "a")),  # as in the original, not without --use_tpu
        (["--nouse_tpu", "--strategy=one"], ("one", None)),
        ([], ("auto", None)),
    ],
)
def test_strategies_of_options(made, words, expected):
    training.make_strategy(given(*words, *WHERE))
    assert made == [expected]


@pytest.mark.parametrize(
    ("words", "received"),
    [
        (["--use_tpu", "--tpu_name=a", "--output_dir=run"], "--output_dir=run with the TPU a"),
        (["--tpu=grpc://b", "--input_file=gs://b/1,2"], "--input_file=2 with the TPU grpc://b"),
        (["--tpu=b", "--output_dir=run"], "--output_dir=run with the TPU b"),
        (
            ["--strategy=tpu", "--export_dir=e", "--vocab_file=v"],
            r"--export_dir=e with the TPU \(none named\)",
        ),
        (["--tpu=a", "--tpu_name=b", "--output_dir=gs://b"], "--tpu=a and --tpu_name=b"),
    ],
)
def test_what_is_refused_before_anything_is_connected(made, words, received):
    options = given(*words, *WHERE)
    with pytest.raises(InputError, match=received):
        training.make_strategy(options)
    assert made == []


def test_how_a_step_is_computed():
    assert training.step_of_devices(given().step) == StepConfig()
    words = ("--precision=float16", "--gradient_accumulation_steps=3", "--recompute", "--noxla")
    assert training.step_of_devices(given("--do_train", *words).step) == StepConfig(
        precision="float16", gradient_accumulation_steps=3, recompute=True, xla=False
    )


def test_products_in_tf32_are_said(made, monkeypatch, caplog):
    """On a GPU float32 is not what it is on a CPU, unless --notf32 asks for that."""
    is_enabled = tf.config.experimental.tensor_float_32_execution_enabled
    for gpus, words, says, enabled in (
        (["GPU"], (), True, True),
        (["GPU"], ("--precision=bfloat16",), False, True),
        (["GPU"], ("--notf32",), False, False),
        ([], (), False, True),
    ):
        caplog.clear()
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind, gpus=gpus: gpus)
        with caplog.at_level("INFO", logger="absl"):
            training.make_strategy(given(*words, *WHERE))
        assert ("--notf32" in caplog.text) == says
        assert is_enabled() == enabled


def test_batches_that_devices_cannot_share(made, caplog):
    """Refused in training, where the result depends on their size; else made larger."""
    options = given("--do_train", "--train_batch_size=8", *WHERE)
    with pytest.raises(InputError, match="--train_batch_size=8 for 3 replicas"):
        training.make_strategy(options)
    strategy = training.make_strategy(given(*WHERE))
    with pytest.raises(InputError, match="--eval_batch_size=8 for 3 replicas"):
        training.check_batch_size("eval_batch_size", 8, strategy)
    with caplog.at_level("INFO", logger="absl"):
        assert training.shared_size("eval_batch_size", 8, strategy) == 9
        assert training.shared_size("predict_batch_size", 6, strategy) == 6
    assert caplog.text.count("is taken as") == 1
    assert "--eval_batch_size is taken as 9, for 3 devices." in caplog.text


# ---------------------------------------------------------------------------- what is written over


def own(script: str, folder: pathlib.Path, **flags: Any) -> Any:
    """The options of a fine-tuning in a folder."""
    files = {"init_checkpoint": "m", "output_dir": folder, **flags}
    return parsed(script, "--do_train", *(f"--{name}={value}" for name, value in files.items()))


@pytest.mark.parametrize(
    ("script", "flag", "name"),
    [
        ("run_classifier.py", "train_file", "eval_results.txt"),
        ("run_classifier.py", "train_file", "dev_predictions.tsv"),
        ("run_classifier.py", "train_file", "test_results_labeled.tsv"),
        ("run_squad.py", "train_file", "predictions.json"),
    ],
)
def test_no_input_is_written_over(tmp_path, script, flag, name):
    """Classify and squad wrote over their inputs with exit code 0; run again, too."""
    (tmp_path / "run.json").write_text("{}")
    (path := tmp_path / name).write_text("text_a,label\n")
    with pytest.raises(InputError, match=f"{name} as the output, which is the input"):
        training.refuse_others(own(script, tmp_path, **{flag: path}))


@pytest.mark.parametrize("script", ["run_classifier.py", "run_squad.py"])
@pytest.mark.parametrize("name", ["report.html", "eval_results.txt", "run.json"])
def test_files_that_no_command_has_written_are_kept(tmp_path, script, name):
    options = own(script, tmp_path / "run", train_file="a.csv")
    training.refuse_others(options)  # there is no folder yet
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    training.refuse_others(options)
    (tmp_path / "run" / name).write_text('{"mine": 1}')
    with pytest.raises(InputError, match=f"{name}, a file that no command has written"):
        training.refuse_others(options)
    (tmp_path / "run" / "train.tf_record").write_text("")  # a run that was killed
    training.refuse_others(options)


def test_sizes_are_the_models_where_nothing_is_trained(tmp_path):
    """An evaluation alone took 128, and was refused by a model of 24 positions."""
    model: Any = types.SimpleNamespace(
        source=types.SimpleNamespace(metadata=ModelMetadata(max_seq_length=17)),
        config=BertConfig(vocab_size=7, max_position_embeddings=24),
    )
    files = ("--train_file=a.csv", "--init_checkpoint=m", "--output_dir=o")

    def length(*words: str) -> int:
        options = parsed("run_classifier.py", *files, *words)
        return training.with_sizes(options, model, "max_seq_length").max_seq_length

    assert length("--do_predict") == 17
    assert length("--do_predict", "--max_seq_length=9") == 9
    with pytest.raises(InputError, match="max_seq_length 128"):
        length("--do_train")
