"""`load` and `classifier`: models with weights, labels and tokenizer, in everything Keras does."""

import dataclasses

import keras
import model_files
import numpy as np
import pytest
import reference
import small
import tensorflow as tf

import bert_tf
from bert_tf import heads, layers
from bert_tf.errors import InputError
from bert_tf.heads import NAMES, make_model
from bert_tf.modeling.names import checkpoint_name

CONFIG = dataclasses.replace(small.CONFIG, num_hidden_layers=1)  # each takes seconds to trace
TENSORS = {kind: model_files.tensors_of(kind, CONFIG) for kind in model_files.KINDS}
LABELS = ["bad", "so so", "good"]  # as many as model_files.NUM_CLASSES
TEXTS, PAIRS = ["w0 w3 w1", "w2"], ["w7", "w4 w9"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """A released checkpoint, and folders of Hugging Face's with a head."""
    root = tmp_path_factory.mktemp("models")
    files = {"vocab.txt": "".join(f"{piece}\n" for piece in model_files.PIECES)}
    config = model_files.hugging_face_config(
        CONFIG,
        architectures=["BertForSequenceClassification"],
        id2label=dict(enumerate(LABELS)),
        problem_type="single_label_classification",
    )
    for kind, changes in {"classifier": {}, "nameless": {"id2label": None}}.items():
        tensors = model_files.state_dict(TENSORS["classifier"])
        values = {k: v for k, v in (config | changes).items() if v is not None}
        model_files.write_hugging_face(root / kind, tensors, config=values, files=files)
    for kind in ("pretraining", "span"):
        model_files.write_tf1(root / kind, TENSORS[kind], config=CONFIG)
    encoder = {n: v for n, v in TENSORS["span"].items() if n.startswith("bert/")}
    model_files.write_tf1(root / "encoder", encoder, config=CONFIG)
    return {path.name: str(path) for path in root.iterdir()}


def compiled(model, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = bert_tf.make_optimizer(6, learning_rate=1e-3)
    model.compile(optimizer, loss, metrics=["accuracy"], **options)
    return model


def rows(count: int = 12) -> dict:
    rng = np.random.default_rng(7)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 30, n)) for n in rng.integers(1, 9, count)]
    return {"text": texts, "label": [LABELS[i] for i in rng.integers(0, 3, count)]}


# ---------------------------------------------------------------------------- from texts


def test_fit_and_predict_take_texts_and_every_fit_trains(folders):
    """And names of labels; each fit has a schedule of its own; one that is over is refused."""
    model = bert_tf.classifier(folders["encoder"], labels=LABELS)
    table = rows(10)
    options = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0}
    checks = (table["text"], table["label"])
    for count, steps, more in ((10, 6, {"validation_data": checks}), (4, 2, {})):
        before = model.get_weights()[0]
        model.fit(table["text"][:count], table["label"][:count], **options, **more)
        assert model.optimizer.schedule == bert_tf.make_optimizer(steps).schedule
        assert int(model.optimizer.iterations) == steps
        assert np.abs(model.get_weights()[0] - before).max() > 1e-5
    numbers = np.array([LABELS.index(name) for name in table["label"]])
    ids = model.tokenizer(table["text"])
    assert model.evaluate(*checks, verbose=0) == model.evaluate(ids, numbers, verbose=0)
    np.testing.assert_array_equal(model.predict(table["text"]), model.predict(ids))
    with pytest.raises(ValueError, match="compile"):
        bert_tf.load(folders["classifier"])[0].fit(["w1"], np.array([1]), verbose=0)
    other = compiled(bert_tf.classifier(folders["encoder"], labels=LABELS))
    other.optimizer.iterations.assign(6)
    with pytest.raises(InputError, match=r"schedule of \d+ steps is over"):
        other.fit(*checks, verbose=0)
    with pytest.raises(InputError, match="data of unknown length"):
        model.fit(iter([(model.tokenizer(["w1"]), np.array([0]))]))


WRONG = ("sparse_categorical_crossentropy", "bce", keras.losses.CategoricalCrossentropy())


