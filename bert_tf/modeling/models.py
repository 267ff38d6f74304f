"""Layers -> the encoder, a functional Keras model, on which heads are put (bert_tf/heads).

BertModel(config)           the encoder
BertModel(inputs, outputs)  any functional model that takes its inputs by several names
encode                      what heads are put on
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
from bert_tf.modeling import layers
from bert_tf.modeling.inputs import TOKEN_INPUTS, check_inputs, complete_inputs

if TYPE_CHECKING:
    from bert_tf.tokenization.wordpiece import FullTokenizer

TOKENIZER_FILE = "tokenizer.json"  # in a .keras file


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
    """The encoder with its pooler (original: `BertModel`), or any functional model on it.

        BertModel(config)              sequence_output [B, S, D] and pooled_output [B, D]
        BertModel(inputs, outputs)     as of `keras.Model`, with dicts

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

    def __init__(
        self,
        inputs: Any,
        outputs: Any = None,
        name: str | None = None,
        *,
        all_layers: bool = False,
        **kwargs: Any,
    ):
        """With new weights.

        Args:
          inputs: a `BertConfig`, or a functional model's inputs by name.
          outputs: with inputs, the outputs by name.
          name: of the model; default of the encoder: bert_encoder.
          all_layers: of the encoder, also give embedding_output and layer_0, layer_1, ..., each
            [B, S, D].
          **kwargs: as for `keras.Model`.

        Raises:
          InputError: there is not enough memory for such a model.
        """
        if isinstance(config := inputs, BertConfig):
            inputs, name = token_inputs(), name or "bert_encoder"
            outputs, _ = encode(config, inputs, all_layers=all_layers)
        super().__init__(inputs, outputs, name=name, **kwargs)

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
        model = super().from_config(config, custom_objects)
        model.metadata = metadata or {}
        model.labels = labels and tuple(labels)
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


# ---------------------------------------------------------------------------- what models share


def token_inputs(*more: str, shape: tuple[int | None, ...] = (None,)) -> dict[str, Any]:
    """The inputs of a functional model by name, int32 [B, *shape]; `more` of them are [B, P]."""
    names = (*TOKEN_INPUTS, *more)
    return {name: keras.Input(shape=shape, dtype="int32", name=name) for name in names}


def encode(
    config: BertConfig, inputs: Mapping[str, Any], *, all_layers: bool = False
) -> tuple[dict[str, Any], Any]:
    """The encoder's outputs for inputs of a functional model, and the table for a tied head.

    Args:
      config: sizes of the model.
      inputs: input_ids, input_mask, segment_ids, int32 [B, S] each.
      all_layers: also give embedding_output and layer_0, layer_1, ..., each [B, S, D].

    Returns:
      sequence_output [B, S, D] and pooled_output [B, D] by name, and the word table [V, D].
    """
    x, word_table = layers.Embeddings(config)(
        inputs["input_ids"], inputs["segment_ids"], with_table=True
    )  # [B, S, D], [V, D]
    every_layer = {"embedding_output": x}
    for i in range(config.num_hidden_layers):
        block = layers.EncoderBlock(config, name=f"layer_{i}")
        x = block(x, padding_mask=inputs["input_mask"])  # [B, S, D]
        every_layer[f"layer_{i}"] = x
    outputs = {"sequence_output": x, "pooled_output": layers.Pooler(config)(x)}
    return outputs | (every_layer if all_layers else {}), word_table
