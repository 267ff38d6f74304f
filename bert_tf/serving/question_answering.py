"""A question and a context of any length -> the answer, where it is, or that there is none."""

from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.serving.answer_spans import Decision, Nbest, decide, find_answers
from bert_tf.serving.answer_windows import make_windows, read_contexts
from bert_tf.serving.graph_text import Features, in_chunks
from bert_tf.serving.signatures import Answers, ServingTask
from bert_tf.squad.answers import AnswerSizes
from bert_tf.squad.windows import WindowSizes


class QuestionAnsweringTask(ServingTask):
    """A `span_model` with all that run_squad.py does around it.

    Windows, n-best and the decision that there is no answer are in the graph. Answers are those of
    run_squad.py --nolegacy_alignment: cut from the context by the offsets of their pieces. Where no
    span is possible, the answer is empty (run_squad.py writes the original's word for it, "empty").
    Shapes: k, the answers that are listed.
    """

    name = "question_answering"
    title = "Finds the answer to a question in a text."
    text_options = ("doc_stride", "max_query_length", "n_best_size", "max_answer_length",
                    "version_2_with_negative", "null_score_diff_threshold", "top_k")  # fmt: skip
    texts = MappingProxyType({"question": "the question", "context": "the text, of any length"})
    outputs = MappingProxyType(
        {
            "answer": "string [B], empty where there is none",
            "has_answer": "bool [B]",
            "score": "float [B], sum of the logits of its first and last piece, or of no answer",
            "probability": "float [B], its share among the n_best_size best",
            "start": "int32 [B], its first code point in the context; -1 where there is none",
            "end": "int32 [B], the code point behind its last; -1 where there is none",
            "nbest_answers": "string [B, k], the best answers; an empty one says there is none",
            "nbest_probabilities": "float [B, k]; 0 beyond the last",
            "nbest_starts": "int32 [B, k]",
            "nbest_ends": "int32 [B, k]",
        }
    )

    def __init__(
        self,
        *args,
        window_sizes: WindowSizes,
        answer_sizes: AnswerSizes,
        version_2_with_negative: bool = False,
        null_score_diff_threshold: float = 0.0,
        top_k: int = 5,
        **kwargs,
    ):
        """As for `ServingTask`.

        Args:
          window_sizes: how contexts are cut.
          answer_sizes: how many answers compete, how long they may be.
          version_2_with_negative: whether a question may have no answer.
          null_score_diff_threshold: there is none if its score is above the best one's by more.
          top_k: k.
        """
        super().__init__(*args, max_seq_length=window_sizes.max_seq_length, **kwargs)
        most = answer_sizes.n_best_size + int(version_2_with_negative)
        if not 1 <= top_k <= most:
            raise InputError(
                received=f"--top_k={top_k} with --n_best_size={answer_sizes.n_best_size}",
                expected=f"1 to {most} answers to list",
                remedy="use a smaller --top_k, or a greater --n_best_size",
            )
        self.window_sizes, self.answer_sizes = window_sizes, answer_sizes
        self.version_2_with_negative = version_2_with_negative
        self.null_score_diff_threshold = null_score_diff_threshold
        self.top_k = top_k
        if version_2_with_negative:
            odds = {"null_odds": "float [B], score of no answer less that of the best answer"}
            self.outputs = {**self.outputs, **odds}

    def answer(self, **texts: tf.Tensor) -> Answers:
        """question, context [B] -> the answers."""
        contexts = read_contexts(texts["context"], self.sequences)
        windows = make_windows(texts["question"], contexts, self.sequences, self.window_sizes)
        logits = in_chunks(self._logits, windows.features, dtypes=[tf.float32] * 2)
        nbest = find_answers(
            contexts,
            windows,
            *logits,
            sizes=self.answer_sizes,
            version_2_with_negative=self.version_2_with_negative,
        )
        decision = decide(
            nbest,
            version_2_with_negative=self.version_2_with_negative,
            null_score_diff_threshold=self.null_score_diff_threshold,
        )
        return self._named(nbest, decision)

    def _logits(self, features: Features) -> list[tf.Tensor]:
        outputs = self.outputs_of(features)
        return [outputs["start_logits"], outputs["end_logits"]]  # [n, S] each

    def _named(self, nbest: Nbest, decision: Decision) -> Answers:
        def of_answer(values: tf.Tensor, other) -> tf.Tensor:
            chosen = tf.gather(values, decision.place, batch_dims=1)
            return tf.where(decision.has_answer, chosen, other)

        def chosen(values: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.gather(values, decision.place, batch_dims=1), tf.float32)

        odds = {"null_odds": tf.cast(decision.null_odds, tf.float32)}
        return {
            "answer": of_answer(nbest.text, ""),
            "has_answer": decision.has_answer,
            "score": chosen(nbest.score),
            "probability": chosen(nbest.probability),
            "start": of_answer(nbest.start, -1),
            "end": of_answer(nbest.end, -1),
            "nbest_answers": nbest.text[:, : self.top_k],
            "nbest_probabilities": tf.cast(nbest.probability[:, : self.top_k], tf.float32),
            "nbest_starts": nbest.start[:, : self.top_k],
            "nbest_ends": nbest.end[:, : self.top_k],
        } | (odds if self.version_2_with_negative else {})

    def id_outputs(self) -> dict[str, str]:
        """Of every piece of a window."""
        return {
            "start_logits": "float [B, S], that the answer begins with this piece",
            "end_logits": "float [B, S], that it ends with it",
        }

    def answer_ids(self, features: Features) -> Answers:
        """Features of windows [B, S] -> start_logits, end_logits [B, S]."""
        start_logits, end_logits = self._logits(features)
        return {"start_logits": start_logits, "end_logits": end_logits}

    def samples(self) -> list[dict[str, Any]]:
        """A short context, one of several windows, and none."""
        sentence = "Ruprecht founded the university of Heidelberg in 1386. "
        question = "When was the university founded?"
        return [{"question": question, "context": sentence * n} for n in (1, 40, 0)]

    def options(self) -> dict[str, Any]:
        """With all that decides what an answer is."""
        return {
            **super().options(),
            "doc_stride": self.window_sizes.doc_stride,
            "max_query_length": self.window_sizes.max_query_length,
            "n_best_size": self.answer_sizes.n_best_size,
            "max_answer_length": self.answer_sizes.max_answer_length,
            "version_2_with_negative": self.version_2_with_negative,
            "null_score_diff_threshold": self.null_score_diff_threshold,
            "top_k": self.top_k,
        }
