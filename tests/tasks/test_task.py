"""Tasks read their files, or refuse them with file and line; their labels; datasets of dicts."""

import dataclasses
import re
import types

import numpy as np
import pytest

from bert_tf.data.tfds import DatasetSplit
from bert_tf.errors import InputError
from bert_tf.heads import Tags
from bert_tf.tasks import task as task_module
from bert_tf.tasks.examples import Example, WordsExample
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.results import compute_metrics

RTE = "index\tsentence1\tsentence2\tlabel\n"
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t10\t11\tA\tB\n"
SCORED = "index\tsentence1\tsentence2\tscore\n0\tA\tB\t5.5\n"
OWN = "key,text_a,label\na,A,x\nb,B,y\na,C,x\n"
# Task, split, content of the file; the line, and what is said to stand there. What layouts refuse
# is in test_examples.py: here is what tasks choose.
REFUSED = [
    ("mrpc", "dev", MRPC + "1\t10\t11\tA\n", 3, "4 columns"),
    ("rte", "train", RTE + "0\tA\tB\tcontradiction\n", 2, "'contradiction'"),
    ("sts-b", "dev", SCORED, 2, "the label '5.5'"),
    ("rte", "test", RTE[:-7] + "\n0\t\tB\n", 2, "an empty text"),
    ("cola", "test", "0\tA sentence.\n", 1, "the columns '0 | A sen"),
    ("csv", "train", OWN, 4, "line 2 has too"),
]


@pytest.mark.parametrize(("name", "split", "content", "line", "received"), REFUSED)
def test_refused(tmp_path, name, split, content, line, received):
    task = get_task(name, **({"id_column": "key"} if name == "csv" else {}))
    path = tmp_path / task.split(split).files.partition("|")[0]
    path.write_text(content)
    with pytest.raises(InputError) as info:
        task.read(str(tmp_path), split)
    assert info.value.received.startswith(f"{path}, line {line}: ")
    assert received in info.value.received


@pytest.mark.parametrize("header", ["label\ttext", "good\tSentence", "target\t7"])
def test_a_header_in_a_file_without_one_is_no_example(tmp_path, header):
    """Nor is it a class; a row whose label is known is data."""
    (tmp_path / "train.tsv").write_text(f"{header}\ngood\tA\nbad\tB\n")
    columns = {"has_header": False, "text_a_column": "1", "label_column": "0"}
    task = get_task("tsv", **columns)
    with pytest.raises(InputError, match=r"line 1: .*, a header"):
        task.read(str(tmp_path), "train")
    names = {"good", "bad", header.partition("\t")[0]}
    known = get_task("tsv", **columns, labels=sorted(names))
    assert len(known.read(str(tmp_path), "train")) == 3


OWN_HEADER = "kind\ta\tb\tone\tother\n"
MNLI_HEADER = "\t".join(f"column_{i}" for i in range(12)) + "\n"


def test_own_data_in_the_layout_of_the_originals_tasks(tmp_path, caplog):
    """They are read by position, whatever their header says, unless it is one of another file."""
    (tmp_path / "train.tsv").write_text(OWN_HEADER + "1\t7\t7\tA cat.\tA dog.\n")
    assert get_task("mrpc").read(str(tmp_path), "train") == [Example("0", "A cat.", "A dog.", "1")]
    assert "read by position as in the original" in caplog.text
    (tmp_path / "test.tsv").write_text(OWN_HEADER + "x\t7\t7\tA\tB\n")
    assert get_task("mrpc").read(str(tmp_path), "test") == [Example("0", "A", "B")]
    row = "\t".join(["0", *"abcdefg", "A", "B", "x", "neutral"])
    (tmp_path / "train.tsv").write_text(MNLI_HEADER + row)
    assert get_task("mnli").read(str(tmp_path), "train") == [Example("0", "A", "B", "neutral")]
    others = ("1\t7\t8\tA\tB\n", f"x\ty\tz\t{'word ' * 10}\tB\n", "kind\ta\tb\tone\n")
    of_mnli = "no\tpromptID\tpairID\tgenre\tsentence1\tsentence2\n"  # its texts are not 3 and 4
    for header in (*others, of_mnli, "kind\tQuality\tb\tone\tother\n"):
        (tmp_path / "train.tsv").write_text(header + "1\t7\t7\tA\tB\n")
        with pytest.raises(InputError, match="line 1: the columns"):
            get_task("mrpc").read(str(tmp_path), "train")


