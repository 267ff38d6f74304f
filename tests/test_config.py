"""BertConfig: the released files, and everything that must be refused."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.config import ACTIVATIONS, BertConfig
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


def test_released_files_at_hand(data_dir, goldens_dir):
    tiny = BertConfig.from_json_file(data_dir / "fixtures/tf1-tiny-checkpoint/bert_config.json")
    assert (tiny.hidden_size, tiny.vocab_size) == (4, 15)
    golden = BertConfig.from_json_file(goldens_dir / "pretraining_tiny/bert_config.json")
    assert (golden.hidden_size, golden.vocab_size) == (32, 120)


def test_defaults_are_the_originals():
    assert BertConfig(vocab_size=7).to_dict() == UNCASED_BASE | {
        "vocab_size": 7,
        "type_vocab_size": 16,
        "layer_norm_eps": 1e-12,
    }


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


@pytest.mark.parametrize("nothing", [None, "", "linear"])
def test_no_activation(nothing):
    assert BertConfig.from_dict(UNCASED_BASE | {"hidden_act": nothing}).hidden_act == "linear"


def test_sizes_may_be_changed_but_are_checked_again():
    with pytest.raises(InputError, match="hidden_size 100 with num_attention_heads 7"):
        BertConfig.from_dict(UNCASED_BASE | {"hidden_size": 100, "num_attention_heads": 7})


SIZES = [name for name, value in UNCASED_BASE.items() if isinstance(value, int)]


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [True, 0, -3, 2.5, 96.0, math.inf, math.nan, "12", None, [12]])
def test_sizes_that_are_no_sizes(name, value):
    with pytest.raises(InputError) as caught:
        BertConfig.from_dict(UNCASED_BASE | {name: value}, source="some.json")
    assert caught.value.received == f"{name} {value!r} in some.json"
    assert caught.value.expected == "a whole number above 0"
    assert name in caught.value.remedy


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
@pytest.mark.parametrize("value", [True, -0.1, 1, 1.0, math.inf, math.nan, "0.1", None])
def test_dropouts_that_are_no_probabilities(name, value):
    with pytest.raises(InputError, match=f"{name} "):
        BertConfig.from_dict(UNCASED_BASE | {name: value})


@pytest.mark.parametrize("name", ["initializer_range", "layer_norm_eps"])
@pytest.mark.parametrize("value", [False, -1e-9, math.inf, math.nan, "0.02", None])
def test_other_numbers_that_are_none(name, value):
    with pytest.raises(InputError, match=f"{name} "):
        BertConfig.from_dict(UNCASED_BASE | {name: value})


@pytest.mark.parametrize("value", ["gelu_new", "GELU", 3, ["gelu"], {"a": 1}])
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
    with pytest.raises(InputError, match=r"some\.json without vocab_size"):
        BertConfig.from_dict(values, source="some.json")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "3", '"vocab_size"', "null", "{'a': 1}"])
def test_broken_json(tmp_path, text):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match="which is not JSON") as caught:
        BertConfig.from_json_file(path)
    assert str(path) in caught.value.received


@pytest.mark.parametrize("data", [b"\xff\xfe{\x00", b'{"vocab_size": "\xe9"}', b"\x00" * 9])
def test_a_file_that_is_no_text(tmp_path, data):
    path = tmp_path / "bert_config.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match="which is not JSON"):
        BertConfig.from_json_file(path)


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match="which is not a file"):
            BertConfig.from_json_file(path)


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
