"""data_gen/vocabulary.py: the same bytes every time, and a tokenizer that takes them."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen import vocabulary
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


def words_of(*paths, do_lower_case: bool = True, num_workers: int = 1):
    reader = DocumentReader([str(path) for path in paths], input_format="text")
    return count_words(reader, do_lower_case=do_lower_case, num_workers=num_workers)


@pytest.fixture(scope="module")
def sample_words():
    return words_of(*SAMPLE_TEXT)


def test_words_are_those_of_the_tokenizer(tmp_path):
    path = tmp_path / "text"
    path.write_text("Été d'été, ΟΔΟΣ\n\n漢字 and ASCII and-and\x00\n", encoding="utf-8")
    once = ["d", "'", ",", "οδος", "漢", "字", "ascii", "-"]
    assert words_of(path) == {"ete": 2, "and": 3} | dict.fromkeys(once, 1)
    cased = words_of(path, do_lower_case=False)
    assert cased["Été"] == cased["été"] == cased["ΟΔΟΣ"] == cased["ASCII"] == 1


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
    assert "50.0 % of the words lose letters or accents: Мой -> Мои. --nodo" in caplog.text


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
