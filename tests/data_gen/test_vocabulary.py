"""data_gen/vocabulary.py: the same bytes every time, and a tokenizer that takes them."""

import dataclasses
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest
from generation import make_job

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen import pipeline, vocabulary
from data_gen.documents import DocumentReader
from data_gen.vocabulary import (
    SPECIAL_PIECES,
    count_words,
    learn_vocabulary,
    write_vocabulary,
)

ROOT = pathlib.Path(__file__).parents[2]
SAMPLE_TEXT = sorted(map(str, (ROOT / "data_gen" / "sample_text").glob("*.txt")))
LEARN = {"character_coverage": 1.0}


def words_of(*paths, num_workers: int = 1, **case: bool):
    reader = DocumentReader([str(path) for path in paths], input_format="text")
    return count_words(reader, num_workers=num_workers, **{"do_lower_case": True} | case)


@pytest.fixture(scope="module")
def sample_words():
    return words_of(*SAMPLE_TEXT)


def test_words_are_those_of_the_tokenizer(tmp_path):
    path = tmp_path / "text"
    path.write_text("Été d'été, ΟΔΟΣ\n\n漢字 and ASCII and-and\x01\n", encoding="utf-8")
    once = ["d", "'", ",", "οδος", "漢", "字", "ascii", "-"]
    assert words_of(path) == {"ete": 2, "and": 3} | dict.fromkeys(once, 1)
    cased = words_of(path, do_lower_case=False)
    assert cased["Été"] == cased["été"] == cased["ΟΔΟΣ"] == cased["ASCII"] == 1


def test_accents_go_or_stay_apart_from_case(tmp_path):
    """Plain ASCII and other lines take different ways."""
    path = tmp_path / "text"
    path.write_text("Été Über\nAbC abc\n", encoding="utf-8")
    for lower, strip, expected in (
        (True, False, {"été": 1, "über": 1, "abc": 2}),
        (False, True, {"Ete": 1, "Uber": 1, "AbC": 1, "abc": 1}),
        (True, None, {"ete": 1, "uber": 1, "abc": 2}),
        (False, None, {"Été": 1, "Über": 1, "AbC": 1, "abc": 1}),
    ):
        assert words_of(path, do_lower_case=lower, strip_accents=strip) == expected


def learned(folder, text: str, **options) -> list[str]:
    """The pieces of a vocabulary of a text."""
    (folder / "text").write_text(text, encoding="utf-8")
    values = {"do_lower_case": True, "input_format": "text", "num_workers": 1, "vocab_size": 50}
    files = str(folder / "text"), str(folder / "vocab.txt")
    write_vocabulary(*files, **LEARN, **values | options)
    return (folder / "vocab.txt").read_text(encoding="utf-8").split()


@pytest.mark.parametrize(
    ("lower", "strip", "pieces", "tokens"),
    [
        (True, False, ["é", "t", "##t", "##é", "ét", "été"], ["été"]),
        (False, True, ["E", "e", "t", "##e", "##t", "##te"], ["E", "##te"]),
    ],
)
def test_data_takes_the_accents_from_beside_the_vocabulary(tmp_path, lower, strip, pieces, tokens):
    """Without any flag for the case in the first: é is a letter of lower-cased text there."""
    found = learned(tmp_path, "Été été\n", do_lower_case=lower, strip_accents=strip)
    assert {*found} == {*SPECIAL_PIECES, *pieces}
    facts = {"do_lower_case": lower, "strip_accents": strip}
    assert json.loads((tmp_path / "model_facts.json").read_text()) == facts
    job = make_job(tmp_path, str(tmp_path / "vocab.txt"), input_file=str(tmp_path / "text"))
    plan, _ = pipeline.prepare(dataclasses.replace(job, do_lower_case=None if lower else False))
    assert {name: plan.made_with[name] for name in facts} == facts
    options = {"strip_accents": plan.job.strip_accents}
    tokenizer = FullTokenizer(tmp_path / "vocab.txt", plan.job.do_lower_case, **options)
    assert tokenizer.tokenize("Été") == tokens


@pytest.mark.parametrize(("lower", "strip"), [(True, True), (False, False), (True, None)])
def test_accents_that_go_with_the_case_need_no_file(tmp_path, lower, strip):
    learned(tmp_path, "a b\n", do_lower_case=lower, strip_accents=strip)
    assert sorted(os.listdir(tmp_path)) == ["bert_config.json", "text", "vocab.txt"]


@pytest.mark.parametrize(
    ("name", "facts", "options", "says"),
    [
        ("model_facts.json", {"strip_accents": False}, {}, "beside files that say strip_accents F"),
        ("tokenizer_config.json", {"strip_accents": True}, {"strip_accents": False},
         "beside files that say strip_accents True"),
        ("model_facts.json", {"do_lower_case": True}, {"do_lower_case": False},
         "json with do_lower_case True"),
        ("model_facts.json", {"labels": ["a", "b"]}, {"strip_accents": False}, "json of a model"),
    ],
)  # fmt: skip
def test_files_beside_a_vocabulary_that_say_something_else(tmp_path, name, facts, options, says):
    """Nothing is written then."""
    (tmp_path / name).write_text(json.dumps(facts))
    with pytest.raises(InputError, match=says):
        learned(tmp_path, "a b\n", **options)
    assert sorted(os.listdir(tmp_path)) == sorted([name, "text"])
    assert json.loads((tmp_path / name).read_text()) == facts


