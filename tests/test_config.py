"""BertConfig: the released ones, everything that must be refused; steps and intervals."""

import json
import math

import pytest

from bert_tf.config import BertConfig
from bert_tf.errors import InputError, quoted
from bert_tf.training.options import Intervals, StepConfig
from bert_tf.training.plan import RunPlan

# As in the archives of the released models.
UNCASED_BASE = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 512, "num_attention_heads": 12, "num_hidden_layers": 12,
    "type_vocab_size": 2, "vocab_size": 30522,
}  # fmt: skip
CHINESE_EXTRAS = {"directionality": "bidi", "pooler_fc_size": 768, "pooler_type": "first_token"}


def test_released_files(tmp_path, data_dir):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(UNCASED_BASE | CHINESE_EXTRAS))
    config = BertConfig.from_json_file(path)
    assert config.to_dict() == UNCASED_BASE | {"layer_norm_eps": 1e-12}
    assert BertConfig.from_dict(json.loads(config.to_json_string())) == config
    tiny = BertConfig.from_json_file(data_dir / "fixtures/tf1-tiny-checkpoint/bert_config.json")
    assert (tiny.hidden_size, tiny.vocab_size) == (4, 15)


def test_defaults_are_the_originals():
    ours = {"vocab_size": 7, "type_vocab_size": 16, "layer_norm_eps": 1e-12}
    assert BertConfig(vocab_size=7).to_dict() == UNCASED_BASE | ours
    own = {"attention": "causal"}
    config = BertConfig(vocab_size=7, **own)  # a key that no BERT has, and that is written
    assert config.to_dict() == UNCASED_BASE | ours | own
    assert BertConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("changes", "act"),
    [
        ({}, "gelu"),
        ({"hidden_act": None}, "linear"),
        ({"hidden_act": ""}, "linear"),
        ({"hidden_act": "Linear"}, "linear"),
        ({"hidden_act": "GELU"}, "gelu"),
        # Hugging Face's file is told by its keys; its "gelu" is the exact one.
        ({"model_type": "bert", "pad_token_id": 0}, "gelu_erf"),
        ({"architectures": ["BertModel"]}, "gelu_erf"),
        ({"model_type": "bert", "hidden_act": None}, None),
        ({"model_type": "bert", "hidden_act": "gelu_erf"}, None),
    ],
)
def test_activations_by_their_names(tmp_path, changes, act):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(UNCASED_BASE | changes))
    if act:
        assert BertConfig.from_json_file(path).hidden_act == act
    else:
        received = f"config.json with hidden_act {changes['hidden_act']!r}"
        with pytest.raises(InputError, match=received):
            BertConfig.from_json_file(path)


SIZES = tuple(name for name, value in UNCASED_BASE.items() if isinstance(value, int))
REFUSED = {
    SIZES: [True, 0, -3, 96.0, 2**31, math.nan, "12", None, [12]],
    ("hidden_dropout_prob", "attention_probs_dropout_prob"): [-0.1, 1, 1.0, "0.1", True, None],
    ("initializer_range", "layer_norm_eps"): [-1e-9, 1e300, 10**400, "0.02", math.inf, math.nan],
    ("hidden_act",): ["gelu_new", 0, False, [], ["gelu"], {"a": 1}],
}


@pytest.mark.parametrize("names", REFUSED, ids=lambda names: names[0])
def test_values_that_are_refused(names):
    for name in names:
        for value in REFUSED[names]:
            with pytest.raises(InputError) as caught:
                BertConfig.from_dict(UNCASED_BASE | {name: value}, source="some.json")
            assert caught.value.received == f"some.json with {name} {quoted(value)}"
            assert caught.value.remedy == f"correct {name}, in some.json"
    most = {"hidden_act": "linear", "num_hidden_layers": "10000"}.get(name)
    assert most is None or caught.value.expected.endswith(most)


def test_sizes_that_do_not_fit_each_other(tmp_path):
    with pytest.raises(InputError, match=r"hidden_size 100, .* multiple of num_attention_heads 7"):
        BertConfig.from_dict(UNCASED_BASE | {"hidden_size": 100, "num_attention_heads": 7})
    (tmp_path / "a.json").write_text("[1, 2]")
    with pytest.raises(InputError, match=r"a\.json, which is not JSON.*\n.*\n.*--bert_config_file"):
        BertConfig.from_json_file(tmp_path / "a.json")
    config = BertConfig(vocab_size=7, max_position_embeddings=13)
    for length in (1, 13):
        config.check_sequence_length(length)
    for length in (-1, 0, 14):
        with pytest.raises(InputError, match=f"max_seq_length {length}\n.*1 to 13"):
            config.check_sequence_length(length)
    config.check_vocabulary_size(7, vocab_file="vocab.txt")
    with pytest.raises(InputError, match=r"vocab\.txt with 8 word pieces"):
        config.check_vocabulary_size(8, vocab_file="vocab.txt")


# ---------------------------------------------------------------------------- training


@pytest.mark.parametrize(
    ("loop", "log", "save", "evaluate", "first", "expected"),
    [
        (4, 5, 7, 0, 0, [4, 5, 7, 10, 14, 15, 16]),
        (4, 5, 7, 0, 6, [7, 10, 14, 15, 16]),
        (1000, 5, 7, 3, 0, [3, 5, 6, 7, 9, 10, 12, 14, 15, 16]),
        (10, 0, 0, 0, 0, [10, 16]),  # nothing but the end
    ],
)
def test_intervals(loop, log, save, evaluate, first, expected):
    intervals = Intervals(
        iterations_per_loop=loop, log_steps=log, save_checkpoints_steps=save, eval_steps=evaluate
    )
    plan = RunPlan(
        num_records=1, batch_size=1, num_train_steps=16, last_step=16, seed=1, intervals=intervals
    )
    assert [*plan.stops(first)] == expected


def test_short_runs_are_logged_more_often():
    """By a divisor of the steps between checkpoints: every 50 where a twentieth is 51."""
    for num_steps, expected in ((7, 1), (60, 2), (1029, 50), (10**6, 100)):
        assert Intervals().of_run(num_steps) == Intervals(log_steps=expected)
    assert Intervals(log_steps=7).of_run(9) == Intervals(log_steps=7)


def test_settings_that_are_none():
    for name in ("iterations_per_loop", "log_steps", "save_checkpoints_steps", "eval_steps"):
        with pytest.raises(InputError, match=name):
            Intervals(**{name: -1})
    with pytest.raises(InputError, match="iterations_per_loop"):
        Intervals(iterations_per_loop=0)
    with pytest.raises(InputError, match="precision"):
        StepConfig(precision="float8")


def test_a_batch_that_cannot_be_shared_out():
    step_config = StepConfig(gradient_accumulation_steps=3)
    step_config.check_batch_size(12, 2)
    with pytest.raises(InputError) as caught:
        step_config.check_batch_size(8, 2, name="--train_batch_size")
    assert "--train_batch_size=8 for 2 replicas" in caught.value.received
    assert "--gradient_accumulation_steps=3" in caught.value.received
    assert "a multiple of 6" in caught.value.remedy
