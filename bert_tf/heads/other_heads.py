"""Heads whose answers are no labels: masked words, parts of a text, vectors."""

import tensorflow as tf

from bert_tf.data.records import Feature
from bert_tf.heads import ENCODER
from bert_tf.heads.head import Head, cross_entropy, is_likeliest
from bert_tf.modeling.heads import MaskedLmHead, NextSentenceHead, SequenceClassifier
from bert_tf.modeling.models import BertModel, encode, token_inputs


class Pretraining(Head):
    """Masked words, and whether the second text follows the first.

    masked_lm: the mean over the masked positions of the whole batch, sum(w * l) / (sum(w) + 1e-5),
      of masked_lm_losses [B, P], which `tied_cross_entropy` computes in the model.
    next_sentence: the mean over the examples; 0 = the second text is the next, 1 = random.

    Original: `get_masked_lm_output` and `get_next_sentence_output`.
    """

    name = "pretraining"
    architecture = "BertForPreTraining"
    weights = "cls/(predictions|seq_relationship)/"
    required = f"bert/|{weights}"
    outputs = ("masked_lm_logits", "next_sentence_logits")
    terms = ("masked_lm", "next_sentence")
    title = "Fills in masked words."
    serving = "bert_tf.serving.tasks:MaskedLmTask"

    def model(self, config, *, num_classes=2, num_choices=1, with_losses: bool = False):
        """The encoder with masked_lm_logits [B, P, V] and next_sentence_logits [B, 2].

        It has another input, masked_lm_positions int32 [B, P].

        Args:
          config, num_classes, num_choices: as for `Head.model`.
          with_losses: for training: masked_lm_ids int32 [B, P] as another input, and as another
            output masked_lm_losses float32 [B, P], the cross entropy of each prediction.
        """
        inputs = token_inputs("masked_lm_positions", *["masked_lm_ids"] * with_losses)
        outputs, word_table = encode(config, inputs)
        hidden, positions = outputs["sequence_output"], inputs["masked_lm_positions"]
        predict = MaskedLmHead(config)
        if with_losses:
            logits, losses = predict(hidden, positions, word_table, inputs["masked_lm_ids"])
            outputs |= {"masked_lm_logits": logits, "masked_lm_losses": losses}  # [B, P, V], [B, P]
        else:
            outputs["masked_lm_logits"] = predict(hidden, positions, word_table)  # [B, P, V]
        if "next_sentence" in self.terms:
            outputs["next_sentence_logits"] = NextSentenceHead(config)(outputs["pooled_output"])
        return BertModel(inputs, outputs, name=self.name)

    def item_weights(self, batch):
        """masked_lm_weights [B, P], and 1 for each example [B]."""
        real = batch["is_real_example"]  # [B]
        weights = {"masked_lm": batch["masked_lm_weights"] * real[:, None], "next_sentence": real}
        return {t: weights[t] for t in self.terms}

    def losses(self, outputs, batch):
        """Cross entropies of both, [B, P] and [B]."""
        losses = {"masked_lm": outputs["masked_lm_losses"]}
        if "next_sentence" in self.terms:
            labels = batch["next_sentence_labels"][:, 0]
            losses["next_sentence"] = cross_entropy(outputs["next_sentence_logits"], labels)
        return losses

    def correct(self, outputs, batch):
        """Correct predictions of both, [B, P] and [B]."""
        correct = {"masked_lm": is_likeliest(outputs["masked_lm_logits"], batch["masked_lm_ids"])}
        if "next_sentence" in self.terms:
            labels = batch["next_sentence_labels"][:, 0]
            correct["next_sentence"] = is_likeliest(outputs["next_sentence_logits"], labels)
        return correct

    def loss(self, loss_sums, denominators):
        """The sum of the terms' means."""
        epsilon = {"masked_lm": denominators["masked_lm"] + 1e-5}
        return super().loss(loss_sums, {**denominators, **epsilon})


class FillMask(Pretraining):
    """Masked words alone."""

    name = "fill_mask"
    architecture = "BertForMaskedLM"
    weights = "cls/predictions/"
    required = f"{ENCODER}|{weights}"
    outputs = ("masked_lm_logits",)
    terms = ("masked_lm",)


class QuestionAnswering(Head):
    """For each token, how likely the answer begins with it, and ends with it."""

    name = "question_answering"
    architecture = "BertForQuestionAnswering"
    weights = "cls/squad/"
    required = f"{ENCODER}|{weights}"
    outputs = ("start_logits", "end_logits")
    terms = ("span",)
    reads_windows = True
    title = "Answers questions about a text with words from it."
    serving = "bert_tf.serving.question_answering:QuestionAnsweringTask"

    def model(self, config, *, num_classes=2, num_choices=1):
        """The encoder with start_logits and end_logits [B, S]."""
        inputs = token_inputs()
        outputs, _ = encode(config, inputs)
        head = SequenceClassifier(config, num_classes=2, name="squad")
        logits = head(outputs["sequence_output"])  # [B, S, 2]
        outputs |= {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}  # [B, S] each
        return BertModel(inputs, outputs, name=self.name)

    def label_features(self, max_seq_length, num_labels, num_choices):
        """The positions of the answer's first and last token; 0 where there is no answer."""
        names = ("start_positions", "end_positions")
        return tuple(Feature(name, tf.int64, 1, most=max_seq_length - 1) for name in names)

    def losses(self, outputs, batch):
        """Half the sum of the cross entropies of start and end over all positions, [B].

        Of start_logits, end_logits [B, S] and start_positions, end_positions int32 [B, 1].
        """
        ends = [
            cross_entropy(outputs[f"{end}_logits"], batch[f"{end}_positions"][:, 0])
            for end in ("start", "end")
        ]
        return {"span": tf.add_n(ends) / 2}


class Embeddings(Head):
    """No head."""

    name = "embeddings"
    architecture = "BertModel"
    weights = ENCODER
    required = ENCODER
    outputs = ("sequence_output", "pooled_output")
    title = "Turns texts into vectors."
    serving = "bert_tf.serving.tasks:EmbeddingTask"

    def model(self, config, *, num_classes=0, num_choices=1):
        """`BertModel(config)`."""
        return BertModel(config, name=self.name)
