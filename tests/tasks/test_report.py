"""report.html of a task: every kind of label; no text gets out of its place."""

import json
import re
import sys
import types

import numpy as np
import pytest

from bert_tf.tasks.examples import Example, WordsExample
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.report import write_report
from bert_tf.tasks.text_run import TextData

A, B = "a < b & $c", "</script>"
TEXT = Example("7", "One </script>", "two", None)


def page_of(tmp_path, task, examples, probabilities) -> tuple[str, dict]:
    data = TextData(split=task.split("dev"), examples=examples)
    data.probabilities, data.lengths, data.num_cut = probabilities, [3, 5], 1
    batching = types.SimpleNamespace(max_seq_length=5)
    run = types.SimpleNamespace(
        task=task, head=task.head, output_dir=str(tmp_path), batching=batching
    )
    write_report(run, data, {f"eval_{name}": 0.25 for name in task.metrics})
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    return text, json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


KINDS = {  # kind of label: names, gold labels, probabilities, and what is shown
    "classes": ((A, B), (A, B), [[0.2, 0.8], [0.3, 0.7]], [A, B], [B, B]),
    "multi_label": ((A, B), ((A,), ()), [[0.9, 0.8], [0.3, 0.2]], [A, ""], [f"{A},{B}", ""]),
    "regression": ((), (1.0, 2.0), [[1.5], [2.0]], ["1.000", "2.000"], ["1.500", "2.000"]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_pictures", [True, False])
def test_labels_of_texts(kind, with_pictures, tmp_path, monkeypatch):
    if not with_pictures:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    names, golds, shares, shown, answers = KINDS[kind]
    task = get_task("csv", labels=names, label_kind=kind)
    examples = [Example(str(n), TEXT.text_a, "two", label) for n, label in enumerate(golds)]
    text, data = page_of(tmp_path, task, examples, np.array(shares))
    assert [one["gold"] for one in data["examples"]] == shown
    assert [one["answer"] for one in data["examples"]] == answers
    assert data["examples"][0]["texts"] == [TEXT.text_a, "two"]
    assert data["examples"][1]["shares"] == shares[1]
    assert text.count("</script>") == 2  # of the data and of the script
    assert ("data:image/png" in text) == with_pictures
    assert "1 of 2 examples had more than 5" in text
    assert "<dd>0.250</dd>" in text


def test_tags_of_words(tmp_path):
    task = get_task("ner").with_labels_of([WordsExample("0", ("x", "y"), 0, ("B-X", "O"))])
    sentence = WordsExample("0", ("Rome", "is"), 0, ("B-X", "O"))
    shares = [np.array([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]])]
    _, data = page_of(tmp_path, task, [sentence], shares)
    (card,) = data["examples"]
    assert (card["gold"], card["answer"]) == (["B-X", "O"], ["B-X", "O"])  # I- begins it: B-
    assert (data["kind"], card["texts"]) == ("words", ["Rome", "is"])
