"""Evaluation and prediction of a run on texts: every example once, in order, however batched."""

import dataclasses
import functools
import itertools

import keras
import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities

from bert_tf import BertConfig
from bert_tf.checkpoints.loading import PretrainedModel, open_weights
from bert_tf.checkpoints.metadata import ModelMetadata, Weights
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data.packing import BatchingConfig
from bert_tf.errors import InputError
from bert_tf.heads.head import Head
from bert_tf.heads.labels import IGNORED
from bert_tf.heads.schemes import normal_tags
from bert_tf.modeling.names import checkpoint_name
from bert_tf.tasks.examples import ChoiceExample, Example, WordsExample
from bert_tf.tasks.features import make_features
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.text_run import TextData, TextRun
from bert_tf.tokenization.wordpiece import FullTokenizer
from bert_tf.training import distribution
from bert_tf.training.fine_tuning import optimizer_of
from bert_tf.training.options import FineTuningSchedule, StepConfig

CONFIG = BertConfig(
    vocab_size=23,
    hidden_size=6,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=10,
    max_position_embeddings=19,
    type_vocab_size=2,
    initializer_range=0.5,  # what an example is makes a great difference
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
S = 13  # two padded lengths, 8 and 13
ROWS = 7
INPUTS = ("input_ids", "input_mask", "segment_ids")
BATCHES = [(1, 3, True), (1, 7, False), (2, 4, True)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> FullTokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    words = [f"w{i}" for i in range(CONFIG.vocab_size - len(SPECIAL))]
    path.write_text("\n".join([*SPECIAL, *words]))
    return FullTokenizer(str(path))


def sentences(count: int, *, seed: int) -> list[str]:
    """Of 1 to 12 words."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 13, count)
    return [" ".join(f"w{n}" for n in random.integers(0, 18, size)) for size in sizes]


def own_task():
    task = get_task("csv", labels=["x", "y", "z"])
    examples = [
        Example(f"id{i}", text, None, "xyz"[i % 3])
        for i, text in enumerate(sentences(ROWS, seed=1))
    ]
    return task, examples


def batching(*, bucket: bool = True) -> BatchingConfig:
    return BatchingConfig(max_seq_length=S, bucket_by_length=bucket)


def soft_max(logits) -> np.ndarray:
    exponentials = np.exp(np.asarray(logits, float))
    return exponentials / exponentials.sum(-1, keepdims=True)


def data_of(task, split: str, examples, *, batch_size: int = 4) -> TextData:
    return TextData(split=task.split(split), examples=examples, batch_size=batch_size)


@functools.cache
def values_of(head: Head, num_classes: int, num_choices: int) -> dict[str, np.ndarray]:
    """The weights of a model: always the same."""
    keras.utils.set_random_seed(7)
    variables = head.model(
        CONFIG, num_classes=num_classes, num_choices=num_choices
    ).trainable_variables
    values = {checkpoint_name(variable): variable.numpy() for variable in variables}
    # First ones are small: see CONFIG.
    return values | {"output_weights": values["output_weights"] * 25}


def make_run(task, tokenizer, folder, *, strategy=None, metadata=None) -> TextRun:
    """A run with such a model, and what is known of it."""
    values = values_of(task.head, task.labels.size, task.num_choices)
    weights = Weights(
        path=str(folder / "model.ckpt-5"),
        format="tf1",
        shapes={name: value.shape for name, value in values.items()},
        read=values.__getitem__,
        metadata=ModelMetadata(**{"architecture": task.head.architecture} | (metadata or {})),
    )
    return TextRun(
        task=task,
        model=PretrainedModel(weights, CONFIG, tokenizer),
        strategy=strategy or distribution.make_strategy("one"),
        batching=batching(),
        output_dir=str(folder),
        step_config=StepConfig(xla=False),
    )


def restored_run(*args, **kwargs) -> TextRun:
    """With that model as it is."""
    run = make_run(*args, **kwargs)
    run.restore()
    return run


def one_by_one(run: TextRun, examples, **options) -> list[np.ndarray]:
    """The logits of each record from the model alone, without padding."""
    found, labels, tokenizer = [], run.task.labels, run.model.tokenizer
    for features in make_features(examples, labels, tokenizer, max_seq_length=S, **options):
        longest = max(map(len, features.input_ids))
        values = features.values(longest)
        batch = {name: np.int32(values[name]).reshape([-1, longest]) for name in INPUTS}
        if run.task.num_choices > 1:
            batch = {name: value[None] for name, value in batch.items()}
        found.append(run.trainer.model(batch)["logits"][0].numpy())
    return found


def check(data: TextData, results, logits) -> None:
    """The predictions and scores are those of these logits of each example."""
    probabilities, rows = soft_max(logits), np.arange(len(logits))
    gold = np.array(["xyz".index(example.label) for example in data.examples])
    assert np.asarray(data.probabilities) == pytest.approx(probabilities, abs=1e-5)
    loss = -np.log(probabilities[rows, gold]).mean()
    assert results["loss"] == results["eval_loss"] == pytest.approx(loss, rel=1e-5)
    assert results["eval_accuracy"] == pytest.approx((probabilities.argmax(1) == gold).mean())


@pytest.fixture(scope="module")
def runs(tokenizer, two_replicas, tmp_path_factory) -> dict[int, TextRun]:
    """The same model on one replica and on two."""
    task, _ = own_task()
    return {
        number: restored_run(task, tokenizer, tmp_path_factory.mktemp("run"), strategy=strategy)
        for number, strategy in ((1, None), (2, two_replicas))
    }


@pytest.fixture(scope="module")
def expected(runs) -> np.ndarray:
    """The logits of one example at a time."""
    logits = np.stack(one_by_one(runs[1], own_task()[1]))
    assert len(np.unique(logits.argmax(1))) > 1
    assert np.abs(np.diff(soft_max(logits), axis=0)).max(1).min() > 1e-3  # order would show
    return logits


@pytest.mark.parametrize(("replicas", "batch_size", "bucket"), BATCHES)
def test_every_example_once_and_in_order(expected, runs, replicas, batch_size, bucket):
    """Batches that do not divide the examples, greater than all of them, and of their number."""
    (task, examples), run = own_task(), runs[replicas]
    assert run.strategy.num_replicas_in_sync == replicas
    if run.batching != batching(bucket=bucket):  # of which the model is made
        run.batching = batching(bucket=bucket)
        run.restore()
    data = data_of(task, "dev", examples, batch_size=batch_size)
    check(data, run.evaluate(data), expected)
    assert data.guids == [example.guid for example in examples]


def test_a_long_text_is_the_mean_of_its_windows(tokenizer, tmp_path):
    """In windows of 11 words, every 4 words: a row and a score for each text."""
    task, _ = own_task()
    texts = [" ".join(sentences(4, seed=i)[: 1 + i % 4]) for i in range(ROWS)]
    examples = [Example(f"id{i}", text, None, "xyz"[i % 3]) for i, text in enumerate(texts)]
    run = restored_run(task, tokenizer, tmp_path)
    run.doc_stride = 4
    data = data_of(task, "dev", examples)
    results = run.evaluate(data)
    alone, owners = np.stack(one_by_one(run, examples, doc_stride=4)), np.array(data.guids)
    assert len(owners) > len(examples) + 2
    check(data, results, np.stack([alone[owners == e.guid].mean(0) for e in examples]))


@pytest.mark.parametrize(
    ("labels", "has"),
    [(("x", None), False), (("x", "y"), True), (((), ("x",)), True), (((), ()), False)],
)
def test_data_that_can_be_scored(labels, has):
    task, examples = own_task()
    made = [dataclasses.replace(examples[0], label=label) for label in labels]
    assert data_of(task, "test", made).has_labels == has


def test_what_is_cut_and_another_length_are_said(tokenizer, tmp_path, caplog):
    task = own_task()[0]
    run = make_run(task, tokenizer, tmp_path, metadata={"max_seq_length": 20})
    examples = [Example(str(n), "w1 " * n, None, "x") for n in (10, 11, 12, 14)]
    run.restore()
    run.prepare(data_of(task, "test", examples))
    length, cut = [record.getMessage() for record in caplog.records]
    assert length.endswith("was trained with max_seq_length = 20; here it is 13.")
    assert cut == "Cut to 13 tokens (max_seq_length): 2 of 4 examples."


def test_texts_that_the_vocabulary_does_not_know_are_said(tokenizer, tmp_path, caplog):
    task = own_task()[0]
    run = make_run(task, tokenizer, tmp_path)
    texts = ["😀", "ไทย", "w1 😀", "[CLS] w1"]
    run.prepare(data_of(task, "test", [Example(str(n), x, None, "x") for n, x in enumerate(texts)]))
    assert "2 of 4 examples have no token that the vocabulary knows" in caplog.text
    assert "1 of 4 texts have [CLS], [SEP] or another special token as text" in caplog.text


def test_outputs_that_are_nan_are_refused(runs, monkeypatch):
    (task, examples), run = own_task(), runs[1]
    predict = run.trainer.predict

    def broken(*args):
        for outputs in predict(*args):
            yield {"logits": np.where(np.arange(3) == 1, np.nan, outputs["logits"])}

    monkeypatch.setattr(run.trainer, "predict", broken)
    with pytest.raises(InputError, match=f"logits are NaN or infinite .* {ROWS} of {ROWS} records"):
        run.predict(data_of(task, "dev", examples))


def test_prices_are_learned_in_a_scale_and_predicted_as_prices(tokenizer, tmp_path):
    """The scale is kept with the model: whoever opens it has a model of prices."""
    prices = np.random.default_rng(5).uniform(2e5, 9e5, ROWS).round(2)
    examples = [
        Example(f"id{n}", text, None, float(price))
        for n, (text, price) in enumerate(zip(sentences(ROWS, seed=4), prices, strict=True))
    ]
    new = get_task("csv", label_kind="regression", text_a_column="ad")
    run = restored_run(new.with_labels_of(examples), tokenizer, tmp_path)
    data = data_of(run.task, "dev", examples)
    results = run.evaluate(data)
    logits, (mean, deviation) = np.stack(one_by_one(run, examples)), (prices.mean(), prices.std())
    scores = logits * deviation + mean  # [N, 1]
    label_ids = [run.task.labels.ids(example.label) for example in examples]
    assert np.ravel(label_ids) == pytest.approx((prices - mean) / deviation)
    assert data.probabilities == pytest.approx(scores, rel=1e-5)
    assert results["loss"] == pytest.approx(((scores[:, 0] - prices) ** 2).mean(), rel=1e-4)
    assert results["eval_pearson"] == pytest.approx(
        np.corrcoef(scores[:, 0], prices)[0, 1], rel=1e-4
    )
    run.write_labeled(data, str(tmp_path / "said.tsv"))
    lines = [line.split("\t") for line in (tmp_path / "said.tsv").read_text().splitlines()[1:]]
    assert [float(line[2]) for line in lines] == pytest.approx(prices, rel=1e-5)
    assert [float(line[1]) for line in lines] == pytest.approx(scores[:, 0], rel=1e-5)

    run.write_model_files(str(tmp_path))
    folder = CheckpointFolder(str(tmp_path))
    folder.save(7, run.trainer.state(7, {}))
    assert run.trainer.restore(folder, {}) == 7  # to be trained further: the scale stays
    assert np.stack(one_by_one(run, examples)) == pytest.approx(logits)
    weights = open_weights(str(tmp_path))
    assert weights.metadata.score_deviation is None
    opened = dataclasses.replace(run, task=new, model=PretrainedModel(weights, CONFIG, tokenizer))
    opened.restore()
    again = data_of(new, "dev", examples)
    assert opened.evaluate(again)["loss"] == pytest.approx(results["loss"], rel=1e-4)
    assert again.probabilities == pytest.approx(scores, rel=1e-5)


def test_choices_once_and_in_order(tokenizer, tmp_path):
    task, texts = get_task("swag"), iter(sentences(ROWS * 8, seed=2))
    examples = [
        ChoiceExample(str(i), tuple((next(texts), next(texts)) for _ in range(4)), str(i % 4))
        for i in range(ROWS)
    ]
    run = restored_run(task, tokenizer, tmp_path)
    data = data_of(task, "test", [dataclasses.replace(e, label=None) for e in examples])
    logits = run.predict(data)
    assert logits.shape == (ROWS, 4)
    run.batching = batching(bucket=False)
    run.restore()
    assert logits == pytest.approx(np.stack(one_by_one(run, examples)), abs=1e-5)
    assert (tmp_path / "predict.tf_record").exists()


def test_every_word_once_and_in_order(tokenizer, two_replicas, tmp_path):
    """Words whose tag the model does not have are predicted, and are mistakes.

    Some sentences need two windows, and some words are not in the vocabulary.
    """
    examples = []
    for i, text in enumerate(sentences(ROWS, seed=3)):
        words = tuple(text.split() + ["unheard", "w7"] * (i % 4))
        tags = tuple(("B-P", "I-P", "O")[min(j % 4, 2)] for j in range(len(words)))
        examples.append(WordsExample(str(i), words, label=tags))
    task = get_task("ner").with_labels_of(examples)
    for number in (1, 3):
        label = ("B-Z", "I-Z", *examples[number].label[2:])
        examples[number] = dataclasses.replace(examples[number], label=label)
    run = restored_run(task, tokenizer, tmp_path, strategy=two_replicas)
    data = data_of(task, "dev", examples)
    results = run.evaluate(data)
    assert len(data.guids) > ROWS  # windows
    rows = [np.asarray(rows) for rows in data.probabilities]
    assert [len(r) for r in rows] == [len(example.words) for example in examples]
    scored = [
        row
        for logits, ids in zip(one_by_one(run, examples), data.label_ids, strict=True)
        for row, label in zip(logits, ids, strict=False)
        if label != IGNORED
    ]
    assert np.concatenate(rows) == pytest.approx(soft_max(scored), abs=1e-5)
    names = np.array(task.labels.names)
    tags = [normal_tags(names[row.argmax(1)].tolist()) for row in rows]
    right = np.concatenate(tags) == [tag for example in examples for tag in example.label]
    assert results["eval_accuracy"] == pytest.approx(right.mean())
    found, gold = (get_entities([*map(list, side)]) for side in (tags, [e.label for e in examples]))
    recall = len({*found} & {*gold}) / len(gold)
    assert results["eval_entity_recall"] == pytest.approx(recall)
    assert {"Z"} < {kind for kind, *_ in gold}


# ---------------------------------------------------------------------------- what a model is for


@pytest.mark.parametrize(
    ("metadata", "received"),
    [
        ({"architecture": "BertForTokenClassification"}, "architecture = BertForTokenClass"),
        ({"task": "multi_label"}, "task = multi_label"),
        ({"pairs": True}, "pairs = True"),
        ({"pairs": False}, "pairs = False"),
    ],
)
def test_a_model_for_something_else_does_not_predict(tokenizer, tmp_path, metadata, received):
    task = get_task("mrpc") if metadata == {"pairs": False} else own_task()[0]
    with pytest.raises(InputError, match=received) as info:
        restored_run(task, tokenizer, tmp_path, metadata=metadata)
    assert ("--label_kind" in info.value.remedy) == (task.name == "csv")


def weights_that_training_begins_with(run, seed: int = 5) -> dict[str, np.ndarray]:
    run.make_trainer(optimizer_of(FineTuningSchedule(), 10), seed=seed)
    run.load_pretrained()
    return {checkpoint_name(v): v.numpy() for v in run.trainer.model.trainable_variables}


def test_a_new_head_is_not_the_one_that_its_weights_were_trained_with(tokenizer, tmp_path):
    """It is drawn by the seed and the weights; a run of seed 7 made those of `make_run`."""

    def drawn(seed: int, scale: float) -> np.ndarray:
        run = make_run(own_task()[0], tokenizer, tmp_path, metadata={"labels": ("p", "q", "r")})
        source, first = run.model.source, run.model.source.read
        read = lambda name: first(name) * scale  # noqa: E731
        run.model = dataclasses.replace(run.model, source=dataclasses.replace(source, read=read))
        return weights_that_training_begins_with(run, seed)["output_weights"].ravel()

    heads = [drawn(seed, scale) for seed, scale in ((7, 1), (7, 2), (5, 1), (7, 1))]
    trained = make_run(own_task()[0], tokenizer, tmp_path).model.source.read("output_weights")
    for one, other in itertools.combinations([trained.ravel(), *heads[:3]], 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.8
    np.testing.assert_array_equal(heads[0], heads[3])


@pytest.mark.parametrize(
    ("metadata", "order"),
    [
        ({}, [0, 1, 2]),
        ({"labels": ("x", "y", "z"), "task": "classification"}, [0, 1, 2]),
        ({"labels": ("z", "x", "y")}, [1, 2, 0]),
        ({"labels": ("p", "q", "r")}, None),
        ({"labels": ("x", "y", "z"), "task": "multi_label"}, None),
        ({"architecture": "BertForTokenClassification"}, None),
        ({"pairs": True}, None),
    ],
)
def test_a_head_for_other_labels_is_not_trained_on(tokenizer, tmp_path, caplog, metadata, order):
    """One for the same labels is put into the order of the task."""
    run = make_run(own_task()[0], tokenizer, tmp_path, metadata=metadata)
    found, theirs = weights_that_training_begins_with(run), run.model.source.read
    name = "bert/embeddings/word_embeddings"
    np.testing.assert_array_equal(found[name], theirs(name))
    is_taken = order and np.array_equal(found["output_weights"], theirs("output_weights")[order])
    assert bool(is_taken) == bool(order)
    assert ("a new head is initialised" in caplog.text) == (order is None)


def test_evaluation_puts_a_head_into_the_order_of_the_task(tokenizer, tmp_path):
    run = restored_run(own_task()[0], tokenizer, tmp_path, metadata={"labels": ("z", "x", "y")})
    values = {checkpoint_name(v): v.numpy() for v in run.trainer.model.trainable_variables}
    theirs = make_run(own_task()[0], tokenizer, tmp_path).model.source.read("output_weights")
    np.testing.assert_array_equal(values["output_weights"], theirs[[1, 2, 0]])


def test_a_head_of_another_shape_is_not_trained_on(tokenizer, tmp_path, caplog):
    """From three classes without names to a score."""
    run = make_run(get_task("sts-b"), tokenizer, tmp_path)
    run.model = make_run(own_task()[0], tokenizer, tmp_path).model
    found = weights_that_training_begins_with(run)
    assert "is for 3 classes: a new head is initialised" in caplog.text
    assert found["output_weights"].shape == (1, CONFIG.hidden_size)
