"""Writes what models compute on a backend of Keras, to be compared with another backend.

    KERAS_BACKEND=jax python backend_answers.py FOLDER

FOLDER has config.json, inputs.npz and classifier/. TensorFlow's process comes first: it writes the
initial weights and models of all backends. Other backends do not load TensorFlow until they reach
`files_of`.
"""

import dataclasses
import pathlib
import random
import sys

import keras
import numpy as np
from keras import ops

import bert_tf
from bert_tf import heads

Arrays = dict[str, np.ndarray]
LABELS = ["bad", "so so", "good"]
TEXTS = ["w0 w3 w1", "w2", "w7 w7 w9 w5", "w1 w4", "w3 w2 w8"]
NAMES = ["good", "bad", "so so", "bad", "good"]


def write(folder: pathlib.Path) -> None:
    """Writes BACKEND.npz, the results of each part by name; TensorFlow's are the reference."""
    backend = keras.backend.backend()
    is_reference = backend == "tensorflow"
    config = bert_tf.BertConfig.from_json_file(str(folder / "config.json"))
    inputs = dict(np.load(folder / "inputs.npz"))
    ids, mask, segments = (inputs[name] for name in ("input_ids", "input_mask", "segment_ids"))
    named = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    positions = {"masked_lm_positions": inputs["masked_lm_positions"]}
    encoder, words = models_of(config, folder / "encoder.npz")
    answers = answers_of("encoder", encoder, named, every_way=not is_reference)
    answers |= answers_of("words", words, named | positions, every_way=not is_reference)
    answers |= still_training(config, inputs, folder / "encoder.npz")
    if is_reference:
        words.save(folder / "words.keras")
    else:
        answers |= refusals_of(encoder, ids)
        answers |= dropout_of()
        answers |= training(words, inputs)
        assert "tensorflow" not in sys.modules
        answers |= files_of(words, named | positions, folder)
    answers |= classifier_of(folder)
    np.savez(folder / f"{backend}.npz", **answers)


def models_of(
    config: bert_tf.BertConfig, weights: pathlib.Path
) -> tuple[bert_tf.BertModel, bert_tf.BertModel]:
    """Makes an encoder, and a model with the outputs words and is_next on it.

    The first call writes the weights into a file; later calls read them.
    """
    encoder = bert_tf.BertModel(config)
    positions = keras.Input((None,), dtype="int32", name="masked_lm_positions")
    head = heads.MaskedLmHead.from_bert_config(config, embeddings=encoder.embeddings)
    words = head(encoder.output["sequence_output"], positions)
    is_next = heads.NextSentenceHead.from_bert_config(config)(encoder.output["pooled_output"])
    inputs = encoder.input | {"masked_lm_positions": positions}
    model = bert_tf.BertModel(inputs, {"words": words, "is_next": is_next})
    if weights.exists():
        arrays = np.load(weights)
        model.set_weights([arrays[name] for name in arrays.files])
    else:
        np.savez(weights, *model.get_weights())
    return encoder, model


# ---------------------------------------------------------------------------- calls


def answers_of(name: str, model: bert_tf.BertModel, named: Arrays, *, every_way: bool) -> Arrays:
    """The outputs of a model for several kinds of inputs.

    Args:
      name: the first part of the names of the outputs.
      model: the model.
      named: its inputs, by name.
      every_way: whether to call the model in every way, or in the first alone.
    """
    ids = named["input_ids"]
    mask = named["attention_mask"]
    zeros = ids.copy()
    zeros[:, 1] = 0  # a padding id at a place that the mask of every row includes
    kinds = {
        "whole": named,
        "floats": named | {"attention_mask": mask * np.float32(0.5)},
        "bools": named | {"attention_mask": mask.astype(bool)},
        "zeros": named | {"input_ids": zeros},
        "alone": {"input_ids": zeros},
    }
    ways = {
        "model(...)": model,
        "keywords": lambda inputs: model(**inputs),
        "beside": lambda inputs: model(inputs["input_ids"], **without_ids(inputs)),
        "call": model.call,
        "stateless_call": lambda inputs: stateless(model, inputs),
        "predict": lambda inputs: model.predict(inputs, verbose=0),
    }
    if not every_way:
        ways = {"model(...)": model}
    answers = {}
    for kind, inputs in kinds.items():
        for way, call in ways.items():
            answers |= arrays_of(f"{name}/{kind}/{way}", call(inputs))
    if every_way:
        listed = list(named.values())
        answers |= arrays_of(f"{name}/whole/list", model(listed))
        answers |= arrays_of(f"{name}/whole/list predicted", model.predict(listed, verbose=0))
    return answers


def without_ids(inputs: Arrays) -> Arrays:
    return {name: value for name, value in inputs.items() if name != "input_ids"}


def stateless(model: bert_tf.BertModel, inputs: Arrays) -> dict:
    trainable = [variable.value for variable in model.trainable_variables]
    non_trainable = [variable.value for variable in model.non_trainable_variables]
    return model.stateless_call(trainable, non_trainable, inputs)[0]


def arrays_of(name: str, outputs: dict) -> Arrays:
    """Outputs as arrays, by NAME/OUTPUT."""
    return {f"{name}/{key}": ops.convert_to_numpy(value) for key, value in outputs.items()}


