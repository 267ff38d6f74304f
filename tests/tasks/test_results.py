"""Metrics against values worked out by hand; the files of predictions."""

import math
import sys

import numpy as np
import pytest

from bert_tf.errors import InputError
from bert_tf.heads import Labels, LabelSets, Scores, Tags
from bert_tf.tasks.examples import Example, WordsExample
from bert_tf.tasks.results import (
    METRICS,
    check_libraries,
    compute_metrics,
    write_labeled,
    write_probabilities,
    write_submission,
)

SETS = LabelSets(names=("x", "y"))
# 10 examples: 4 true positives, 2 false positives, 1 false negative, 3 true negatives.
GOLD = np.array([1, 1, 1, 1, 0, 0, 1, 0, 0, 0])
SAID = np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 0])
CLASSES_3 = (np.array([0, 0, 0, 2, 2]), np.array([0, 0, 2, 2, 3]))
SETS_3 = (np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]),
          np.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]))  # fmt: skip
SCORES_4, NONE_OF_3, SAME = np.array([1.0, 2.0, 3.0, 4.0]), np.zeros([2, 3], int), [["O", "O"]]
# scikit-learn takes one column for two classes, and the absence of the label for a hit.
ONE_LABEL = np.array([[1], [0], [0], [0]])
ENTITIES = ([["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]],
            [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "I-LOC"]])  # fmt: skip
WORKED_OUT = [
    ("accuracy", GOLD, SAID, 7 / 10),
    ("f1", GOLD, SAID, 2 * 4 / (2 * 4 + 2 + 1)),
    ("matthews", GOLD, SAID, (4 * 3 - 2 * 1) / math.sqrt(6 * 5 * 5 * 4)),
    # Class 0: 2 right, 1 missed. Class 2: 1 right, 1 wrong, 1 missed. Class 3: 1 wrong. No 1.
    ("micro_f1", *CLASSES_3, 3 / 5),
    ("macro_f1", *CLASSES_3, (4 / 5 + 2 / 4 + 0) / 3),
    ("micro_f1", *SETS_3, 2 * 2 / (2 * 2 + 1 + 1)),
    ("macro_f1", *SETS_3, (1 + 2 / 3 + 0) / 3),  # the third label is nowhere and does not count
    ("accuracy", *SETS_3, 1 / 3),
    # Deviations -1.5 -0.5 0.5 1.5 and -3 -2 -1 6: products sum to 14, squares to 5 and 50.
    ("pearson", SCORES_4, np.array([1.0, 2.0, 3.0, 10.0]), 14 / math.sqrt(5 * 50)),
    # Ranks 2.5 2.5 1 4: deviations 0 0 -1.5 1.5 times -1.5 -0.5 0.5 1.5 sum to 1.5.
    ("spearman", SCORES_4, np.array([1.0, 1.0, 0.0, 2.0]), 1.5 / math.sqrt(5 * 4.5)),
    ("accuracy", *ENTITIES, 3 / 6),
    ("entity_f1", SAME, SAME, 0.0),
    *((name, NONE_OF_3, NONE_OF_3, 0.0) for name in ("macro_f1", "micro_f1")),
    *((name, ONE_LABEL, 0 * ONE_LABEL, 0.0) for name in ("macro_f1", "micro_f1")),
    *((name, ONE_LABEL, ONE_LABEL[::-1] | ONE_LABEL, 2 / 3) for name in ("macro_f1", "micro_f1")),
]


@pytest.mark.parametrize(("name", "gold", "said", "expected"), WORKED_OUT)
def test_metrics_worked_out_by_hand(name, gold, said, expected):
    found = compute_metrics((name,), gold, said)
    assert found[f"eval_{name}"] == pytest.approx(expected)
    assert {*map(type, found.values())} == {float}


def test_entities():
    """3 entities are there, 3 are said, 1 is right."""
    names = [f"eval_entity_{name}" for name in ("precision", "recall", "f1")]
    assert compute_metrics(("entity_f1",), *ENTITIES) == pytest.approx(dict.fromkeys(names, 1 / 3))


@pytest.mark.parametrize("name", [n for n in METRICS if n not in ("entity_f1",)])
def test_a_model_that_always_says_the_same(name):
    """Correlations of scores are undefined then; that of classes is 0 by its definition."""
    same, is_undefined = np.zeros(10, int), name in ("pearson", "spearman")
    for sides in ((GOLD, same), (same, GOLD), (same, same)):
        assert math.isnan(compute_metrics((name,), *sides)[f"eval_{name}"]) is is_undefined
    if name == "matthews":
        assert compute_metrics((name,), GOLD, same)["eval_matthews"] == 0.0


@pytest.mark.parametrize(
    ("metric", "labels", "label_ids", "probabilities", "expected"),
    [
        (
            "f1",
            Labels(names=("n", "y")),
            [[0], [1], [1]],
            [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]],
            2 / 3,
        ),
        ("pearson", Scores(), [[1.0], [2.0], [3.0]], [[3.0], [2.0], [1.0]], -1),
        ("accuracy", SETS, [[1, 1], [0, 0]], [[0.9, 0.5], [0.6, 0.1]], 0.5),
    ],
)
def test_labels_are_scored(metric, labels, label_ids, probabilities, expected):
    compared = labels.for_metrics(label_ids, np.array(probabilities))
    found = compute_metrics((metric,), *compared)
    assert found == {f"eval_{metric}": pytest.approx(expected)}


