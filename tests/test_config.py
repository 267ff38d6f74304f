"""Typed JSON files, and BertConfig: the released ones, and everything that must be refused."""

import dataclasses
import json
import math
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.config import ACTIVATIONS, BertConfig, typed
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
CHINESE_EXTRAS = {
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
}


def write(folder, text: str):
    path = folder / "bert_config.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_released_file(tmp_path):
    config = BertConfig.from_json_file(write(tmp_path, json.dumps(UNCASED_BASE)))
    assert config.to_dict() == UNCASED_BASE | {"layer_norm_eps": 1e-12}


def test_a_released_file_with_keys_that_nothing_reads(tmp_path):
    path = write(tmp_path, json.dumps(UNCASED_BASE | CHINESE_EXTRAS | {"vocab_size": 21128}))
    config = BertConfig.from_json_file(str(path))
    assert config == BertConfig.from_dict(UNCASED_BASE | {"vocab_size": 21128})


def test_a_released_file_at_hand(data_dir):
    tiny = BertConfig.from_json_file(data_dir / "fixtures/tf1-tiny-checkpoint/bert_config.json")
    assert (tiny.hidden_size, tiny.vocab_size) == (4, 15)


def test_defaults_are_the_originals():
    assert BertConfig(vocab_size=7).to_dict() == UNCASED_BASE | {
        "vocab_size": 7,
        "type_vocab_size": 16,
        "layer_norm_eps": 1e-12,
    }


def test_hugging_faces_file_is_told_by_its_keys(tmp_path):
    """Its "gelu" is the exact one, the original's the tanh form."""
    path, sizes = tmp_path / "config.json", {**UNCASED_BASE, "hidden_act": "gelu"}
    path.write_text(json.dumps(sizes))
    assert BertConfig.from_json_file(path).hidden_act == "gelu"
    for key, value in {"model_type": "bert", "architectures": ["BertModel"]}.items():
        path.write_text(json.dumps(sizes | {key: value, "pad_token_id": 0}))
        theirs = BertConfig.from_json_file(path)
        assert theirs == BertConfig.from_dict(sizes | {"hidden_act": "gelu_erf"})
    for act in (None, "gelu_erf"):
        path.write_text(json.dumps(sizes | {"model_type": "bert", "hidden_act": act}))
        with pytest.raises(InputError, match=f"config.json with hidden_act {act!r}"):
            BertConfig.from_json_file(path)


@given(
    st.fixed_dictionaries(
        {"vocab_size": st.integers(1, 10**6), "hidden_act": st.sampled_from(ACTIVATIONS)},
        optional={
            "num_hidden_layers": st.integers(1, 99),
            "max_position_embeddings": st.integers(1, 10**5),
            "hidden_dropout_prob": st.floats(0, 1, exclude_max=True),
            "initializer_range": st.floats(0, 9),
        },
    )
)
def test_round_trip(values):
    config = BertConfig.from_dict(values)
    assert BertConfig.from_dict(json.loads(config.to_json_string())) == config
    assert {name: config.to_dict()[name] for name in values} == values


@pytest.mark.parametrize(
    ("given", "means"),
    [(None, "linear"), ("", "linear"), ("Linear", "linear"), ("GELU", "gelu")],
)
def test_activations_as_the_original_reads_them(given, means):
    assert BertConfig.from_dict(UNCASED_BASE | {"hidden_act": given}).hidden_act == means


def test_sizes_may_be_changed_but_are_checked_again():
    with pytest.raises(InputError, match="hidden_size 100 with num_attention_heads 7"):
        BertConfig.from_dict(UNCASED_BASE | {"hidden_size": 100, "num_attention_heads": 7})


SIZES = [name for name, value in UNCASED_BASE.items() if isinstance(value, int)]


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [True, 0, -3, 2.5, 96.0, 2**31, math.nan, "12", None, [12]])
def test_sizes_that_are_no_sizes(name, value):
    with pytest.raises(InputError) as caught:
        BertConfig.from_dict(UNCASED_BASE | {name: value}, source="some.json")
    assert caught.value.received == f"some.json with {name} {value!r}"
    most = 10_000 if name == "num_hidden_layers" else 2**31 - 1
    assert caught.value.expected == f"a whole number, at least 1, at most {most}"
    assert name in caught.value.remedy


OTHER_NUMBERS = {
    ("hidden_dropout_prob", "attention_probs_dropout_prob"): [-0.1, 1, 1.0, "0.1"],
    ("initializer_range", "layer_norm_eps"): [-1e-9, 1e300, 10**400, "0.02"],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for names, values in OTHER_NUMBERS.items()
        for name in names
        for value in (*values, True, math.inf, math.nan, None)
    ],
)
def test_numbers_that_are_out_of_range(name, value):
    with pytest.raises(InputError, match=f"{name} "):
        BertConfig.from_dict(UNCASED_BASE | {name: value})


@pytest.mark.parametrize("value", ["gelu_new", 0, 3, False, [], ["gelu"], {"a": 1}])
def test_unknown_activation(value):
    with pytest.raises(InputError, match="hidden_act") as caught:
        BertConfig.from_dict(UNCASED_BASE | {"hidden_act": value})
    assert caught.value.expected == "one of gelu, gelu_erf, relu, tanh, linear"


def test_unknown_keys_are_named():
    with pytest.raises(InputError) as caught:
        BertConfig.from_dict(
            UNCASED_BASE | {"num_layers": 12, "embedding_size": 128}, source="albert.json"
        )
    assert caught.value.received == "albert.json with the unknown keys embedding_size, num_layers"


