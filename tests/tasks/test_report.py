"""report.html of a task: every kind of label; no text gets out of its place."""

import json
import re
import types

import numpy as np
import pytest

from bert_tf.tasks.examples import Example, WordsExample
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.report import write_report
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


def test_tags_of_words(tmp_path):
    sentence = WordsExample("0", ("Rome", "is"), 0, ("B-X", "O"))
    task = get_task("ner").with_labels_of([sentence])
    _, data = page_of(tmp_path, task, [sentence], [np.array([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]])])
    (card,) = data["examples"]
    assert (card["gold"], card["answer"]) == (["B-X", "O"], ["B-X", "O"])  # I- begins it: B-
    assert (data["kind"], card["texts"]) == ("words", ["Rome", "is"])