def test_data_that_a_task_does_not_have(tmp_path):
    with pytest.raises(InputError, match="train data of the task ax, which has none"):
        get_task("ax").read(str(tmp_path), "train")
    with pytest.raises(InputError, match=r"where there is no val\.csv or dev\.csv"):
        get_task("swag").read(str(tmp_path), "dev")


def test_a_metric_that_there_is_not():
    with pytest.raises(ValueError, match="received the metrics"):
        dataclasses.replace(get_task("cola"), metrics=("bleu",))


# ---------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("name", "own", "names"),
    [
        ("mrpc", ["equivalent", "NOT_EQUIVALENT"], ("0", "1")),
        ("sst-2", ["NEGATIVE", "POSITIVE"], ("0", "1")),
        (
            "mnli",
            ["ENTAILMENT", "neutral", "contradiction"],
            ("contradiction", "entailment", "neutral"),
        ),
        ("csv", ["b", "a"], ("b", "a")),
    ],
)
def test_the_labels_of_a_model_are_the_tasks_or_its_own(name, own, names):
    """In the task's order, whose classes the model's are put into; else in the model's."""
    task = get_task(name)
    assert task.with_labels_of_model(own, source="a/model").labels.names == names
    assert sorted(task.names_of_model(own)) == sorted(names)
    if name == "mrpc":
        with pytest.raises(InputError, match="a model of the labels LABEL_X, LABEL_Y"):
            task.with_labels_of_model(["LABEL_X", "LABEL_Y"], source="a/model")


@pytest.mark.parametrize("is_originals", [True, False])
def test_classes_without_names(caplog, is_originals):
    """The original's checkpoints have the order of the task, others perhaps not."""
    task = get_task("mnli")
    found = task.with_labels_of_model(None, source="a/model", is_originals=is_originals)
    assert found.labels.names == ("contradiction", "entailment", "neutral")
    warned = "a/model does not name its classes. They are assumed to be, in this order: contra"
    assert (warned in caplog.text) != is_originals
    with pytest.raises(InputError, match="does not say the names of its classes"):
        get_task("csv").with_labels_of_model(None, source="a/model")


@pytest.mark.parametrize(
    ("label_kind", "label", "least"), [("classes", "a", 2), ("multi_label", (), 1)]
)
def test_too_few_labels(label_kind, label, least):
    task = get_task("csv", label_kind=label_kind)
    with pytest.raises(InputError, match=f"{least} or more different labels"):
        task.with_labels_of([Example("0", "A", None, label)])


@pytest.mark.parametrize(
    ("kind", "labels", "says"),
    [
        ("classes", ["Yes", "no", "yes"], "different classes: 'Yes', 'yes'\\."),
        ("multi_label", [("1",), ("01", "x")], "different classes: '01', '1'\\."),
        ("classes", ["caf\u00e9", "cafe\u0301", "cafe"], "classes: 'cafe\u0301', 'caf\u00e9'\\."),
        ("classes", [f"{n * 2.5}" for n in range(41)], "41 numbers .* --label_kind=regression"),
        ("classes", [*map(str, range(200_000, 900_000, 61_000))], "12 numbers are a class each"),
        ("classes", [*map(str, range(1, 78))] * 2, ""),  # numbers of classes
        ("classes", ["0.5", "1.0", "1.5", "2.0"], ""),
        ("classes", [*map(str, range(0, 60, 5)), "many", "few"] * 2, ""),
        ("classes", ["1e999999999999999999999", "10", "arts", "arts (fine)"], ""),
        ("multi_label", [("x1", "x01"), ()], ""),
    ],
)
def test_labels_that_look_like_mistakes_are_warned_of(caplog, kind, labels, says):
    task = get_task("csv", label_kind=kind)
    task.with_labels_of(Example(str(i), "A", None, label) for i, label in enumerate(labels))
    assert re.search(says, caplog.text) if says else not caplog.text


