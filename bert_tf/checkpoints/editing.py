"""What can be done to weights between opening and saving them, and the proof of a conversion."""

import dataclasses
from collections.abc import Mapping, Sequence

import keras
import numpy as np
from absl import logging

from bert_tf.checkpoints.loading import is_cased, load_checkpoint
from bert_tf.checkpoints.metadata import Weights
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.modeling import heads, models
from bert_tf.tokenization.wordpiece import FullTokenizer

WORD_TABLE, OUTPUT_BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
POOLER = "bert/pooler/dense/kernel"
NEVER = -10000.0  # the output bias of a row that is no piece: its probability is 0


def without_slots(weights: Weights) -> Weights:
    """The weights alone: no optimizer's moments, counters or notes of a run."""
    return dataclasses.replace(weights, shapes={n: weights.shapes[n] for n in weights.names})


def average(all_weights: Sequence[Weights]) -> Weights:
    """The mean of several checkpoints of one model, without optimizer state.

    Raises:
      InputError: their names or shapes differ.
    """
    first, *others = map(without_slots, all_weights)
    for other in others:
        different = {n for n in first.shapes.keys() | other.shapes.keys()
                     if first.shapes.get(n) != other.shapes.get(n)}  # fmt: skip
        beside = [name for name in ("config", "pieces") if _differ(first, other, name)]
        if different or beside:
            raise InputError(
                received=f"{first.path} and {other.path}, which differ in "
                + ", ".join([*sorted(different)[:3], *beside]),
                expected="checkpoints of one model",
                remedy="leave out the one that is of another model",
            )

    def read(name: str) -> np.ndarray:
        value = first.read(name)
        total = value.astype(np.float64)
        for other in others:
            total += other.read(name)
        return (total / len(all_weights)).astype(value.dtype)

    return dataclasses.replace(first, read=read)


def _differ(one: Weights, other: Weights, name: str) -> bool:
    """Whether both have something of that name, and not the same."""
    a, b = getattr(one, name), getattr(other, name)
    return a is not None and b is not None and a != b


