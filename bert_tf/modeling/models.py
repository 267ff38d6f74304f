"""Layers -> the encoder, a functional Keras model, on which heads are put (bert_tf/heads).

BertModel(config)           the encoder
BertModel(inputs, outputs)  any functional model that takes its inputs by several names
encode                      what heads are put on

Types and shapes of inputs are checked whenever a model is called, also while a graph is traced.
Values are checked where they are known: in eager calls, and in arrays given to Keras's `fit`,
`predict` and so on. Inside a graph they are not, and a check would cost time in each step.
"""

import functools
import importlib
import inspect
import json
import os
import re
import types
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.modeling import layers

if TYPE_CHECKING:
    from bert_tf.tokenization.wordpiece import FullTokenizer

TOKENIZER_FILE = "tokenizer.json"  # in a .keras file
TOKEN_INPUTS = ("input_ids", "input_mask", "segment_ids")
SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}  # Hugging Face's names


# Inputs that may be left out, from int32 ids [..., S]: all ids but 0 are words, of the first text;
# predictions are made for every position.
DEFAULTS = {
    "input_mask": lambda ids: ops.cast(ops.not_equal(ids, 0), "int32"),
    "segment_ids": ops.zeros_like,
    **dict.fromkeys(
        ("masked_lm_positions", "word_positions"),
        lambda ids: ops.cumsum(ops.ones_like(ids), axis=-1) - 1,
    ),
}
REMEDY = 'give what the tokenizer returns, model(tokenizer(["a text"])), or cast numbers to int32'


def _with_checked_arrays(name: str) -> Callable:
    """A method of Keras that takes texts and labels by name, and checks arrays as a call does.

    Datasets are not read.
    """
    method = getattr(keras.Model, name)

    @functools.wraps(method)
    def checked(self, *args, **kwargs):
        bound = inspect.signature(method).bind(self, *args, **kwargs)
        # Imported here: commands, which have loops of their own, need none of it.
        importlib.import_module("bert_tf.modeling.fit_data").prepare(self, name, bound.arguments)
        return method(*bound.args, **bound.kwargs)

    return checked


def config_of_model(model: keras.Model) -> BertConfig | None:
    """The configuration of a model's encoder, the first of several; None without one.

    It is what the embeddings were made of, or else what the layers have.

    Raises:
      InputError: it is no Keras model.
    """
    if not isinstance(model, keras.Model):
        received, remedy = f"{model!r:.80} as a model", "give the model of bert_tf.load(path)"
        raise InputError(received, "a Keras model", remedy)
    embeddings = next(iter(_parts(model, layers.Embeddings)), None)
    blocks = {x.name: x for x in _parts(model, layers.EncoderBlock)}
    blocks = {name: x for name, x in blocks.items() if re.fullmatch(r"layer_\d+", name)} or blocks
    if embeddings is None or embeddings.config or not blocks:
        return embeddings and embeddings.config
    first = next(iter(blocks.values()))
    sizes = {**embeddings.sizes, **first.sizes}
    values = {layers.SIZES[name]: size for name, size in sizes.items()}
    values["attention"] = "causal" if values.pop("is_causal") else "bidirectional"
    return BertConfig(**values, num_hidden_layers=len(blocks))


