"""The encoder, a functional Keras model of the layers in `layers.py`; heads are in bert_tf/heads.

encode                      the encoder's outputs for given inputs
BertModel(config)           the encoder as a model
BertModel(inputs, outputs)  a functional model with a head

How a model may be called: `inputs.py`.
"""

import contextlib
import copy
import functools
import importlib
import json
import os
import re
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from bert_tf import runtime
from bert_tf.config import BertConfig
from bert_tf.errors import InputError, quoted, shortened
from bert_tf.modeling import rows
from bert_tf.modeling.heads import MaskedLmHead
from bert_tf.modeling.inputs import TOKEN_INPUTS, complete_inputs
from bert_tf.modeling.layers import Embeddings, EncoderBlock, Pooler
from bert_tf.modeling.lora import forget_functions
from bert_tf.modeling.parts import parts_of

if TYPE_CHECKING:
    from bert_tf.tokenization.wordpiece import FullTokenizer

TOKENIZER_FILE = "tokenizer.json"  # in a .keras file
UNSUPPORTED_SUFFIXES = (".h5", ".hdf5")


# ---------------------------------------------------------------------------- the encoder


def token_inputs(*more: str, shape: tuple[int | None, ...] = (None,)) -> dict[str, Any]:
    """The inputs of a functional model by name, int32 [B, *shape]: ids, mask, segments, `more`."""
    names = (*TOKEN_INPUTS, *more)
    return {name: keras.Input(shape, dtype="int32", name=name) for name in names}


def encode(
    config: BertConfig,
    inputs: Mapping[str, Any],
    *,
    all_layers: bool = False,
    num_sequences: int = 1,
) -> tuple[dict[str, Any], Embeddings]:
    """The outputs of a new encoder for inputs of a functional model, and its embeddings.

    Args:
      config: sizes of the model.
      inputs: input_ids, input_mask, segment_ids, int32 [B, S] each. Tokens with 0 in input_mask are
        hidden; it is also the Keras mask of sequence_output, for the layers after it.
      all_layers: also give embedding_output and layer_0, layer_1, ..., each [B, S, D].
      num_sequences: K, the most sequences of a row. Above 1, input_mask numbers the sequences: 1
        for tokens of the first, 2 for those of the second, ...; none sees another (`rows.py`).

    Returns:
      sequence_output [B, S, D] and pooled_output [B * K, D] by name; and the `Embeddings` layer,
      to which a `MaskedLmHead` is tied.
    """
    runtime.refuse_forked("a new model")  # in a forked child, drawing large tables never ends
    embeddings = Embeddings.from_bert_config(config, mask_zero=num_sequences == 1)
    blocks = [
        EncoderBlock.from_bert_config(config, name=f"layer_{number}")
        for number in range(config.num_hidden_layers)
    ]
    pooler = Pooler.from_bert_config(config)
    outputs = encoder_outputs(
        embeddings, blocks, pooler, inputs, all_layers=all_layers, num_sequences=num_sequences
    )
    return outputs, embeddings


def encoder_outputs(
    embeddings: Embeddings,
    blocks: Sequence[EncoderBlock],
    pooler: Pooler | None,
    inputs: Mapping[str, Any],
    *,
    all_layers: bool = False,
    num_sequences: int = 1,
) -> dict[str, Any]:
    """The outputs of an encoder's layers; arguments and result as for `encode`."""
    input_ids = inputs["input_ids"]  # [B, S]
    input_mask = inputs["input_mask"]  # [B, S]
    segment_ids = inputs["segment_ids"]  # [B, S]
    block_masks = {}
    if num_sequences > 1:
        positions = rows.places_in_sequences(input_mask)  # [B, S]
        positions = ops.minimum(positions, embeddings.max_positions - 1)
        x = embeddings(input_ids, segment_ids, positions=positions)  # [B, S, D]
        block_masks["attention_mask"] = rows.same_sequence(input_mask)  # [B, S, S]
    else:
        # The mask becomes the Keras mask of x, which every block reads.
        x = embeddings(input_ids, segment_ids, mask=input_mask)  # [B, S, D]
    hidden = {"embedding_output": x}
    for number, block in enumerate(blocks):
        x = block(x, **block_masks)  # [B, S, D]
        hidden[f"layer_{number}"] = x
    outputs = {"sequence_output": x}
    if pooler is not None:
        is_causal = bool(blocks) and blocks[0].causal
        summary = _pooler_input(x, input_mask, num_sequences, is_causal)  # [B * K, 1 or S, D]
        outputs["pooled_output"] = pooler(summary)  # [B * K, D]
    if all_layers:
        outputs |= hidden
    return outputs


