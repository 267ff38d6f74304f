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
