"""The heads of weights, by their names and the architecture."""

import re
from collections.abc import Container

from bert_tf.checkpoints.metadata import Weights
from bert_tf.heads import NAMES, OUTPUT, head_named

# Names of weights.
POOLER = "bert/pooler/dense/kernel"
OUTPUT_BIAS = "cls/predictions/output_bias"


def shown_head(weights: Weights) -> str | None:
    """The name of the head that the architecture and the names of weights show.

    None if architecture or weights are of no known head. Heads for one label, a score and any
    number of labels look alike; the metadata's `task` may say which it is.
    """
    architecture = weights.metadata.architecture
    heads = [name for name in NAMES if head_named(name).architecture == architecture]
    if len(heads) == 1:
        return heads[0]
    if heads:
        head = "classification"
    elif _are_unknown(weights):
        return None
    else:
        head = heads_of(weights.shapes)[0]
    if head == "classification" and weights.num_classes == 1:
        return "regression"
    return head


def _are_unknown(weights: Weights) -> bool:
    """Whether weights of an architecture without a known head have another head."""
    for name in head_weights(weights):
        if re.match(f"{OUTPUT}$|cls/", name):
            if weights.metadata.architecture:
                return True
        elif weights.shapes[name]:  # not a scalar: those are an optimizer's counters
            return True
    return False


def head_weights(weights: Weights) -> list[str]:
    """The names of weights that are not of the encoder."""
    return [name for name in weights.names if not name.startswith("bert/")]


def heads_of(names: Container[str]) -> list[str]:
    """The heads whose models together have all of these original names, fine-tuned ones first.

    For a head with classes it is classification, or token labels if there is no pooler.
    """
    heads = []
    if "output_weights" in names:
        heads.append("classification" if POOLER in names else "token_labels")
    if "cls/squad/output_weights" in names:
        heads.append("question_answering")
    has_next_sentence = "cls/seq_relationship/output_weights" in names
    if OUTPUT_BIAS in names:
        heads.append("pretraining" if has_next_sentence else "fill_mask")
    elif has_next_sentence:
        heads += ["embeddings", "pretraining"]
    return heads or ["embeddings"]