def _pooler_input(x: Any, input_mask: Any, num_sequences: int, is_causal: bool) -> Any:
    """[B, S, D] -> [B * K, 1 or S, D], with the token at [:, 0] that stands for its sequence.

    This is the first token, or in a causal model the last, the only one that sees all others.
    """
    if num_sequences == 1 and not is_causal:
        return x
    sequence_numbers = rows.numbered(input_mask, num_sequences)  # [B, S]
    tokens = rows.last_tokens if is_causal else rows.first_tokens
    vectors = tokens(x, sequence_numbers, num_sequences)  # [B, K, D]
    return ops.reshape(vectors, (-1, 1, x.shape[-1]))  # [B * K, 1, D]


@contextlib.contextmanager
def layer_dtype(policy: Any) -> Iterator[None]:
    """Gives layers made in this context a dtype policy of Keras; None: the global one.

    Raises:
      InputError: there is no such policy.
    """
    before = keras.config.dtype_policy()
    if policy is not None:
        try:
            keras.config.set_dtype_policy(policy)
        except (TypeError, ValueError) as error:
            received = f"dtype={quoted(policy)} ({shortened(str(error), 200)})"
            remedy = 'give one such as "float32" or "mixed_bfloat16"'
            raise InputError(received, "a dtype policy of Keras", remedy) from None
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


# ---------------------------------------------------------------------------- the model


def config_of_model(model: keras.Model) -> BertConfig | None:
    """The configuration of a model's first encoder; None if it has none.

    Raises:
      InputError: it is no Keras model.
    """
    if not isinstance(model, keras.Model):
        remedy = "give the model of bert_tf.load(path)"
        raise InputError(f"{quoted(model)} as a model", "a Keras model", remedy)
    embeddings, blocks = encoder_of(model)
    if embeddings is None or not blocks:
        return None
    block = blocks[0]
    return BertConfig(
        vocab_size=embeddings.vocab_size,
        hidden_size=embeddings.hidden_size,
        num_hidden_layers=len(blocks),
        num_attention_heads=block.num_heads,
        intermediate_size=block.intermediate_size,
        hidden_act=block.activation,
        hidden_dropout_prob=embeddings.dropout,
        attention_probs_dropout_prob=block.attention_dropout,
        max_position_embeddings=embeddings.max_positions,
        type_vocab_size=embeddings.type_vocab_size,
        initializer_range=embeddings.initializer_range,
        layer_norm_eps=embeddings.layer_norm_eps,
        attention="causal" if block.causal else "bidirectional",
    )


def encoder_of(model: keras.Model) -> tuple[Embeddings | None, list[EncoderBlock]]:
    """The embeddings of a model's first encoder, and its blocks.

    Blocks are those named layer_0, layer_1, ...; or all of them if none has such a name.
    """
    embeddings = parts_of(model, Embeddings)
    if not embeddings:
        return None, []
    blocks: dict[str, EncoderBlock] = {}
    for block in parts_of(model, EncoderBlock):
        blocks.setdefault(block.name, block)  # a second encoder's blocks have the same names
    numbered = [block for name, block in blocks.items() if re.fullmatch(r"layer_\d+", name)]
    return embeddings[0], numbered or list(blocks.values())


