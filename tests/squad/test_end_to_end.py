"""Any texts -> windows -> any logits -> answers -> files -> scores -> the page: nothing crashes."""

import dataclasses

import numpy as np
import pytest
import small_squad as small
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.squad import answers, data, evaluation, files, windows
from bert_tf.squad.answers import AnswerSizes
from bert_tf.squad.windows import WindowSizes

LOGITS = st.sampled_from([0.0, 1.0, 7.5, -1e4, 1e30, float(np.finfo(np.float32).max)])


@st.composite
def questions(draw) -> dict:
    """A SQuAD file's content: right, wrong, repeated, empty and no answers."""
    qas = []
    context = draw(small.long_texts)
    for number in range(draw(st.integers(1, 4))):
        start, length = draw(st.integers(0, len(context))), draw(st.integers(0, 9))
        golds = [{"text": context[start : start + length], "answer_start": start}]
        golds += [{"text": draw(small.texts), "answer_start": draw(st.integers(-5, 99))}]
        qa = {"id": f"q{number}", "question": draw(small.texts)}
        kind = draw(st.integers(0, 3))
        qas.append(qa | ({} if kind == 3 else {"answers": golds[: kind + 1][-1:]}))
    return {
        "data": [{"title": draw(small.texts), "paragraphs": [{"context": context, "qas": qas}]}]
    }


@settings(max_examples=60)
@given(
    questions(),
    st.tuples(st.integers(6, 14), st.integers(1, 9), st.integers(0, 2)),
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from([-2.5, 0.0, 3.0]),
    st.data(),
)
def test_from_any_question_to_its_score(
    tokenizers, content, cuts, sizes, switches, threshold, rows
):
    version_2, lower, legacy_alignment = switches
    tokenizer = tokenizers[lower]
    file = data.parse_squad(content, "test.json")
    found = windows.prediction_windows(file.examples, tokenizer, WindowSizes(*cuts))
    logits = [
        [np.array(rows.draw(st.lists(LOGITS, min_size=n, max_size=n)), np.float32) for n in lengths]
        for lengths in ([len(window.input_ids) for window in found],) * 2
    ]
    align = answers.make_alignment(found, tokenizer, legacy_alignment=legacy_alignment)
    predictions = answers.rank_answers(
        file.examples,
        found,
        *logits,
        align,
        sizes=AnswerSizes(*sizes),
        version_2_with_negative=version_2,
    )
    for example, prediction in zip(file.examples, predictions, strict=True):
        check(example.context, prediction, sizes[0], version_2, legacy_alignment)
    results = {}
    if file.has_golds:
        results = evaluation.scores(file, predictions, threshold=threshold)
    assert all(np.isfinite(value) for value in results.values())
    decided = evaluation.decided(predictions, threshold=threshold)
    for has_golds in (False, True):
        shown = dataclasses.replace(file, has_golds=has_golds)
        files.report_html(shown, predictions, decided, totals=results)


def check(context, prediction, n_best_size, version_2, legacy_alignment):
    nbest = prediction.nbest
    assert 1 <= len(nbest) <= n_best_size + version_2
    assert len({entry.text for entry in nbest}) == len(nbest)
    assert sum(entry.probability for entry in nbest) == pytest.approx(1.0)
    assert (prediction.null_odds is not None) == version_2
    for entry in nbest:
        if entry.characters is None:
            assert entry.text == ("" if version_2 else answers.NO_CANDIDATE)
            continue
        start, end = entry.characters
        assert 0 <= start < end <= len(context)
        if legacy_alignment:  # white space is made single spaces, and may be more than the pieces
            words = data.split_context(context).words
            assert entry.text in " ".join(words)
        else:
            assert entry.text == context[start:end]
            assert entry.text


@settings(max_examples=80)
@given(questions(), st.tuples(st.integers(6, 14), st.integers(1, 9), st.integers(0, 2)))
def test_a_perfect_model_finds_every_answer_that_is_in_a_window(tokenizers, content, cuts):
    """Where training says that the answer is, prediction takes it from."""
    tokenizer, sizes = tokenizers[True], WindowSizes(*cuts)
    content["data"][0]["paragraphs"].append(
        {"context": "1895", "qas": [{"id": "q9", "question": "", "answers": [
            {"text": "1895", "answer_start": 0}]}]}
    )  # fmt: skip
    file = data.parse_squad(content, "test.json")
    training_examples = data.training_examples(file, version_2_with_negative=True)
    taught = windows.training_windows(training_examples, tokenizer, sizes)
    examples = [one.example for one in training_examples]
    logits = []
    for side in ("start", "end"):
        rows = [np.zeros(len(window.input_ids), np.float32) for window in taught]
        for row, window in zip(rows, taught, strict=True):
            row[getattr(window.answer, side)] = 9.0
        logits.append(rows)
    predictions = answers.rank_answers(
        examples,
        taught,
        *logits,
        answers.text_by_offsets,
        sizes=AnswerSizes(1, 99),
        version_2_with_negative=True,
    )
    for index, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        own = [window for window in taught if window.example_index == index]
        best = answers.best_non_null(prediction.nbest)
        places = {
            answers.context_characters(window, *window.answer)
            for window in own
            if window.answer.start and window.answer.start <= window.answer.end
            and window.token_is_max_context[window.answer.start - window.doc_offset]
        }  # fmt: skip
        assert len(places) <= 1
        if places:
            assert best is not None
            assert {best.characters} == places
            assert best.text == example.context[slice(*best.characters)]