def refusals_of(model: bert_tf.BertModel, ids: np.ndarray) -> Arrays:
    """The messages of calls with unknown names."""
    messages = []
    for call in (
        lambda: model(ids, attn_mask=ids),
        lambda: model({"input_ids": ids, "labels": ids}),
        lambda: model.call(ids, output_attentions=True),
    ):
        try:
            call()
        except bert_tf.InputError as error:
            messages.append(str(error))
    return {"refused": np.array(messages)}


# ---------------------------------------------------------------------------- fit


def inputs_of(model: bert_tf.BertModel, batch: Arrays) -> Arrays:
    return {name: batch[name] for name in model.input}


def dropout_of() -> Arrays:
    """Ones after each of two calls of the layer: [2, 60, 70]."""
    drop = bert_tf.layers.Dropout(0.3)
    ones = np.ones((60, 70), "float32")
    calls = [ops.convert_to_numpy(drop(ones, training=True)) for _ in range(2)]
    return {"dropped": np.array(calls)}


def still_training(config: bert_tf.BertConfig, batch: Arrays, weights: pathlib.Path) -> Arrays:
    """Losses and weights of steps without dropout, where the head computes the losses."""
    still = dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    encoder, words = models_of(still, weights)
    labels = keras.Input((None,), dtype="int32", name="masked_lm_ids")
    # Another head: Keras counts the outputs of a layer's first call.
    head = heads.MaskedLmHead.from_bert_config(still, embeddings=encoder.embeddings)
    positions = words.input["masked_lm_positions"]
    _, losses = head(encoder.output["sequence_output"], positions, labels)
    head.set_weights(words.get_layer("predictions").get_weights())
    model = bert_tf.BertModel(words.input | {"masked_lm_ids": labels}, losses)
    model.compile(keras.optimizers.SGD(0.05), loss=lambda _, losses: ops.mean(losses, axis=-1))
    table = ops.convert_to_numpy(encoder.embeddings.word_embeddings).copy()
    unused = np.zeros(len(batch["input_ids"]))  # labels, which `fit` expects
    history = model.fit(inputs_of(model, batch), unused, batch_size=5, epochs=3, verbose=0)
    changed = ops.convert_to_numpy(encoder.embeddings.word_embeddings) - table
    answers = {"still losses": np.array(history.history["loss"]), "still table": changed}
    return answers | {f"still {v.path}": ops.convert_to_numpy(v) for v in model.weights}


def training(model: bert_tf.BertModel, batch: Arrays) -> Arrays:
    """Losses of `fit`, with dropout, and of `evaluate`."""
    rows = len(batch["input_ids"])
    labels = {"words": batch["masked_lm_ids"], "is_next": batch["next_sentence_labels"]}
    weights = {"words": batch["masked_lm_weights"], "is_next": np.ones(rows, "float32")}
    losses = {name: keras.losses.SparseCategoricalCrossentropy(from_logits=True) for name in labels}
    model.compile(bert_tf.make_optimizer(60, learning_rate=3e-3), losses)
    inputs = inputs_of(model, batch)
    options = {"sample_weight": weights, "batch_size": rows, "verbose": 0}
    history = model.fit(inputs, labels, epochs=60, **options)
    return {
        "losses": np.array(history.history["loss"]),
        "evaluated": np.array(model.evaluate(inputs, labels, **options)[0]),
    }


def files_of(model: bert_tf.BertModel, inputs: Arrays, folder: pathlib.Path) -> Arrays:
    """The outputs of a trained model, of its file, and of TensorFlow's file before training."""
    path = folder / f"{keras.backend.backend()}_words.keras"
    model.save(path)  # Keras loads TensorFlow for it
    models = {
        "trained": model,
        "saved": keras.models.load_model(path),
        "read": keras.models.load_model(folder / "words.keras"),
    }
    answers = {}
    for name, loaded in models.items():
        answers |= arrays_of(name, loaded(inputs))
    return answers


def classifier_of(folder: pathlib.Path) -> Arrays:
    """Losses and logits of a classifier of texts.

    Other backends than TensorFlow also train it, with a weight of 0 for all labels but one. They
    add the logits of the trained model in memory and of its file.
    """
    model = bert_tf.classifier(folder / "classifier", labels=LABELS)
    answers = {"classifier losses": np.array(model.evaluate(TEXTS, NAMES, verbose=0))}
    answers["classifier"] = model.predict(TEXTS, verbose=0)
    if keras.backend.backend() == "tensorflow":
        return answers
    class_weight = {"bad": 0.0, "so so": 0.0, "good": 2.0}
    model.fit(TEXTS, NAMES, class_weight=class_weight, epochs=9, verbose=0)
    answers["classifier trained"] = model.predict(TEXTS, verbose=0)
    model.save(folder / "classifier.keras")
    read = keras.models.load_model(folder / "classifier.keras")
    return answers | {"classifier read": read.predict(TEXTS, verbose=0)}


if __name__ == "__main__":
    random.seed(5)  # Keras draws seeds from it; keras.utils.set_random_seed loads TensorFlow
    write(pathlib.Path(sys.argv[1]))
