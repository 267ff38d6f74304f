"""What can be done to weights between opening and saving them, and the proof of a conversion."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf.checkpoints.loading import load_checkpoint
from bert_tf.checkpoints.metadata import ModelMetadata, Weights
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.heads import make_model
from bert_tf.modeling.models import BertModel
from bert_tf.tokenization.case import is_cased
from bert_tf.tokenization.wordpiece import LONE_SURROGATE, FullTokenizer

WORD_TABLE, OUTPUT_BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
POSITION_TABLE = "bert/embeddings/position_embeddings"
POOLER = "bert/pooler/dense/kernel"
COMPARED_LENGTH = 19  # of the longest sequence that two models are compared on
NEVER = -10000.0  # the output bias of a row that is no word piece: its probability is 0


def without_slots(weights: Weights) -> Weights:
    """The weights alone: no moments, counters or settings of a run."""
    return dataclasses.replace(weights, shapes={n: weights.shapes[n] for n in weights.names})


def average(all_weights: Sequence[Weights]) -> Weights:
    """The mean of several checkpoints of one model, without optimizer state.

    What some of them do not tell is as the others have it, with a warning.

    Raises:
      InputError: their names or shapes differ, or anything that is known of two of them.
    """
    first, *others = map(without_slots, all_weights)
    for other in others:
        names = first.shapes.keys() | other.shapes.keys()
        different = sorted(n for n in names if first.shapes.get(n) != other.shapes.get(n))[:3]
        if different:
            raise _different(first, other, ", ".join(different))
    first = _with_all_that_is_known([first, *others])

    def read(name: str) -> np.ndarray:
        value = first.read(name)
        total = value.astype(np.float64)
        for other in others:
            total += other.read(name)
        return (total / len(all_weights)).astype(value.dtype)

    return dataclasses.replace(first, read=read)


def _with_all_that_is_known(all_weights: Sequence[Weights]) -> Weights:
    """The first weights, with configuration, vocabulary and metadata as any of them has them."""
    known: dict[str, tuple[Weights, Any]] = {}
    for weights in all_weights:
        for name, value in _known(weights).items():
            other, their_value = known.setdefault(name, (weights, value))
            if value != their_value:
                raise _different(other, weights, f"{name}: {_both(their_value, value)}")
    for weights in all_weights:
        if unknown := sorted(known.keys() - _known(weights).keys()):
            logging.warning(
                "%s does not tell its %s: taken from the other checkpoints.",
                *(weights.path, ", ".join(unknown)),
            )
    values = {name: value for name, (_, value) in known.items()}
    metadata = {f.name: values.get(f.name) for f in dataclasses.fields(ModelMetadata)}
    with_vocabulary, _ = known.get("vocabulary", (all_weights[0], None))
    return dataclasses.replace(
        all_weights[0],
        config=next((weights.config for weights in all_weights if weights.config), None),
        pieces=with_vocabulary.pieces,
        vocab_file=with_vocabulary.vocab_file,
        metadata=ModelMetadata(**metadata),
    )


def _known(weights: Weights) -> dict[str, Any]:
    """What is known of a model beside its weights, by name."""
    sizes = weights.config.to_dict() if weights.config else {}
    vocabulary = {"vocabulary": weights.pieces} if weights.pieces else {}
    return sizes | vocabulary | weights.metadata.known()


def _both(one: Any, other: Any) -> str:
    """Two values that differ; of long lists the first place where they do."""
    if isinstance(one, tuple) and isinstance(other, tuple) and max(len(one), len(other)) > 9:
        pairs = enumerate(itertools.zip_longest(one, other))
        number, (one, other) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        return f"number {number} is {one!r:.80} and {other!r:.80}"
    return f"{one!r} and {other!r}"


def _different(one: Weights, other: Weights, what: str) -> InputError:
    return InputError(
        f"{one.path} and {other.path}, which differ in {what}",
        "checkpoints of one model",
        "leave out the one that is of another model; if it is not, correct what its files say",
    )


# ---------------------------------------------------------------------------- the word table


def pad_vocabulary(weights: Weights, multiple: int) -> Weights:
    """The word table and its output bias with rows up to a multiple; new ones are never guessed.

    Adam's moments of the new rows are 0.
    """
    if multiple < 1:
        raise InputError(f"--pad_vocab_to={multiple}", "1 or more, such as 64", "correct the flag")
    rows, _ = _table_shape(weights, WORD_TABLE)
    return _with_rows(weights, -(-rows // multiple) * multiple, {})


def add_pieces(weights: Weights, pieces: Sequence[str], *, seed: int = 12345) -> Weights:
    """The weights of a vocabulary with these word pieces after its last one.

    Rows that the table has beyond its vocabulary are used first. A new piece's vector is drawn as a
    fresh model's is; its output bias is 0.

    Raises:
      InputError: there is no vocabulary, or it has a piece already.
    """
    known = weights.pieces or ()
    if not known:
        raise InputError(
            f"--extra_tokens for {weights.path} without a vocabulary",
            "the vocabulary that the tokens are added to",
            "put vocab.txt beside the weights, or name it with --vocab_file",
        )

    def is_new(piece: str) -> bool:
        is_text = piece.strip() == piece != "" and not LONE_SURROGATE.search(piece)
        return is_text and piece not in known and pieces.count(piece) == 1

    if wrong := sorted({piece for piece in pieces if not is_new(piece)}):
        raise InputError(
            f"--extra_tokens with {', '.join(map(repr, wrong))}",
            "tokens in UTF-8 that are new to the vocabulary, each once",
            "leave them out",
        )
    old_rows, hidden_size = _table_shape(weights, WORD_TABLE)
    stddev = weights.config.initializer_range if weights.config else 0.02
    draw = keras.initializers.TruncatedNormal(stddev=stddev, seed=seed)
    vectors = dict(enumerate(np.asarray(draw((len(pieces), hidden_size))), len(known)))
    rows = max(old_rows, len(known) + len(pieces))
    weights = dataclasses.replace(_with_rows(weights, rows, vectors), pieces=(*known, *pieces))
    _warn_of_unreachable(weights, pieces)
    return weights


def check_never_split(weights: Weights) -> None:
    """Raises `InputError` unless all pieces that are never split are in the vocabulary."""
    kept, pieces = weights.metadata.never_split or (), set(weights.pieces or ())
    if missing := [piece for piece in kept if piece not in pieces]:
        raise InputError(
            f"never_split {', '.join(map(repr, missing))} for {weights.path}, whose vocabulary has "
            f"{len(pieces)} pieces without",
            "pieces of the vocabulary",
            "correct --never_split, or add the pieces with --extra_tokens",
        )


def _warn_of_unreachable(weights: Weights, pieces: Sequence[str]) -> None:
    """Warns of tokens that text is never cut into: it is split at punctuation and lower-cased."""
    lower = weights.metadata.do_lower_case
    if lower is None:
        lower = not is_cased(weights.pieces)
    kept = [piece for piece in weights.metadata.never_split or () if piece in weights.pieces]
    tokenizer = FullTokenizer(weights.vocab_file, lower, pieces=weights.pieces, never_split=kept)
    for piece in pieces:
        found = tokenizer.tokenize(piece)
        if not piece.startswith("##") and found != [piece]:
            logging.warning(
                "The tokenizer cuts %r into %s, so text never gives this token: its vector is for "
                "ids from elsewhere. --never_split keeps it whole.",
                *(piece, " ".join(found)),
            )


def _table_shape(weights: Weights, name: str) -> tuple[int, ...]:
    shape = weights.shapes.get(name, ())
    if len(shape) != 2:
        raise InputError(
            f"{weights.path}, which has no table {name}; it has {', '.join(weights.names[:3])}",
            "the weights of a BERT",
            "check that the path is that of the model",
        )
    return shape


def _with_rows(weights: Weights, rows: int, vectors: Mapping[int, np.ndarray]) -> Weights:
    """The table with so many rows: those of `vectors` filled, other new ones never guessed."""
    old_rows, _ = _table_shape(weights, WORD_TABLE)

    def grows(name: str) -> bool:
        return name.startswith((WORD_TABLE, OUTPUT_BIAS))

    def read(name: str) -> np.ndarray:
        value = weights.read(name)
        if not grows(name):
            return value
        filler = NEVER if name == OUTPUT_BIAS else 0.0
        new = np.full((rows, *value.shape[1:]), filler, value.dtype)
        new[:old_rows] = value
        for row, vector in vectors.items():
            new[row] = vector if name == WORD_TABLE else 0.0
        return new

    return dataclasses.replace(
        weights,
        shapes={n: (rows, *s[1:]) if grows(n) else s for n, s in weights.shapes.items()},
        read=read,
        config=weights.config and dataclasses.replace(weights.config, vocab_size=rows),
    )


# ---------------------------------------------------------------------------- positions


def extend_positions(weights: Weights, positions: int) -> Weights:
    """The weights with a longer table of positions, for longer sequences.

        rows before    p0 p1 p2
        for 8          p0 p1 p2 p0 p1 p2 p0 p1

    New rows are copies of the old ones in their order, as Longformer's began (Beltagy et al.,
    2020), and are to be trained further. Adam's moments of the new rows are 0.

    Raises:
      InputError: there are more positions already.
    """
    old_rows, _ = _table_shape(weights, POSITION_TABLE)
    if positions < old_rows:
        raise InputError(
            f"--max_position_embeddings={positions} for {weights.path}, which has {old_rows}",
            f"{old_rows} or more: a table is made longer, not shorter",
            "use a greater number; for shorter sequences give --max_seq_length where the model is "
            "used",
        )
    if positions == old_rows:
        return weights
    logging.warning(
        "%s: positions %d to %d are copies of the first ones. Train the model further on long "
        "sequences before use.",
        *(weights.path, old_rows, positions - 1),
    )
    if (length := weights.metadata.max_seq_length) and length < positions:
        logging.warning(
            "%s was trained with %d tokens at most: texts are cut there as before, unless "
            "--max_seq_length says otherwise.",
            *(weights.path, length),
        )

    def grows(name: str) -> bool:
        return name.startswith(POSITION_TABLE)

    def read(name: str) -> np.ndarray:
        value = weights.read(name)
        if not grows(name):
            return value
        if name == POSITION_TABLE:
            return value[np.arange(positions) % old_rows]
        return np.pad(value, [(0, positions - old_rows), (0, 0)])

    return dataclasses.replace(
        weights,
        shapes={n: (positions, *s[1:]) if grows(n) else s for n, s in weights.shapes.items()},
        read=read,
        config=weights.config
        and dataclasses.replace(weights.config, max_position_embeddings=positions),
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
            f"outputs {', '.join(sorted(other))} after a conversion",
            f"{', '.join(sorted(one))}, as before",
            "report this: the conversion lost a head",
        )

    def difference(name: str) -> float:
        a, b = one[name], other[name]
        if name == "masked_lm_logits":
            shared = rows or min(a.shape[-1], b.shape[-1])
            a, b = a[..., :shared], b[..., :shared]
        return float(np.max(np.abs(a.astype(np.float64) - b)))

    return {name: difference(name) for name in sorted(one)}


def outputs_of(weights: Weights, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs, by name, of models with all heads of these weights.

    Raises:
      InputError: the weights do not fit their configuration.
    """
    outputs: dict[str, np.ndarray] = {}
    for model in _models_of(weights):
        load_checkpoint(model, weights)
        own = {name: inputs[name] for name in model.input}
        outputs |= {n: np.asarray(v) for n, v in model(own, training=False).items()}
    needed = {  # without these weights an output says nothing
        "pooled_output": POOLER,
        "next_sentence_logits": POOLER,
        "masked_lm_logits": OUTPUT_BIAS,
    }
    fresh = {name for name, weight in needed.items() if weight not in weights.shapes}
    return {name: value for name, value in outputs.items() if name not in fresh}


