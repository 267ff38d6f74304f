"""Tasks from tensorflow-datasets, with a dataset that is built here."""

import warnings

import pytest
import tensorflow as tf
from prepared_datasets import numbers, store

from bert_tf.errors import InputError
from bert_tf.tasks.examples import Example
from bert_tf.tasks.registry import get_task

TWO = {"sentence1": ["A", "B", "Ü"], "sentence2": ["X", "Y", "Z"]}
LANGUAGES = ["ar", "bg", "de", "el", "en", "es", "fr", "hi"]
LANGUAGES += ["ru", "sw", "th", "tr", "ur", "vi", "zh"]
NLI = ["entailment", "neutral", "contradiction"]  # another order than ours
NAMED = ("contradiction", "entailment")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Prepared datasets: glue/mrpc, glue/mnli, xnli, one of a user's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tfds = pytest.importorskip("tensorflow_datasets")
        folder = str(tmp_path_factory.mktemp("tfds"))
        text, label = tfds.features.Text, tfds.features.ClassLabel
        mrpc = {"idx": [7, 3, 5], "label": numbers(1, 0, 1), **TWO}
        pair = {"idx": tf.int32, "sentence1": text(), "sentence2": text()}
        store(
            folder,
            "glue",
            "mrpc",
            pair | {"label": label(names=["not_equivalent", "equivalent"])},
            {"train": mrpc, "validation": {name: column[:1] for name, column in mrpc.items()}},
        )
        questions = {"idx": [4, 5], "question1": ["A?", "B?"], "question2": ["", "C?"]}
        store(
            folder,
            "glue",
            "qqp",
            {"idx": tf.int32, "question1": text(), "question2": text()}
            | {"label": label(names=["not_duplicate", "duplicate"])},
            {
                "train": questions | {"label": numbers(0, 1)},
                "test": questions | {"label": numbers(-1, -1)},
            },
        )
        tags = label(names=["O", "B-PER", "I-PER"])
        store(
            folder,
            "conll2003",
            "conll2003",
            {"tokens": tfds.features.Sequence(text()), "ner": tfds.features.Sequence(tags)},
            {
                part: {
                    # The published dataset ends with an example without a word.
                    "tokens": tf.ragged.constant([[part, "Smith"], ["left"], []]),
                    "ner": tf.ragged.constant([[1, 2], [0], []], tf.int64),
                }
                for part in ("train", "dev", "test")
            },
        )
        mnli = {"train": "T", "validation_matched": "M", "validation_mismatched": "N"}
        mnli |= {"test_matched": "U", "test_mismatched": "V"}
        store(
            folder,
            "glue",
            "mnli",
            {"idx": tf.int32, "premise": text(), "hypothesis": text(), "label": label(names=NLI)},
            {
                part: {
                    "idx": [0, 1],
                    "label": numbers(-1, -1) if "test" in part else numbers(2, 0),
                    "premise": [f"{letter}0", f"{letter}1"],
                    "hypothesis": ["H0", "H1"],
                }
                for part, letter in mnli.items()
            },
        )
        xnli = {
            "label": numbers(0, 2),
            "premise": {n: [f"{n} premise {i}" for i in range(2)] for n in LANGUAGES},
            # Of each language a list: there may be several translations.
            "hypothesis": {n: [[f"{n} hypothesis {i}"] for i in range(2)] for n in LANGUAGES[::-1]},
        }
        store(
            folder,
            "xnli",
            None,
            {
                "label": label(names=NLI),
                "premise": tfds.features.Translation(LANGUAGES),
                "hypothesis": tfds.features.TranslationVariableLanguages(LANGUAGES),
            },
            {"validation": xnli, "test": xnli},
        )
        store(
            folder,
            "reviews",
            None,
            {
                "review": text(),
                "stars": tf.float32,
                "topics": tfds.features.Sequence(label(names=["food", "place"])),
            },
            {
                "train": {
                    "review": ["Good.", "Dear."],
                    "stars": [4.5, 2.0],
                    "topics": tf.ragged.constant([[1, 0], []], tf.int64),
                }
            },
        )
    return folder


def test_examples(folder):
    task = get_task("mrpc")
    assert task.read_tfds("glue/mrpc", "train", data_dir=folder) == [
        Example("7", "A", "X", "1"),
        Example("3", "B", "Y", "0"),
        Example("5", "Ü", "Z", "1"),
    ]
    assert len(task.read_tfds("glue/mrpc", "dev", data_dir=folder)) == 1


def test_empty_questions_are_left_out_or_predicted(folder):
    """As of QQP's files: none of those to be predicted may be lost."""
    task = get_task("qqp")
    found = task.read_tfds("glue/qqp", "train", data_dir=folder)
    assert found == [Example("5", "B?", "C?", "1")]
    found = task.read_tfds("glue/qqp", "test", data_dir=folder)
    assert found == [Example("4", "A?", ""), Example("5", "B?", "C?")]


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_words_with_tags(folder, split):
    """This dataset's dev data are called dev, others' validation."""
    found = get_task("ner").read_tfds("conll2003", split, data_dir=folder)
    assert [example.words for example in found] == [(split, "Smith"), ("left",)]
    assert [example.label for example in found] == [("B-PER", "I-PER"), ("O",)]


def test_a_users_own_columns(folder):
    task = get_task("csv", text_a="sentence2", label="label", id_column="idx")
    found = task.read_tfds("glue/mrpc", "dev", data_dir=folder)
    assert found == [Example("7", "X", None, "equivalent")]


@pytest.mark.parametrize(
    ("split", "letter", "labels"),
    [
        *(("train", "T", NAMED), ("dev", "M", NAMED), ("dev_mismatched", "N", NAMED)),
        *(("test", "U", (None, None)), ("test_mismatched", "V", (None, None))),
    ],
)
def test_both_halves_of_mnli(folder, split, letter, labels):
    """Their numbers of the labels are others than ours, and stand for the same names."""
    assert get_task("mnli").read_tfds("glue/mnli", split, data_dir=folder) == [
        Example(str(i), f"{letter}{i}", f"H{i}", label) for i, label in enumerate(labels)
    ]


@pytest.mark.parametrize(("language", "split"), [("ar", "dev"), ("de", "test"), ("zh", "dev")])
def test_xnli_in_every_language(folder, split, language):
    task = get_task("xnli", language=language)
    assert task.read_tfds("xnli", split, data_dir=folder) == [
        Example("0", f"{language} premise 0", f"{language} hypothesis 0", "entailment"),
        Example("1", f"{language} premise 1", f"{language} hypothesis 1", "contradiction"),
    ]


def test_xnli_in_no_language(folder):
    with pytest.raises(InputError) as info:
        get_task("xnli", language="xx").read_tfds("xnli", "dev", data_dir=folder)
    assert "premise/ar, premise/bg, premise/de" in info.value.received
    assert "premise/xx" in info.value.expected


def test_scores_of_a_users_own(folder):
    task = get_task("csv", text_a="review", label="stars", label_kind="regression")
    found = task.read_tfds("reviews", "train", data_dir=folder)
    assert found == [Example("0", "Good.", None, 4.5), Example("1", "Dear.", None, 2.0)]


def test_several_labels_of_a_users_own(folder):
    task = get_task("jsonl", text_a="review", label="topics", label_kind="multi_label")
    found = task.read_tfds("reviews", "train", data_dir=folder)
    assert [example.label for example in found] == [("place", "food"), ()]


def test_another_task(folder):
    with pytest.raises(InputError, match="only idx"):
        get_task("mnli").read_tfds("glue/mrpc", "train", data_dir=folder)
