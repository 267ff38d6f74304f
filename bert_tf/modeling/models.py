"""Layers -> the encoder, a functional Keras model, on which heads are put (bert_tf/heads).

BertModel(config)           the encoder
BertModel(inputs, outputs)  any functional model that takes its inputs by several names
encode                      the encoder's outputs for given inputs

What a model may be called with: `inputs.py`.
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
    """The inputs of a functional model by name, int32 [B, *shape]; `more` of them are [B, P]."""
    names = (*TOKEN_INPUTS, *more)
    return {name: keras.Input(shape, dtype="int32", name=name) for name in names}


def encode(
    config: BertConfig,
    inputs: Mapping[str, Any],
    *,
    all_layers: bool = False,
    num_sequences: int = 1,
) -> tuple[dict[str, Any], Embeddings]:
    """The encoder's outputs for inputs of a functional model, and its embeddings.

    Args:
      config: sizes of the model.
      inputs: input_ids, input_mask, segment_ids, int32 [B, S] each. What has 0 in input_mask is not
        seen; sequence_output has this as its mask of Keras, for the layers after it.
      all_layers: also give embedding_output and layer_0, layer_1, ..., each [B, S, D].
      num_sequences: K, the most sequences of a row. Above 1 input_mask is 1 for the tokens of the
        first, 2 for those of the second, ...; none sees another (`rows.py`).

    Returns:
      sequence_output [B, S, D] and pooled_output [B * K, D] by name; and the layer of the
      embeddings, to which a `MaskedLmHead` is tied.
    """
    runtime.refuse_forked("a new model")  # drawing large tables would never end
    embeddings = Embeddings.from_bert_config(config, mask_zero=num_sequences == 1)
    blocks = [
        EncoderBlock.from_bert_config(config, name=f"layer_{number}")
        for number in range(config.num_hidden_layers)
    ]
    layers = embeddings, blocks, Pooler.from_bert_config(config)
    outputs = encoder_outputs(*layers, inputs, all_layers=all_layers, num_sequences=num_sequences)
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
    """The outputs of an encoder's layers; arguments and result as of `encode`."""
    ids, input_mask, segments = (inputs[name] for name in TOKEN_INPUTS)  # [B, S] each
    if num_sequences > 1:
        places = rows.places_in_sequences(input_mask)  # [B, S]
        places = ops.minimum(places, embeddings.max_positions - 1)
        x = embeddings(ids, segments, positions=places)  # [B, S, D]
        masks = {"attention_mask": rows.same_sequence(input_mask)}  # [B, S, S]
    else:
        x = embeddings(ids, segments, mask=input_mask)  # [B, S, D]
        masks = {}  # blocks read the Keras mask that embeddings have given x
    every_layer = {"embedding_output": x}
    for number, block in enumerate(blocks):
        x = every_layer[f"layer_{number}"] = block(x, **masks)  # [B, S, D]
    outputs = {"sequence_output": x}
    if pooler is not None:
        is_causal = bool(blocks) and blocks[0].causal
        first = _pooler_input(x, input_mask, num_sequences, is_causal)  # [B * K, 1 or S, D]
        outputs["pooled_output"] = pooler(first)  # [B * K, D]
    return outputs | (every_layer if all_layers else {})


def _pooler_input(x: Any, input_mask: Any, num_sequences: int, is_causal: bool) -> Any:
    """[B, S, D] -> [B * K, 1 or S, D], with what stands for a sequence at [:, 0].

    That is its first token; in a causal model the last one, which alone has seen all.
    """
    if num_sequences == 1 and not is_causal:
        return x
    input_mask = rows.numbered(input_mask, num_sequences)
    tokens = rows.last_tokens if is_causal else rows.first_tokens
    first = tokens(x, input_mask, num_sequences)  # [B, K, D]
    return ops.reshape(first, (-1, 1, x.shape[-1]))  # [B * K, 1, D]


@contextlib.contextmanager
def layer_dtype(policy: Any) -> Iterator[None]:
    """Layers that are made within this context have this dtype policy of Keras; None: the global.

    Raises:
      InputError: there is no such policy.
    """
    before = keras.config.dtype_policy()
    if policy is not None:
        try:
            keras.config.set_dtype_policy(policy)
        except (TypeError, ValueError) as error:
            received = f"dtype={quoted(policy)} ({shortened(str(error), 200)})"
            remedy = 'give such as "float32" or "mixed_bfloat16"'
            raise InputError(received, "a dtype policy of Keras", remedy) from None
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


