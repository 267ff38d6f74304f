"""Typed JSON files, and BertConfig: the released ones, and everything that must be refused."""

import dataclasses
import json
import math
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.config import ACTIVATIONS, BertConfig, declared, typed
from bert_tf.errors import InputError

# As in the archives of the released models.
UNCASED_BASE = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
CHINESE_EXTRAS = {"directionality": "bidi", "pooler_fc_size": 768, "pooler_type": "first_token"}


def test_released_files(tmp_path, data_dir):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(UNCASED_BASE | CHINESE_EXTRAS))
    config = BertConfig.from_json_file(path)
    assert config.to_dict() == UNCASED_BASE | {"layer_norm_eps": 1e-12}
    tiny = BertConfig.from_json_file(data_dir / "fixtures/tf1-tiny-checkpoint/bert_config.json")
    assert (tiny.hidden_size, tiny.vocab_size) == (4, 15)


def test_defaults_are_the_originals():
    ours = {"vocab_size": 7, "type_vocab_size": 16, "layer_norm_eps": 1e-12}
    assert BertConfig(vocab_size=7).to_dict() == UNCASED_BASE | ours


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
        with pytest.raises(
            InputError, match=f"config.json with hidden_act {changes['hidden_act']!r}"
        ):
            BertConfig.from_json_file(path)


@given(
    st.fixed_dictionaries(
        {"vocab_size": st.integers(1, 10**6), "hidden_act": st.sampled_from(ACTIVATIONS)},
        optional={
            "num_hidden_layers": st.integers(1, 99),
            "hidden_dropout_prob": st.floats(0, 1, exclude_max=True),
            "initializer_range": st.floats(0, 9),
        },
    )
)
def test_round_trip(values):
    config = BertConfig.from_dict(values)
    assert BertConfig.from_dict(json.loads(config.to_json_string())) == config
    assert {name: config.to_dict()[name] for name in values} == values


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
            assert caught.value.received == f"some.json with {name} {value!r:.80}"
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


# ---------------------------------------------------------------------------- typed


@dataclasses.dataclass(frozen=True)
class Tensor:
    shape: tuple[int | None, ...]
    dtype: str = declared("int32", choices=("int32", "string"))


@dataclasses.dataclass(frozen=True)
class Declared:
    """A field of each kind that a file may have."""

    count: int = declared(low=1, high=13)
    share: float | None = declared(None, low=-1, below=2.5)
    cased: bool = False
    labels: tuple[str, ...] | None = declared(None, distinct=True, filled=True)
    tensors: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    first: Tensor | None = None
    numbers: tuple[int, ...] = declared((), low=-3, high=9)
    other: typing.Any = None


def test_typed_values():
    assert typed(Declared, {"count": 13}, source="f") == Declared(13)
    values = {
        "count": 1, "share": -1, "cased": True, "labels": ["b", "a"], "other": [1.5, {}],
        "tensors": {"x": {"shape": [None, 7], "dtype": "string"}}, "first": {"shape": []},
        "numbers": [5, -3, 9],
    }  # fmt: skip
    tensors = {"x": Tensor((None, 7), "string")}
    assert typed(Declared, values, source="f") == Declared(
        1, -1, True, ("b", "a"), tensors, Tensor(()), (5, -3, 9), [1.5, {}]
    )
    optional = ("share", "labels", "first")
    assert typed(Declared, {"count": 2} | dict.fromkeys(optional), source="f") == Declared(2)


@pytest.mark.parametrize(
    ("changes", "received", "expected"),
    [
        ({"count": 0}, "count 0", "a whole number, at least 1, at most 13"),
        ({"count": 14}, "count 14", "at most 13"),
        ({"share": 2.5}, "share 2.5", "a finite number, at least -1, below 2.5"),
        ({"share": -math.inf}, "share -inf", "a finite number"),
        ({"cased": "false"}, "cased 'false'", "true or false"),
        ({"cased": 0}, "cased 0", "true or false"),
        ({"labels": "ab"}, "labels 'ab'", "a list"),
        ({"labels": []}, "labels []", "a list, not empty"),
        ({"labels": ["a", ""]}, "labels[1] ''", "a text, not empty"),
        ({"labels": ["a", "\ud800"]}, "labels[1] '\\ud800'", "a text"),
        ({"labels": ["b", "a", "b"]}, "labels ['b', 'a', 'b']", "'b' only once"),
        ({"numbers": [5, 10, 3]}, "numbers[1] 10", "at most 9"),
        ({"numbers": [5, 3, -4]}, "numbers[2] -4", "at least -3"),
        ({"numbers": [5, True]}, "numbers[1] True", "a whole number"),
        ({"tensors": []}, "tensors []", "a JSON object"),
        ({"tensors": {"x": 3}}, "tensors.x 3", "a JSON object"),
        ({"tensors": {"x": {}}}, "no tensors.x.shape", "a value for each"),
        ({"tensors": {"x": {"shape": [1, "2"]}}}, "tensors.x.shape[1] '2'", "a whole number"),
        ({"first": {"shape": [], "dtype": "int8"}}, "first.dtype 'int8'", "one of int32, string"),
        ({"first": {"shape": [], "name": 1}}, "the unknown keys first.name", "only shape, dtype"),
        ({"cout": 1, "\x1b": 2}, r"the unknown keys \x1b, cout", "only count, share"),
    ],
)
def test_values_that_are_not_as_declared(changes, received, expected):
    with pytest.raises(InputError) as caught:
        typed(Declared, {"count": 3} | changes, source="a.json")
    assert caught.value.received == f"a.json with {received}"
    assert expected in caught.value.expected
    assert caught.value.remedy.endswith(", in a.json")


@pytest.mark.parametrize("values", [None, 3, [{"count": 3}]])
def test_what_is_no_object(values):
    with pytest.raises(InputError, match=r"a\.json with the outermost value .*\n.*a JSON object"):
        typed(Declared, values, source="a.json")
