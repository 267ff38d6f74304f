"""Layers -> functional models. Inputs and outputs are dicts; the inputs are named as the records.

BertModel           what they all are: a Keras model that takes its inputs by several names
bert_encoder        ids -> a vector for each token, and one for the sequence
pretraining_model   the same, and the masked-LM and next-sentence heads
classifier_model    the same, and logits of classes for the sequence
choice_model        several sequences an example -> a logit for each of them
token_model         the encoder's outputs, and logits of classes for each token
span_model          the encoder's outputs, and logits of the answer's start and end for each token
make_model          one of them, by the name of its head
"""

import functools
import importlib
import json
import os
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from bert_tf.config import BertConfig
from bert_tf.modeling import heads, layers
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.inputs import TOKEN_INPUTS, check_inputs, complete_inputs

if TYPE_CHECKING:
    from bert_tf.tokenization.wordpiece import FullTokenizer

TOKENIZER_FILE = "tokenizer.json"  # in a .keras file
CLASSIFIER_DROPOUT = 0.1  # of the pooled vector in training; fixed in the original too


def _of_whole_numbers(array: Any) -> Any:
    """An array of floats, checked to be whole, as integers: in a graph their values are unknown."""
    is_float = isinstance(array, np.ndarray) and array.dtype.kind == "f"
    return array.astype(np.int32) if is_float else array


def _with_checked_arrays(name: str) -> Callable:
    """A method of Keras that first checks arrays as a call does; datasets are not read."""
    method = getattr(keras.Model, name)

    @functools.wraps(method)
    def checked(self, x=None, *args, **kwargs):
        if all(hasattr(array, "shape") for array in keras.tree.flatten(x)):
            check_inputs(x, self.input, self._bert_config)
            x = keras.tree.map_structure(_of_whole_numbers, x)
        return method(self, x, *args, **kwargs)

    return checked


@keras.saving.register_keras_serializable(package="bert_tf")
class BertModel(keras.Model):
    """A functional model that takes its inputs by the original's names and by Hugging Face's.

    It is called with a dict of ids [B, S], or with the ids alone:

        input_ids                          of the word pieces; 0 is padding
        input_mask or attention_mask       1 for word pieces, 0 for padding
        segment_ids or token_type_ids      0 for the first text, 1 for the second
        masked_lm_positions                of models that predict masked tokens

    All but the first may be left out. A mask that is left out is `input_ids != 0`: the same as the
    ones that the original and transformers take, but for padded ids, whose padding they would read
    as words. Segments are then 0, and predictions are made for every position.
    Inputs that would be broadcast, cut or wrapped around are refused (inputs.py).

    What else Keras has for functional models holds for this one: `fit`, `save`, `export`,
    `clone_model` (whose clone has neither labels nor tokenizer), layers as parts of other models.

    Attributes:
      labels: the names of the classes in the order of the logits; None if they have none.
      tokenizer: the `FullTokenizer` of the model's vocabulary; None if it is unknown.
      metadata: what else belongs to the model, by the names in its model_facts.json.

    All three are saved in a .keras file.
    """

    labels: tuple[str, ...] | None = None
    tokenizer: "FullTokenizer | None" = None
    metadata: Mapping[str, Any] = types.MappingProxyType({})

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The outputs for a dict of inputs, or for input_ids alone."""
        inputs = complete_inputs(inputs, self.input, self._bert_config)
        return super().__call__(inputs, *args, **kwargs)

    fit, evaluate, predict, train_on_batch, test_on_batch, predict_on_batch = map(
        _with_checked_arrays,
        ("fit", "evaluate", "predict", *(f"{x}_on_batch" for x in ("train", "test", "predict"))),
    )

    def _symbolic_build(self, iterator=None, data_batch=None):
        """As Keras's own, which averages the batches of all devices and so makes ids floats."""
        if data_batch is not None:
            x, *others = keras.utils.unpack_x_y_sample_weight(data_batch)
            x = keras.tree.map_structure(lambda values: keras.ops.cast(values, "int32"), x)
            data_batch = (x, *others)
        super()._symbolic_build(iterator, data_batch)

    @functools.cached_property
    def _bert_config(self) -> BertConfig | None:
        found = (x.config for x in self._flatten_layers() if isinstance(x, layers.Embeddings))
        return next(found, None)

    def get_config(self) -> dict[str, Any]:
        """What `from_config` makes the model of, weights and tokenizer aside."""
        own = {"labels": self.labels and list(self.labels), "metadata": dict(self.metadata)}
        return super().get_config() | own

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> "BertModel":
        """The model of what `get_config` gave."""
        config = dict(config)
        labels, metadata = config.pop("labels", None), config.pop("metadata", None)
        tokenizer = config.pop("tokenizer", None)  # in files that have no assets
        model = super().from_config(config, custom_objects)
        model.metadata = metadata or {}
        model.labels = labels and tuple(labels)
        model.tokenizer = tokenizer and _tokenizer(tokenizer)
        return model

    def save_assets(self, folder: str) -> None:
        """Writes the tokenizer into the part of a .keras file that is for what is large."""
        if self.tokenizer:
            with open(os.path.join(folder, TOKENIZER_FILE), "w", encoding="utf-8") as file:
                json.dump(self.tokenizer.get_config(), file)

    def load_assets(self, folder: str) -> None:
        """Reads what `save_assets` wrote."""
        if folder and os.path.exists(path := os.path.join(folder, TOKENIZER_FILE)):
            with open(path, encoding="utf-8") as file:
                self.tokenizer = _tokenizer(json.load(file))