# ---------------------------------------------------------------------------- the model


def config_of_model(model: keras.Model) -> BertConfig | None:
    """The configuration of a model's encoder, the first of several; None without one.

    Raises:
      InputError: it is no Keras model.
    """
    if not isinstance(model, keras.Model):
        received, remedy = f"{quoted(model)} as a model", "give the model of bert_tf.load(path)"
        raise InputError(received, "a Keras model", remedy)
    embeddings, blocks = encoder_of(model)
    if embeddings is None or not blocks:
        return None
    first = blocks[0]
    return BertConfig(
        vocab_size=embeddings.vocab_size,
        hidden_size=embeddings.hidden_size,
        num_hidden_layers=len(blocks),
        num_attention_heads=first.num_heads,
        intermediate_size=first.intermediate_size,
        hidden_act=first.activation,
        hidden_dropout_prob=embeddings.dropout,
        attention_probs_dropout_prob=first.attention_dropout,
        max_position_embeddings=embeddings.max_positions,
        type_vocab_size=embeddings.type_vocab_size,
        initializer_range=embeddings.initializer_range,
        layer_norm_eps=embeddings.layer_norm_eps,
        attention="causal" if first.causal else "bidirectional",
    )


def encoder_of(model: keras.Model) -> tuple[Embeddings | None, list[EncoderBlock]]:
    """The embeddings of a model's first encoder, and its blocks: those named layer_N, or all."""
    parts = parts_of(model, Embeddings | EncoderBlock)
    tables = [part for part in parts if isinstance(part, Embeddings)]
    if not tables:
        return None, []
    blocks: dict[str, EncoderBlock] = {}
    for part in parts:
        if isinstance(part, EncoderBlock):
            blocks.setdefault(part.name, part)  # a second encoder's have the same names
    numbered = [block for name, block in blocks.items() if re.fullmatch(r"layer_\d+", name)]
    return tables[0], numbered or list(blocks.values())


