"""Evaluation and prediction of a run on texts: every example once, in order, however batched."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf.checkpoints.companions import PretrainedModel
from bert_tf.checkpoints.metadata import ModelMetadata, Weights
from bert_tf.checkpoints.tf1 import checkpoint_name
from bert_tf.data.by_length import BatchingConfig
from bert_tf.errors import InputError
from bert_tf.heads.token_labels import normal_tags
from bert_tf.tasks.examples import ChoiceExample, Example, WordsExample
from bert_tf.tasks.features import make_features
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.run import make_optimizer
from bert_tf.tasks.text_run import TextData, TextRun
from bert_tf.tokenization.wordpiece import FullTokenizer
from bert_tf.training import distribution
from bert_tf.training.settings import FineTuningSchedule

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
ROWS = 11
BATCHES = [(1, 3, True), (1, 11, False), (2, 4, True), (2, 100, False)]


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


def choice_task():
    texts = iter(sentences(ROWS * 8, seed=2))
    examples = [
        ChoiceExample(str(i), tuple((next(texts), next(texts)) for _ in range(4)), str(i % 4))
        for i in range(ROWS)
    ]
    return get_task("swag"), examples


def words_task():
    """Some sentences need two windows, and some words are not in the vocabulary."""
    task = get_task("ner")
    examples = []
    for i, text in enumerate(sentences(ROWS, seed=3)):
        words = tuple(text.split() + ["unheard", "w7"] * (i % 4))
        tags = tuple(("B-P", "I-P", "O")[min(j % 4, 2)] for j in range(len(words)))
        examples.append(WordsExample(str(i), words, label=tags))
    return task.with_labels_of(examples), examples


def batching(*, bucket: bool = True) -> BatchingConfig:
    return BatchingConfig(max_seq_length=S, bucket_by_length=bucket)


def data_of(task, split: str, examples, *, batch_size: int = 4) -> TextData:
    return TextData(split=task.split(split), examples=examples, batch_size=batch_size)


def make_run(task, tokenizer, folder, *, strategy=None, metadata=None) -> TextRun:
    """A run with a model whose weights are always the same, and what is known of it."""
    keras.utils.set_random_seed(7)
    sizes = {"num_classes": task.labels.size, "num_choices": task.num_choices}
    variables = task.head.model(CONFIG, **sizes).trainable_variables
    values = {checkpoint_name(variable): variable.numpy() for variable in variables}
    values["output_weights"] = values["output_weights"] * 25  # first ones are small: see CONFIG
    weights = Weights(
        path=str(folder / "model.ckpt-5"),
        format="tf1",
        shapes={name: value.shape for name, value in values.items()},
        read=values.__getitem__,
        metadata=ModelMetadata(**{"architecture": task.head.architecture} | (metadata or {})),
    )
    return TextRun(
        task,
        PretrainedModel(weights, CONFIG, tokenizer),
        strategy or distribution.make_strategy("one"),
        batching(),
        output_dir=str(folder),
    )


def restored_run(*args, **kwargs) -> TextRun:
    """With that model as it is."""
    run = make_run(*args, **kwargs)
    run.restore()
    return run


def one_by_one(run: TextRun, examples) -> list[np.ndarray]:
    """The logits of each record from the model alone, without padding."""
    found = []
    for features in make_features(examples, run.task.labels, run.model.tokenizer, max_seq_length=S):
        ids = [np.array(one) for one in features.input_ids]
        longest = max(map(len, ids))
        inputs = {
            "input_ids": [np.pad(one, (0, longest - len(one))) for one in ids],
            "input_mask": [np.arange(longest) < len(one) for one in ids],
            "segment_ids": [np.pad(s, (0, longest - len(s))) for s in features.segment_ids],
        }
        batch = {name: tf.constant(np.array(value, np.int32)) for name, value in inputs.items()}
        if run.task.num_choices > 1:
            batch = {name: value[None] for name, value in batch.items()}
        found.append(run.trainer.model(batch)["logits"][0].numpy())
    return found


def recorded(trainer, seen: list):
    """`trainer.predict`, which notes the rows of every batch."""
    predict = trainer.predict

    def noting(batches, names):
        for number, outputs in enumerate(predict(batches, names)):
            seen.extend(batches.batch_rows(number).tolist())
            yield outputs

    return noting


@pytest.fixture(scope="module")
def runs(tokenizer, two_replicas, tmp_path_factory) -> dict[int, TextRun]:
    """The same model on one replica and on two."""
    task, _ = own_task()
    return {
        number: restored_run(task, tokenizer, tmp_path_factory.mktemp("run"), strategy=strategy)
        for number, strategy in ((1, None), (2, two_replicas))
    }


@pytest.fixture(scope="module")
def expected(runs):
    """Of one example at a time: its logits, and the metrics of all."""
    (task, examples), run = own_task(), runs[1]
    logits = np.stack(one_by_one(run, examples))
    gold = np.array([task.labels.names.index(e.label) for e in examples])
    exponentials = np.exp(logits.astype(float))
    probabilities = exponentials / exponentials.sum(1, keepdims=True)
    assert len(np.unique(probabilities.argmax(1))) > 1
    assert np.abs(probabilities[1:] - probabilities[:-1]).max(1).min() > 1e-3  # order would show
    loss = -np.log(probabilities[np.arange(ROWS), gold]).mean()
    return probabilities, loss, (probabilities.argmax(1) == gold).mean()


@pytest.mark.parametrize(("replicas", "batch_size", "bucket"), BATCHES)
def test_every_example_once_and_in_order(expected, runs, monkeypatch, replicas, batch_size, bucket):
    """Batches that do not divide the examples, greater than all of them, and of their number."""
    (task, examples), run = own_task(), runs[replicas]
    assert run.strategy.num_replicas_in_sync == replicas
    run.batching = batching(bucket=bucket)
    seen: list[int] = []
    monkeypatch.setattr(run.trainer, "predict", recorded(run.trainer, seen))
    data = data_of(task, "dev", examples, batch_size=batch_size)
    results = run.evaluate(data)
    probabilities, loss, accuracy = expected
    assert sorted(seen) == list(range(ROWS))
    assert data.guids == [example.guid for example in examples]
    assert np.asarray(data.probabilities) == pytest.approx(probabilities, abs=1e-5)
    assert results["loss"] == results["eval_loss"] == pytest.approx(loss, rel=1e-5)
    assert results["eval_accuracy"] == pytest.approx(accuracy)


def test_a_long_text_is_the_mean_of_its_windows(tokenizer, tmp_path):
    """Texts of 3 to 28 words in windows of 11, every 4 words: a row and a score for each text."""
    texts = sentences(36, seed=5)
    whole = [" ".join(texts[i : i + 4][: 1 + i % 4]) for i in range(0, 36, 4)]
    whole += [" ".join(texts[1:5]), " ".join(texts[9:13])]
    task, _ = own_task()
    examples = [Example(f"id{i}", text, None, "xyz"[i % 3]) for i, text in enumerate(whole)]
    parts, owners = [], []
    for number, text in enumerate(whole):
        words = text.split()
        for start in range(0, max(len(words) - 11, 0) + 4, 4):
            if start == 0 or start < len(words) - 11 + 4:
                parts.append(Example("", " ".join(words[start : start + 11]), None, "x"))
                owners.append(number)
    assert len(parts) > len(whole) + 4
    run = restored_run(task, tokenizer, tmp_path)
    alone, owners = np.stack(one_by_one(run, parts)), np.array(owners)
    logits = np.stack([alone[owners == number].mean(0) for number in range(len(whole))])
    run.doc_stride = 4
    data = data_of(task, "dev", examples)
    results = run.evaluate(data)
    assert len(data.files) == len(parts)
    assert run.predict(data) == pytest.approx(logits, abs=1e-5)
    exponentials = np.exp(logits.astype(float))
    probabilities = exponentials / exponentials.sum(1, keepdims=True)
    gold = np.arange(len(whole)) % 3
    assert np.asarray(data.probabilities) == pytest.approx(probabilities, abs=1e-5)
    loss = -np.log(probabilities[np.arange(len(whole)), gold]).mean()
    assert results["loss"] == pytest.approx(loss, rel=1e-5)
    assert results["eval_accuracy"] == pytest.approx((probabilities.argmax(1) == gold).mean())


@pytest.mark.parametrize(
    ("labels", "has"),
    [(("x", None), False), (("x", "y"), True), (((), ("x",)), True), (((), ()), False)],
)
def test_data_that_can_be_scored(labels, has):
    task, examples = own_task()
    made = [dataclasses.replace(examples[0], label=label) for label in labels]
    assert data_of(task, "test", made).has_labels == has


def test_what_is_cut_and_another_length_are_said(tokenizer, tmp_path, caplog):
    task, examples = own_task()
    run = make_run(task, tokenizer, tmp_path, metadata={"max_seq_length": 20})
    short, long = (
        [
            dataclasses.replace(e, text_a="w1 " * (n + i), text_b=None)
            for i, e in enumerate(examples)
        ]
        for n in (1, 9)
    )
    with caplog.at_level("WARNING", logger="absl"):
        run.restore()
        run.prepare(data_of(task, "dev", short))
        run.prepare(data_of(task, "test", long))
    length, cut = [record.getMessage() for record in caplog.records]
    assert length.endswith("was trained with max_seq_length = 20; here it is 13.")
    assert cut.startswith(
        f"{ROWS - 3} of {ROWS} examples have more than 13 tokens (--max_seq_length) and were cut"
    )


def test_a_model_that_has_lost_its_way_predicts_nothing(runs, monkeypatch):
    (task, examples), run = own_task(), runs[1]
    predict = run.trainer.predict

    def broken(*args):
        for outputs in predict(*args):
            yield {"logits": np.where(np.arange(3) == 1, np.nan, outputs["logits"])}

    monkeypatch.setattr(run.trainer, "predict", broken)
    data = data_of(task, "dev", examples)
    with pytest.raises(InputError, match=f"logits are NaN or infinite .* {ROWS} of {ROWS} records"):
        run.predict(data)


def test_no_batch_is_longer_than_its_data_need(runs):
    task, examples = own_task()
    short = [dataclasses.replace(example, text_a="w1 w2 w3") for example in examples]
    files = runs[1].prepare(data_of(task, "test", short)).files
    for bucket, length in ((True, 8), (False, None)):
        batches = batching(bucket=bucket).once(files, batch_size=4)
        assert {*batches.lengths(range(batches.num_batches))} == {length}


def test_choices_once_and_in_order(tokenizer, two_replicas, tmp_path):
    task, examples = choice_task()
    run = restored_run(task, tokenizer, tmp_path, strategy=two_replicas)
    data = data_of(task, "test", [dataclasses.replace(e, label=None) for e in examples])
    logits = run.predict(data)
    assert logits.shape == (ROWS, 4)
    assert logits == pytest.approx(np.stack(one_by_one(run, examples)), abs=1e-5)
    assert (tmp_path / "predict.tf_record").exists()


def test_every_word_once_and_in_order(tokenizer, two_replicas, tmp_path):
    task, examples = words_task()
    run = restored_run(task, tokenizer, tmp_path, strategy=two_replicas)
    data = data_of(task, "dev", examples)
    results = run.evaluate(data)
    assert len(data.guids) > ROWS  # windows
    rows = [np.asarray(rows) for rows in data.probabilities]
    assert [len(r) for r in rows] == [len(example.words) for example in examples]
    scored = [
        row
        for logits, ids in zip(one_by_one(run, examples), data.label_ids, strict=True)
        for row, label in zip(logits, ids, strict=True)
        if label >= 0
    ]
    exponentials = np.exp(np.array(scored, float))
    assert np.concatenate(rows) == pytest.approx(
        exponentials / exponentials.sum(1, keepdims=True), abs=1e-5
    )
    names = np.array(task.labels.names)
    tags = [normal_tags(names[row.argmax(1)].tolist()) for row in rows]
    right = np.concatenate(tags) == [tag for example in examples for tag in example.label]
    assert results["eval_accuracy"] == pytest.approx(right.mean())


# ---------------------------------------------------------------------------- what a model is for


@pytest.mark.parametrize(
    ("metadata", "received"),
    [
        ({"architecture": "BertForTokenClassification"}, "architecture = BertForTokenClass"),
        ({"task": "multi_label"}, "task = multi_label"),
        ({"pairs": True}, "pairs = True"),
    ],
)
def test_a_model_for_something_else_does_not_predict(tokenizer, tmp_path, metadata, received):
    task, _ = own_task()
    with pytest.raises(InputError, match=received) as info:
        restored_run(task, tokenizer, tmp_path, metadata=metadata)
    assert "--label_kind" in info.value.remedy
    for_mrpc = make_run(get_task("mrpc"), tokenizer, tmp_path, metadata={"pairs": False})
    with pytest.raises(InputError, match="pairs = False") as info:
        for_mrpc.restore()
    assert "--label_kind" not in info.value.remedy


def head_that_training_begins_with(task, tokenizer, folder, metadata) -> tuple[bool, bool]:
    """Whether head and encoder are the model's."""
    run = make_run(task, tokenizer, folder, metadata=metadata)
    run.make_trainer(make_optimizer(FineTuningSchedule(), 10), seed=5)
    run.load_pretrained()
    values = {checkpoint_name(v): v.numpy() for v in run.trainer.model.trainable_variables}
    names = ("output_weights", "bert/embeddings/word_embeddings")
    return tuple(np.array_equal(values[n], run.model.source.read(n)) for n in names)