def test_a_label_that_occurs_once_is_named(caplog):
    """Among many: it may be a typing error."""
    labels = [*["Störung"] * 20, *["Lob"] * 12, "Störnug"]
    examples = [Example(str(n), "A", None, label) for n, label in enumerate(labels)]
    get_task("csv").with_labels_of(examples)
    assert "The label 'Störnug' has one example. Is it 'Störung'?" in caplog.text
    caplog.clear()
    get_task("csv").with_labels_of(examples[-14:])
    assert "one example" not in caplog.text


@pytest.mark.parametrize("mark", ["\u200b", "\u2060", "\ufeff"])
@pytest.mark.parametrize("kind", ["classes", "multi_label", "ner"])
def test_labels_that_differ_by_an_invisible_character_are_shown(caplog, kind, mark):
    labels = ["B-pos", f"B-{mark}pos", "O", f"B-{mark}neg"]
    if kind == "classes":
        examples, task = [Example("0", "A", None, x) for x in labels], get_task("csv")
    else:
        examples = [WordsExample("0", tuple("abcd"), 0, tuple(labels))]
        task = get_task("ner") if kind == "ner" else get_task("csv", label_kind=kind)
    task.with_labels_of(examples)
    assert re.search(r"look alike.*'B-pos', 'B-\\u....pos'", caplog.text)
    assert "neg" not in caplog.text


@pytest.mark.parametrize(
    ("scores", "is_scaled"),
    [
        ([200_000.0, 900_000.0, 330_000.0], True),
        ([0.0, 100.0, 55.5], True),
        ([-11.0, 3.0], True),
        ([1e-4, 3e-4, 2.5e-4], True),
        ([1e12, 1e12 + 5], True),
        ([0.0, 5.0, 2.5], False),
        ([-10.0, 10.0, 9.0, 1.0], False),
        ([0.5, 0.6], False),
        ([7e5, 7e5], False),  # nothing to learn
    ],
)
def test_scores_far_from_those_of_a_new_head_are_scaled(caplog, scores, is_scaled):
    """By mean and deviation; those of STS-B, as of all tasks with limits, never are."""
    caplog.set_level("INFO", logger="absl")
    examples = [Example(str(n), "A", None, score) for n, score in enumerate(scores)]
    scale = get_task("jsonl", label_kind="regression").with_labels_of(examples).labels.scale
    assert scale == (pytest.approx((np.mean(scores), np.std(scores))) if is_scaled else None)
    assert ("Scores are learned as" in caplog.text) == is_scaled
    assert get_task("sts-b").with_labels_of(examples).labels.scale is None


def test_training_data_with_a_tag_that_fixed_names_lack_are_refused(tmp_path):
    """In other data it counts as missed; in these it would not be learned."""
    (tmp_path / "train.txt").write_text("Anna B-PER\nZoe I-PER\n\nRome B-LCO\nis O\n")
    names = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    task = dataclasses.replace(get_task("ner"), labels=Tags(names=names))
    with pytest.raises(InputError, match=r"with the tag B-LCO\n.*one of the 5 labels O, B-PER"):
        task.with_labels_of(task.read(str(tmp_path), "train"))


@pytest.mark.parametrize("names", [("0", "1"), ("true",), ("0.0", "1.0")])
def test_vectors_of_two_are_no_names_unless_given(names):
    examples = [Example(name, "A", None, (name,)) for name in names]
    task = get_task("jsonl", label_kind="multi_label")
    with pytest.raises(InputError, match="add --labels=" + ",".join(names)):
        task.with_labels_of(examples)
    given = get_task("jsonl", label_kind="multi_label", labels=names)
    assert given.with_labels_of(examples).labels.names == names


# ------------------------------------------------------------------------------ datasets


def from_dicts(task, rows, split="dev", names=()) -> list:
    """The examples of a dataset; `names` are those of its classes."""
    layout = task.tfds_layout or task.layout
    return layout.from_dicts("own", rows, task.labels, task.split(split).labelled, names)


