"""report.html of a task: every kind of label; no text gets out of its place."""

import json
import re
import types

import numpy as np
import pytest

from bert_tf.tasks.examples import Example, WordsExample
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.report import write_report
from bert_tf.tasks.results import compute_metrics
from bert_tf.tasks.text_run import TextData

A, B, TEXT = "a < b & $c", "</script>", "One </script>"
KINDS = {  # kind of label: names, gold labels, probabilities, and what is shown
    "classes": ((A, B), (A, B), [[0.2, 0.8], [0.3, 0.7]], [A, B], [B, B]),
    "multi_label": ((A, B), ((A,), ()), [[0.9, 0.8], [0.3, 0.2]], [A, ""], [f"{A},{B}", ""]),
    "regression": ((), (1.0, 2.0), [[1.5], [2.0]], ["1", "2"], ["1.5", "2"]),
}


def page_of(folder, task, examples, shares) -> tuple[str, dict]:
    data = TextData(split=task.split("dev"), examples=examples, lengths=[3, 5], num_cut=1)
    data.probabilities, batching = shares, types.SimpleNamespace(max_seq_length=5)
    run = {"task": task, "head": task.head, "output_dir": str(folder), "batching": batching}
    scores = {f"eval_{name}": 0.25 for name in task.metrics}
    write_report(types.SimpleNamespace(**run), data, scores)
    text = (folder / "report.html").read_text(encoding="utf-8")
    return text, json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_texts(kind, tmp_path):
    names, golds, shares, shown, answers = KINDS[kind]
    task = get_task("csv", labels=names, label_kind=kind)
    examples = [Example(str(n), TEXT, "two", label) for n, label in enumerate(golds)]
    text, data = page_of(tmp_path, task, examples, np.array(shares))
    cards = [[one[key] for one in data["examples"]] for key in ("gold", "answer", "shares")]
    assert cards == [shown, answers, shares]
    assert data["examples"][0]["texts"] == [TEXT, "two"]
    assert text.count("</script>") == 2  # of the data and of the script
    assert ("&lt;/script&gt;" in text) == (kind != "regression")  # the name of a label
    assert "1 of 2 examples had more than 5" in text  # and were cut


def test_macro_f1_is_that_of_the_results(tmp_path):
    """Of three labels one is nowhere: it counts in neither."""
    task = get_task("csv", labels=("a", "b", "c"), label_kind="multi_label")
    golds, shares = (
        (("a",), ("b",), ("a",)),
        np.array([[0.9, 0.1, 0.2], [0.8, 0.7, 0.1], [0.3] * 3]),
    )
    examples = [Example(str(n), TEXT, None, label) for n, label in enumerate(golds)]
    text, _ = page_of(tmp_path, task, examples, shares)
    compared = task.labels.for_metrics([task.labels.ids(gold) for gold in golds], shares)
    macro = compute_metrics(("macro_f1",), *compared)["eval_macro_f1"]
    assert macro == pytest.approx((2 / 4 + 1) / 2)
    (line,) = re.findall("macro avg.*", text)
    assert float(line.split()[4]) == macro


def test_gold_scores_are_exact(tmp_path):
    task = get_task("csv", label_kind="regression")
    examples = [Example("0", TEXT, None, 1234567.8912), Example("1", TEXT, None, 0.1 + 0.2)]
    _, data = page_of(tmp_path, task, examples, np.array([[1.0], [2.0]]))
    assert [one["gold"] for one in data["examples"]] == ["1234567.8912", "0.30000000000000004"]


def test_tags_of_words(tmp_path):
    sentence = WordsExample("0", ("Rome", "is"), 0, ("B-X", "O"))
    task = get_task("ner").with_labels_of([sentence])
    _, data = page_of(tmp_path, task, [sentence], [np.array([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]])])
    (card,) = data["examples"]
    assert (card["gold"], card["answer"]) == (["B-X", "O"], ["B-X", "O"])  # I- begins it: B-
    assert (data["kind"], card["texts"]) == ("words", ["Rome", "is"])
