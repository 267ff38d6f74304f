"""A head of one's own, defined in this file alone: trained, evaluated, exported, served.

A score for each sentence of a pair, from the mean of its tokens' vectors.
"""

import json
import pathlib
from types import MappingProxyType

import keras
import numpy as np
import pytest
import tensorflow as tf
from walking import in_process, read_results, write_encoder

import bert_tf
from bert_tf import heads, tasks
from bert_tf.data.records import Feature
from bert_tf.errors import InputError
from bert_tf.tasks import registry

pytestmark = pytest.mark.walk
ENDS = ("first", "second")


class PairScores(heads.Head):
    """A score for each sentence of a pair."""

    name = "pair_scores"
    architecture = "BertForPairScores"
    required = f"{heads.ENCODER}|{heads.OUTPUT}"  # the pooler is not used
    terms = ("scores",)
    title = "Scores both sentences of a pair."
    answer_meanings = MappingProxyType({f"{end}_score": "float [B]" for end in ENDS})

    def model(self, config, **_):
        """The encoder, and one scorer of the mean vector of each sentence: logits [B, 2]."""
        encoder = bert_tf.BertModel(config)
        segments, mask = (encoder.input[name] for name in ("segment_ids", "input_mask"))
        scorer = heads.SequenceClassifier(config, num_classes=1, name="classifier")
        scores = []
        for segment in (0, 1):
            inside = keras.ops.logical_and(keras.ops.equal(segments, segment), mask)
            inside = keras.ops.cast(inside, "float32")[..., None]  # [B, S, 1]
            total = keras.ops.sum(inside * encoder.output["sequence_output"], axis=1)  # [B, D]
            scores.append(scorer(total / (keras.ops.sum(inside, axis=1) + 1e-6)))  # [B, 1]
        outputs = encoder.output | {"logits": keras.ops.concatenate(scores, axis=-1)}  # [B, 2]
        return bert_tf.BertModel(encoder.input, outputs, name=self.name)

    def losses(self, outputs, batch):
        """Squared errors [B]."""
        return {"scores": tf.reduce_mean(tf.square(outputs["logits"] - batch["label_ids"]), -1)}

    def label_features(self, max_seq_length, num_labels, num_choices):
        """Two numbers of a record."""
        return (Feature("label_ids", tf.float32, 2, least=-100.0, most=100.0),)

    def answers(self, outputs, labels):
        """Both scores [B]."""
        return {f"{end}_score": outputs["logits"][:, at] for at, end in enumerate(ENDS)}


class PairLabels(heads.Labels):
    """Two numbers, as in "1.5 0"; from a cell of the file to the record, from logits to files."""

    head = "pair_scores"
    size = 1  # of the weights of one scorer
    are_fixed = True  # there are no names to find in the training data
    columns = ENDS

    def parse(self, value):
        """Two numbers."""
        try:
            first, second = map(float, value.split())
        except ValueError:
            raise ValueError("two numbers, as in 1.5 0") from None
        return first, second

    def ids(self, label):
        """As in the record."""
        return [0.0, 0.0] if label is None else [*label]

    def probabilities(self, logits):
        """The scores."""
        return logits.astype(np.float64)

    def decide(self, probabilities):
        """The scores [N, 2]."""
        return np.asarray(probabilities)  # [N, 2]

    def for_metrics(self, label_ids, probabilities):
        """All scores, [2 N]."""
        return np.ravel(label_ids), np.ravel(probabilities)

    def spell(self, prediction):
        """As they are read."""
        return " ".join(f"{score:.3f}" for score in prediction)

    def spell_label(self, label):
        """As they are read."""
        return "" if label is None else self.spell(label)


TASK = tasks.Task(
    name="own_pairs",
    title="How often is w1 in each of two sentences?",
    layout=tasks.TextColumns(text_a="one", text_b="other", label="counts"),
    labels=PairLabels(),
    metrics=("pearson",),
    splits=tasks.splits("train.tsv", "dev.tsv", "test.tsv"),
)


@pytest.fixture(scope="module")
def registered():
    """The two calls. What they add is taken away for the other tests."""
    with pytest.raises(InputError, match="the head 'pair_scores'"):
        tasks.register(TASK)
    heads.register(PairScores)
    tasks.register(TASK)
    yield
    del registry._ALL[TASK.name], heads.NAMES["pair_scores"]


def rows(count: int, *, seed: int, with_label: bool = True) -> str:
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
    write_encoder(folder, scale=5)
    return folder


@pytest.mark.usefixtures("registered")
def test_from_rows_to_a_served_model(inputs, tmp_path):
    out, export = tmp_path / "run", tmp_path / "export"
    given = {"task_name": "own_pairs", "data_dir": inputs, "output_dir": out, "strategy": "one"}
    given |= {"max_seq_length": 17, "do_eval": True, "do_predict": True}
    with in_process("run_classifier.py") as classify:
        classify(
            **given, init_checkpoint=inputs, do_train=True, train_batch_size=8,
            num_train_epochs=25, learning_rate="2e-3", eval_steps=50, export_dir=export,
        )  # fmt: skip
        results = read_results(out)
        assert results["eval_pearson"] > 0.7
        facts = json.loads((out / "model_facts.json").read_text())
        assert (facts["task"], facts["architecture"]) == ("pair_scores", "BertForPairScores")
        scores = np.loadtxt(out / "test_results.tsv")
        assert scores.shape == (5, 2)
        lines = (out / "dev_predictions.tsv").read_text().splitlines()
        assert lines[0] == "id\tprediction\tlabel\tfirst\tsecond"
        classify(**given)  # from the folder alone
    assert read_results(out) == pytest.approx(results)
    assert np.loadtxt(out / "test_results.tsv") == pytest.approx(scores, abs=1e-5)

    texts = [line.split("\t") for line in (inputs / "test.tsv").read_text().splitlines()[1:]]
    model, tokenizer = bert_tf.load(out)
    answers = model(tokenizer([a for a, _ in texts], [b for _, b in texts]))
    assert answers["logits"].numpy() == pytest.approx(scores, abs=1e-5)
    with in_process("export") as export_verb:
        export_verb(init_checkpoint=out, export_dir=tmp_path / "again")
    for served in (export, tmp_path / "again"):
        found = bert_tf.Predictor(served).predict([{"text_a": a, "text_b": b} for a, b in texts])
        pairs = [[answer[f"{end}_score"] for end in ENDS] for answer in found]
        assert np.array(pairs) == pytest.approx(scores, abs=1e-5)


@pytest.mark.usefixtures("registered")
def test_names_that_are_taken(inputs, tmp_path):
    with pytest.raises(InputError, match="a task with the name mrpc"):
        tasks.register(tasks.get_task("mrpc"))
    (tmp_path / "dev.tsv").write_text("one\tother\tcounts\nw1\tw2\tmany\n")
    given = {"data_dir": tmp_path, "output_dir": tmp_path / "out", "init_checkpoint": inputs}
    given |= {"task_name": "own_pairs", "max_seq_length": 17, "strategy": "one"}
    with in_process("run_classifier.py") as classify, pytest.raises(InputError, match="'many'"):
        classify(**given, do_eval=True)