@pytest.mark.parametrize(
    ("gold", "predicted", "f1"),
    [
        ("B-X E-X I-X E-X", "B-X I-X I-X I-X", 0.0),  # two entities of two words; one of four
        ("I-X I-X O I-Y B-Y", "B-X I-X O B-Y B-Y", 1.0),  # in IOB1, I- begins an entity
        ("I-X I-X O I-Y B-Y", "I-X I-X O I-Y B-Y", 1.0),
        ("S-X I-X O B-Y", "S-X S-X O B-Y", 1.0),  # as seqeval and conlleval read it
        ("PER PER O LOC", "PER O O LOC", 0.5),  # entities of a class: one of two is right
        ("NOUN VERB NOUN", "NOUN NOUN NOUN", 2 / 3),  # every word
        ("I-X O I-Z I-Z", "I-X O O O", 2 / 3),  # Z is no class of the model: missed
    ],
)
def test_entities_of_every_scheme_are_scored(gold, predicted, f1):
    names = tuple(dict.fromkeys(predicted.split()))
    labels = Tags(names=names)
    rows = [np.eye(len(labels.names))[[labels.numbers[tag] for tag in predicted.split()]]]
    compared = labels.for_metrics([labels.parse(gold.split())], rows)
    found = compute_metrics(("entity_f1", "accuracy"), *compared)
    assert found["eval_entity_f1"] == pytest.approx(f1)
    assert (found["eval_accuracy"] == 1) == (f1 == 1)


def test_a_library_that_is_not_installed(monkeypatch):
    for module in [m for m in sys.modules if m.split(".")[0] == "seqeval"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "seqeval", None)
    check_libraries(("accuracy", "spearman"))
    with pytest.raises(InputError, match="seqeval is not installed"):
        check_libraries(("accuracy", "entity_f1"))


# ---------------------------------------------------------------------------- predictions

CLASSES = Labels(names=("no", "yes"))
ROWS = np.array([[0.25, 0.75], [0.9, 0.1]], np.float32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.tsv"


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (ROWS, "0.25\t0.75\n0.9\t0.1\n"),
        # As float32, which the original has: float64 would have seventeen digits.
        (ROWS.astype(float) / 3, "0.083333336\t0.25\n0.29999998\t0.033333335\n"),
        (np.array([[3.5], [0.1]], np.float32), "3.5\n0.1\n"),
        ([ROWS, ROWS[1:]], "0.25\t0.75\n0.9\t0.1\n\n0.9\t0.1\n\n"),  # words
    ],
)
def test_probabilities(path, rows, text):
    write_probabilities(str(path), rows)
    assert path.read_text() == text


def write_rows(path, labels, guids, rows, *, gold=None) -> None:
    found = zip(guids, gold or [None] * len(guids), strict=True)
    examples = [Example(guid, "text", None, label) for guid, label in found]
    write_labeled(str(path), labels, examples, rows, with_gold=gold is not None)


SCORED = Scores(limits=(0.0, 5.0))


@pytest.mark.parametrize(
    ("labels", "guids", "rows", "gold", "lines"),
    [
        (
            *(CLASSES, ["7", "a\tb\r\nc"], ROWS, None),
            ["id\tprediction\tno\tyes", "7\tyes\t0.25\t0.75", "a b c\tno\t0.9\t0.1"],
        ),
        (
            *(CLASSES, ["7", "8"], ROWS, ["yes", None]),
            ["id\tprediction\tlabel\tno\tyes", "7\tyes\tyes\t0.25\t0.75", "8\tno\t\t0.9\t0.1"],
        ),
        (
            *(SCORED, ["0", "1"], np.array([[5.5], [2.25]], np.float32), [4.8, 2.0]),
            ["id\tprediction\tlabel\tscore", "0\t5.000\t4.8\t5.5", "1\t2.250\t2\t2.25"],
        ),
        (
            *(SETS, ["0", "1"], np.float32([[0.5, 0.75], [0.25, 0.125]]), [("y",), ()]),
            ["id\tprediction\tlabel\tx\ty", "0\tx,y\ty\t0.5\t0.75", "1\t\t\t0.25\t0.125"],
        ),
    ],
)
def test_labeled(path, labels, guids, rows, gold, lines):
    write_rows(path, labels, guids, rows, gold=gold)
    assert path.read_bytes().decode().splitlines() == lines


def test_labeled_words(path):
    labels = Tags(names=("O", "B-P"))
    examples = [
        WordsExample("0", ("a", "b"), label=("O", "O")),
        WordsExample("1", ("c",), label=("B-P",)),
    ]
    write_labeled(str(path), labels, examples, [ROWS, ROWS[1:]], with_gold=True)
    assert path.read_text() == (
        "id\tword\tprediction\tlabel\tO\tB-P\n"
        "0\ta\tB-P\tO\t0.25\t0.75\n0\tb\tO\tO\t0.9\t0.1\n\n1\tc\tO\tB-P\t0.9\t0.1\n\n"
    )
    write_labeled(str(path), labels, examples[1:], [ROWS[1:]])
    assert path.read_text() == "id\tword\tprediction\tO\tB-P\n1\tc\tO\t0.9\t0.1\n\n"


def test_submission(path):
    write_submission(str(path), CLASSES, ["0", "1"], ROWS)
    assert path.read_text() == "index\tprediction\n0\tyes\n1\tno\n"
    write_submission(str(path), CLASSES, ["10", "9"], ROWS)
    assert path.read_text() == "index\tprediction\n9\tno\n10\tyes\n"
    labels = Scores(limits=(0.0, 5.0))
    write_submission(str(path), labels, ["0", "1"], np.array([[-0.5], [3.14159]]))
    assert path.read_text() == "index\tprediction\n0\t0.000\n1\t3.142\n"


def test_a_file_appears_whole_or_not_at_all(path):
    write_probabilities(str(path), ROWS)
    before = path.read_text()
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        write_rows(path, CLASSES, ["7", "8"], ROWS[:1])
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["file.tsv"]
