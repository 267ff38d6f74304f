"""What is said of a grid of trials."""

import builtins
import logging
import struct
import warnings

import pytest

from bert_tf.tasks.metrics import METRICS
from bert_tf.tasks.pictures import AXIS_LABELS, draw_trials
from bert_tf.tasks.reports import Trial, write_reports

SCORES = {5e-5: [0.5, 0.75, 0.25], 2e-5: [0.625]}


def trials() -> list[Trial]:
    return [
        Trial(rate, seed, "", {"eval_f1": score, "global_step": 30, "loss": 1 - score})
        for rate, scores in SCORES.items()
        for seed, score in enumerate(scores, 7)
    ]


def report(folder) -> None:
    write_reports(trials(), task="mrpc", metric="f1", output_dir=str(folder))


def test_tables(tmp_path):
    report(tmp_path)
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
        picture = draw_trials(scores, task="cola", metric="matthews")
        assert draw_trials(scores, task="cola", metric="matthews") == picture
    width, height = size_of(picture)
    assert height == 504
    assert width == int(120 * max(4.8, 1 + 1.35 * count))


def test_the_picture_is_there(tmp_path):
    pytest.importorskip("matplotlib")
    report(tmp_path)
    assert size_of((tmp_path / "trials.png").read_bytes()) > (500, 500)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"trials.tsv", "trials_summary.tsv", "trials.png"}


def test_without_matplotlib_a_line_says_how_to_get_it(tmp_path, monkeypatch, caplog):
    load = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with caplog.at_level(logging.INFO, logger="absl"):
        report(tmp_path)
    assert "pip install 'bert-tf[plot]'" in caplog.text
    assert {path.name for path in tmp_path.iterdir()} == {"trials.tsv", "trials_summary.tsv"}


def test_every_metric_has_a_label_with_its_unit():
    assert AXIS_LABELS.keys() == METRICS.keys()
    assert all("(" in label for label in AXIS_LABELS.values())