@keras.saving.register_keras_serializable(package="bert_tf")
class BertModel(keras.Model):
    """The encoder with its pooler (original: `BertModel`), or any functional model on it.

        BertModel(config)              sequence_output [B, S, D] and pooled_output [B, D]
        BertModel(inputs, outputs)     as of `keras.Model`, with dicts

    It is called with a dict of ids [B, S], or with the ids alone. `fit`, `evaluate` and `predict`
    also take texts, or a tuple of first and second ones, of which the model's tokenizer makes ids,
    and names of labels. sequence_output has `input_ids != 0` as its mask of Keras, for pooling
    layers and losses of tokens.

        input_ids                          of the word pieces; 0 is padding
        input_mask or attention_mask       1 for word pieces, 0 for padding; see num_sequences
        segment_ids or token_type_ids      0 for the first text, 1 for the second
        masked_lm_positions                of models that predict masked tokens
        word_positions                     of `bert_tf.token_classifier`

    All but the first may be left out. A mask that is left out is `input_ids != 0`: the same as the
    ones that the original and transformers take, but for padded ids, whose padding they would read
    as words. Segments are then 0, and predictions are made for every position.
    Inputs that would be broadcast, cut or wrapped around are refused (`check_inputs`).

    What else Keras has for functional models holds for this one: `fit`, `save`, `export`,
    `quantize`, `clone_model` (whose clone has neither labels nor tokenizer), layers as parts of
    other models.

    Attributes:
      config: the `BertConfig` that the layers have; None if they are no encoder.
      embeddings, blocks, pooler: the layers of the encoder; blocks are a list.
      labels: the names of the classes in the order of the logits; None if they have none.
      tokenizer: the `FullTokenizer` of the model's vocabulary, which `load`, `classifier` and
        `keras.models.load_model` set; before, it is an AttributeError.
      metadata: what else belongs to the model, by the names in its model_facts.json.
      compile_for: compiles the model for so many steps, which every `fit` calls unless somebody
        else has compiled it; None: Keras refuses.
      reads: makes arrays of what the methods of Keras are given, (x, y, sample_weight) of
        (x, y, sample_weight), before texts and names of labels are looked for; None: nothing does.

    All three are saved in a .keras file, which `keras.models.load_model` reads after
    `import bert_tf` and the use of any name of it.
    """

    labels: tuple[str, ...] | None = None
    _tokenizer: "FullTokenizer | None" = None
    metadata: Mapping[str, Any] = types.MappingProxyType({})
    compile_for: Callable[[int], None] | None = None
    reads: Callable[[Any, Any, Any], tuple[Any, Any, Any]] | None = None
    _compiles_itself = False  # whether `fit` has compiled it, and will again
    config = functools.cached_property(config_of_model)

    def __init__(
        self,
        inputs: Any,
        outputs: Any = None,
        name: str | None = None,
        *,
        all_layers: bool = False,
        num_sequences: int = 1,
        **kwargs: Any,
    ):
        """With new weights.

        Args:
          inputs: a `BertConfig`, or a functional model's inputs by name.
          outputs: with inputs, the outputs by name.
          name: of the model; default of the encoder: bert_encoder.
          all_layers: of the encoder, also give embedding_output and layer_0, layer_1, ..., each
            [B, S, D].
          num_sequences: with inputs, the most sequences of a row that it was made for (`encode`).
          **kwargs: as for `keras.Model`.
        """
        if isinstance(inputs, str | os.PathLike):
            BertConfig.from_dict(inputs)  # type: ignore[arg-type]  # raises
        if isinstance(config := inputs, BertConfig):
            inputs, name = token_inputs(), name or "bert_encoder"
            outputs, _ = encode(config, inputs, all_layers=all_layers)
        super().__init__(inputs, outputs, name=name, **kwargs)
        self.num_sequences = num_sequences

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:
        """The outputs for a dict of inputs, or for input_ids alone; all else by keyword."""
        inputs = complete_inputs(inputs, self)
        return super().__call__(inputs, **kwargs)

    embeddings = functools.cached_property(lambda x: next(iter(_parts(x, layers.Embeddings)), None))
    blocks = functools.cached_property(lambda self: _parts(self, layers.EncoderBlock))
    pooler = functools.cached_property(lambda x: next(iter(_parts(x, layers.Pooler)), None))

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
        self._tokenizer = tokenizer

    fit, train_on_batch = map(_with_checked_arrays, ("fit", "train_on_batch"))
    evaluate, test_on_batch = map(_with_checked_arrays, ("evaluate", "test_on_batch"))
    predict, predict_on_batch = map(_with_checked_arrays, ("predict", "predict_on_batch"))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """As Keras's own; a loss of probabilities is refused for logits, of which it is wrong.

        Raises:
          InputError: the loss takes the model's logits for probabilities.
        """
        given = inspect.signature(keras.Model.compile).bind(self, *args, **kwargs).arguments
        loss, outputs = given.get("loss"), self.output
        if not isinstance(loss, Mapping | list | tuple):
            loss = keras.tree.map_structure(lambda _: loss, outputs)
        if isinstance(outputs, Mapping):
            pairs = [(outputs[name], loss[name]) for name in outputs if name in loss]
        else:
            pairs = list(zip(keras.tree.flatten(outputs), keras.tree.flatten(loss), strict=False))
        for output, one in pairs:
            if _gives_logits(output) and _is_of_probabilities(one):
                remedy = "give a loss with from_logits=True; load such a file with compile=False"
                raise InputError(f"the loss {one!r:.60} of probabilities", "one of logits", remedy)
        super().compile(*args, **kwargs)
        self._compiles_itself = False

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles as the saved model was; Keras leaves that to classes with a `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """As Keras's own, which warns of every kind of layer that has no kernel."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
            super().quantize(*args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """What `from_config` makes the model of, weights and tokenizer aside."""
        own = {"labels": self.labels and list(self.labels), "metadata": dict(self.metadata)}
        several = {"num_sequences": self.num_sequences} if self.num_sequences > 1 else {}
        return super().get_config() | own | several

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> "BertModel":
        """The model of what `get_config` gave."""
        config = dict(config)
        labels, metadata = config.pop("labels", None), config.pop("metadata", None)
        num_sequences = config.pop("num_sequences", 1)
        model = super().from_config(config, custom_objects)
        model.num_sequences = num_sequences
        model.metadata = metadata or {}
        model.labels = labels and tuple(labels)
        return model

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
            self.tokenizer.positions = getattr(self.config, "max_position_embeddings", None)


def _gives_logits(output: Any) -> bool:
    """Whether a functional model's output is that of a head, perhaps reshaped or cut."""
    operation = output._keras_history.operation
    while type(operation).__name__ in ("Reshape", "GetItem", "Squeeze"):
        output = operation._inbound_nodes[output._keras_history.node_index].input_tensors[0]
        operation = output._keras_history.operation
    return getattr(operation, "gives_logits", False)


def _is_of_probabilities(loss: Any) -> bool:
    """Whether it is a cross entropy that takes no logits."""
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    is_of_keras = (getattr(loss, "__module__", None) or "").startswith("keras.")
    name = getattr(loss, "__name__", type(loss).__name__).lower() if is_of_keras else ""
    takes_logits = getattr(loss, "_fn_kwargs", {}).get("from_logits", False)
    return "crossentropy" in name and not takes_logits


def _parts(model: keras.Model, kind: type) -> list[Any]:
    return [x for x in model._flatten_layers() if isinstance(x, kind)]


# ---------------------------------------------------------------------------- what models share


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
) -> tuple[dict[str, Any], Any]:
    """The encoder's outputs for inputs of a functional model, and the table for a tied head.

    Args:
      config: sizes of the model.
      inputs: input_ids, input_mask, segment_ids, int32 [B, S] each.
      all_layers: also give embedding_output and layer_0, layer_1, ..., each [B, S, D].
      num_sequences: K, the most sequences of a row. Above 1 input_mask is 1 for the tokens of the
        first, 2 for those of the second, ...; none sees another (Krell et al., 2021).

    Returns:
      sequence_output [B, S, D] and pooled_output [B * K, D] by name; and the word table [V, D].
    """
    numbers = inputs["input_mask"]  # [B, S]
    several = {"sequence_numbers": numbers} if num_sequences > 1 else {}
    masks = {"padding_mask": numbers}
    if several:
        masks = {"attention_mask": layers.same_sequence(numbers)}  # [B, S, S]
    x, word_table = layers.Embeddings.from_bert_config(config, mask_zero=not several)(
        inputs["input_ids"], inputs["segment_ids"], with_table=True, **several
    )  # [B, S, D], [V, D]
    every_layer = {"embedding_output": x}
    for i in range(config.num_hidden_layers):
        block = layers.EncoderBlock.from_bert_config(config, name=f"layer_{i}")
        x = every_layer[f"layer_{i}"] = block(x, **masks)  # [B, S, D]
    first = x  # tokens are at [:, 0]
    if config.is_causal or num_sequences > 1:
        tokens = layers.last_tokens if config.is_causal else layers.first_tokens
        first = tokens(x, inputs["input_mask"], num_sequences)  # [B, K, D]
        first = ops.reshape(first, (-1, 1, config.hidden_size))  # [B * K, 1, D]
    outputs = {"sequence_output": x, "pooled_output": layers.Pooler.from_bert_config(config)(first)}
    return outputs | (every_layer if all_layers else {}), word_table


# ---------------------------------------------------------------------------- inputs


def complete_inputs(inputs: Any, model: BertModel) -> dict[str, Any]:
    """The inputs by the model's own names, with defaults for those that were left out.

    Args:
      inputs: by the original's names or Hugging Face's, ids alone, or a list in the order of the
        model's inputs.
      model: whose they are.

    Raises:
      InputError: there are no input_ids, an input is given twice or is unknown, or as
        `check_inputs`.
    """
    values = check_inputs(inputs, model)
    if missing := model.input.keys() - values.keys():
        # Arrays become tensors: Keras takes no mixture.
        values = {name: ops.cast(x, "int32") for name, x in values.items()}
        values |= {name: DEFAULTS[name](values["input_ids"]) for name in missing}
    return values


def check_inputs(inputs: Any, model: BertModel) -> dict[str, Any]:
    """Checks the given inputs, and names them as the model does; arguments as `complete_inputs`.

    Raises:
      InputError: an input does not hold whole numbers, its shape does not fit the model or the
        other inputs, or a known value is out of range.
    """
    expected, config = model.input, model.config
    values = _named(inputs, expected)
    given = [name for name in expected if name in values]
    known = {name: _known(values[name]) for name in given}
    for name, x in known.items():
        dtype, is_array = getattr(x, "dtype", type(x)), isinstance(x, np.ndarray)
        kind = str(getattr(dtype, "name", dtype))
        is_whole = "int" in kind or "bool" in kind
        if "float" in kind:  # unknown ones become whole: Keras builds a loaded model with them
            fits = kind in ("float32", "float64") or name == "input_mask"
            is_whole = bool(np.all(np.floor(x) == x)) if is_array else fits
        if not is_whole:
            # TensorFlow's strings are objects as an array.
            is_text = "bytes" in kind or "str" in f"{kind} {getattr(values[name], 'dtype', None)}"
            received = f"texts as {name}" if is_text else f"{name} of type {kind}"
            if isinstance(x, list | tuple):
                received = f"a list as {name} that is no array, such as one of unequal rows"
            raise InputError(received, "ids of word pieces: rows of whole numbers", REMEDY)
    shapes = {name: tuple(x.shape) for name, x in known.items()}
    ids, positions = shapes["input_ids"], "masked_lm_positions"
    for name, shape in shapes.items():
        like = ids if name in TOKEN_INPUTS else ids[:1] + shapes.get(positions, shape)[1:]
        if not (_fit(shape, expected[name].shape) and _fit(shape, like)):
            beside = f", with input_ids of {list(ids)}" if name != "input_ids" else ""
            received = f"{name} of shape {list(shape)}{beside}"
            wanted = "[B, S] or [B, C, S], masks and segments alike, and positions [B, P]"
            raise InputError(received, wanted, f"correct the shape of {name}")
    if config is None:
        return values
    most = config.max_position_embeddings * model.num_sequences  # each begins at the first
    if ids[-1] is not None and not 0 < ids[-1] <= most:
        wanted = f"1 to {most}, the positions of the model"
        remedy = "cut the texts: the tokenizer takes max_length"
        raise InputError(f"sequences of {ids[-1]} word pieces", wanted, remedy)
    bounds = {
        "input_ids": config.vocab_size,
        "input_mask": model.num_sequences + 1,
        "segment_ids": config.type_vocab_size,
        "masked_lm_positions": ids[-1],
        "masked_lm_ids": config.vocab_size,
        "word_positions": ids[-1],
    }
    for name, x in known.items():
        if isinstance(x, np.ndarray) and x.size and not 0 <= x.min() <= x.max() < bounds[name]:
            wrong = x[(x < 0) | (x >= bounds[name])]
            raise InputError(f"{name} with {wrong[0]}", f"0 to {bounds[name] - 1}", REMEDY)
    return values


def _named(inputs: Any, expected: Mapping[str, Any]) -> dict[str, Any]:
    """The given inputs by the model's own names."""
    if isinstance(inputs, list | tuple) and all(hasattr(x, "shape") for x in inputs):
        if len(inputs) != len(expected):
            every = f"{len(expected)}: {', '.join(expected)}"
            raise InputError(f"a list of {len(inputs)} inputs", every, "give a dict of some")
        inputs = dict(zip(expected, inputs, strict=True))
    if not isinstance(inputs, Mapping):
        inputs = {"input_ids": inputs}
    given = [(SYNONYMS.get(name, name), x) for name, x in inputs.items() if x is not None]
    values = dict(given)
    fits = values.keys() <= expected.keys() <= values.keys() | DEFAULTS.keys()
    if len(values) < len(given) or not fits:
        names = {ours: f"{ours} or {theirs}" for theirs, ours in SYNONYMS.items()}
        received = f"inputs of a model: {', '.join(map(str, inputs)) or 'none'}"
        one_each = f"at most one each of {', '.join(names.get(n, n) for n in expected)}"
        raise InputError(received, f"input_ids, and {one_each}", "rename or leave out the others")
    return values


def _known(x: Any) -> Any:
    """The input as an array; the input itself if its values are known only when a graph runs."""
    try:
        return x if isinstance(x, np.ndarray) else keras.ops.convert_to_numpy(x)
    except (NotImplementedError, TypeError, ValueError, RuntimeError):
        return x


def _fit(shape: tuple, other: tuple) -> bool:
    """Whether two shapes may be equal; None is a size that is not known yet."""
    pairs = zip(shape, other, strict=False)
    return len(shape) == len(other) and all(a == b or None in (a, b) for a, b in pairs)