SAME = ["not_equivalent", "equivalent"]
PAIR = {"idx": 1, "sentence1": "A", "sentence2": "B", "label": 1}
NER, NER_NAMES = get_task("ner"), ["O", "B-ORG"]
NLI = ["entailment", "neutral", "contradiction"]  # another order than ours
XNLI = get_task("xnli", language="de")
UNEVEN = [{"language": n * ["de"], "translation": ["a", "b"]} for n in (1, 2, 3)]
TRANSLATED = {  # a dict of texts by language; or of all languages and all texts
    "premise": {"ar": b"ar P", "de": b"de P"},
    "hypothesis": {"language": [b"de", b"ar"], "translation": [b"de H", b"ar H"]},
    "label": 0,
}
SETS, WORDS = get_task("csv", label_kind="multi_label"), {"tokens": ["EU", "rejects"]}


@pytest.mark.parametrize(
    ("task", "split", "row", "names", "expected"),
    [
        (get_task("mrpc"), "train", PAIR | {"sentence1": b"caf\xc3\xa9"}, SAME, ("café", "B", "1")),
        (get_task("mrpc"), "train", PAIR, SAME[::-1], ("A", "B", "0")),  # an order of its own
        (get_task("cola"), "test", {"idx": 1, "sentence": "A", "label": -1}, ["no", "yes"], ("A",)),
        (get_task("csv"), "test", {"text_a": "A", "label": 1}, ["x", "y"], ("A", None, "y")),
        (get_task("csv"), "test", {"text_a": "A", "label": -1}, ["x", "y"], ("A",)),  # none
    ],
)
def test_dicts_of_a_dataset(task, split, row, names, expected):
    (found,) = from_dicts(task, [row], split, names)
    assert found == Example("1" if "idx" in row else "0", *expected)


@pytest.mark.parametrize(
    ("task", "split", "row", "names", "received"),
    [
        (get_task("mrpc"), "dev", {"sentence1": "A", "label": 1}, SAME, "only sentence1, label"),
        (get_task("mrpc"), "dev", PAIR | {"label": -1}, SAME, "the label -1"),
        (get_task("mrpc"), "dev", PAIR | {"idx": None}, SAME, ""),
        (get_task("mrpc"), "dev", PAIR | {"sentence2": b"\xff"}, SAME, "bytes that"),
        (get_task("mrpc"), "dev", PAIR | {"sentence1": " "}, SAME, "an empty text"),
        (get_task("csv"), "train", {"text_a": "A", "label": -1}, ["x", "y"], "the label -1"),
        (get_task("csv"), "train", {"text_a": "A", "label": float("nan")}, (), "the label nan"),
        (SETS, "train", {"text_a": "A", "label": np.array([0, 1, 0])}, (), "the label "),
        (SETS, "train", {"text_a": "A", "label": np.array([0, 1, 0])}, [*"xyz"], "the label "),
        *(
            (XNLI, "test", TRANSLATED | {"premise": one}, NLI, "the premise with {'language'")
            for one in UNEVEN
        ),
        *(
            (NER, "dev", WORDS | {"ner": tags}, NER_NAMES, "the words")
            for tags in (3, "OO", [0], [0, 0, 0])
        ),
    ],
)
def test_datasets_that_cannot_be_used(task, split, row, names, received):
    if not received:  # the same id twice
        rows, received = [PAIR, PAIR], "own, example 1: the id 1, which"
    else:
        rows, received = [row], f"own, example 0: {received}"
    with pytest.raises(InputError) as info:
        from_dicts(task, rows, split, names)
    assert info.value.received.startswith(received)


MNLI_ROW = {"idx": 0, "premise": b"P", "hypothesis": b"H", "label": 2}
WORDS_ROW = {"tokens": [b"EU", b"left"], "ner": np.array([1, 0])}
WORDS_EXAMPLE = WordsExample("0", ("EU", "left"), 0, ("B-ORG", "O"))
OF_DATASETS = [  # task, split, the dataset's split, a row, the names of its labels, an example
    ("mnli", "dev", "validation_matched", MNLI_ROW, NLI, Example("0", "P", "H", NLI[2])),
    ("mnli", "dev_mismatched", "validation_mismatched", MNLI_ROW, NLI, None),
    ("mnli", "test_mismatched", "test_mismatched", MNLI_ROW, NLI, Example("0", "P", "H")),
    ("mrpc", "dev", "validation|dev", PAIR, SAME, Example("1", "A", "B", "1")),
    ("ner", "dev", "validation|dev", WORDS_ROW, NER_NAMES, WORDS_EXAMPLE),
    *(
        ("xnli", "test", "test", TRANSLATED, NLI, Example("0", f"{one} P", f"{one} H", NLI[0]))
        for one in ("ar", "de")
    ),
]