def _tokenizer(values: Mapping[str, Any]) -> "FullTokenizer":
    # Imported here: the models themselves need no TensorFlow.
    return importlib.import_module("bert_tf.tokenization.wordpiece").FullTokenizer(**values)


def make_model(
    head: str, config: BertConfig, *, num_classes: int = 2, num_choices: int = 1
) -> BertModel:
    """The model with a head of `bert_tf.config.HEADS`.

    Args:
      head: its name.
      config: sizes of the model.
      num_classes: of heads with classes; of regression 1.
      num_choices: of multiple choice; the weights are the same for any number.
    """
    return {
        "pretraining": lambda: pretraining_model(config),
        "fill_mask": lambda: pretraining_model(config, next_sentence=False),
        "classification": lambda: classifier_model(config, num_classes=num_classes),
        "multi_label": lambda: classifier_model(config, num_classes=num_classes),
        "regression": lambda: classifier_model(config, num_classes=1),
        "multiple_choice": lambda: choice_model(config, num_choices=num_choices),
        "token_labels": lambda: token_model(config, num_classes=num_classes),
        "question_answering": lambda: span_model(config),
        "embeddings": lambda: bert_encoder(config),
    }[head]()


def bert_encoder(config: BertConfig, *, all_layers: bool = False) -> BertModel:
    """The encoder with its pooler (original: `BertModel`).

    Args:
      config: sizes of the model.
      all_layers: also give embedding_output and layer_0, layer_1, ..., each [B, S, D].

    Returns:
      A model from input_ids, input_mask, segment_ids, int32 [B, S] each, to
      sequence_output [B, S, D] and pooled_output [B, D].
    """
    inputs, outputs, _ = _encoder(config, all_layers=all_layers)
    return BertModel(inputs, outputs, name="bert_encoder")


def pretraining_model(
    config: BertConfig,
    *,
    next_sentence: bool = True,
    with_losses: bool = False,
    all_layers: bool = False,
) -> BertModel:
    """The encoder with the heads it is pre-trained with (paper, section 3.1).

    Args:
      config: sizes of the model.
      next_sentence: with the next-sentence head; without it there are no next_sentence_logits.
      with_losses: for training: masked_lm_ids int32 [B, P] as another input, and as another
        output masked_lm_losses float32 [B, P], the cross entropy of each prediction.
      all_layers: as for `bert_encoder`.

    Returns:
      A model from input_ids, input_mask, segment_ids int32 [B, S] and masked_lm_positions
      int32 [B, P] to masked_lm_logits [B, P, V], next_sentence_logits [B, 2] (class 0 = is next)
      and the outputs of `bert_encoder`.
    """
    more = ("masked_lm_positions", "masked_lm_ids") if with_losses else ("masked_lm_positions",)
    inputs, outputs, word_table = _encoder(config, *more, all_layers=all_layers)
    head = heads.MaskedLmHead(config, name="predictions")
    hidden, positions = outputs["sequence_output"], inputs["masked_lm_positions"]
    if with_losses:
        logits, losses = head(hidden, positions, word_table, inputs["masked_lm_ids"])
        outputs |= {"masked_lm_logits": logits, "masked_lm_losses": losses}  # [B, P, V], [B, P]
    else:
        outputs["masked_lm_logits"] = head(hidden, positions, word_table)  # [B, P, V]
    if next_sentence:
        outputs["next_sentence_logits"] = heads.SequenceClassifier(
            config,
            num_classes=2,
            initializer_range=config.initializer_range,
            name="seq_relationship",
        )(outputs["pooled_output"])  # [B, 2]
    return BertModel(inputs, outputs, name="bert_pretraining")


