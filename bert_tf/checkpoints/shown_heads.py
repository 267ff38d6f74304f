"""Which heads weights are of, as their names and the architecture show."""

import re
from collections.abc import Container

from bert_tf.checkpoints.metadata import Weights
from bert_tf.heads import NAMES, OUTPUT, head_named

POOLER, OUTPUT_BIAS = "bert/pooler/dense/kernel", "cls/predictions/output_bias"  # weights


def shown_head(weights: Weights) -> str | None:
    """The name of the head that architecture and names of weights show.

    None: the head is another one, by its architecture or its weights. Heads for one label, a score
    and any number of labels look alike; which it is may be in the metadata's `task`.
    """
    architecture = weights.metadata.architecture
    named = [name for name in NAMES if head_named(name).architecture == architecture]
    if len(named) == 1:
        return named[0]
    for name in [] if named else head_weights(weights):
        is_known = re.match(f"{OUTPUT}$|cls/", name)
        if architecture if is_known else weights.shapes[name]:  # scalars are optimizers' counters
            return None
    found = "classification" if named else heads_of(weights.shapes)[0]
    return "regression" if found == "classification" and weights.num_classes == 1 else found


def head_weights(weights: Weights) -> list[str]:
    """The names of weights that are not of the encoder."""
    return [name for name in weights.names if not name.startswith("bert/")]


def heads_of(names: Container[str]) -> list[str]:
    """The heads whose models have all of these original names between them, the finest first.

    Of any with classes it is classification, or token labels, which have no pooler.
    """
    found = []
    if "output_weights" in names:
        found.append("classification" if POOLER in names else "token_labels")
    if "cls/squad/output_weights" in names:
        found.append("question_answering")
    next_sentence = "cls/seq_relationship/output_weights" in names
    if OUTPUT_BIAS in names:
        found.append("pretraining" if next_sentence else "fill_mask")
    elif next_sentence:
        found += ["embeddings", "pretraining"]
    return found or ["embeddings"]
