"""Question answering in the graph: the windows and answers that the Python side finds."""

import numpy as np
import pytest
import small_squad
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf import BertConfig
from bert_tf.errors import InputError
from bert_tf.heads import head_named
from bert_tf.serving import question_answering
from bert_tf.serving.graph_text import Sequences
from bert_tf.serving.options import ServingOptions
from bert_tf.squad.answers import (
    CERTAINLY_NULL,
    NO_CANDIDATE,
    AnswerConfig,
    AnswerSizes,
    make_alignment,
    rank_answers,
)
from bert_tf.squad.answers import decide as decide_in_python
from bert_tf.squad.windows import WindowSizes, prediction_windows
from bert_tf.tokenization.layer import FEATURE_NAMES

TOKENIZER = small_squad.make_tokenizer(do_lower_case=True)
SIZES = WindowSizes(max_seq_length=13, doc_stride=3, max_query_length=4)
ANSWERS = AnswerSizes(n_best_size=4, max_answer_length=3)
CONFIG = BertConfig(vocab_size=TOKENIZER.vocab_size, max_position_embeddings=17)
MADE = Sequences(TOKENIZER, CONFIG, max_seq_length=SIZES.max_seq_length)
TEXTS = tf.TensorSpec([None], tf.string)
LOGITS = tf.TensorSpec([None, None], tf.float32)


@tf.function(input_signature=[TEXTS, TEXTS])
def graph_windows(questions, contexts):
    read = question_answering.read_contexts(contexts, MADE)
    return read, question_answering.make_windows(questions, read, MADE, SIZES)


def make_answerer(version_2: bool):
    @tf.function(input_signature=[TEXTS, TEXTS, LOGITS, LOGITS, tf.TensorSpec([], tf.float64)])
    def found(questions, contexts, start_logits, end_logits, threshold):
        read = question_answering.read_contexts(contexts, MADE)
        windows = question_answering.make_windows(questions, read, MADE, SIZES)
        nbest = question_answering.find_answers(
            read, windows, start_logits, end_logits, sizes=ANSWERS,
            version_2_with_negative=version_2,
        )  # fmt: skip
        return nbest, question_answering.decide(
            nbest, version_2_with_negative=version_2, null_score_diff_threshold=threshold
        )

    return found


ANSWERERS = {version_2: make_answerer(version_2) for version_2 in (False, True)}
clean = small_squad.long_texts.map(lambda text: text.encode("utf-8", "replace").decode())
questions = st.lists(st.tuples(clean, clean), max_size=4)


def utf8(texts) -> tf.Tensor:
    return tf.constant([text.encode() for text in texts], tf.string)


def examples_of(pairs):
    return [small_squad.example(context, question) for question, context in pairs]


@settings(max_examples=30)
@given(questions)
def test_windows_are_those_of_prediction(pairs):
    wanted = prediction_windows(examples_of(pairs), TOKENIZER, SIZES)
    _, made = graph_windows(*(utf8(pair[i] for pair in pairs) for i in (0, 1)))
    assert made.question.numpy().tolist() == [window.example_index for window in wanted]
    length = made.features["input_ids"].shape[1]
    assert length == max((len(window.input_ids) for window in wanted), default=1)
    for row, window in enumerate(wanted):
        size, context = len(window.input_ids), slice(window.doc_offset, None)
        padding = [0] * (length - size)
        of_row = {name: made.features[name][row].numpy().tolist() for name in FEATURE_NAMES}
        assert of_row["input_ids"] == window.input_ids.tolist() + padding
        assert of_row["input_mask"] == [1] * size + padding
        assert of_row["segment_ids"] == window.segment_ids.tolist() + padding
        assert made.in_context[row].numpy().sum() == window.span.length
        best = made.is_max_context[row].numpy()[context][: window.span.length]
        np.testing.assert_array_equal(best, window.token_is_max_context)


def random_logits(shape, rng) -> np.ndarray:
    """Few different values, so that ties are common."""
    return rng.integers(-3, 4, shape).astype(np.float32) / 2


@settings(max_examples=60)
@given(questions, st.booleans(), st.integers(0, 2**32 - 1), st.sampled_from([-2.0, 0.0, 1.5]))
def test_answers_are_those_of_prediction(pairs, version_2, seed, threshold):
    examples = examples_of(pairs)
    windows = prediction_windows(examples, TOKENIZER, SIZES)
    texts = [utf8(pair[i] for pair in pairs) for i in (0, 1)]
    _, made = graph_windows(*texts)
    shape = made.features["input_ids"].shape
    logits = [random_logits(shape, rng) for rng in map(np.random.default_rng, (seed, seed + 1))]
    rows = [[row[: len(w.input_ids)] for row, w in zip(x, windows, strict=True)] for x in logits]
    config = AnswerConfig.of(ANSWERS, version_2_with_negative=version_2, legacy_alignment=False)
    align = make_alignment(windows, TOKENIZER, config)
    wanted = rank_answers(examples, windows, *rows, align, config)
    nbest, (has_answers, places, odds) = ANSWERERS[version_2](*texts, *logits, threshold)
    for row, prediction in enumerate(wanted):
        _assert_entries(nbest, row, prediction)
        answer = decide_in_python(prediction, null_score_diff_threshold=threshold)
        place, has_answer = int(places[row]), bool(has_answers[row])
        found = nbest.text[row, place].numpy().decode() if has_answer else ""
        if answer == NO_CANDIDATE and not version_2:
            assert not has_answer
        else:
            assert found == answer
            assert has_answer == bool(answer)
        if version_2:
            assert odds[row].numpy() == prediction.null_odds


def _assert_entries(nbest, row, prediction):
    entries = [entry for entry in prediction.nbest if entry.text != NO_CANDIDATE]
    count = int(nbest.is_entry[row].numpy().sum())
    assert count == len(entries)
    assert nbest.is_entry[row].numpy()[:count].all()
    for place, entry in enumerate(entries):
        assert nbest.text[row, place].numpy().decode() == entry.text
        assert nbest.score[row, place].numpy() == entry.start_logit + entry.end_logit
        assert nbest.probability[row, place].numpy() == pytest.approx(entry.probability)
        characters = (int(nbest.start[row, place]), int(nbest.end[row, place]))
        assert characters == (entry.characters or (-1, -1))


def test_what_is_no_answer_without_a_window():
    for version_2, found in ANSWERERS.items():
        nothing = tf.zeros([0, 1])
        nbest, decision = found(utf8(["who"]), utf8([""]), nothing, nothing, 0.0)
        has_answers, _, odds = decision
        assert nbest.is_entry.numpy().sum() == int(version_2)
        assert not has_answers[0]
        assert odds[0] == CERTAINLY_NULL


def test_as_many_answers_are_listed_as_there_are():
    sizes = {"max_seq_length": 13, "doc_stride": 3, "max_query_length": 4, "n_best_size": 4}
    chosen = ServingOptions(**sizes, top_k=6, version_2_with_negative=True)
    head = head_named("question_answering")
    with pytest.raises(InputError, match="1 to 5"):
        question_answering.QuestionAnsweringTask(head, None, TOKENIZER, CONFIG, chosen)