def classifier_model(config: BertConfig, *, num_classes: int) -> BertModel:
    """The encoder with a classifier of its pooled vector (original: `create_model`).

    Args:
      config: sizes of the model.
      num_classes: the number of classes; 1 for a score.

    Returns:
      A model from the inputs of `bert_encoder` to logits [B, num_classes] and its outputs.
    """
    inputs, outputs, _ = _encoder(config)
    pooled = Dropout(CLASSIFIER_DROPOUT, name="dropout")(outputs["pooled_output"])
    head = heads.SequenceClassifier(config, num_classes=num_classes, name="classifier")
    outputs["logits"] = head(pooled)  # [B, classes]
    return BertModel(inputs, outputs, name="bert_classifier")


def choice_model(config: BertConfig, *, num_choices: int) -> BertModel:
    """The encoder with one vector that scores each of several sequences (paper, section 4.4).

    Args:
      config: sizes of the model.
      num_choices: C, sequences of an example.

    Returns:
      A model from input_ids, input_mask, segment_ids, int32 [B, C, S] each, to logits [B, C].
    """
    inputs = {
        name: keras.Input(shape=(num_choices, None), dtype="int32", name=name)
        for name in TOKEN_INPUTS
    }
    merged = {name: heads.MergeChoices()(value) for name, value in inputs.items()}  # [B * C, S]
    outputs, _ = _encode(config, merged)
    pooled = Dropout(CLASSIFIER_DROPOUT, name="dropout")(outputs["pooled_output"])
    scores = heads.SequenceClassifier(config, num_classes=1, name="classifier")(pooled)
    logits = keras.ops.reshape(scores, (-1, num_choices))  # [B, C]
    return BertModel(inputs, {"logits": logits}, name="bert_choice")


def token_model(config: BertConfig, *, num_classes: int) -> BertModel:
    """The encoder with a classifier of each token's vector (paper, section 5.3).

    Args:
      config: sizes of the model.
      num_classes: the number of classes.

    Returns:
      A model from the inputs of `bert_encoder` to logits [B, S, num_classes] and its outputs.
    """
    inputs, outputs, _ = _encoder(config)
    hidden = Dropout(CLASSIFIER_DROPOUT, name="dropout")(outputs["sequence_output"])
    head = heads.TokenClassifier(config, num_classes=num_classes, name="classifier")
    outputs["logits"] = head(hidden)  # [B, S, classes]
    return BertModel(inputs, outputs, name="bert_token_classifier")


def span_model(config: BertConfig) -> BertModel:
    """The encoder with the head that finds an answer in a text (original: SQuAD's `create_model`).

    Args:
      config: sizes of the model.

    Returns:
      A model from the inputs of `bert_encoder` to start_logits and end_logits [B, S], and its
      outputs.
    """
    inputs, outputs, _ = _encoder(config)
    head = heads.TokenClassifier(config, num_classes=2, name="squad")
    logits = head(outputs["sequence_output"])  # [B, S, 2]
    outputs |= {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}  # [B, S] each
    return BertModel(inputs, outputs, name="bert_span")


def _encoder(config: BertConfig, *more: str, all_layers: bool = False):
    """Inputs int32 [B, S] with `more` [B, P], and what `_encode` makes of them."""
    names = (*TOKEN_INPUTS, *more)
    inputs = {name: keras.Input(shape=(None,), dtype="int32", name=name) for name in names}
    return inputs, *_encode(config, inputs, all_layers=all_layers)


def _encode(config: BertConfig, inputs, *, all_layers: bool = False):
    """The encoder's outputs by name, and the word table [V, D] for a tied head."""
    x, word_table = layers.Embeddings(config, name="embeddings")(
        inputs["input_ids"], inputs["segment_ids"]
    )  # [B, S, D], [V, D]
    mask_scores = layers.AttentionMask(name="attention_mask")(inputs["input_mask"])
    every_layer = {"embedding_output": x}
    for i in range(config.num_hidden_layers):
        x = layers.EncoderBlock(config, name=f"layer_{i}")(x, mask_scores)  # [B, S, D]
        every_layer[f"layer_{i}"] = x
    pooled = layers.Pooler(config, name="pooler")(x)  # [B, D]
    outputs = {"sequence_output": x, "pooled_output": pooled}
    return outputs | (every_layer if all_layers else {}), word_table
