"""The texts of a request -> the model's input sequences, whose attention the page shows.

The exported function makes them inside the graph and does not return them, so they are made again
here. Most requests are one sequence. A question has one for each window of the context, a multiple
choice one for each ending, a text with token labels one for each window of its words:

    [CLS] who founded it [SEP] ru ##pre ##cht founded it [SEP]     window 1
    [CLS] who founded it [SEP] founded it in 138 ##6 [SEP]         window 2
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.serving.graph_answers import Contexts, Windows, make_windows, read_contexts
from bert_tf.serving.graph_text import Features, Sequences, runs_of
from bert_tf.serving.loading import ServedModel
from bert_tf.serving.options import MASK
from bert_tf.serving.rows import Row
from bert_tf.serving.token_labels import words_of_texts
from bert_tf.squad.windows import WindowSizes
from bert_tf.tasks.features import word_windows

Answer = Mapping[str, Any]


class InputSequence(NamedTuple):
    """One input sequence of the model.

    Attributes:
      name: for the page, such as "window 1"; empty if it is the only one.
      ids, segments: the ids and segment ids of its pieces, without padding.
    """

    name: str
    ids: list[int]
    segments: list[int]


class InputSequences:
    """Makes the input sequences of one model."""

    def __init__(self, model: ServedModel):
        """Takes tokenizer, task and lengths from the model."""
        self._task, self._options = model.metadata["task"], model.metadata["options"]
        length = self._options["max_seq_length"]
        self._sequences = Sequences(model.tokenizer, model.config, max_seq_length=length)
        self.piece_names = self._sequences.piece_names()
        self._windows_of = functools.lru_cache(maxsize=1)(self._make_windows)
        self._of_task = {
            "multiple_choice": self._of_choices,
            "question_answering": self._of_question,
            "token_labels": self._of_words,
            "fill_mask": self._of_masks,
        }.get(self._task, self._of_text)

    def of_row(self, row: Row) -> list[InputSequence]:
        """The sequences of a request's texts, at least one."""
        features, names = self._of_task(row)
        mask = features["input_mask"].numpy().astype(bool)
        ids, segments = features["input_ids"].numpy(), features["segment_ids"].numpy()
        names = names if len(mask) > 1 else [""]
        return [
            InputSequence(name, ids[i][mask[i]].tolist(), segments[i][mask[i]].tolist())
            for i, name in enumerate(names)
        ]

    def number_of_answer(self, row: Row, answer: Answer) -> int:
        """The number of the sequence from which the answer comes, from 0."""
        if self._task == "multiple_choice":
            return answer["choice"]
        if self._task == "question_answering" and answer["has_answer"]:
            windows, contexts = self._windows(row)
            pieces = contexts.starts.numpy() <= answer["start"]
            piece = int(np.flatnonzero(pieces)[-1])
            place = piece - windows.first_piece.numpy() + windows.offset.numpy()  # [W]
            best = windows.is_max_context.numpy()
            inside = (place >= 0) & (place < best.shape[1])
            return int(np.argmax(inside & best[np.arange(len(place)), place * inside]))
        return 0

    # ------------------------------------------------------------------------ by task

    def _of_text(self, row: Row) -> tuple[Features, Sequence[str]]:
        texts = [tf.constant([text]) for text in row.values()]
        if self._options.get("pairs"):
            return self._sequences.of_pairs(*texts), [""]
        return self._sequences.of_texts(*texts), [""]

    def _of_choices(self, row: Row) -> tuple[Features, Sequence[str]]:
        endings = row["endings"]
        contexts = tf.constant([row["context"]] * len(endings))
        names = [f"ending {number}" for number in range(1, len(endings) + 1)]
        return self._sequences.of_pairs(contexts, tf.constant(endings)), names

    def _of_question(self, row: Row) -> tuple[Features, Sequence[str]]:
        windows, _ = self._windows(row)
        count = len(windows.question)
        if not count:  # the context has no piece: the model is not run
            return self._sequences.of_pairs(*(tf.constant([text]) for text in row.values())), [""]
        return windows.features, [f"window {number}" for number in range(1, count + 1)]

    def _windows(self, row: Row) -> tuple[Windows, Contexts]:
        return self._windows_of(row["question"], row["context"])

    def _make_windows(self, question: bytes, context: bytes) -> tuple[Windows, Contexts]:
        names = ("max_seq_length", "doc_stride", "max_query_length")
        sizes = WindowSizes(*(self._options[name] for name in names))
        contexts = read_contexts(tf.constant([context]), self._sequences)
        return make_windows(tf.constant([question]), contexts, self._sequences, sizes), contexts

    def _of_words(self, row: Row) -> tuple[Features, Sequence[str]]:
        tokenizer, room = self._sequences.tokenizer, self._sequences.max_seq_length - 2
        text = tf.constant([row["text"]])
        words = words_of_texts(text, tokenizer.splitter).strings
        unknown = tokenizer.vocab["[UNK]"]
        pieces = tokenizer.tokenize_ids(words).to_list()
        pieces = [(ids or [unknown])[:room] for ids in pieces]  # as tasks.features makes them
        windows = word_windows([len(ids) for ids in pieces], room=room)
        runs = [[*itertools.chain(*pieces[w.start : w.stop])] for w in windows] or [[]]
        names = [f"words {window.start + 1} to {window.stop}" for window in windows]
        return self._of_ids(runs), names or [""]

    def _of_masks(self, row: Row) -> tuple[Features, Sequence[str]]:
        tokenizer = self._sequences.tokenizer
        parts = tokenizer.tokenize_ids(row["text"].split(MASK.encode())).to_list()
        first, *others = parts
        ids = [*first, *(i for part in others for i in (tokenizer.vocab[MASK], *part))]
        return self._of_ids([ids]), [""]

    def _of_ids(self, rows: list[list[int]]) -> Features:
        return self._sequences.of_runs(runs_of(tf.ragged.constant(rows, tf.int32, ragged_rank=1)))
