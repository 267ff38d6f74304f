"""SQuAD from tensorflow-datasets, with datasets that are built here."""

import sys

import pytest
import small_squad as small

from bert_tf.errors import InputError
from bert_tf.squad import data as reading
from bert_tf.squad import tfds
from bert_tf.squad.data import Answer, SquadExample

CONTEXT = "😀 Ruprecht founded it in 1386."


def question(qas_id: str, text: str, *answers: tuple[str, int], **fields) -> dict:
    golds = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": qas_id, "question": text, "answers": golds} | fields


def content(*questions: dict) -> dict:
    paragraph = {"context": CONTEXT, "qas": list(questions)}
    return {"data": [{"title": "Heidelberg", "paragraphs": [paragraph]}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """A prepared squad of v1.1's kind, and squad/v2.0."""
    pytest.importorskip("tensorflow_datasets")
    folder = str(tmp_path_factory.mktemp("tfds"))
    who = question("q1", "Who?", ("Ruprecht", 2))
    when = question("q2", "When?", ("1386", 25), ("in 1386", 22))
    small.write_tfds(folder, "v1.1", train=content(who, when), validation=content(who))
    v2 = content(who | {"is_impossible": False}, question("q3", "Why?", is_impossible=True))
    small.write_tfds(folder, "v2.0", train=v2, validation=v2)
    return folder


def test_questions_of_v1(folder):
    file = tfds.read_squad_tfds("squad/v1.1", "train", data_dir=folder)
    assert not file.version_2
    assert file.source == "squad/v1.1, train"
    assert file.examples == [
        SquadExample("q1", "Who?", CONTEXT, (Answer("Ruprecht", 2),), False, "Heidelberg"),
        SquadExample(
            "q2",
            "When?",
            CONTEXT,
            (Answer("1386", 25), Answer("in 1386", 22)),
            title="Heidelberg",
        ),
    ]
    found = reading.training_set(file, version_2_with_negative=False)
    assert [one.words for one in found.examples] == [(1, 1), (5, 5)]  # offsets are code points


def test_questions_of_v2(folder):
    file = tfds.read_squad_tfds("squad/v2.0", tfds.PREDICT, data_dir=folder)
    assert file.version_2
    assert [one.is_impossible for one in file.examples] == [False, True]
    assert file.examples[1].answers == ()


def test_a_part_that_there_is_not(folder):
    with pytest.raises(InputError, match="with the splits train, validation"):
        tfds.read_squad_tfds("squad/v1.1", "test", data_dir=folder)


def test_another_kind_of_dataset(folder, monkeypatch):
    monkeypatch.setattr(tfds, "FEATURES", ("id", "document"))
    with pytest.raises(InputError, match=r"with the features .*question") as error:
        tfds.read_squad_tfds("squad/v1.1", "train", data_dir=folder)
    assert "SQuAD's: id, document" in error.value.expected


def test_the_library_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(InputError, match="tensorflow-datasets is not installed"):
        tfds.read_squad_tfds("squad", "train")
