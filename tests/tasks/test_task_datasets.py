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
    """Prepared datasets: glue/mrpc, glue/mnli, conll2003, xnli."""
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
            {"train": mrpc},
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
    return folder


def test_examples(folder):
    task = get_task("mrpc")
    assert task.read_tfds("glue/mrpc", "train", data_dir=folder) == [
        Example("7", "A", "X", "1"),
        Example("3", "B", "Y", "0"),
        Example("5", "Ü", "Z", "1"),
    ]


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_words_with_tags(folder, split):
    """This dataset's dev data are called dev, others' validation."""
    found = get_task("ner").read_tfds("conll2003", split, data_dir=folder)
    assert [example.words for example in found] == [(split, "Smith"), ("left",)]
    assert [example.label for example in found] == [("B-PER", "I-PER"), ("O",)]


def test_a_users_own_columns(folder):
    task = get_task("csv", text_a="sentence2", label="label", id_column="idx")
    found = task.read_tfds("glue/mrpc", "train", data_dir=folder)
    assert found[0] == Example("7", "X", None, "equivalent")


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


def test_another_task(folder):
    with pytest.raises(InputError, match="only idx"):
        get_task("mnli").read_tfds("glue/mrpc", "train", data_dir=folder)
