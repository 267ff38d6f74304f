"""A question and a context of any length -> the answer, where it is, or that there is none."""

from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.serving import graph_answers
from bert_tf.serving.graph_text import Features, in_chunks
from bert_tf.serving.signatures import Answers, ServingTask
from bert_tf.squad.answers import AnswerSizes
from bert_tf.squad.windows import WindowSizes


class QuestionAnsweringTask(ServingTask):
    """Windows, the model, n-best answers and the no-answer decision, all in the graph.

    Answers are those of run_squad.py --nolegacy_alignment: cut from the context by token offsets.
    Where no span is possible, the answer is empty (run_squad.py writes the original's "empty").
    Shapes: k listed answers.
    """

    own_options = text_options = (
        *("doc_stride", "max_query_length", "n_best_size", "max_answer_length"),
        *("version_2_with_negative", "null_score_diff_threshold", "top_k"),
    )
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

    def __init__(self, *args):
        """See `ServingTask`.

        Raises:
          InputError: windows are too short, or there are fewer answers than are to be listed.
        """
        super().__init__(*args)
        chosen = self.options
        sizes = chosen.max_seq_length, chosen.doc_stride, chosen.max_query_length
        self._window_sizes = WindowSizes(*sizes)
        self._answer_sizes = AnswerSizes(chosen.n_best_size, chosen.max_answer_length)
        most = chosen.n_best_size + int(chosen.version_2_with_negative)
        if not 1 <= chosen.top_k <= most:
            raise InputError(
                f"--top_k={chosen.top_k} with --n_best_size={chosen.n_best_size}",
                f"1 to {most} answers to list",
                "use a smaller --top_k, or a greater --n_best_size",
            )
        if chosen.version_2_with_negative:
            odds = {"null_odds": "float [B], score of no answer less that of the best answer"}
            self.outputs = {**self.outputs, **odds}

    def answer(self, **texts: tf.Tensor) -> Answers:
        """question, context [B] -> the answers."""
        contexts = graph_answers.read_contexts(texts["context"], self.sequences)
        windows = graph_answers.make_windows(
            texts["question"], contexts, self.sequences, self._window_sizes
        )
        logits = in_chunks(self._logits, windows.features, dtypes=[tf.float32] * 2)
        has_null = self.options.version_2_with_negative
        nbest = graph_answers.find_answers(
            contexts, windows, *logits, sizes=self._answer_sizes, version_2_with_negative=has_null
        )
        decision = graph_answers.decide(
            nbest,
            version_2_with_negative=has_null,
            null_score_diff_threshold=self.options.null_score_diff_threshold,
        )
        return self._named(nbest, decision)

    def _logits(self, features: Features) -> list[tf.Tensor]:
        outputs = self.outputs_of(features)
        return [outputs["start_logits"], outputs["end_logits"]]  # [n, S] each

    def _named(self, nbest: graph_answers.Nbest, decision: graph_answers.Decision) -> Answers:
        def chosen(values: tf.Tensor, otherwise: Any = None) -> tf.Tensor:
            found = tf.gather(values, decision.place, batch_dims=1)
            if otherwise is None:
                return tf.cast(found, tf.float32)
            return tf.where(decision.has_answer, found, otherwise)

        listed = slice(self.options.top_k)
        answers = {
            "answer": chosen(nbest.text, ""),
            "has_answer": decision.has_answer,
            "score": chosen(nbest.score),
            "probability": chosen(nbest.probability),
            "start": chosen(nbest.start, graph_answers.NOWHERE),
            "end": chosen(nbest.end, graph_answers.NOWHERE),
            "nbest_answers": nbest.text[:, listed],
            "nbest_probabilities": tf.cast(nbest.probability[:, listed], tf.float32),
            "nbest_starts": nbest.start[:, listed],
            "nbest_ends": nbest.end[:, listed],
            "null_odds": tf.cast(decision.null_odds, tf.float32),
        }
        return {name: answers[name] for name in self.outputs}

    def id_outputs(self) -> dict[str, str]:
        """Logits of every token of a window."""
        return {
            "start_logits": "float [B, S], that the answer begins with this piece",
            "end_logits": "float [B, S], that it ends with it",
        }

    def answer_ids(self, features: Features) -> Answers:
        """Features of windows [B, S] -> start_logits, end_logits [B, S]."""
        return dict(zip(("start_logits", "end_logits"), self._logits(features), strict=True))

    def samples(self) -> list[dict[str, Any]]:
        """A short context, one of several windows, and none."""
        sentence = "Ruprecht founded the university of Heidelberg in 1386. "
        question = "When was the university founded?"
        return [{"question": question, "context": sentence * n} for n in (1, 40, 0)]