def _models_of(weights: Weights) -> list[keras.Model]:
    config, shapes = weights.config, weights.shapes
    found = []
    next_sentence = "cls/seq_relationship/output_weights" in shapes
    if OUTPUT_BIAS in shapes or next_sentence:
        found.append(make_model("pretraining", config, next_sentence=next_sentence))
    if "cls/squad/output_weights" in shapes:
        found.append(make_model("question_answering", config))
    if "output_weights" in shapes:  # of each token where there is no pooler
        head = "classification" if POOLER in shapes else "token_labels"
        num_classes = shapes["output_weights"][0]
        found.append(make_model(head, config, num_classes=num_classes))
    return found or [BertModel(config)]


def random_inputs(
    config: BertConfig, *, rows: int | None = None, length: int = COMPARED_LENGTH
) -> dict[str, np.ndarray]:
    """The same examples of all lengths at every call.

    Args:
      config: of the model.
      rows: token ids are below this, if given.
      length: of the longest example; at most the model's positions.
    """
    random = np.random.default_rng(1)
    batch, length = 3, min(length, config.max_position_embeddings)
    lengths = random.integers(1, length + 1, (batch, 1))

    def ids(high: int, *shape: int) -> np.ndarray:
        return random.integers(0, high, shape).astype(np.int32)

    return {
        "input_ids": ids(rows or config.vocab_size, batch, length),
        "input_mask": (np.arange(length) < lengths).astype(np.int32),
        "segment_ids": ids(config.type_vocab_size, batch, length),
        "masked_lm_positions": ids(length, batch, 2),
    }