def test_the_same_command_again_keeps_the_facts(tmp_path):
    for _ in range(2):
        assert "é" in learned(tmp_path, "é\n", strip_accents=False)
    with pytest.raises(InputError, match="another name: what is done with accents"):
        write_vocabulary(
            str(tmp_path / "text"), str(tmp_path / "model_facts.json"), do_lower_case=True,
            input_format="text", num_workers=1, vocab_size=9, **LEARN,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("size", "layers", "width", "heads", "inner"),
    [("tiny", 2, 128, 2, 512), ("mini", 4, 256, 4, 1024), ("small", 4, 512, 8, 2048),
     ("medium", 8, 512, 8, 2048), ("base", 12, 768, 12, 3072), ("large", 24, 1024, 16, 4096)],
)  # fmt: skip
def test_released_sizes(tmp_path, caplog, size, layers, width, heads, inner):
    """With the number of pieces that the text gives; a file of other sizes stays, which is said."""
    pieces = learned(tmp_path, "ab c\n", model_size=size)
    found = BertConfig.from_json_file(tmp_path / "bert_config.json")
    assert found == BertConfig(
        vocab_size=len(pieces), hidden_size=width, num_hidden_layers=layers,
        num_attention_heads=heads, intermediate_size=inner, max_position_embeddings=512,
        type_vocab_size=2,
    )  # fmt: skip
    vocabulary.write_config(str(tmp_path / "bert_config.json"), len(pieces), None)
    vocabulary.write_config(str(tmp_path / "bert_config.json"), len(pieces), size)
    assert "stays as it is" not in caplog.text
    other = "mini" if size != "mini" else "tiny"
    vocabulary.write_config(str(tmp_path / "bert_config.json"), len(pieces), other)
    assert f"sizes other than those of --model_size={other}" in caplog.text
    assert BertConfig.from_json_file(tmp_path / "bert_config.json") == found


def test_the_most_frequent_pair_is_merged_first():
    words = {"ab": 5, "abc": 3, "xab": 2, "cc": 1}
    learned = learn_vocabulary(words, vocab_size=99, **LEARN)
    assert learned == [
        *SPECIAL_PIECES,
        *("a", "b", "c", "x", "##a", "##b", "##c"),
        "ab",  # 8 times
        "abc",  # 3 times
        *("xa", "xab"),  # twice each; of two equal pairs the earlier pieces go first
    ]
    assert learn_vocabulary(words, vocab_size=13, **LEARN) == learned[:13]
    rare = {"aaaa": 100, "bb": 20, "ac": 1, "a" * 51: 9}  # and a word that is too long
    learned = learn_vocabulary(rare, vocab_size=99, character_coverage=0.99)
    assert learned[5:9] == ["a", "b", "##a", "##b"]
    assert max(map(len, learned[9:])) <= 5


def test_what_cannot_be_learned(tmp_path):
    text, values = tmp_path / "text", LEARN | {"do_lower_case": True, "num_workers": 1}
    for content, message in (("ab xab\n", r"--vocab_size=8(.|\n)*at least 10"),
                             ("\n \n", "without a word")):  # fmt: skip
        text.write_text(content)
        with pytest.raises(InputError, match=message):
            write_vocabulary(
                str(text), f"{tmp_path}/vocab.txt", vocab_size=8, input_format="text", **values
            )
        assert os.listdir(tmp_path) == ["text"]


def test_the_tokenizer_takes_the_vocabulary_and_knows_its_text(tmp_path, sample_words):
    learned = learn_vocabulary(sample_words, vocab_size=701, **LEARN)
    assert learned[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(learned) == len(set(learned)) == 701
    (tmp_path / "vocab.txt").write_text("\n".join(learned) + "\n", encoding="utf-8")
    tokenizer = FullTokenizer(tmp_path / "vocab.txt")
    assert tokenizer.vocab_size == 701
    for word in random.Random(1).sample(sorted(sample_words), 100):
        assert "".join(piece.removeprefix("##") for piece in tokenizer.tokenize(word)) == word


def test_words_met_once_are_forgotten_when_there_are_too_many(monkeypatch, sample_words):
    monkeypatch.setattr(vocabulary, "MAX_WORDS", 100)
    assert words_of(*SAMPLE_TEXT) == {word: n for word, n in sample_words.items() if n > 1}


def test_text_that_teaches_nothing_is_said(caplog):
    for length, said in ((50, False), (51, True)):
        learn_vocabulary({"ab": 9, "b" * length: 1}, vocab_size=40, **LEARN)
        assert ("73.9 % of the characters teach nothing" in caplog.text) == said  # 51 of 69


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Мой дом. Твой дом, ёлка", "60.0 % .*: Мой -> Мои, Твой -> Твои, ёлка -> елка.*"),
        ("El niño y el pingüino", "40.0 % .*: niño -> nino, pingüino -> pinguino.*"),
        ("बिल्ली", "100.0 % .*"), ("がっこう か", "50.0 % .*: がっこう -> かっこう.*"),
        ("Ha\u0301t X", "50.0 % .*"), ("tiếng Việt", "100.0 % .*: tiếng -> tieng"),
        ("서울 café " + "and " * 99, ""), ("THE THE ДОМ", ""), ("", ""),
    ],
)  # fmt: skip
def test_letters_that_are_lost_are_said(caplog, text, says):
    vocabulary.warn_of_lost_letters([text], "")
    assert bool(caplog.text) == bool(says)
    assert re.search(says, caplog.text)