@pytest.mark.parametrize(("name", "split", "theirs", "row", "names", "expected"), OF_DATASETS)
def test_a_split_of_a_dataset(monkeypatch, name, split, theirs, row, names, expected):
    def read(dataset, asked, *, purpose):
        assert (dataset, asked) == ("own", theirs)
        classes = types.SimpleNamespace(names=names)
        return DatasetSplit([row], dict.fromkeys(row, classes), "own, split")

    monkeypatch.setattr(task_module, "read_split", read)
    language = {"language": expected.text_a[:2]} if name == "xnli" else {}
    (found,) = get_task(name, **language).read_tfds("own", split)
    assert found == (expected or OF_DATASETS[0][-1])


def test_scores_and_several_labels_of_a_dataset(monkeypatch):
    topics = types.SimpleNamespace(feature=types.SimpleNamespace(names=["food", "place"]))
    row = {"review": b"Good.", "stars": np.float32(4.5), "topics": np.array([1, 0])}
    split = DatasetSplit([row], {"topics": topics}, "own, split")
    monkeypatch.setattr(task_module, "read_split", lambda *_, **__: split)
    for label, kind, expected in (
        ("stars", "regression", 4.5),
        ("topics", "multi_label", ("place", "food")),
    ):
        task = get_task("jsonl", text_a_column="review", label_column=label, label_kind=kind)
        assert task.read_tfds("own", "train") == [Example("0", "Good.", None, expected)]


# ---------------------------------------------------------------------------- which label f1 is of


def f1_of(task, gold: str, predicted: str) -> float:
    labels = task.labels
    ids = [labels.ids(name) for name in gold.split()]
    shares = np.eye(labels.size)[[labels.numbers[name] for name in predicted.split()]]
    return compute_metrics(("f1",), *labels.for_metrics(ids, shares))["eval_f1"]


@pytest.mark.parametrize(
    ("positive", "named", "wanted"),
    [("", "ok", 2 * 2 / (3 + 3)), ("fraud", "fraud", 2 * 1 / (2 + 2)), ("ok", "ok", 2 / 3)],
)
def test_f1_is_that_of_a_label_which_is_named(positive, named, wanted, caplog):
    caplog.set_level("INFO", logger="absl")
    task = get_task("csv", labels=("ok", "fraud"))
    task = task.with_positive_label(positive) if positive else task.with_metric("f1")
    assert task.metrics[-1] == "f1"
    task = task.check_f1()
    assert f"f1 is that of the label {named!r}" in caplog.text
    assert f1_of(task, "ok ok ok fraud fraud", "ok ok fraud ok fraud") == pytest.approx(wanted)


def test_f1_of_a_name_as_others_spell_it():
    task = get_task("mrpc").with_positive_label("not_equivalent").check_f1()
    assert f1_of(task, "0 0 1 1", "0 1 1 1") == pytest.approx(2 * 1 / (2 + 1))
    assert f1_of(get_task("mrpc").check_f1(), "0 0 1 1", "0 1 1 1") == pytest.approx(4 / (2 + 3))


def test_f1_that_is_of_no_label_is_refused():
    three = get_task("csv", labels=("a", "b", "c")).with_metric("f1")
    with pytest.raises(InputError, match="for 3 labels") as caught:
        three.check_f1()
    assert "macro_f1 or micro_f1" in caught.value.remedy
    assert get_task("csv", labels=("a", "b", "c")).check_f1().metrics[0] == "accuracy"
    with pytest.raises(InputError, match="--positive_label=c"):
        get_task("csv", labels=("a", "b")).with_positive_label("c").check_f1()
    with pytest.raises(InputError, match="the labels of regression"):
        get_task("csv", label_kind="regression").with_positive_label("a")
