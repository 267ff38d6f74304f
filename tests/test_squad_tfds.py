"""SQuAD from tensorflow-datasets, with datasets that are built here."""

import sys
import warnings

import pytest
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.squad import reading, tfds
from bert_tf.squad.reading import Answer, SquadExample

CONTEXT = "😀 Ruprecht founded it in 1386."


def question(qas_id: str, text: str, answers: list[tuple[str, int]], **fields) -> dict:
    starts = tf.constant([start for _, start in answers], tf.int32)
    return {
        "id": qas_id,
        "title": "Heidelberg",
        "context": CONTEXT,
        "question": text,
        "answers": {
            "text": tf.constant([a for a, _ in answers], tf.string),
            "answer_start": starts,
        },
    } | fields


@pytest.fixture(scope="module")
def library():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow_datasets")


@pytest.fixture(scope="module")
def folder(library, tmp_path_factory) -> str:
    """A prepared squad of v1.1's kind, and squad/v2.0."""
    folder = str(tmp_path_factory.mktemp("tfds"))
    text = library.features.Text()
    features = {
        "id": tf.string,
        "title": text,
        "context": text,
        "question": text,
        "answers": library.features.Sequence({"text": text, "answer_start": tf.int32}),
    }
    who, when = [("Ruprecht", 2)], [("1386", 25), ("in 1386", 22)]
    v1 = [question("q1", "Who?", who), question("q2", "When?", when)]
    v2 = [
        question("q1", "Who?", who, is_impossible=False),
        question("q3", "Why?", [], is_impossible=True),
    ]
    build(library, folder, "v1.1", features, train=v1, validation=v1[:1])
    build(library, folder, "v2.0", features | {"is_impossible": tf.bool}, train=v2, validation=v2)
    build(library, folder, "other", {"text": text}, train=[{"text": "x"}])
    return folder


def build(library, folder, config, features, **parts: list[dict]) -> None:
    datasets = {}
    for name, rows in parts.items():
        signature = tf.nest.map_structure(
            lambda value: tf.TensorSpec([None] * tf.rank(value).numpy(), tf.as_dtype(value.dtype)),
            tf.nest.map_structure(tf.constant, rows[0]),
        )
        datasets[name] = tf.data.Dataset.from_generator(
            lambda rows=rows: iter(rows), output_signature=signature
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.dataset_builders.store_as_tfds_dataset(
            name="squad",
            config=config,
            version="3.0.0",
            features=library.features.FeaturesDict(features),
            split_datasets=datasets,
            data_dir=folder,
            disable_shuffling=True,
        )


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
    with pytest.raises(InputError, match="with the parts train, validation"):
        tfds.read_squad_tfds("squad/v1.1", "test", data_dir=folder)


def test_another_kind_of_dataset(folder):
    with pytest.raises(InputError, match="with the features text"):
        tfds.read_squad_tfds("squad/other", "train", data_dir=folder)


def test_the_library_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(InputError, match="tensorflow-datasets is not installed"):
        tfds.read_squad_tfds("squad", "train")
