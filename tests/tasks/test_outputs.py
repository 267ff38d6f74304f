"""What is written after evaluation and prediction."""

import numpy as np
import pytest

from bert_tf.tasks import outputs
from bert_tf.tasks.examples import WordsExample
from bert_tf.tasks.labels import Labels
from bert_tf.tasks.registry import get_task

CLASSES = Labels(names=("no", "yes"))
ROWS = np.array([[0.25, 0.75], [0.9, 0.1]], np.float32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.tsv"


def test_probabilities_as_the_original_writes_them(path):
    outputs.write_probabilities(str(path), ROWS)
    assert path.read_text() == "0.25\t0.75\n0.9\t0.1\n"


def test_no_more_digits_than_the_original(path):
    """It has float32; what is computed in float64 would have seventeen."""
    outputs.write_probabilities(str(path), ROWS.astype(np.float64) / 3)
    assert path.read_text() == "0.083333336\t0.25\n0.29999998\t0.033333335\n"


def test_scores(path):
    outputs.write_probabilities(str(path), np.array([[3.5], [0.1]], np.float32))
    assert path.read_text() == "3.5\n0.1\n"


def test_probabilities_of_words(path):
    outputs.write_probabilities(str(path), [ROWS, ROWS[1:]])
    assert path.read_text() == "0.25\t0.75\n0.9\t0.1\n\n0.9\t0.1\n\n"


def test_labeled(path):
    outputs.write_labeled(str(path), CLASSES, ["7", "a\tb\r\nc"], ROWS)
    assert path.read_text() == (
        "id\tprediction\tno\tyes\n7\tyes\t0.25\t0.75\na b c\tno\t0.9\t0.1\n"
    )


def test_labeled_with_gold(path):
    outputs.write_labeled(str(path), CLASSES, ["7", "8"], ROWS, gold=["yes", None])
    assert path.read_text() == (
        "id\tprediction\tlabel\tno\tyes\n7\tyes\tyes\t0.25\t0.75\n8\tno\t\t0.9\t0.1\n"
    )


def test_labeled_scores(path):
    labels = Labels(head="regression", limits=(0.0, 5.0))
    rows = np.array([[5.5], [2.25]], np.float32)
    outputs.write_labeled(str(path), labels, ["0", "1"], rows, gold=[4.8, 2.0])
    assert path.read_text() == (
        "id\tprediction\tlabel\tscore\n0\t5.000\t4.8\t5.5\n1\t2.250\t2\t2.25\n"
    )


def test_labeled_sets(path):
    labels = Labels(head="multi_label", names=("x", "y"))
    rows = np.array([[0.5, 0.75], [0.25, 0.125]], np.float32)
    outputs.write_labeled(str(path), labels, ["0", "1"], rows, gold=[("y",), ()])
    assert path.read_text() == (
        "id\tprediction\tlabel\tx\ty\n0\tx,y\ty\t0.5\t0.75\n1\t\t\t0.25\t0.125\n"
    )


def test_labeled_words(path):
    labels = Labels(head="token_labels", names=("O", "B-P"))
    examples = [WordsExample("0", ("a", "b"), ("O", "O")), WordsExample("1", ("c",), ("B-P",))]
    outputs.write_labeled_words(str(path), labels, examples, [ROWS, ROWS[1:]], with_gold=True)
    assert path.read_text() == (
        "id\tword\tprediction\tlabel\tO\tB-P\n"
        "0\ta\tB-P\tO\t0.25\t0.75\n0\tb\tO\tO\t0.9\t0.1\n\n1\tc\tO\tB-P\t0.9\t0.1\n\n"
    )
    outputs.write_labeled_words(str(path), labels, examples[1:], [ROWS[1:]])
    assert path.read_text() == "id\tword\tprediction\tO\tB-P\n1\tc\tO\t0.9\t0.1\n\n"


def test_submission(path):
    outputs.write_submission(str(path), CLASSES, ["0", "1"], ROWS)
    assert path.read_text() == "index\tprediction\n0\tyes\n1\tno\n"
    outputs.write_submission(str(path), CLASSES, ["10", "9"], ROWS)
    assert path.read_text() == "index\tprediction\n9\tno\n10\tyes\n"
    labels = Labels(head="regression", limits=(0.0, 5.0))
    outputs.write_submission(str(path), labels, ["0", "1"], np.array([[-0.5], [3.14159]]))
    assert path.read_text() == "index\tprediction\n0\t0.000\n1\t3.142\n"


GLUE = {  # what the server takes: the file of each part, and what may stand in it
    "CoLA.tsv": ("cola", "test", "0"),
    "SST-2.tsv": ("sst-2", "test", "0"),
    "MRPC.tsv": ("mrpc", "test", "0"),
    "STS-B.tsv": ("sts-b", "test", "2.500"),
    "QQP.tsv": ("qqp", "test", "0"),
    "MNLI-m.tsv": ("mnli", "test", "contradiction"),
    "MNLI-mm.tsv": ("mnli", "test_mismatched", "contradiction"),
    "QNLI.tsv": ("qnli", "test", "entailment"),
    "RTE.tsv": ("rte", "test", "entailment"),
    "WNLI.tsv": ("wnli", "test", "0"),
    "AX.tsv": ("ax", "test", "contradiction"),
}


@pytest.mark.parametrize("name", GLUE)
def test_the_submission_of_each_task_of_glue(tmp_path, name):
    task, split, first = GLUE[name]
    task = get_task(task)
    assert task.split(split).submission == name
    size = task.labels.size
    rows = np.full([2, size], 2.5) if size == 1 else np.eye(size)[:2]
    outputs.write_submission(str(tmp_path / name), task.labels, ["0", "1"], rows)
    header, *lines = (tmp_path / name).read_text().splitlines()
    assert header == "index\tprediction"
    assert lines[0] == f"0\t{first}"
    assert lines[1].split("\t")[1] in (*task.labels.names, "2.500")


def test_a_file_appears_whole_or_not_at_all(path):
    outputs.write_probabilities(str(path), ROWS)
    before = path.read_text()
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        outputs.write_labeled(str(path), CLASSES, ["7", "8"], ROWS[:1])
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["file.tsv"]
