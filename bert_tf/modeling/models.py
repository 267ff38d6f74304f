"""Layers -> functional models. Inputs and outputs are dicts; the inputs are named as the records.

bert_encoder        ids -> a vector for each token, and one for the sequence
pretraining_model   the same, and the masked-LM and next-sentence heads
classifier_model    the same, and logits of classes for the sequence
choice_model        several sequences an example -> a logit for each of them
token_model         the encoder's outputs, and logits of classes for each token
span_model          the encoder's outputs, and logits of the answer's start and end for each token
make_model          one of them, by the name of its head
"""

import keras

from bert_tf.config import BertConfig
from bert_tf.modeling import heads, layers
from bert_tf.modeling.dropout import Dropout

TOKEN_INPUTS = ("input_ids", "input_mask", "segment_ids")
CLASSIFIER_DROPOUT = 0.1  # of the pooled vector in training; fixed in the original too


def make_model(
    head: str, config: BertConfig, *, num_classes: int = 2, num_choices: int = 1
) -> keras.Model:
    """The model with a head of `bert_tf.config.HEADS`.

    Args:
      head: its name.
      config: sizes of the model.
      num_classes: of heads with classes; of regression 1.
      num_choices: of multiple choice; the weights are the same for any number.
    """
    return {
        "pretraining": lambda: pretraining_model(config),
        "fill_mask": lambda: pretraining_model(config, next_sentence=False),
        "classification": lambda: classifier_model(config, num_classes=num_classes),
        "multi_label": lambda: classifier_model(config, num_classes=num_classes),
        "regression": lambda: classifier_model(config, num_classes=1),
        "multiple_choice": lambda: choice_model(config, num_choices=num_choices),
        "token_labels": lambda: token_model(config, num_classes=num_classes),
        "question_answering": lambda: span_model(config),
        "embeddings": lambda: bert_encoder(config),
    }[head]()


def bert_encoder(config: BertConfig, *, all_layers: bool = False) -> keras.Model:
    """The encoder with its pooler (original: `BertModel`).

    Args:
      config: sizes of the model.
      all_layers: also give embedding_output and layer_0, layer_1, ..., each [B, S, D].

    Returns:
      A model from input_ids, input_mask, segment_ids, int32 [B, S] each, to
      sequence_output [B, S, D] and pooled_output [B, D].
    """
    inputs, outputs, _ = _encoder(config, all_layers=all_layers)
    return keras.Model(inputs, outputs, name="bert_encoder")


def pretraining_model(
    config: BertConfig,
    *,
    next_sentence: bool = True,
    with_losses: bool = False,
    all_layers: bool = False,
) -> keras.Model:
    """The encoder with the heads it is pre-trained with (paper, section 3.1).

    Args:
      config: sizes of the model.
      next_sentence: with the next-sentence head; without it there are no next_sentence_logits.
      with_losses: for training: masked_lm_ids int32 [B, P] as another input, and as another
        output masked_lm_losses float32 [B, P], the cross entropy of each prediction.
      all_layers: as for `bert_encoder`.

    Returns:
      A model from input_ids, input_mask, segment_ids int32 [B, S] and masked_lm_positions
      int32 [B, P] to masked_lm_logits [B, P, V], next_sentence_logits [B, 2] (class 0 = is next)
      and the outputs of `bert_encoder`.
    """
    more = ("masked_lm_positions", "masked_lm_ids") if with_losses else ("masked_lm_positions",)
    inputs, outputs, word_table = _encoder(config, *more, all_layers=all_layers)
    head = heads.MaskedLmHead(config, name="predictions")
    hidden, positions = outputs["sequence_output"], inputs["masked_lm_positions"]
    if with_losses:
        logits, losses = head(hidden, positions, word_table, inputs["masked_lm_ids"])
        outputs |= {"masked_lm_logits": logits, "masked_lm_losses": losses}  # [B, P, V], [B, P]
    else:
        outputs["masked_lm_logits"] = head(hidden, positions, word_table)  # [B, P, V]
    if next_sentence:
        outputs["next_sentence_logits"] = heads.SequenceClassifier(
            config,
            num_classes=2,
            initializer_range=config.initializer_range,
            name="seq_relationship",
        )(outputs["pooled_output"])  # [B, 2]
    return keras.Model(inputs, outputs, name="bert_pretraining")