@pytest.mark.parametrize("loss", [*WRONG, keras.losses.sparse_categorical_crossentropy])
def test_a_loss_of_probabilities_is_refused(folders, loss):
    """Keras would train on it without a word."""
    model = bert_tf.classifier(folders["encoder"], labels=LABELS)
    choices = make_model("multiple_choice", CONFIG, num_choices=2)
    words = make_model("fill_mask", CONFIG)
    pairs = (model, loss), (model, [loss]), (choices, loss), (words, {"masked_lm_logits": loss})
    for one, of_it in pairs:
        one.compile("sgd", of_it)
        for make in (one.make_train_function, one.make_test_function):  # as `fit` and `evaluate`
            with pytest.raises(InputError, match=r"of probabilities\n.*logits"):
                make()
    probabilities = keras.ops.softmax(model.output)
    logits = keras.losses.CategoricalCrossentropy(from_logits=True)
    both = {"logits": model.output, "shares": probabilities}
    for output, right in (
        (probabilities, loss),
        (both, {"logits": logits, "shares": loss}),
        (model.output, keras.losses.MeanSquaredError()),
    ):
        other = bert_tf.BertModel(model.input, output)
        other.compile("sgd", right)
        other.make_train_function()


def test_outputs_have_the_mask_of_padding():
    """So pooling layers and losses of tokens leave it out."""
    model = make_model("token_labels", CONFIG, num_classes=3)
    ids = np.array([[3, 1, 2, 0, 0], [5, 5, 5, 5, 5]])
    x = model(ids)["sequence_output"]
    mean = keras.layers.GlobalAveragePooling1D()(x)
    small.close(mean[0], np.mean(x[0, :3], axis=0))
    model.compile("sgd", {"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)})
    losses = {
        model.evaluate(ids, {"logits": np.array([[0, 1, 2, n, n], [0, 0, 0, 0, 0]])}, verbose=0)
        for n in range(3)
    }
    assert len(losses) == 1


# ---------------------------------------------------------------------------- what is loaded


@pytest.mark.parametrize(
    ("kind", "head"),
    [("classifier", "classification"), ("pretraining", "pretraining"),
     ("span", "question_answering"), ("encoder", "embeddings")],
)  # fmt: skip
def test_the_head_that_is_found(folders, kind, head):
    model, tokenizer = bert_tf.load(folders[kind])
    batch = tokenizer(TEXTS, PAIRS)
    outputs = model(batch)
    assert set(outputs) == set(make_model(head, CONFIG).output)
    assert model.tokenizer is tokenizer
    assert tokenizer.max_length == CONFIG.max_position_embeddings
    with pytest.raises(InputError, match="max_length 14"):  # there are 13 positions
        tokenizer(TEXTS, max_length=14)
    assert model.labels == (tuple(LABELS) if kind == "classifier" else None)
    for variable in model.trainable_variables:
        name = checkpoint_name(variable)
        np.testing.assert_array_equal(variable, TENSORS.get(kind, TENSORS["span"])[name])
    if kind == "pretraining":  # predictions for every position
        expected = reference.pretraining_outputs(
            TENSORS[kind],
            CONFIG,
            batch | {"masked_lm_positions": np.array([[*range(7)]] * 2)},
        )
        small.close(outputs["masked_lm_logits"], expected["masked_lm_logits"], 1e-4)


def test_every_head_can_be_asked_for(folders):
    for head in NAMES.keys() - {"multiple_choice"}:
        names = LABELS if head in ("classification", "multi_label", "token_labels") else None
        model, tokenizer = bert_tf.load(folders["pretraining"], head=head, labels=names)
        assert model(tokenizer(TEXTS)).keys() == model.output.keys()
    model, tokenizer = bert_tf.load(folders["encoder"], head="multiple_choice")
    choices = {name: x.reshape(1, 4, -1) for name, x in tokenizer(TEXTS * 2).items()}
    assert model(choices)["logits"].shape == (1, 4)


def test_a_head_for_the_same_labels_is_kept_in_the_order_asked_for(folders):
    first = bert_tf.classifier(folders["classifier"], labels=LABELS)
    other = bert_tf.classifier(folders["classifier"], labels=["good", "bad", "so so"])
    assert (first.labels, other.labels) == (("bad", "so so", "good"), ("good", "bad", "so so"))
    batch = first.tokenizer(TEXTS)
    logits = np.array(first(batch))
    assert logits.shape == (2, 3)
    np.testing.assert_allclose(np.array(other(batch)), logits[:, [2, 0, 1]], atol=1e-6)
    nameless = bert_tf.classifier(folders["nameless"], labels=["x", "y", "z"])
    np.testing.assert_array_equal(nameless(batch), logits)


def test_a_saved_model_keeps_its_task(folders, tmp_path):
    model, _ = bert_tf.load(folders["pretraining"], head="multi_label", labels=LABELS)
    model.save(str(tmp_path / "several.keras"))
    again, _ = bert_tf.load(tmp_path / "several.keras")
    again, _ = bert_tf.load(bert_tf.save_weights(again, tmp_path / "b"))
    assert (again.labels, dict(again.metadata)) == (tuple(LABELS), {"task": "multi_label"})


def test_a_model_of_windows_is_warned_of(folders, tmp_path, caplog):
    weights = bert_tf.open_weights(folders["classifier"])
    metadata = dataclasses.replace(weights.metadata, doc_stride=5)
    weights = dataclasses.replace(weights, metadata=metadata)
    path = bert_tf.save_weights(weights, tmp_path / "windows", format="bert_tf")
    assert "doc_stride" not in bert_tf.load(path)[0].metadata
    assert "was trained with windows of long texts" in caplog.text
    weights, facts = bert_tf.open_weights(folders["span"]), {"doc_stride": 5}
    metadata = dataclasses.replace(weights.metadata, null_score_diff_threshold=-7.5, **facts)
    weights = dataclasses.replace(weights, metadata=metadata)
    path = bert_tf.save_weights(weights, tmp_path / "questions", format="bert_tf")
    assert dict(bert_tf.load(path)[0].metadata) == facts
    assert "the threshold of no answer, -7.5, is not kept" in caplog.text


def test_a_new_head_is_expected_of_a_classifier_alone(folders, caplog):
    caplog.set_level("INFO", logger="absl")
    of_load = {"head": "classification"}
    for make, head, level in ((bert_tf.classifier, {}, "INFO"), (bert_tf.load, of_load, "WARNING")):
        caplog.clear()
        make(folders["span"], labels=LABELS, **head)
        new = [x.levelname for x in caplog.records if "these weights are new" in x.message]
        assert new == [level]


def test_weights_that_are_not_used_are_told(folders, tmp_path, caplog):
    """A CRF and an LSTM beside the head; not a pooler, which no output reads."""
    theirs = {"crf/transitions": np.ones((3, 3)), "lstm/kernel": np.ones((22, 8))}
    tensors = TENSORS["classifier"] | {n: v.astype(np.float32) for n, v in theirs.items()}
    more = {"head": "token_labels", "labels": LABELS}
    path = model_files.write_tf1(tmp_path / "all", tensors, config=CONFIG)
    bert_tf.load(path, **more)
    assert "2 weights are not used, such as crf/transitions, lstm/kernel" in caplog.text
    caplog.clear()
    for pooler in (True, False):
        tensors = {n: v for n, v in TENSORS["classifier"].items() if pooler or "pooler" not in n}
        path = model_files.write_tf1(tmp_path / str(pooler), tensors, config=CONFIG)
        bert_tf.load(path, **more)
        bert_tf.token_classifier(path, labels=LABELS)
    assert "pooler" not in caplog.text
    assert "not used" not in caplog.text
    bert_tf.load(path, head="classification", labels=LABELS)
    assert "are new, train them before" in caplog.text
    assert "bert/pooler/dense/kernel" in caplog.text


@pytest.mark.parametrize("labels", [["bad", "good"], ["bad", "so so", "fine"]])
def test_a_head_for_other_labels_is_new(folders, labels):
    keras.utils.set_random_seed(3)
    model = bert_tf.classifier(folders["classifier"], labels=labels)
    weights = {checkpoint_name(v): np.array(v) for v in model.trainable_variables}
    assert not weights["output_bias"].any()
    assert np.abs(weights["output_weights"]).max() <= 0.04
    name = "bert/pooler/dense/kernel"
    np.testing.assert_array_equal(weights[name], TENSORS["classifier"][name])


@pytest.mark.parametrize(
    ("kind", "options", "received"),
    [
        ("encoder", {"head": "classification"}, "of which it has none"),
        ("encoder", {"head": "fill_mask"}, "lacks 5 of the model"),
        ("span", {"head": "pretraining"}, "lacks 7 of the model"),
        ("encoder", {"head": "tagging"}, "the head 'tagging'"),
        ("encoder", {"head": "classification", "labels": "bad"}, "labels='bad'"),
        ("encoder", {"head": "classification", "labels": ["a", "a", "b"]}, "labels=.'a'"),
        ("encoder", {"head": "classification", "labels": 2}, "labels=2"),
        ("encoder", {"head": "classification", "labels": {"a", "b"}}, "labels={'"),
        ("encoder", {"head": "token_labels", "labels": ["a"]}, "labels=.'a'"),
    ],
)
def test_what_cannot_be_loaded(folders, kind, options, received):
    with pytest.raises(InputError, match=received):
        bert_tf.load(folders[kind], **options)


def test_a_head_of_ones_own_is_not_dropped(folders, tmp_path):
    encoder, tokenizer = bert_tf.load(folders["encoder"])
    own = keras.layers.Dense(3, name="own")(encoder.output["pooled_output"])
    model = bert_tf.BertModel(encoder.input, own)
    model.tokenizer = tokenizer
    model.save(path := str(tmp_path / "own.keras"))
    with pytest.raises(InputError, match=r"another head .own/bias, own/kernel"):
        bert_tf.load(path)
    with pytest.raises(InputError, match=r"another head .own/bias, own/kernel"):
        bert_tf.Predictor(path)
    assert bert_tf.load(path, head="embeddings")[0].name == "embeddings"


# ---------------------------------------------------------------------------- Keras


def test_fit_evaluate_predict(folders, capsys):
    keras.utils.set_random_seed(5)
    model = compiled(bert_tf.classifier(folders["encoder"], labels=LABELS), run_eagerly=True)
    tokenize, table = layers.Tokenizer(model.tokenizer, length=13), rows()
    numbers = [LABELS.index(name) for name in table["label"]]
    data = tf.data.Dataset.from_tensor_slices((table["text"], numbers)).batch(4)
    data = data.map(lambda texts, labels: (tokenize(texts), labels))
    losses = model.fit(data, epochs=2, verbose=2, shuffle=False).history["loss"]
    assert capsys.readouterr().out.startswith("The first step compiles, which may take a minute.\n")
    assert model.evaluate(data, verbose=0, return_dict=True)["loss"] < losses[0]
    logits = model.predict(data, verbose=0)
    assert logits.shape == (12, 3)
    np.testing.assert_allclose(model(model.tokenizer(rows()["text"])), logits, atol=1e-5)


class AroundModel(keras.Model):
    """A user's model, with a layer of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = make_model("fill_mask", CONFIG)
        self.top = keras.layers.Dense(3)

    def call(self, x):
        outputs = self.inner(x)
        return self.top(outputs["pooled_output"]), outputs["masked_lm_logits"]


class AroundLayers(keras.Model):
    """The same of single layers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embeddings = layers.Embeddings.from_bert_config(CONFIG)
        self.block, self.pooler = (
            layers.EncoderBlock.from_bert_config(CONFIG),
            layers.Pooler.from_bert_config(CONFIG),
        )
        self.words, self.top = (
            heads.MaskedLmHead.from_bert_config(CONFIG, embeddings=self.embeddings),
            keras.layers.Dense(3),
        )

    def call(self, x):
        y = self.embeddings(x["input_ids"], x["segment_ids"])
        y = self.block(y, padding_mask=x["input_mask"])
        return self.top(self.pooler(y)), self.words(y, x["masked_lm_positions"])


@pytest.mark.parametrize("around", [AroundModel, AroundLayers])
def test_models_around_ours_are_saved_whole(tmp_path, around):
    """Keras builds what it loads with floats; the user's own layers come back, too."""
    batch = small.examples(small.ROWS, config=CONFIG)
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    inputs = {name: np.array(batch[name]) for name in names}
    model, paths = around(), [str(tmp_path / name) for name in ("saved.keras", "kept.keras")]
    expected = [np.array(x) for x in model(inputs)]
    model.save(paths[0])
    # Weights stay as they are.
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=True)
    keep = keras.callbacks.ModelCheckpoint(paths[1])
    model.fit(inputs, [np.zeros_like(x) for x in expected], verbose=0, callbacks=[keep])
    for path in paths:
        again = keras.models.load_model(path, {around.__name__: around}, compile=False)
        for found, one in zip(again(inputs), expected, strict=True):
            np.testing.assert_array_equal(found, one)


def test_clone_export_and_parts(folders, tmp_path):
    model = bert_tf.classifier(folders["classifier"], labels=LABELS)
    model.evaluate(TEXTS, LABELS[:2], verbose=0)  # compiles itself
    batch = model.tokenizer(TEXTS)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(batch["input_ids"]), model(batch))
    model.export(str(tmp_path / "saved"), verbose=False)
    saved = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(saved.serve(batch), model(batch), atol=1e-5)
    encoder, _ = bert_tf.load(folders["encoder"])
    ids = keras.Input((None,), dtype="int32")
    whole = keras.Model(ids, keras.layers.Dense(5)(encoder(ids)["pooled_output"]))
    assert whole(batch["input_ids"]).shape == (2, 5)
