"""What flags stand for: strategies, steps."""

import types

import pytest
import tensorflow as tf
from absl import flags as absl_flags

from bert_tf.cli import from_flags, model_flags
from bert_tf.config import StepConfig
from bert_tf.errors import InputError
from bert_tf.training import distribution


@pytest.fixture
def given():
    """Gives a function that sets flags of a script."""
    own = set(absl_flags.FLAGS)
    model_flags.define_run(model_flags.FineTuning, EvalFlags)

    def set_flags(*words: str) -> None:
        absl_flags.FLAGS.unparse_flags()
        for name in set(absl_flags.FLAGS) - own:
            absl_flags.FLAGS[name].unparse()
        absl_flags.FLAGS(["script", "--output_dir=gs://b/run", *words])

    yield set_flags
    for name in set(absl_flags.FLAGS) - own:
        delattr(absl_flags.FLAGS, name)


class EvalFlags:
    input_file = None
    do_eval = False
    eval_batch_size = 8


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
def test_strategies_of_flags(given, made, words, expected):
    given(*words, *WHERE)
    from_flags.make_strategy()
    assert made == [expected]


@pytest.mark.parametrize(
    ("words", "received"),
    [
        (["--use_tpu", "--tpu_name=a", "--output_dir=run"], "--output_dir=run with the TPU a"),
        (["--tpu=grpc://b", "--input_file=gs://b/1,2"], "--input_file=2 with the TPU grpc://b"),
        (["--tpu=b", "--output_dir=run"], "--output_dir=run with the TPU b"),
        (["--strategy=tpu", "--export_dir=e"], r"--export_dir=e with the TPU \(none named\)"),
        (["--tpu=a", "--tpu_name=b", "--output_dir=gs://b"], "--tpu=a and --tpu_name=b"),
    ],
)
def test_what_is_refused_before_anything_is_connected(given, made, words, received):
    given(*words, *WHERE)
    with pytest.raises(InputError, match=received):
        from_flags.make_strategy()
    assert made == []


def test_how_a_step_is_computed(given):
    given()
    assert from_flags.step_config() == StepConfig()
    given("--precision=float16", "--gradient_accumulation_steps=3", "--recompute", "--noxla")
    assert from_flags.step_config() == StepConfig(
        precision="float16", gradient_accumulation_steps=3, recompute=True, xla=False
    )


def test_products_in_tf32_are_said(given, made, monkeypatch, caplog):
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
        given(*words, *WHERE)
        with caplog.at_level("INFO", logger="absl"):
            from_flags.make_strategy()
        assert ("--notf32" in caplog.text) == says
        assert is_enabled() == enabled


def test_batches_that_devices_cannot_share(given, made, caplog):
    """Refused in training, where the result depends on their size; else made larger."""
    given("--do_train", "--train_batch_size=8", *WHERE)
    with pytest.raises(InputError, match="--train_batch_size=8 for 3 replicas"):
        from_flags.make_strategy()
    given("--train_batch_size=8", *WHERE)
    with caplog.at_level("INFO", logger="absl"):
        from_flags.make_strategy()
    assert from_flags.FLAGS.eval_batch_size == 9
    assert "--eval_batch_size is taken as 9, for 3 devices." in caplog.text