@keras.saving.register_keras_serializable(package="bert_tf")
class BertModel(keras.Model):
    """The encoder with its pooler (original: `BertModel`), or any functional model on it.

        BertModel(config)              sequence_output [B, S, D] and pooled_output [B, D]
        BertModel(inputs, outputs)     as of `keras.Model`, with dicts

    It is called with a dict of ids [B, S], with the ids alone, or with the inputs by keyword.

        input_ids                          of the word pieces
        input_mask or attention_mask       0 for padding, anything else for word pieces; see
                                           num_sequences
        segment_ids or token_type_ids      0 for the first text, 1 for the second
        masked_lm_positions                of models that predict masked tokens
        word_positions                     of `bert_tf.token_classifier`

    All but the first may be left out. A mask that is left out is `input_ids != 0`: the same as the
    ones that the original and transformers take, but for padded ids, whose padding they would read
    as words. Segments are then 0, and predictions are made for every position. sequence_output has
    the mask as its mask of Keras, for pooling layers and losses of tokens.
    Inputs that would be broadcast, cut or wrapped around are refused (`inputs.check_inputs`).

    It is a functional model of Keras, and all that Keras has for these holds for it: `fit`, `save`,
    `export`, `quantize`, `clone_model` (whose clone has neither labels nor tokenizer), layers as
    parts of other models. A `MaskedLmHead` in it is tied to its embeddings, in clones and files
    too.

    Attributes:
      config: the `BertConfig` that the layers have; None if they are no encoder.
      embeddings, blocks, pooler: the layers of the encoder; blocks are a list.
      backbone: the encoder alone, as a model of the same layers: `backbone.trainable = False`
        freezes it.
      labels: the names of the classes in the order of the logits; None if they have none.
      tokenizer: the `FullTokenizer` of the model's vocabulary, which `load`, `classifier` and
        `keras.models.load_model` set; before, it is an AttributeError.
      metadata: what else belongs to the model, by the names in its model_facts.json.
      num_sequences: the most sequences of a row that it was made for.

    Labels, tokenizer and metadata are saved in a .keras file, which `keras.models.load_model` reads
    once any part of `bert_tf` that loads Keras was imported.
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
        """With new weights.

        Args:
          inputs: a `BertConfig`, or a functional model's inputs by name.
          outputs: with inputs, the outputs by name.
          name: of the model; None: one of Keras's.
          config: the `BertConfig`, as another name of the first argument.
          all_layers: of the encoder, also give embedding_output and layer_0, layer_1, ..., each
            [B, S, D].
          num_sequences: the most sequences of a row, as for `encode`. With inputs: what the model
            was made for.
          labels: names of classes.
          metadata: as the attribute.
          dtype: of the encoder's layers, as Keras's policies, such as "mixed_bfloat16".
          trainable: whether all layers are; None: as they are.
          **unknown: refused.

        Raises:
          InputError: an argument is unknown or does not fit the others, or there is no such dtype.
        """
        if unknown:
            received = f"BertModel with {', '.join(unknown)}"
            known = "config, all_layers, num_sequences, labels, metadata, name, dtype, trainable"
            raise InputError(received, f"some of {known}", "correct or leave out the others")
        config = _config_given(inputs, config)
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
        self.input_spec = None  # inputs are completed, and then checked, in `call`
        for layer in self.layers:
            if isinstance(layer, keras.layers.InputLayer):
                layer.optional = True  # otherwise Keras refuses calls by keyword
        if num_sequences > 1 and (self.embeddings is None or self.embeddings.mask_zero):
            received = f"num_sequences={num_sequences} of a model that was not made for it"
            remedy = "make it by encode(config, inputs, num_sequences=...), or leave that out"
            raise InputError(received, "a model of packed rows", remedy)
        self._tie_heads()

    def _tie_heads(self) -> None:
        """Ties heads of masked tokens that are copies, if it is clear to what.

        Raises:
          InputError: one is tied to another model's embeddings, which no file of this one has.
        """
        tables = parts_of(self, Embeddings)
        for head in parts_of(self, MaskedLmHead):
            if len(tables) == 1 and head.tied_to is None:
                head.tie(tables[0])
            elif tables and head.tied_to is not None and head.tied_to not in tables:
                received = f"{head.name}, tied to {head.tied_to.name} of another model"
                remedy = "make the head with the embeddings of this model"
                raise InputError(received, "a head that is tied to a layer of the model", remedy)

    def call(
        self, inputs: Any = None, training: bool | None = None, mask: Any = None, **kwargs: Any
    ) -> Any:
        """The outputs.

        Args:
          inputs: a dict of inputs, input_ids alone, or a list in the order of the model's inputs.
          training: whether there is dropout.
          mask: of Keras, of input_ids; it counts if no input_mask is given.
          **kwargs: inputs by name.
        """
        runtime.refuse_forked(f"the model {self.name}")  # in which TensorFlow would never answer
        return super().call(complete_inputs(self, inputs, kwargs, mask), training=training)

    def compute_output_spec(
        self, inputs: Any = None, training: bool | None = None, mask: Any = None, **kwargs: Any
    ) -> Any:
        """The outputs' shapes and types; arguments as of `call`."""
        return super().compute_output_spec(complete_inputs(self, inputs, kwargs, mask))

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """None: outputs have the masks that the layers have given them."""

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
        """The encoder alone: a model of this one's layers, which shares their variables.

        Raises:
          AttributeError: there is no encoder of ours, or the model is a backbone itself.
        """
        # Savers of Keras visit all attributes: one that led to itself would have no end.
        if self.config is None or self._is_backbone or not self._is_encoded():
            received = (
                f"the backbone of {self.name}, which has no encoder as of `encode`, or is one"
            )
            remedy = "make it of the model's tensors: BertModel(model.input, layer.output)"
            raise AttributeError(InputError(received, "a model with a head", remedy))
        inputs = token_inputs()
        embeddings: Any = self.embeddings
        layers = embeddings, self.blocks, self.pooler
        outputs = encoder_outputs(*layers, inputs, num_sequences=self.num_sequences)
        backbone = BertModel(inputs, outputs, name="backbone", num_sequences=self.num_sequences)
        backbone._is_backbone = True
        return backbone

    def _is_encoded(self) -> bool:
        """Whether the layers are connected as `encode` does it, each once and nothing between."""
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
            remedy = "load it by bert_tf.load(path), or set model.tokenizer = FullTokenizer(file)"
            received, expected = f"{self.name}, a model without a tokenizer", "one that has its own"
            raise AttributeError(InputError(received, expected, remedy))  # as `hasattr` expects
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: "FullTokenizer") -> None:
        """Sets it; texts are cut to the model's positions."""
        positions = None if self.config is None else self.config.max_position_embeddings
        if tokenizer.positions not in (None, positions):  # of another model
            tokenizer = copy.copy(tokenizer)
        tokenizer.positions = positions
        self._tokenizer = tokenizer

    # ------------------------------------------------------------------------ what Keras calls

    def make_train_function(self, force: bool = False) -> Any:
        """As Keras's own; refuses forked children, and losses of probabilities."""
        runtime.refuse_forked(f"fit of the model {self.name}")
        self._check_losses()
        return super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> Any:
        """As Keras's own; refuses forked children, and losses of probabilities."""
        runtime.refuse_forked(f"evaluate of the model {self.name}")
        self._check_losses()
        return super().make_test_function(force)

    def make_predict_function(self, force: bool = False) -> Any:
        """As Keras's own; refuses forked children."""
        runtime.refuse_forked(f"predict of the model {self.name}")
        return super().make_predict_function(force)

    def _check_losses(self) -> None:
        """Refuses a cross entropy of probabilities for an output of logits, which our heads give.

        Keras would train on it without a word.
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
        """Whether an output is one of logits; None: it is the only one, and has no name."""
        return name is not None and name.endswith("logits")

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """As Keras's own, which warns of every kind of layer that has no kernel."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
            super().quantize(*args, **kwargs)
        forget_functions(self)

    def save(self, filepath: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """As Keras's own, to a .keras file.

        Raises:
          InputError: the file is of HDF5, of which no class of ours can be read.
        """
        if os.fspath(filepath).endswith(UNSUPPORTED_SUFFIXES):
            remedy = 'give "model.keras"; to ModelCheckpoint too'
            raise InputError(f"save({os.fspath(filepath)!r})", "a .keras file", remedy)
        super().save(filepath, *args, **kwargs)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> "BertModel":
        """The model of what `get_config` gave; refuses forked children."""
        runtime.refuse_forked("a loaded model")  # drawing large tables would never end
        return super().from_config(config, custom_objects)

    def get_config(self) -> dict[str, Any]:
        """What the constructor makes the model of, weights and tokenizer aside."""
        config = super().get_config()
        config["labels"] = None if self.labels is None else list(self.labels)
        config["metadata"] = dict(self.metadata)
        config["num_sequences"] = self.num_sequences
        return config

    def save_assets(self, folder: str) -> None:
        """Writes the tokenizer into the part of a .keras file that is for what is large."""
        if hasattr(self, "tokenizer"):
            with open(os.path.join(folder, TOKENIZER_FILE), "w", encoding="utf-8") as file:
                json.dump(self.tokenizer.get_config(), file)

    def load_assets(self, folder: str) -> None:
        """Reads what `save_assets` wrote."""
        if folder and os.path.exists(path := os.path.join(folder, TOKENIZER_FILE)):
            with open(path, encoding="utf-8") as file:
                # Imported here: the models themselves need no TensorFlow.
                module = importlib.import_module("bert_tf.tokenization.wordpiece")
                self.tokenizer = module.FullTokenizer(**json.load(file))


def refuse_probabilities(loss: Any) -> None:
    """Refuses a cross entropy of Keras that takes no logits.

    Raises:
      InputError: it is one.
    """
    function = keras.losses.get(loss) if isinstance(loss, str) else loss
    name = getattr(function, "__name__", type(function).__name__).lower()
    is_of_keras = (getattr(function, "__module__", None) or "").startswith("keras.")
    takes_logits = isinstance(loss, keras.Loss) and loss.get_config().get("from_logits", False)
    if is_of_keras and "crossentropy" in name and not takes_logits:
        remedy = "give a loss with from_logits=True; load such a file with compile=False"
        raise InputError(f"the loss {quoted(loss, 60)} of probabilities", "one of logits", remedy)


def _config_given(inputs: Any, config: Any) -> BertConfig | None:
    """The configuration among the arguments of `BertModel`; None: inputs and outputs are given.

    Raises:
      InputError: it is the path of one, or is given twice.
    """
    for given in (inputs, config):
        if isinstance(given, str | os.PathLike):
            BertConfig.from_dict(given)  # type: ignore[arg-type]  # raises
    if config is None:
        return inputs if isinstance(inputs, BertConfig) else None
    if inputs is not None or not isinstance(config, BertConfig):
        received = f"{quoted(config)} as config"
        remedy = "give BertModel(config), or BertModel(inputs, outputs)"
        raise InputError(received, "one BertConfig, and no inputs beside it", remedy)
    return config