def classifier_model(config: BertConfig, *, num_classes: int) -> keras.Model:
    """The encoder with a classifier of its pooled vector (original: `create_model`).

    Args:
      config: sizes of the model.
      num_classes: the number of classes; 1 for a score.

    Returns:
      A model from the inputs of `bert_encoder` to logits [B, num_classes] and its outputs.
    """
    inputs, outputs, _ = _encoder(config)
    pooled = Dropout(CLASSIFIER_DROPOUT, name="dropout")(outputs["pooled_output"])
    head = heads.SequenceClassifier(config, num_classes=num_classes, name="classifier")
    outputs["logits"] = head(pooled)  # [B, classes]
    return keras.Model(inputs, outputs, name="bert_classifier")


def choice_model(config: BertConfig, *, num_choices: int) -> keras.Model:
    """The encoder with one vector that scores each of several sequences (paper, section 4.4).

    Args:
      config: sizes of the model.
      num_choices: C, sequences of an example.

    Returns:
      A model from input_ids, input_mask, segment_ids, int32 [B, C, S] each, to logits [B, C].
    """
    inputs = {
        name: keras.Input(shape=(num_choices, None), dtype="int32", name=name)
        for name in TOKEN_INPUTS
    }
    merged = {name: heads.MergeChoices()(value) for name, value in inputs.items()}  # [B * C, S]
    outputs, _ = _encode(config, merged)
    pooled = Dropout(CLASSIFIER_DROPOUT, name="dropout")(outputs["pooled_output"])
    scores = heads.SequenceClassifier(config, num_classes=1, name="classifier")(pooled)
    logits = keras.ops.reshape(scores, (-1, num_choices))  # [B, C]
    return keras.Model(inputs, {"logits": logits}, name="bert_choice")


def token_model(config: BertConfig, *, num_classes: int) -> keras.Model:
    """The encoder with a classifier of each token's vector (paper, section 5.3).

    Args:
      config: sizes of the model.
      num_classes: the number of classes.

    Returns:
      A model from the inputs of `bert_encoder` to logits [B, S, num_classes] and its outputs.
    """
    inputs, outputs, _ = _encoder(config)
    hidden = Dropout(CLASSIFIER_DROPOUT, name="dropout")(outputs["sequence_output"])
    head = heads.TokenClassifier(config, num_classes=num_classes, name="classifier")
    outputs["logits"] = head(hidden)  # [B, S, classes]
    return keras.Model(inputs, outputs, name="bert_token_classifier")


def span_model(config: BertConfig) -> keras.Model:
    """The encoder with the head that finds an answer in a text (original: SQuAD's `create_model`).

    Args:
      config: sizes of the model.

    Returns:
      A model from the inputs of `bert_encoder` to start_logits and end_logits [B, S], and its
      outputs.
    """
    inputs, outputs, _ = _encoder(config)
    head = heads.TokenClassifier(config, num_classes=2, name="squad")
    logits = head(outputs["sequence_output"])  # [B, S, 2]
    outputs |= {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}  # [B, S] each
    return keras.Model(inputs, outputs, name="bert_span")


def _encoder(config: BertConfig, *more: str, all_layers: bool = False):
    """Inputs int32 [B, S] with `more` [B, P], and what `_encode` makes of them."""
    names = (*TOKEN_INPUTS, *more)
    inputs = {name: keras.Input(shape=(None,), dtype="int32", name=name) for name in names}
    return inputs, *_encode(config, inputs, all_layers=all_layers)


def _encode(config: BertConfig, inputs, *, all_layers: bool = False):
    """The encoder's outputs by name, and the word table [V, D] for a tied head."""
    x, word_table = layers.Embeddings(config, name="embeddings")(
        inputs["input_ids"], inputs["segment_ids"]
    )  # [B, S, D], [V, D]
    mask_scores = layers.AttentionMask(name="attention_mask")(inputs["input_mask"])
    every_layer = {"embedding_output": x}
    for i in range(config.num_hidden_layers):
        x = layers.EncoderBlock(config, name=f"layer_{i}")(x, mask_scores)  # [B, S, D]
        every_layer[f"layer_{i}"] = x
    pooled = layers.Pooler(config, name="pooler")(x)  # [B, D]
    outputs = {"sequence_output": x, "pooled_output": pooled}
    return outputs | (every_layer if all_layers else {}), word_table