@keras.saving.register_keras_serializable(package="bert_tf")
class BertModel(keras.Model):
    """The encoder with its pooler (original: `BertModel`), or a functional model on top of it.

        BertModel(config)              sequence_output [B, S, D] and pooled_output [B, D]
        BertModel(inputs, outputs)     as `keras.Model`, with dicts

    Call it with a dict of inputs, int [B, S] each, with the ids alone, or with inputs by keyword:

        input_ids                          of the word pieces
        input_mask or attention_mask       0 for padding, anything else for word pieces; for
                                           num_sequences above 1 see `encode`
        segment_ids or token_type_ids      0 for the first text, 1 for the second
        masked_lm_positions                for models that predict masked tokens
        word_positions                     for `bert_tf.token_classifier`

    Only input_ids is required. The default mask is `input_ids != 0`; the original and transformers
    take a mask of ones, which would read padding as words. Default segments are 0, and predictions
    are made for every position by default. The mask is also the Keras mask of sequence_output, for
    pooling layers and token losses. Inputs that Keras would broadcast, cut or wrap around are
    refused (`inputs.check_inputs`).

    It is a functional model of Keras: `fit`, `save`, `export`, `quantize` and `clone_model` work as
    usual (a clone has neither labels nor tokenizer), and its layers may be part of other models. A
    `MaskedLmHead` is tied to the model's embeddings, in clones and loaded files too.

    Attributes:
      config: the `BertConfig` with the sizes of the layers; None if there is no encoder.
      embeddings, blocks, pooler: the layers of the encoder; blocks is a list.
      backbone: the encoder alone, as a model of the same layers: `backbone.trainable = False`
        freezes it.
      labels: the names of the classes in the order of the logits; None if they have no names.
      tokenizer: the `FullTokenizer` of the model's vocabulary, set by `load`, `classifier` and
        `keras.models.load_model`; AttributeError if it is not set.
      metadata: other facts about the model, by their names in model_facts.json.
      num_sequences: the most sequences of a row that the model can take.

    A .keras file has labels, tokenizer and metadata, too. `keras.models.load_model` reads it once
    any part of `bert_tf` that loads Keras was imported.
    """

    config = functools.cached_property(config_of_model)
    _tokenizer: "FullTokenizer | None" = None
    _is_backbone = False

    def __init__(
        self,
        inputs: Any = None,
        outputs: Any = None,
        name: str | None = None,
        *,
        config: BertConfig | None = None,
        all_layers: bool = False,
        num_sequences: int = 1,
        labels: Sequence[str] | None = None,
        metadata: Mapping[str, Any] = types.MappingProxyType({}),
        dtype: Any = None,
        trainable: bool | None = None,
        **unknown: Any,
    ):
        """Makes the encoder with new weights, or the model of inputs and outputs.

        Args:
          inputs: a `BertConfig`, or the inputs of a functional model by name.
          outputs: with inputs, the outputs by name.
          name: the name of the model; None: one of Keras's.
          config: the `BertConfig`, instead of as the first argument.
          all_layers: with a configuration, also give embedding_output and layer_0, layer_1, ...,
            each [B, S, D].
          num_sequences: with a configuration as for `encode`; with inputs, what the layers were
            made for.
          labels: names of classes.
          metadata: as the attribute.
          dtype: with a configuration, the layers' dtype policy of Keras, such as "mixed_bfloat16".
          trainable: whether all layers are trainable; None: as they are.
          **unknown: refused.

        Raises:
          InputError: an argument is unknown or does not fit the others, or there is no such dtype.
        """
        if unknown:
            received = f"BertModel with {', '.join(unknown)}"
            known = "config, all_layers, num_sequences, labels, metadata, name, dtype, trainable"
            raise InputError(received, f"some of {known}", "correct or leave out the others")
        config = _config_argument(inputs, config)
        if config is not None:
            inputs = token_inputs()
            with layer_dtype(dtype):
                outputs, _ = encode(
                    config, inputs, all_layers=all_layers, num_sequences=num_sequences
                )
        elif dtype is not None:
            received = f"dtype={dtype!r} for a model of layers that are there"
            raise InputError(received, "no dtype", "give it to the layers, or to BertModel(config)")
        super().__init__(inputs, outputs, name=name, trainable=trainable)
        self.num_sequences = num_sequences
        self.labels = None if labels is None else tuple(labels)
        self.metadata = dict(metadata)
        self.input_spec = None  # `call` completes the inputs, then checks them
        for layer in self.layers:
            if isinstance(layer, keras.layers.InputLayer):
                layer.optional = True  # otherwise Keras refuses calls by keyword
        self._check_num_sequences()
        self._tie_heads()

    def _check_num_sequences(self) -> None:
        """Refuses several sequences in a row for layers that were made for one."""
        if self.num_sequences > 1 and (self.embeddings is None or self.embeddings.mask_zero):
            received = f"num_sequences={self.num_sequences} of a model that was not made for it"
            remedy = "make it by encode(config, inputs, num_sequences=...), or leave that out"
            raise InputError(received, "a model of packed rows", remedy)

    def _tie_heads(self) -> None:
        """Ties copied `MaskedLmHead`s to the embeddings, if the model has exactly one such layer.

        Raises:
          InputError: a head is tied to embeddings outside of the model, which its file would lack.
        """
        embeddings = parts_of(self, Embeddings)
        for head in parts_of(self, MaskedLmHead):
            if len(embeddings) == 1 and head.tied_to is None:
                head.tie(embeddings[0])
            elif embeddings and head.tied_to is not None and head.tied_to not in embeddings:
                received = f"{head.name}, tied to {head.tied_to.name} of another model"
                remedy = "make the head with the embeddings of this model"
                raise InputError(received, "a head that is tied to a layer of the model", remedy)

    def call(
        self, inputs: Any = None, training: bool | None = None, mask: Any = None, **kwargs: Any
    ) -> Any:
        """Computes the outputs.

        Args:
          inputs: a dict of inputs, input_ids alone, or a list in the order of the model's inputs.
          training: whether dropout acts.
          mask: the Keras mask of input_ids, used if no input_mask is given.
          **kwargs: inputs by name.
        """
        runtime.refuse_forked(f"the model {self.name}")  # in a forked child TensorFlow hangs
        return super().call(complete_inputs(self, inputs, kwargs, mask), training=training)

    def compute_output_spec(
        self, inputs: Any = None, training: bool | None = None, mask: Any = None, **kwargs: Any
    ) -> Any:
        """The shapes and types of the outputs; arguments as for `call`."""
        return super().compute_output_spec(complete_inputs(self, inputs, kwargs, mask))

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """None: the outputs keep the masks that the layers gave them."""

    # ------------------------------------------------------------------------ parts

    @functools.cached_property
    def embeddings(self) -> Embeddings | None:
        """The embeddings of the encoder."""
        return encoder_of(self)[0]

    @functools.cached_property
    def blocks(self) -> list[EncoderBlock]:
        """The blocks of the encoder, in their order."""
        return encoder_of(self)[1]

    @functools.cached_property
    def pooler(self) -> Pooler | None:
        """The pooler of the encoder."""
        return next(iter(parts_of(self, Pooler)), None)

    @functools.cached_property
    def backbone(self) -> "BertModel":
        """The encoder alone, as a model of the same layers and variables.

        Raises:
          AttributeError: there is no encoder of ours, or the model is a backbone itself.
        """
        # A backbone has none: Keras saves all attributes, and would follow these without end.
        if self.config is None or self._is_backbone or not self._is_encoded():
            received = (
                f"the backbone of {self.name}, which has no encoder made by `encode`, or is one"
            )
            remedy = "make it of the model's tensors: BertModel(model.input, layer.output)"
            raise AttributeError(InputError(received, "a model with a head", remedy))
        inputs = token_inputs()
        embeddings: Any = self.embeddings
        outputs = encoder_outputs(
            embeddings, self.blocks, self.pooler, inputs, num_sequences=self.num_sequences
        )
        backbone = BertModel(inputs, outputs, name="backbone", num_sequences=self.num_sequences)
        backbone._is_backbone = True
        return backbone

    def _is_encoded(self) -> bool:
        """Whether the layers are connected as `encode` connects them, with nothing in between."""
        embeddings: Any = self.embeddings
        x = embeddings.output
        for block in self.blocks:
            if keras.tree.flatten(block.input)[0] is not x:
                return False
            x = block.output
        is_plain = self.num_sequences == 1 and not self.blocks[0].causal
        if is_plain and self.pooler is not None and self.pooler.input is not x:
            return False
        return embeddings.mask_zero == (self.num_sequences == 1)

    @property
    def tokenizer(self) -> "FullTokenizer":
        """The tokenizer of the model's vocabulary."""
        if self._tokenizer is None:
            received = f"{self.name}, a model without a tokenizer"
            remedy = "load it by bert_tf.load(path), or set model.tokenizer = FullTokenizer(file)"
            error = InputError(received, "one that has its own", remedy)
            raise AttributeError(error)  # as `hasattr` expects
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: "FullTokenizer") -> None:
        """Sets the tokenizer, and cuts its texts to the model's positions."""
        positions = None if self.config is None else self.config.max_position_embeddings
        if tokenizer.positions not in (None, positions):  # it belongs to another model, too
            tokenizer = copy.copy(tokenizer)
        tokenizer.positions = positions
        self._tokenizer = tokenizer

    # ------------------------------------------------------------------------ Keras's methods

    def make_train_function(self, force: bool = False) -> Any:
        """Like Keras's; refuses forked children, and losses of probabilities."""
        runtime.refuse_forked(f"fit of the model {self.name}")
        self._check_losses()
        return super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> Any:
        """Like Keras's; refuses forked children, and losses of probabilities."""
        runtime.refuse_forked(f"evaluate of the model {self.name}")
        self._check_losses()
        return super().make_test_function(force)

    def make_predict_function(self, force: bool = False) -> Any:
        """Like Keras's; refuses forked children."""
        runtime.refuse_forked(f"predict of the model {self.name}")
        return super().make_predict_function(force)

    def _check_losses(self) -> None:
        """Refuses a cross entropy of probabilities for an output of logits, as our heads give.

        Keras would train with it and give no warning.
        """
        losses = self.loss
        names = list(self.output) if isinstance(self.output, Mapping) else [None]
        if isinstance(losses, list | tuple):
            losses = dict(zip(names, losses, strict=False))
        elif not isinstance(losses, Mapping):
            losses = dict.fromkeys(names, losses)
        for name, loss in losses.items():
            if self._is_logits(name):
                refuse_probabilities(loss)

    def _is_logits(self, name: str | None) -> bool:
        """Whether an output gives logits; None: the only output, which has no name."""
        return name is not None and name.endswith("logits")

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Like Keras's, without its warnings about layers that have no kernel."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
            super().quantize(*args, **kwargs)
        forget_functions(self)

    def save(self, filepath: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """Like Keras's, to a .keras file.

        Raises:
          InputError: the file is HDF5, from which Keras cannot load our classes.
        """
        if os.fspath(filepath).endswith(UNSUPPORTED_SUFFIXES):
            remedy = 'give "model.keras"; to ModelCheckpoint too'
            raise InputError(f"save({os.fspath(filepath)!r})", "a .keras file", remedy)
        super().save(filepath, *args, **kwargs)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> "BertModel":
        """The model of a `get_config`; refuses forked children."""
        runtime.refuse_forked("a loaded model")  # there, drawing large tables never ends
        return super().from_config(config, custom_objects)

    def get_config(self) -> dict[str, Any]:
        """The model without its weights and tokenizer."""
        config = super().get_config()
        config["labels"] = None if self.labels is None else list(self.labels)
        config["metadata"] = dict(self.metadata)
        config["num_sequences"] = self.num_sequences
        return config

    def save_assets(self, folder: str) -> None:
        """Writes the tokenizer into the part of a .keras file for large objects."""
        if hasattr(self, "tokenizer"):
            with open(os.path.join(folder, TOKENIZER_FILE), "w", encoding="utf-8") as file:
                json.dump(self.tokenizer.get_config(), file)

    def load_assets(self, folder: str) -> None:
        """Reads what `save_assets` wrote."""
        if not folder:
            return
        path = os.path.join(folder, TOKENIZER_FILE)
        if not os.path.exists(path):
            return
        # Imported here: the models themselves need no TensorFlow.
        module = importlib.import_module("bert_tf.tokenization.wordpiece")
        with open(path, encoding="utf-8") as file:
            self.tokenizer = module.FullTokenizer(**json.load(file))


def refuse_probabilities(loss: Any) -> None:
    """Refuses a cross entropy of Keras that takes probabilities instead of logits.

    Raises:
      InputError: the loss is one.
    """
    function = keras.losses.get(loss) if isinstance(loss, str) else loss
    name = getattr(function, "__name__", type(function).__name__).lower()
    is_of_keras = (getattr(function, "__module__", None) or "").startswith("keras.")
    takes_logits = isinstance(loss, keras.Loss) and loss.get_config().get("from_logits", False)
    if is_of_keras and "crossentropy" in name and not takes_logits:
        remedy = "give a loss with from_logits=True; load such a file with compile=False"
        raise InputError(f"the loss {quoted(loss, 60)} of probabilities", "one of logits", remedy)


def _config_argument(inputs: Any, config: Any) -> BertConfig | None:
    """The configuration among the arguments of `BertModel`; None if there are inputs instead.

    Raises:
      InputError: the argument is the path of a configuration, or there are two configurations.
    """
    for argument in (inputs, config):
        if isinstance(argument, str | os.PathLike):
            BertConfig.from_dict(argument)  # type: ignore[arg-type]  # raises
    if config is None:
        return inputs if isinstance(inputs, BertConfig) else None
    if inputs is not None or not isinstance(config, BertConfig):
        received = f"{quoted(config)} as config"
        remedy = "give BertModel(config), or BertModel(inputs, outputs)"
        raise InputError(received, "one BertConfig, and no inputs beside it", remedy)
    return config
