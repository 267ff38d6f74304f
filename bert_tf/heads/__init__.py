"""Heads: what stands on top of the encoder, each an object that everything else asks.

head.py         Head: the model, its loss and its weights
labels.py       Labels and its subclasses: the labels of a task, without TensorFlow
pretraining.py  masked words, and whether a text follows the other
task_heads.py   labels of texts and words, answers in a text, the encoder alone
tags.py         schemes of tags: which words are an entity

The Keras layers of heads are here too: `heads.SequenceClassifier(num_classes=3)`. Importing this
module loads no TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any, Unpack

from bert_tf.config import BertConfig
from bert_tf.errors import InputError

# Patterns of the names of weights in the original's checkpoints.
ENCODER = r"bert/(?!pooler/)"  # some models have no pooler
OUTPUT = r"output_(weights|bias)"  # the classifier of every fine-tuned head but that of SQuAD
_NAMES_IN = {
    "bert_tf.heads.head": "Head",
    "bert_tf.heads.labels": "Choices Labels LabelSets Scores Tags",
    "bert_tf.heads.pretraining": "FillMask Pretraining",
    "bert_tf.heads.task_heads": "Classification Embeddings LabelHead MultiLabel MultipleChoice"
    " QuestionAnswering Regression TokenLabels",
    "bert_tf.modeling.heads": "MaskedLmHead NextSentenceHead SequenceClassifier TokenClassifier",
}
_HOMES = {name: module for module, names in _NAMES_IN.items() for name in names.split()}
# The heads by name, as in --task and model_facts.json; None: of this package, not used yet. The
# class of multi_label is MultiLabel.
_OWN = (
    "pretraining fill_mask classification multi_label regression multiple_choice token_labels "
    "question_answering embeddings"
)
NAMES: dict[str, Any] = dict.fromkeys(_OWN.split())
__all__ = [*_HOMES, "NAMES", "head_named", "make_model", "register"]


def __dir__() -> list[str]:
    return sorted(__all__)


def _loaded(name: str) -> Any:
    """A class of `_HOMES`, from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


if not TYPE_CHECKING:
    __getattr__ = _loaded
else:  # for editors and type checkers; "as" makes a name public
    from bert_tf.heads.head import Head as Head
    from bert_tf.heads.labels import Choices as Choices
    from bert_tf.heads.labels import Labels as Labels
    from bert_tf.heads.labels import LabelSets as LabelSets
    from bert_tf.heads.labels import Scores as Scores
    from bert_tf.heads.labels import Tags as Tags
    from bert_tf.heads.pretraining import FillMask as FillMask
    from bert_tf.heads.pretraining import Pretraining as Pretraining
    from bert_tf.heads.task_heads import Classification as Classification
    from bert_tf.heads.task_heads import Embeddings as Embeddings
    from bert_tf.heads.task_heads import LabelHead as LabelHead
    from bert_tf.heads.task_heads import MultiLabel as MultiLabel
    from bert_tf.heads.task_heads import MultipleChoice as MultipleChoice
    from bert_tf.heads.task_heads import QuestionAnswering as QuestionAnswering
    from bert_tf.heads.task_heads import Regression as Regression
    from bert_tf.heads.task_heads import TokenLabels as TokenLabels
    from bert_tf.keywords import ModelOptions
    from bert_tf.modeling.heads import MaskedLmHead as MaskedLmHead
    from bert_tf.modeling.heads import NextSentenceHead as NextSentenceHead
    from bert_tf.modeling.heads import SequenceClassifier as SequenceClassifier
    from bert_tf.modeling.heads import TokenClassifier as TokenClassifier
    from bert_tf.modeling.models import BertModel
    from bert_tf.tokenization.wordpiece import FullTokenizer


def head_named(name: str) -> "Head":
    """The head of a name in `NAMES`.

    Raises:
      InputError: there is none.
    """
    if name not in NAMES:
        remedy = "correct the name, or register your own head first (heads.register)"
        raise InputError(f"the head {name!r}", f"one of {', '.join(NAMES)}", remedy)
    if NAMES[name] is None:
        NAMES[name] = _loaded(name.title().replace("_", ""))()
    return NAMES[name]


def register(head: "Head | type[Head]") -> None:
    """Makes a head of one's own, or of its class, known by its name.

    Raises:
      InputError: the name is taken by a head of this package.
    """
    head = head() if isinstance(head, type) else head
    if head.name in _OWN.split() and head is not head_named(head.name):
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
      config: the sizes of the model; a dict as of a bert_config.json will do.
      tokenizer: of the vocabulary that the model will have; it is saved with the model.
      name: of the model; None: that of its head.
      dtype: of its layers, a policy of Keras such as "mixed_bfloat16"; None: the global one.
      **options: num_classes and num_choices, as for `Head.model`; of pre-training with_losses and
        num_sequences.

    Raises:
      InputError: there is no such head or dtype, a size is wrong, num_classes is below 1, or the
        head has no such size.
    """
    config = config if isinstance(config, BertConfig) else BertConfig.from_dict(config)
    wanted = head_named(head)
    if unread := {"num_classes", "num_choices"} & options.keys() - {*wanted.sizes}:
        received = f"{', '.join(sorted(unread))} for the head {head}"
        expected = f"{', '.join(wanted.sizes) or 'neither num_classes nor num_choices'}"
        raise InputError(received, expected, "leave it out, or choose another head")
    # Imported here: importing this module loads no Keras.
    layer_dtype = importlib.import_module("bert_tf.modeling.models").layer_dtype
    with layer_dtype(dtype):
        model = wanted.model(config, **options)  # type: ignore[misc]
    if name is not None:
        model.name = name
        model.metadata["task"] = head  # which the name says otherwise
    if tokenizer is not None:
        config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=tokenizer.vocab_file)
        model.tokenizer = tokenizer
    return model
