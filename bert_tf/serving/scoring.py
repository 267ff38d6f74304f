"""How likely a masked language model finds a text: its pseudo-perplexity, in Python.

Each token is masked in turn and predicted from all others; the logarithms of its probabilities are
added up. [CLS] and [SEP] are not scored.

    score = sum over t of log P(token t | the other tokens)      perplexity = exp(-score / tokens)

Source: Salazar et al. (2020), "Masked Language Model Scoring", sections 2 and 2.3.
"""

import dataclasses
import math
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.keras_files import refuse_other_tokenizer
from bert_tf.errors import InputError
from bert_tf.serving.options import MASK
from bert_tf.serving.signatures import refuse_not_finite
from bert_tf.tokenization.wordpiece import FullTokenizer

_LARGEST_EXPONENT = 709  # of exp in a float


@dataclasses.dataclass(frozen=True)
class Score:
    """The pseudo-log-likelihood of a text, in nats, and of how many tokens it is the sum."""

    score: float
    tokens: int

    @property
    def perplexity(self) -> float | None:
        """Of a token on average; None for no tokens, or beyond the range of floats."""
        mean = -self.score / self.tokens if self.tokens else math.inf
        return math.exp(mean) if mean < _LARGEST_EXPONENT else None

    def __add__(self, other: "Score") -> "Score":
        """Of both texts together."""
        return Score(self.score + other.score, self.tokens + other.tokens)


class Scorer:
    """Scores texts with a pre-trained model."""

    def __init__(
        self,
        model: keras.Model,
        tokenizer: FullTokenizer,
        *,
        max_seq_length: int,
        batch_size: int = 32,
    ):
        """Compiles the model at its first use.

        Args:
          model: of a head that has masked_lm_logits, such as "fill_mask".
          tokenizer: the one that the model was trained with.
          max_seq_length: maximum number of tokens, [CLS] and [SEP] included. Each token of a longer
            text is predicted from that many around it, nearer tokens first.
          batch_size: masked copies of a text that are computed at a time.

        Raises:
          InputError: the vocabulary is not the model's or lacks [CLS], [SEP] or [MASK], or no token
            has room.
        """
        if max_seq_length < 3:
            received = f"max_seq_length {max_seq_length}"
            raise InputError(received, "3 or more", "leave room for [CLS] and [SEP]")
        refuse_other_tokenizer(model, tokenizer, max_seq_length=max_seq_length)
        tokenizer.require_special_tokens("[CLS]", "[SEP]", MASK)
        self.tokenizer, self.batch_size = tokenizer, batch_size
        self.most_tokens = max_seq_length - 2  # of a text that is scored as a whole
        self._losses = _losses_of(model)

    def score(self, text: str | bytes) -> Score:
        """Scores a text, which takes a masked copy for each of its tokens.

        Raises:
          InputError: the model's logits are NaN or infinite.
        """
        (ids,) = self.tokenizer.tokenize_ids([text]).to_list()
        losses = []
        for first in range(0, len(ids), self.batch_size):
            labels = ids[first : first + self.batch_size]
            copies = (self._masked(ids, first + i) for i in range(len(labels)))
            rows, places = zip(*copies, strict=True)
            found = self._losses(*(tf.constant(x, tf.int32) for x in (rows, places, labels)))
            refuse_not_finite({"masked-LM logits": found.numpy()})
            losses += found.numpy().astype(np.float64).tolist()
        return Score(0.0 - math.fsum(losses), len(ids))  # 0, not -0, of no token

    def _masked(self, ids: list[int], place: int) -> tuple[list[int], int]:
        """The tokens around a masked one, and where it is among them."""
        width = min(len(ids), self.most_tokens)
        cls, sep, mask = self.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", MASK])
        first = min(max(place - width // 2, 0), len(ids) - width)  # of the tokens that are seen
        copy = [cls, *ids[first : first + width], sep]
        copy[place - first + 1] = mask
        return copy, place - first + 1


def _losses_of(model: keras.Model) -> Callable[..., tf.Tensor]:
    """The graph from copies int32 [B, S], the masked position and its token [B] to -log P [B]."""

    def losses(ids: tf.Tensor, positions: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        inputs = {
            "input_ids": ids,
            "input_mask": tf.ones_like(ids),
            "segment_ids": tf.zeros_like(ids),
            "masked_lm_positions": positions[:, tf.newaxis],
        }
        logits = model(inputs, training=False)["masked_lm_logits"][:, 0]  # [B, V]
        return tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=tf.cast(logits, tf.float32)
        )

    shapes = ([None, None], [None], [None])
    return tf.function(losses, input_signature=[tf.TensorSpec(s, tf.int32) for s in shapes])
