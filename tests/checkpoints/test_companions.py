"""What belongs to weights beside what is given: configuration, vocabulary, case, labels, task."""

import dataclasses
import logging
import re

import model_files
import pytest
import small

from bert_tf.checkpoints.companions import config_of, tokenizer_of
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.errors import InputError

CONFIG = small.CONFIG
VOCABULARIES = {  # file, and do_lower_case of its models
    "uncased_en_30522": True,
    "chinese_21128": True,
    "cased_en_28996": False,
    "multi_cased_119547": False,
}
FOLDERS = {
    "uncased_L-12_H-768_A-12": True,
    "wwm_uncased_L-24_H-1024_A-16": True,
    "multilingual_L-12_H-768_A-12": True,
    "chinese_L-12_H-768_A-12": True,
    "cased_L-24_H-1024_A-16": False,
    "wwm_cased_L-24_H-1024_A-16": False,
    "multi_cased_L-12_H-768_A-12": False,
}


def weights_of(**changes):
    """Weights of the small vocabulary, of which nothing else is known."""
    return model_files.weights_of({}, **{"path": "/memory/x/model"} | changes)


# ---------------------------------------------------------------------------- configuration


def test_the_configuration_that_is_given(tmp_path):
    other, silent = tmp_path / "other.json", weights_of(config=None)
    dropout = dataclasses.replace(CONFIG, hidden_dropout_prob=0.3)
    other.write_text(dropout.to_json_string())
    assert config_of(silent, str(other)) == config_of(weights_of(), str(other)) == dropout
    assert config_of(weights_of()) == CONFIG
    with pytest.raises(InputError, match=r"without a bert_config\.json"):
        config_of(silent)
    for name, value in {"num_attention_heads": 11, "hidden_act": "gelu_erf",
                        "layer_norm_eps": 1e-6}.items():  # fmt: skip
        other.write_text(dataclasses.replace(CONFIG, **{name: value}).to_json_string())
        with pytest.raises(InputError, match=f"{other} with {name} {value}"):
            config_of(weights_of(), str(other))


# ---------------------------------------------------------------------------- case


def check_case(weights, lower: bool | None, says: str, vocab_file: str | None = None) -> None:
    """The case is taken, and the other one refused."""
    config = weights.config
    assert tokenizer_of(weights, config, vocab_file, lower).do_lower_case is lower
    with pytest.raises(InputError, match=says) as caught:
        tokenizer_of(weights, config, vocab_file, not lower)
    assert caught.value.remedy == f"use --{'' if lower else 'no'}do_lower_case"


@pytest.mark.parametrize(("name", "lower"), VOCABULARIES.items())
def test_case_by_the_vocabulary(data_dir, name, lower):
    """The four released vocabularies say it themselves."""
    config = dataclasses.replace(CONFIG, vocab_size=int(name.split("_")[-1]))
    weights = weights_of(config=config, pieces=None)
    check_case(weights, lower, "a vocabulary with", str(data_dir / f"vocab/{name}.txt"))


@pytest.mark.parametrize(("folder", "lower"), FOLDERS.items())
def test_case_by_the_name_of_the_folder(folder, lower):
    for root in ("", "/models/", "gs://bucket/"):
        check_case(weights_of(path=f"{root}{folder}/bert_model.ckpt"), lower, "by its name")
    weights = weights_of(path=f"/{folder}_mine/bert_model.ckpt")
    tokenizer_of(weights, CONFIG, None, not lower)


@pytest.mark.parametrize("lower", [True, False])
def test_case_by_the_facts(lower):
    weights = weights_of(metadata=ModelMetadata(do_lower_case=lower))
    check_case(weights, lower, f"whose model says do_lower_case {lower}")
    assert tokenizer_of(weights, CONFIG).do_lower_case is lower


def test_case_of_which_nothing_is_known():
    """It is asked for where some pieces, too few to be sure, would be lost in lower-cased text."""
    assert tokenizer_of(weights_of(), CONFIG).do_lower_case is True
    unsure = weights_of(pieces=(*model_files.PIECES[:-1], "Paris"))
    with pytest.raises(InputError, match=r"does not show whether .*'Paris'") as caught:
        tokenizer_of(unsure, CONFIG)
    assert "--nodo_lower_case" in caught.value.expected
    for weights in (weights_of(), unsure):
        for lower in (True, False):
            assert tokenizer_of(weights, CONFIG, None, lower).do_lower_case is lower


def test_what_is_recorded_goes_before_what_the_vocabulary_shows(data_dir, caplog):
    """Data of a cased vocabulary may have been lower-cased; the model then knows no capitals."""
    config = dataclasses.replace(CONFIG, vocab_size=28996)
    weights = weights_of(config=config, metadata=ModelMetadata(do_lower_case=True), pieces=None)
    caplog.set_level(logging.WARNING)
    file = str(data_dir / "vocab/cased_en_28996.txt")
    assert tokenizer_of(weights, config, file).do_lower_case is True
    assert "a vocabulary with capital letters" in caplog.text


# ---------------------------------------------------------------------------- the table


@pytest.mark.parametrize(
    ("rows", "says"),
    [(40, "with 41 word pieces\n.*at most 40"), (41 + 1024, "with 41 word pieces\n.*1065, the")],
)
def test_the_table_against_the_vocabulary(caplog, rows, says):
    caplog.set_level(logging.WARNING)
    with pytest.raises(InputError, match=re.compile(says)):
        tokenizer_of(weights_of(), dataclasses.replace(CONFIG, vocab_size=rows))
    assert not caplog.text
    padded = dataclasses.replace(CONFIG, vocab_size=41 + 1023)
    assert tokenizer_of(weights_of(), padded).vocab_size == 41
    assert "41 word pieces, the model's table 1064 rows; the last 1023 are" in caplog.text


def test_no_vocabulary(tmp_path):
    with pytest.raises(InputError, match=r"without a vocab\.txt"):
        tokenizer_of(weights_of(pieces=None), CONFIG)
    (tmp_path / "vocab.txt").write_text("\n".join(model_files.PIECES))
    tokenizer = tokenizer_of(weights_of(pieces=None), CONFIG, f"{tmp_path}/vocab.txt")
    assert tokenizer.vocab_size == 41
