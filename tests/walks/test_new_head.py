"""The head of docs/own_head.md: trained, evaluated, exported, served."""

import contextlib
import dataclasses
import json
import pathlib
import sys
import types
from collections.abc import Iterator

import numpy as np
import pytest
from documents import read, snippets
from walking import in_process, read_results, write_encoder

import bert_tf
from bert_tf import heads, tasks
from bert_tf.errors import InputError
from bert_tf.tasks import registry

pytestmark = pytest.mark.walk
ENDS = ("first", "second")
TASK = "prices"


@contextlib.contextmanager
def registered() -> Iterator[None]:
    """What the document's file adds is taken away for the other tests."""
    module = types.ModuleType("pairs")
    sys.modules["pairs"] = module
    exec(compile(snippets(read("docs/own_head.md")), "pairs.py", "exec"), vars(module))
    yield
    del registry._ALL[TASK], heads.NAMES["pair_scores"], sys.modules["pairs"]


def rows(count: int, *, seed: int, with_label: bool = True) -> str:
    """How often w1 is in each of two sentences."""
    random = np.random.default_rng(seed)
    lines = ["one\tother" + "\tcounts" * with_label]
    for _ in range(count):
        counts = random.integers(0, 3, 2)
        texts = [" ".join(["w1"] * n + [f"w{m}" for m in random.integers(2, 9, 3)]) for n in counts]
        lines.append("\t".join([*texts, *[f"{counts[0]} {counts[1]}"] * with_label]))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("pairs")
    for seed, (name, count) in enumerate({"train": 64, "dev": 24, "test": 5}.items()):
        (folder / f"{name}.tsv").write_text(rows(count, seed=seed, with_label=name != "test"))
    write_encoder(folder, scale=5, num_hidden_layers=1)
    return folder


def train(inputs: pathlib.Path, out: pathlib.Path, export: pathlib.Path) -> np.ndarray:
    """Trains and exports, then reads the folder again; the scores of the test data [N, 2]."""
    given = {"task_name": TASK, "data_dir": inputs, "output_dir": out, "strategy": "one"}
    given |= {"max_seq_length": 17, "do_eval": True, "do_predict": True, "xla": False}
    with in_process("run_classifier.py") as classify:
        classify(
            **given, init_checkpoint=inputs, do_train=True, train_batch_size=8,
            num_train_epochs=25, learning_rate="2e-3", eval_steps=50, export_dir=export,
        )  # fmt: skip
        results, scores = read_results(out), np.loadtxt(out / "test_results.tsv")
        assert results["eval_pearson"] > 0.7
        assert scores.shape == (5, 2)
        classify(**given)  # from the folder alone
    assert read_results(out) == pytest.approx(results)
    assert np.loadtxt(out / "test_results.tsv") == pytest.approx(scores, abs=1e-5)
    return scores


def test_from_rows_to_a_served_model(inputs, tmp_path):
    """A checkpoint needs the document's file; an export does not."""
    out, export = tmp_path / "run", tmp_path / "export"
    texts = [line.split("\t") for line in (inputs / "test.tsv").read_text().splitlines()[1:]]
    with registered():
        scores = train(inputs, out, export)
        model, tokenizer = bert_tf.load(out)
        with in_process("export") as export_verb:
            export_verb(init_checkpoint=out, export_dir=tmp_path / "again")
    facts = json.loads((out / "model_facts.json").read_text())
    assert (facts["task"], facts["architecture"]) == ("pair_scores", "BertForPairScores")
    lines = (out / "dev_predictions.tsv").read_text().splitlines()
    assert lines[0] == "id\tprediction\tlabel\tfirst\tsecond"
    answers = model(tokenizer([a for a, _ in texts], [b for _, b in texts]))
    assert answers["logits"].numpy() == pytest.approx(scores, abs=1e-5)
    for served in (export, tmp_path / "again"):
        found = bert_tf.Predictor(served).predict([{"text_a": a, "text_b": b} for a, b in texts])
        pairs = [[answer[f"{end}_score"] for end in ENDS] for answer in found]
        assert np.array(pairs) == pytest.approx(scores, abs=1e-5)


class OfNoHead(heads.Labels):
    """Labels whose head is not registered."""

    head = "pair_scores"


def test_what_is_refused(inputs, tmp_path):
    mrpc = tasks.get_task("mrpc")
    with pytest.raises(InputError, match="a task with the name mrpc"):
        tasks.register(mrpc)
    with pytest.raises(InputError, match="the head 'pair_scores'"):
        tasks.register(dataclasses.replace(mrpc, name="own", labels=OfNoHead()))
    (tmp_path / "dev.tsv").write_text("one\tother\tcounts\nw1\tw2\tmany\n")
    given = {"data_dir": tmp_path, "output_dir": tmp_path / "out", "init_checkpoint": inputs}
    given |= {"task_name": TASK, "max_seq_length": 17, "strategy": "one"}
    refused = pytest.raises(InputError, match="'many'")
    with registered(), in_process("run_classifier.py") as classify, refused:
        classify(**given, do_eval=True)