def pad_vocabulary(weights: Weights, multiple: int) -> Weights:
    """The word table and its output bias with rows up to a multiple; new ones are never guessed.

    Adam's moments of the new rows are 0.
    """
    if multiple < 1:
        raise InputError(
            received=f"--pad_vocab_to={multiple}",
            expected="a number of rows above 0, such as 64",
            remedy="correct --pad_vocab_to",
        )
    rows, _ = _table_shape(weights)
    return _with_rows(weights, -(-rows // multiple) * multiple, {})


def add_pieces(weights: Weights, pieces: Sequence[str], *, seed: int = 12345) -> Weights:
    """The weights of a vocabulary with these pieces after its last one.

    Rows that the table has beyond its vocabulary are used first. A new piece's vector is drawn as a
    fresh model's is; its output bias is 0.

    Raises:
      InputError: there is no vocabulary, or it has a piece already.
    """
    known = weights.pieces or ()
    twice = sorted(
        {p for p in pieces if p in known or pieces.count(p) > 1 or not p or p != p.strip()}
    )
    if not known or twice:
        raise InputError(
            received=f"--extra_tokens with {', '.join(map(repr, twice))}"
            if twice
            else f"--extra_tokens for {weights.path}, which has no vocabulary beside it",
            expected="new pieces for the vocabulary of the model, each once",
            remedy="leave out pieces that are there, and put vocab.txt beside the weights",
        )
    old_rows, hidden = _table_shape(weights)
    spread = weights.config.initializer_range if weights.config else 0.02
    draw = keras.initializers.TruncatedNormal(stddev=spread, seed=seed)
    new = np.asarray(draw((len(pieces), hidden)))
    vectors = {len(known) + i: vector for i, vector in enumerate(new)}
    rows = max(old_rows, len(known) + len(pieces))
    weights = dataclasses.replace(_with_rows(weights, rows, vectors), pieces=(*known, *pieces))
    _warn_of_unreachable(weights, pieces)
    return weights


def _warn_of_unreachable(weights: Weights, pieces: Sequence[str]) -> None:
    """Words are cut at punctuation and changed in case before pieces are looked for."""
    lower = weights.metadata.do_lower_case
    if lower is None:
        lower = not is_cased(weights.pieces)
    tokenizer = FullTokenizer(weights.vocab_file, lower, pieces=weights.pieces)
    for piece in pieces:
        found = tokenizer.tokenize(piece)
        if not piece.startswith("##") and found != [piece]:
            logging.warning(
                "The tokenizer gives %r as %s, never as one piece: its vector is for ids that are "
                "put in by other means.",
                *(piece, " ".join(found)),
            )


def _table_shape(weights: Weights) -> tuple[int, ...]:
    shape = weights.shapes.get(WORD_TABLE, ())
    if len(shape) != 2:
        raise InputError(
            received=f"{weights.path}, which has no table {WORD_TABLE}; it has "
            f"{', '.join(weights.names[:3])}",
            expected="the weights of a BERT",
            remedy="check that the path is that of the model",
        )
    return shape


def _with_rows(weights: Weights, rows: int, vectors: Mapping[int, np.ndarray]) -> Weights:
    """The table with so many rows: those of `vectors` filled, other new ones never used."""
    old_rows, _ = _table_shape(weights)

    def changed(name: str) -> bool:
        return name.startswith((WORD_TABLE, OUTPUT_BIAS))

    def read(name: str) -> np.ndarray:
        value = weights.read(name)
        if not changed(name):
            return value
        filler = NEVER if name == OUTPUT_BIAS else 0.0
        new = np.full((rows, *value.shape[1:]), filler, value.dtype)
        new[:old_rows] = value
        for row, vector in vectors.items():
            new[row] = vector if name == WORD_TABLE else 0.0
        return new

    return dataclasses.replace(
        weights,
        shapes={n: (rows, *s[1:]) if changed(n) else s for n, s in weights.shapes.items()},
        read=read,
        config=weights.config and dataclasses.replace(weights.config, vocab_size=rows),
    )


# ---------------------------------------------------------------------------- the proof


def difference_of_outputs(
    one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], *, rows: int | None = None
) -> dict[str, float]:
    """The greatest difference of each output.

    Args:
      one: outputs by name.
      other: the same of another model.
      rows: how many of the vocabulary are compared; None for those that both have.

    Raises:
      InputError: the outputs are not the same ones.
    """
    if one.keys() != other.keys():
        raise InputError(
            received=f"outputs {', '.join(sorted(other))} after a conversion",
            expected=f"{', '.join(sorted(one))}, as before",
            remedy="report this: the conversion lost a head",
        )

    def difference(name: str) -> float:
        a, b = one[name], other[name]
        if name == "masked_lm_logits":
            shared = rows or min(a.shape[-1], b.shape[-1])
            a, b = a[..., :shared], b[..., :shared]
        return float(np.max(np.abs(a.astype(np.float64) - b)))

    return {name: difference(name) for name in sorted(one)}


def outputs_of(weights: Weights, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a model with all heads of these weights gives, by the names of outputs.

    Raises:
      InputError: the weights do not fit their configuration.
    """
    outputs: dict[str, np.ndarray] = {}
    for model in _models_of(weights):
        load_checkpoint(model, weights)
        own = {name: inputs[name] for name in model.input}
        outputs |= {n: np.asarray(v) for n, v in model(own, training=False).items()}
    fresh = {  # without the weights behind them they say nothing
        "pooled_output": POOLER not in weights.shapes,
        "next_sentence_logits": POOLER not in weights.shapes,
        "masked_lm_logits": OUTPUT_BIAS not in weights.shapes,
    }
    return {name: value for name, value in outputs.items() if not fresh.get(name)}


def _models_of(weights: Weights) -> list[keras.Model]:
    config, names = weights.config, weights.shapes
    found = []
    next_sentence = "cls/seq_relationship/output_weights" in names
    if OUTPUT_BIAS in names or next_sentence:
        found.append(models.pretraining_model(config, next_sentence=next_sentence))
    if "cls/squad/output_weights" in names:
        found.append(models.span_model(config))
    if "output_weights" in names:
        found.append(_classifier(config, names["output_weights"][0], pooled=POOLER in names))
    return found or [models.bert_encoder(config)]


def _classifier(config: BertConfig, num_classes: int, *, pooled: bool) -> keras.Model:
    """Of the sequence; of each token where there is no pooler (BertForTokenClassification)."""
    if pooled:
        return models.classifier_model(config, num_classes=num_classes)
    encoder = models.bert_encoder(config)
    head = heads.TokenClassifier(config, num_classes=num_classes, name="classifier")
    logits = head(encoder.output["sequence_output"])  # [B, S, classes]
    return keras.Model(encoder.input, encoder.output | {"logits": logits})


def random_inputs(
    config: BertConfig, *, seed: int = 1, rows: int | None = None
) -> dict[str, np.ndarray]:
    """Examples of all lengths for any model of a configuration; ids below `rows`, if given."""
    random = np.random.default_rng(seed)
    batch, length = 3, min(19, config.max_position_embeddings)
    lengths = random.integers(1, length + 1, (batch, 1))

    def ids(high: int, *shape: int) -> np.ndarray:
        return random.integers(0, high, shape).astype(np.int32)

    return {
        "input_ids": ids(rows or config.vocab_size, batch, length),
        "input_mask": (np.arange(length) < lengths).astype(np.int32),
        "segment_ids": ids(config.type_vocab_size, batch, length),
        "masked_lm_positions": ids(length, batch, 2),
    }