def test_letters_are_lost_in_lower_cased_text_only(tmp_path, caplog):
    (tmp_path / "text").write_text("Мой дом.\n", encoding="utf-8")
    for lower in (False, True):
        assert "letters" not in caplog.text
        write_vocabulary(
            str(tmp_path / "text"), str(tmp_path / "vocab.txt"), do_lower_case=lower,
            input_format="text", num_workers=1, vocab_size=20, **LEARN,
        )  # fmt: skip
    assert "50.0 % of the words lose letters or accents: Мой -> Мои. --nostrip" in caplog.text


@pytest.mark.parametrize("size", [8, 700])
def test_own_sizes_of_a_model_stay(tmp_path, caplog, size):
    text = json.dumps(BertConfig(vocab_size=size, hidden_size=60).to_dict())
    (tmp_path / "bert_config.json").write_text(text)
    (tmp_path / "text").write_text("a b c\n", encoding="utf-8")
    learn = LEARN | {"vocab_size": 700, "do_lower_case": True, "num_workers": 1}
    files = str(tmp_path / "text"), str(tmp_path / "vocab.txt")
    write_vocabulary(*files, input_format="text", **learn)
    assert (tmp_path / "bert_config.json").read_text() == text
    assert (f"vocab_size of {size}, and the vocabulary 8 pieces" in caplog.text) == (size == 700)
    (tmp_path / "bert_config.json").write_text("{")
    write_vocabulary(*files, input_format="text", **learn)
    assert "bert_config.json stays as it is" in caplog.text
    assert (tmp_path / "bert_config.json").read_text() == "{"
    with pytest.raises(InputError, match="another name: the sizes"):
        write_vocabulary(files[0], str(tmp_path / "bert_config.json"), input_format="text", **learn)


@pytest.mark.parametrize("name", ["text", "bert_config.json"])
def test_a_text_is_not_replaced_by_its_vocabulary(tmp_path, name):
    """Nor by the sizes beside it; whatever a pattern matches is an input."""
    (tmp_path / name).write_text("a b c\n", encoding="utf-8")
    path = str(tmp_path / ("vocab.txt" if name != "text" else "./text"))
    with pytest.raises(InputError, match=rf"{name} as the output, which is the input .*/{name}\n"):
        write_vocabulary(
            f"{tmp_path}/*t*", path, input_format="text", **LEARN, do_lower_case=True, num_workers=1
        )
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_pipe_has_no_sizes_beside_it(tmp_path):
    (tmp_path / "text").write_text("a b c\n", encoding="utf-8")
    end, begin = os.pipe()
    learn = LEARN | {"vocab_size": 700, "do_lower_case": True, "num_workers": 1}
    write_vocabulary(str(tmp_path / "text"), f"/dev/fd/{begin}", input_format="text", **learn)
    os.close(begin)
    with open(end, encoding="utf-8") as pipe:
        assert pipe.read().split() == [*SPECIAL_PIECES, "a", "b", "c"]


def test_the_command_writes_the_same_bytes_every_time(tmp_path, monkeypatch):
    """Of another process: other hash seeds, other numbers of threads and of workers."""
    there, here, texts = tmp_path / "there" / "vocab.txt", tmp_path / "here", ",".join(SAMPLE_TEXT)
    words = [f"--input_file={texts}", f"--output_file={there}", "--vocab_size=1500"]
    command = [sys.executable, "-m", "bert_tf", "vocab", *words]
    env = os.environ | {"PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stderr
    assert "1500 pieces, learned from" in ended.stderr
    assert sorted(os.listdir(there.parent)) == ["bert_config.json", "vocab.txt"]
    assert BertConfig.from_json_file(there.parent / "bert_config.json") == BertConfig(
        vocab_size=1500, type_vocab_size=2
    )
    monkeypatch.setattr(vocabulary, "BLOCK_CHARACTERS", 20_000)
    write_vocabulary(
        texts, str(here), vocab_size=1500, do_lower_case=True, input_format="text",
        num_workers=2,
    )  # fmt: skip
    assert here.read_bytes() == there.read_bytes()
    assert here.read_bytes().count(b"\n") == 1500
