"""Answers to questions: texts, places, and whether there is one."""

import pytest
from exported_answers import QUESTIONS, near, strings
from served_models import THRESHOLD, TOP_K

from bert_tf.squad.answers import NO_CANDIDATE, decide


@pytest.mark.parametrize("kind", ["question_answering", "no_answer"])
def test_answers_to_questions(answers, references, kind):
    found, version_2 = answers[kind][0], kind == "no_answer"
    wanted = references[kind].answers(QUESTIONS, version_2=version_2)
    for row, ((_, context), prediction) in enumerate(zip(QUESTIONS, wanted, strict=True)):
        entries = [entry for entry in prediction.nbest if entry.text != NO_CANDIDATE][:TOP_K]
        answer = decide(prediction, null_score_diff_threshold=THRESHOLD)
        answer = "" if answer == NO_CANDIDATE else answer
        has_answer = bool(found["has_answer"][row])
        assert found["answer"][row].decode() == answer
        assert has_answer == bool(answer)
        start, end = found["start"][row], found["end"][row]
        assert (context[start:end] == answer) if has_answer else (start == end == -1)
        nbest = strings(found["nbest_answers"])[row]
        assert nbest == [e.text for e in entries] + [""] * (TOP_K - len(entries))
        shares = [entry.probability for entry in entries]
        near(found["nbest_probabilities"][row][: len(entries)], shares)
        chosen = next((e for e in prediction.nbest if e.text == answer), None)
        if chosen is not None:
            near(found["score"][row], chosen.start_logit + chosen.end_logit)
            near(found["probability"][row], chosen.probability)
        if version_2:
            near(found["null_odds"][row], prediction.null_odds)
    assert ("null_odds" in found) == version_2
    assert found["has_answer"].tolist().count(True) in (1, 2, 3)