@pytest.mark.parametrize(
    ("metadata", "is_taken"),
    [
        ({}, True),
        ({"labels": ("x", "y", "z"), "task": "classification"}, True),
        ({"labels": ("p", "q", "r")}, False),
        ({"labels": ("x", "y", "z"), "task": "multi_label"}, False),
        ({"architecture": "BertForTokenClassification"}, False),
        ({"pairs": True}, False),
    ],
)
def test_a_head_for_other_labels_is_not_trained_on(tokenizer, tmp_path, caplog, metadata, is_taken):
    task, _ = own_task()
    with caplog.at_level("WARNING", logger="absl"):
        found = head_that_training_begins_with(task, tokenizer, tmp_path, metadata)
    assert found == (is_taken, True)
    assert ("a new head is initialised" in caplog.text) != is_taken


def test_a_head_for_the_same_labels_is_put_into_the_order_of_the_task(tokenizer, tmp_path):
    """In training as in evaluation: no name goes to the logit of another class."""
    task, _ = own_task()
    for begin in (lambda run: run.load_pretrained(), lambda run: run.restore()):
        run = make_run(task, tokenizer, tmp_path, metadata={"labels": ("z", "x", "y")})
        theirs = run.model.source.read("output_weights")
        run.make_trainer(make_optimizer(FineTuningSchedule(), 10), seed=5)
        begin(run)
        values = {checkpoint_name(v): v.numpy() for v in run.trainer.model.trainable_variables}
        np.testing.assert_array_equal(values["output_weights"], theirs[[1, 2, 0]])


def test_a_head_of_another_shape_is_not_trained_on(tokenizer, tmp_path, caplog):
    """From three classes without names to a score."""
    begun = make_run(own_task()[0], tokenizer, tmp_path)
    task = get_task("sts-b")
    run = make_run(task, tokenizer, tmp_path)
    run.model = begun.model
    trainer = run.make_trainer(make_optimizer(FineTuningSchedule(), 10), seed=5)
    with caplog.at_level("WARNING", logger="absl"):
        run.load_pretrained()
    assert "is for 3 classes: a new head is initialised" in caplog.text
    values = {checkpoint_name(v): v.numpy() for v in trainer.model.trainable_variables}
    assert values["output_weights"].shape == (1, CONFIG.hidden_size)
    name = "bert/embeddings/word_embeddings"
    assert np.array_equal(values[name], begun.model.source.read(name))
