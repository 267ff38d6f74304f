"""What belongs to weights beside what is given: configuration, vocabulary, case, labels, task."""

import dataclasses
import logging
import pathlib

import model_files
import pytest
import small

from bert_tf import BertConfig
from bert_tf.checkpoints.companions import config_of, tokenizer_of
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.errors import InputError

CONFIG = small.CONFIG
VOCABULARIES = {
    "uncased_en_30522": True,
    "chinese_21128": True,
    "cased_en_28996": False,
    "multi_cased_119547": False,
}  # file, and do_lower_case of its models

# ---------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_attention_heads": 11}, "num_attention_heads 11"),
        ({"hidden_act": "gelu_erf"}, "hidden_act gelu_erf"),
        ({"layer_norm_eps": 1e-6}, "layer_norm_eps 1e-06"),
    ],
)
def test_another_configuration_that_would_not_be_noticed(tmp_path, tensors, changes, says):
    weights = open_weights(model_files.write_tf1(tmp_path / "a", tensors))
    other = tmp_path / "other.json"
    other.write_text(dataclasses.replace(CONFIG, **changes).to_json_string())
    with pytest.raises(InputError, match=says) as caught:
        config_of(weights, str(other))
    assert str(other) in caught.value.received


def test_the_configuration_that_is_given(tmp_path, tensors):
    weights = open_weights(model_files.write_tf1(tmp_path / "a", tensors, config=None))
    given = tmp_path / "given.json"
    given.write_text(dataclasses.replace(CONFIG, hidden_dropout_prob=0.3).to_json_string())
    expected = BertConfig.from_json_file(given)
    assert config_of(weights, str(given)) == expected
    assert config_of(dataclasses.replace(weights, config=CONFIG), str(given)) == expected
    assert config_of(dataclasses.replace(weights, config=CONFIG)) == CONFIG


# ---------------------------------------------------------------------------- vocabulary and case


def vocabulary_model(path: str, num_pieces: int, metadata: ModelMetadata, pieces=None):
    """Weights of a table of so many rows, and their configuration."""
    config = dataclasses.replace(CONFIG, vocab_size=num_pieces)
    weights = model_files.weights_of({}, path=path, config=config, metadata=metadata, pieces=pieces)
    return weights, config


@pytest.mark.parametrize(("name", "lower"), VOCABULARIES.items())
def test_case_by_the_vocabulary(data_dir, name, lower):
    """The four released vocabularies say it themselves."""
    file = str(data_dir / f"vocab/{name}.txt")
    num_pieces = int(name.split("_")[-1])
    weights, config = vocabulary_model("/memory/x/bert_model.ckpt", num_pieces, ModelMetadata())
    assert tokenizer_of(weights, config, file, lower).do_lower_case is lower
    with pytest.raises(InputError, match="a vocabulary with") as caught:
        tokenizer_of(weights, config, file, not lower)
    assert caught.value.remedy == f"use --{'' if lower else 'no'}do_lower_case"


@pytest.mark.parametrize(
    ("folder", "lower"),
    [
        ("uncased_L-12_H-768_A-12", True),
        ("wwm_uncased_L-24_H-1024_A-16", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("cased_L-24_H-1024_A-16", False),
        ("wwm_cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
    ],
)
def test_case_by_the_name_of_the_folder(folder, lower):
    for root in ("", "/models/", "gs://bucket/"):
        weights, config = vocabulary_model(
            f"{root}{folder}/bert_model.ckpt", 41, ModelMetadata(), model_files.PIECES
        )
        assert tokenizer_of(weights, config, None, lower).do_lower_case is lower
        with pytest.raises(InputError, match="by its name"):
            tokenizer_of(weights, config, None, not lower)
    weights, config = vocabulary_model(
        f"/{folder}_mine/bert_model.ckpt", 41, ModelMetadata(), model_files.PIECES
    )
    tokenizer_of(weights, config, None, not lower)


@pytest.mark.parametrize("lower", [True, False])
def test_case_by_the_facts(lower):
    metadata = ModelMetadata(do_lower_case=lower)
    weights, config = vocabulary_model("/memory/x/model", 41, metadata, model_files.PIECES)
    assert tokenizer_of(weights, config).do_lower_case is lower
    with pytest.raises(InputError, match=f"whose model says do_lower_case {lower}"):
        tokenizer_of(weights, config, None, not lower)


def test_case_of_which_nothing_is_known():
    weights, config = vocabulary_model("/memory/x/model", 41, ModelMetadata(), model_files.PIECES)
    assert tokenizer_of(weights, config).do_lower_case is True
    assert tokenizer_of(weights, config, None, False).do_lower_case is False


def test_a_case_that_nothing_shows_is_asked_for():
    """Some pieces would be lost in lower-cased text, and there are too few to be sure."""
    pieces = (*model_files.PIECES[:-1], "Paris")
    weights, config = vocabulary_model("/memory/x/model", 41, ModelMetadata(), pieces)
    with pytest.raises(InputError, match=r"does not show whether .*'Paris'") as caught:
        tokenizer_of(weights, config)
    assert "--nodo_lower_case" in caught.value.expected
    for lower in (True, False):
        assert tokenizer_of(weights, config, None, lower).do_lower_case is lower


def test_what_is_recorded_goes_before_what_the_vocabulary_shows(data_dir, caplog):
    """Data of a cased vocabulary may have been lower-cased; the model then knows no capitals."""
    weights, config = vocabulary_model("/memory/x/m", 28996, ModelMetadata(do_lower_case=True))
    caplog.set_level(logging.WARNING)
    file = str(data_dir / "vocab/cased_en_28996.txt")
    assert tokenizer_of(weights, config, file).do_lower_case is True
    assert "a vocabulary with capital letters" in caplog.text


def test_the_table_against_the_vocabulary(tmp_path, caplog):
    weights, config = vocabulary_model("/memory/x/model", 40, ModelMetadata(), model_files.PIECES)
    with pytest.raises(InputError, match="with 41 word pieces") as caught:
        tokenizer_of(weights, config)
    assert "at most 40" in caught.value.expected
    padded = dataclasses.replace(config, vocab_size=64)
    caplog.set_level(logging.WARNING)
    assert tokenizer_of(weights, padded).vocab_size == 41
    assert "41 word pieces, the model's table 64 rows" in caplog.text
    far_too_many = dataclasses.replace(config, vocab_size=41 + 1024)
    with pytest.raises(InputError, match="with 41 word pieces"):
        tokenizer_of(weights, far_too_many)
    none_there, config = vocabulary_model("/memory/x/model", 41, ModelMetadata())
    with pytest.raises(InputError, match=r"without a vocab\.txt"):
        tokenizer_of(none_there, config)
    given = pathlib.Path(tmp_path / "vocab.txt")
    given.write_text("\n".join(model_files.PIECES))
    assert tokenizer_of(none_there, config, str(given)).vocab_size == 41
