"""A masked language model with weights set by hand: its guess depends on the place of [MASK]."""

import math
import pathlib

import keras
import numpy as np

from bert_tf import BertConfig, FullTokenizer, heads
from bert_tf.modeling.names import checkpoint_name

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bread", "water", "##s", ",", "wine"]
# The logit of each piece at even places; at odd places its sign is opposite.
PREFERENCES = [0, 0, 0, 0, 0, math.log(16), math.log(4), math.log(1 / 4), 0, math.log(1 / 16)]
SUM = 6 + 16 + 4 + 1 / 4 + 1 / 16  # of the exponentials of all logits, at any place


def make_tokenizer(folder: pathlib.Path) -> FullTokenizer:
    """Writes the vocabulary PIECES into the folder; returns its tokenizer."""
    path = folder / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n")
    return FullTokenizer(path)


def make_model(longest: int = 11) -> keras.Model:
    """A model of hidden size 2 and `longest` positions.

    Every normalization turns a vector of two numbers into (1, -1) or (-1, 1), by their order. The
    position embeddings decide which: (1, -1) at even places, (-1, 1) at odd ones. All kernels are 0
    but the last, which is the identity, so the head sees that vector s. The logit of a piece whose
    embedding is (w, -w) is s . (w, -w): 2 w at even places, -2 w at odd ones.
    """
    config = BertConfig(
        vocab_size=len(PIECES), hidden_size=2, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=3, max_position_embeddings=longest, type_vocab_size=2,
    )  # fmt: skip
    model = heads.make_model("pretraining", config)
    weights = {checkpoint_name(variable): variable for variable in model.trainable_variables}
    for name, variable in weights.items():
        if not name.endswith("gamma"):
            variable.assign(np.zeros(variable.shape))
    table = np.outer(np.divide(PREFERENCES, 2), [1, -1])
    weights["bert/embeddings/word_embeddings"].assign(table)
    places = np.outer([100 * (-1) ** place for place in range(longest)], [1, -1])
    weights["bert/embeddings/position_embeddings"].assign(places)
    weights["cls/predictions/transform/dense/kernel"].assign(np.eye(2))
    return model
