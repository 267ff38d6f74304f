"""Heads: an object for each, with its model, loss, labels and names of weights.

head.py         Head, the base: the model, its loss and its weights
labels.py       what labels of all kinds share
classification.py, multi_label.py, regression.py, choices.py, tags.py
                a kind of label each: its labels from a cell to a metric, and its head
schemes.py      schemes of tags
question_answering.py, embeddings.py, pretraining.py
                answers in a text; the encoder alone; masked words and next sentences

The Keras layers of heads (modeling/heads.py) are here too: `heads.SequenceClassifier(3)`.
Importing this module loads no TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any, Unpack

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.heads.choices import Choices, MultipleChoice
from bert_tf.heads.classification import Classification, LabelHead, Labels
from bert_tf.heads.embeddings import Embeddings
from bert_tf.heads.head import ENCODER, OUTPUT, Head
from bert_tf.heads.multi_label import LabelSets, MultiLabel
from bert_tf.heads.pretraining import FillMask, Pretraining
from bert_tf.heads.question_answering import QuestionAnswering
from bert_tf.heads.regression import Regression, Scores
from bert_tf.heads.tags import Tags, TokenLabels

_LAYERS = ("MaskedLmHead", "NextSentenceHead", "SequenceClassifier", "TokenClassifier")
SHIPPED = (  # the heads of this package
    Pretraining(),
    FillMask(),
    Classification(),
    MultiLabel(),
    Regression(),
    MultipleChoice(),
    TokenLabels(),
    QuestionAnswering(),
    Embeddings(),
)
# The heads by name, as in --task and model_facts.json.
NAMES: dict[str, Head] = {head.name: head for head in SHIPPED}
# The labels of a user's files, by --label_kind.
LABEL_KINDS: dict[str, type[Labels]] = {
    head.labels.kind: head.labels for head in SHIPPED if head.labels and head.labels.kind
}
__all__ = [
    "ENCODER",
    "LABEL_KINDS",
    "NAMES",
    "OUTPUT",
    "SHIPPED",
    "Choices",
    "Classification",
    "Embeddings",
    "FillMask",
    "Head",
    "LabelHead",
    "LabelSets",
    "Labels",
    "MaskedLmHead",
    "MultiLabel",
    "MultipleChoice",
    "NextSentenceHead",
    "Pretraining",
    "QuestionAnswering",
    "Regression",
    "Scores",
    "SequenceClassifier",
    "Tags",
    "TokenClassifier",
    "TokenLabels",
    "head_named",
    "make_model",
    "register",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def _layer(name: str) -> Any:
    """A layer of that name; imports Keras."""
    if name not in _LAYERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("bert_tf.modeling.heads"), name)


if not TYPE_CHECKING:
    __getattr__ = _layer
else:  # for editors and type checkers, for which "as" makes a name public
    from bert_tf.keywords import ModelOptions
    from bert_tf.modeling.heads import MaskedLmHead as MaskedLmHead
    from bert_tf.modeling.heads import NextSentenceHead as NextSentenceHead
    from bert_tf.modeling.heads import SequenceClassifier as SequenceClassifier
    from bert_tf.modeling.heads import TokenClassifier as TokenClassifier
    from bert_tf.modeling.models import BertModel
    from bert_tf.tokenization.wordpiece import FullTokenizer


def head_named(name: str) -> Head:
    """The head with a name.

    Raises:
      InputError: there is none; see `NAMES`.
    """
    if name not in NAMES:
        remedy = "correct the name, or register your own head first (heads.register)"
        raise InputError(f"the head {name!r}", f"one of {', '.join(NAMES)}", remedy)
    return NAMES[name]


def register(head: Head | type[Head]) -> None:
    """Makes a user's head, or an instance of its class, known by its name.

    Raises:
      InputError: a head of this package has the name.
    """
    head = head() if isinstance(head, type) else head
    if head not in SHIPPED and head.name in {shipped.name for shipped in SHIPPED}:
        raise InputError(f"a head with the name {head.name}", "a new name", "rename the head")
    NAMES[head.name] = head


def make_model(
    head: str,
    config: BertConfig | dict[str, Any],
    *,
    tokenizer: "FullTokenizer | None" = None,
    name: str | None = None,
    dtype: Any = None,
    **options: "Unpack[ModelOptions]",
) -> "BertModel":
    """The Keras model of a head, with new weights.

    Args:
      head: a name in `NAMES`.
      config: the sizes of the model: a `BertConfig`, or a dict as in bert_config.json.
      tokenizer: the tokenizer of the model's vocabulary; it is saved with the model.
      name: the name of the model; None: that of its head.
      dtype: the type of its layers, a policy of Keras such as "mixed_bfloat16"; None: the global
        one.
      **options: num_classes and num_choices, as for `Head.model`; for pre-training with_losses and
        num_sequences.

    Raises:
      InputError: there is no such head or dtype, a size is wrong, num_classes is below 1, or the
        head has no such size.
    """
    config = config if isinstance(config, BertConfig) else BertConfig.from_dict(config)
    chosen = head_named(head)
    if unread := {"num_classes", "num_choices"} & options.keys() - set(chosen.sizes):
        received = f"{', '.join(sorted(unread))} for the head {head}"
        expected = ", ".join(chosen.sizes) or "neither num_classes nor num_choices"
        raise InputError(received, expected, "leave it out, or choose another head")
    # Imported here: importing this module loads no Keras.
    layer_dtype = importlib.import_module("bert_tf.modeling.models").layer_dtype
    with layer_dtype(dtype):
        model = chosen.model(config, **options)  # type: ignore[misc]
    if name is not None:
        model.name = name
        model.metadata["task"] = head  # otherwise the model's name says it
    if tokenizer is not None:
        config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=tokenizer.vocab_file)
        model.tokenizer = tokenizer
    return model