def test_missing_vocab_size():
    values = {name: value for name, value in UNCASED_BASE.items() if name != "vocab_size"}
    with pytest.raises(InputError, match=r"some\.json with no vocab_size"):
        BertConfig.from_dict(values, source="some.json")


def test_a_file_that_is_no_json(tmp_path):
    path = write(tmp_path, "[1, 2]")
    with pytest.raises(InputError, match=f"{path}, which is not JSON") as caught:
        BertConfig.from_json_file(path)
    assert "--bert_config_file" in caught.value.remedy


def test_sequence_length():
    config = BertConfig(vocab_size=7, max_position_embeddings=13)
    for length in (1, 13):
        config.check_sequence_length(length)
    for length in (-1, 0, 14):
        with pytest.raises(InputError, match=f"max_seq_length {length}\n.*1 to 13"):
            config.check_sequence_length(length)


def test_vocabulary_size():
    config = BertConfig(vocab_size=7)
    for size in (5, 7):
        config.check_vocabulary_size(size, vocab_file="vocab.txt")
    with pytest.raises(InputError, match=r"vocab\.txt with 8 word pieces"):
        config.check_vocabulary_size(8, vocab_file="vocab.txt")


# ---------------------------------------------------------------------------- typed


@dataclasses.dataclass(frozen=True)
class Tensor:
    shape: tuple[int | None, ...]
    dtype: str = dataclasses.field(default="int32", metadata={"choices": ("int32", "string")})


@dataclasses.dataclass(frozen=True)
class Declared:
    """A field of each kind that a file may have."""

    count: int = dataclasses.field(metadata={"low": 1, "high": 13})
    share: float | None = dataclasses.field(default=None, metadata={"low": -1, "below": 2.5})
    cased: bool = False
    labels: tuple[str, ...] | None = dataclasses.field(
        default=None, metadata={"distinct": True, "filled": True}
    )
    tensors: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    first: Tensor | None = None
    other: typing.Any = None


def test_typed_values():
    assert typed(Declared, {"count": 13}, source="f") == Declared(13)
    values = {
        "count": 1, "share": -1, "cased": True, "labels": ["b", "a"], "other": [1.5, {}],
        "tensors": {"x": {"shape": [None, 7], "dtype": "string"}}, "first": {"shape": []},
    }  # fmt: skip
    assert typed(Declared, values, source="f") == Declared(
        1, -1, True, ("b", "a"), {"x": Tensor((None, 7), "string")}, Tensor(()), [1.5, {}]
    )
    optional = ("share", "labels", "first")
    assert typed(Declared, {"count": 2} | dict.fromkeys(optional), source="f") == Declared(2)


@pytest.mark.parametrize(
    ("changes", "received", "expected"),
    [
        ({"count": 0}, "count 0", "a whole number, at least 1, at most 13"),
        ({"count": 14}, "count 14", "at most 13"),
        ({"count": 12.0}, "count 12.0", "a whole number"),
        ({"count": True}, "count True", "a whole number"),
        ({"count": None}, "count None", "a whole number"),
        ({"share": 2.5}, "share 2.5", "a finite number, at least -1, below 2.5"),
        ({"share": math.nan}, "share nan", "a finite number"),
        ({"share": -math.inf}, "share -inf", "a finite number"),
        ({"share": "0"}, "share '0'", "a finite number"),
        ({"cased": "false"}, "cased 'false'", "true or false"),
        ({"cased": 0}, "cased 0", "true or false"),
        ({"labels": "ab"}, "labels 'ab'", "a list"),
        ({"labels": []}, "labels []", "a list with something in it"),
        ({"labels": ["a", ""]}, "labels[1] ''", "a text, not empty"),
        ({"labels": ["a", 1]}, "labels[1] 1", "a text"),
        ({"labels": ["a", "\ud800"]}, "labels[1] '\\ud800'", "a text"),
        ({"labels": ["b", "a", "b"]}, "labels ['b', 'a', 'b']", "'b' only once"),
        ({"tensors": []}, "tensors []", "a JSON object"),
        ({"tensors": {"x": 3}}, "tensors.x 3", "a JSON object"),
        ({"tensors": {"x": {}}}, "no tensors.x.shape", "a value for each"),
        ({"tensors": {"x": {"shape": [1, "2"]}}}, "tensors.x.shape[1] '2'", "a whole number"),
        ({"first": {"shape": [], "dtype": "int8"}}, "first.dtype 'int8'", "one of int32, string"),
        ({"first": {"shape": [], "name": 1}}, "the unknown keys first.name", "only dtype, shape"),
        ({"cout": 1, "\x1b": 2}, r"the unknown keys '\x1b', cout", "only cased, count"),
    ],
)
def test_values_that_are_not_as_declared(changes, received, expected):
    with pytest.raises(InputError) as caught:
        typed(Declared, {"count": 3} | changes, source="a.json")
    assert caught.value.received == f"a.json with {received}"
    assert caught.value.expected.startswith(expected) or expected in caught.value.expected
    assert caught.value.remedy.endswith(", in a.json")


@pytest.mark.parametrize("values", [None, 3, "count", [{"count": 3}]])
def test_what_is_no_object(values):
    with pytest.raises(InputError, match=r"a\.json with the outermost value .*\n.*a JSON object"):
        typed(Declared, values, source="a.json")
