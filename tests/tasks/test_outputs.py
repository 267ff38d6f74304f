"""What is written after evaluation and prediction."""

import builtins
import logging
import re
import struct
import warnings

import numpy as np
import pytest

from bert_tf.heads.labels import Labels
from bert_tf.tasks import outputs
from bert_tf.tasks.examples import Example, WordsExample
from bert_tf.tasks.metrics import METRICS
from bert_tf.tasks.registry import get_task

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
    outputs.write_probabilities(str(path), rows)
    assert path.read_text() == text


def write_labeled(path, labels, guids, rows, *, gold=None) -> None:
    found = zip(guids, gold or [None] * len(guids), strict=True)
    examples = [Example(guid, "text", None, label) for guid, label in found]
    outputs.write_labeled(str(path), labels, examples, rows, with_gold=gold is not None)


SCORED = Labels(head="regression", limits=(0.0, 5.0))
SETS = Labels(head="multi_label", names=("x", "y"))


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
    write_labeled(path, labels, guids, rows, gold=gold)
    assert path.read_bytes().decode().splitlines() == lines


def test_labeled_words(path):
    labels = Labels(head="token_labels", names=("O", "B-P"))
    examples = [
        WordsExample("0", ("a", "b"), label=("O", "O")),
        WordsExample("1", ("c",), label=("B-P",)),
    ]
    outputs.write_labeled(str(path), labels, examples, [ROWS, ROWS[1:]], with_gold=True)
    assert path.read_text() == (
        "id\tword\tprediction\tlabel\tO\tB-P\n"
        "0\ta\tB-P\tO\t0.25\t0.75\n0\tb\tO\tO\t0.9\t0.1\n\n1\tc\tO\tB-P\t0.9\t0.1\n\n"
    )
    outputs.write_labeled(str(path), labels, examples[1:], [ROWS[1:]])
    assert path.read_text() == "id\tword\tprediction\tO\tB-P\n1\tc\tO\t0.9\t0.1\n\n"


def test_submission(path):
    outputs.write_submission(str(path), CLASSES, ["0", "1"], ROWS)
    assert path.read_text() == "index\tprediction\n0\tyes\n1\tno\n"
    outputs.write_submission(str(path), CLASSES, ["10", "9"], ROWS)
    assert path.read_text() == "index\tprediction\n9\tno\n10\tyes\n"
    labels = Labels(head="regression", limits=(0.0, 5.0))
    outputs.write_submission(str(path), labels, ["0", "1"], np.array([[-0.5], [3.14159]]))
    assert path.read_text() == "index\tprediction\n0\t0.000\n1\t3.142\n"


@pytest.mark.parametrize(
    ("task", "split", "first"),
    [
        *(("cola", "test", "0"), ("sst-2", "test", "0"), ("sts-b", "test", "2.500")),
        *(("mnli", "test_mismatched", "contradiction"), ("qnli", "test", "entailment")),
    ],
)
def test_the_submission_of_a_task_of_glue(path, task, split, first):
    task = get_task(task)
    size = task.labels.size
    rows = np.full([2, size], 2.5) if size == 1 else np.eye(size)[:2]
    outputs.write_submission(str(path), task.labels, ["0", "1"], rows)
    header, *lines = path.read_text().splitlines()
    assert (header, lines[0]) == ("index\tprediction", f"0\t{first}")
    assert lines[1].split("\t")[1] in (*task.labels.names, "2.500")


def test_a_file_appears_whole_or_not_at_all(path):
    outputs.write_probabilities(str(path), ROWS)
    before = path.read_text()
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        write_labeled(path, CLASSES, ["7", "8"], ROWS[:1])
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["file.tsv"]


# ---------------------------------------------------------------------------- a sweep

SCORES = {5e-5: [0.5, 0.75, 0.25], 2e-5: [0.625]}


def write_sweep(folder) -> None:
    results = {
        (rate, seed): {"eval_f1": score, "global_step": 30, "loss": 1 - score}
        for rate, scores in SCORES.items()
        for seed, score in enumerate(scores, 7)
    }
    outputs.write_sweep(results, task="mrpc", metric="f1", output_dir=str(folder))


def test_tables_of_a_sweep(tmp_path):
    write_sweep(tmp_path)
    assert (tmp_path / "trials.tsv").read_text() == (
        "learning_rate\tseed\teval_f1\tglobal_step\tloss\n"
        "5e-05\t7\t0.5\t30\t0.5\n"
        "5e-05\t8\t0.75\t30\t0.25\n"
        "5e-05\t9\t0.25\t30\t0.75\n"
        "2e-05\t7\t0.625\t30\t0.375\n"
    )
    assert (tmp_path / "trials_summary.tsv").read_text() == (
        "learning_rate\ttrials\tmean_f1\tdeviation\tbest\n"
        "5e-05\t3\t0.5000\t0.2500\t0.7500\n"
        "2e-05\t1\t0.6250\t0.0000\t0.6250\n"
    )


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_picture_of_one_to_eight_learning_rates(count):
    """The more there are, the wider it is; the same scores are the same bytes."""
    pytest.importorskip("matplotlib")
    scores = {1e-5 * (i + 1): [0.5, 0.6 + i / 100] for i in range(count)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # labels that overlap are warned of
        picture = outputs.draw_sweep(scores, task="cola", metric="matthews")
        assert outputs.draw_sweep(scores, task="cola", metric="matthews") == picture
    width, height = size_of(picture)
    assert height == 504
    assert width == int(120 * max(4.8, 1 + 1.35 * count))


def test_without_matplotlib_a_line_says_how_to_get_it(tmp_path, monkeypatch, caplog):
    load = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with caplog.at_level(logging.INFO, logger="absl"):
        write_sweep(tmp_path)
    assert "pip install 'bert-tf[plot]'" in caplog.text
    assert {path.name for path in tmp_path.iterdir()} == {"trials.tsv", "trials_summary.tsv"}


@pytest.mark.parametrize("metric", METRICS)
def test_the_axis_says_what_is_scored_in_which_unit(monkeypatch, metric):
    figure = pytest.importorskip("matplotlib.figure").Figure
    drawn = []
    monkeypatch.setattr(figure, "savefig", lambda self, *_, **__: drawn.append(self.axes[0]))
    outputs.draw_sweep(SCORES, task="mrpc", metric=metric)
    assert drawn[0].get_ylabel() == METRICS[metric].label
    assert re.search(r" \(.+\)$", drawn[0].get_ylabel())
    assert (
        drawn[0].get_title() == f"mrpc: {METRICS[metric].label.split(' (')[0]} on dev, 3 seeds each"
    )
    ticks = [label.get_text() for label in drawn[0].get_xticklabels()]
    assert ticks == ["5e-05\n0.500 ± 0.250", "2e-05\n0.625"]
