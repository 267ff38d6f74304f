"""What the exports of every kind answer in TensorFlow's C API: what the Python side computes."""

import numpy as np
import pytest
from exported_answers import CHOICES, MASKED, PAIRS, QUESTIONS, TEXTS, WORDS, near, records, strings
from served_models import CONFIG, KINDS, LABELS, LENGTH, TAGS, THRESHOLD, TOKENIZER, TOP_K

from bert_tf.heads import Labels, LabelSets, Scores
from bert_tf.squad.answers import NO_CANDIDATE, decide


def ids_of(text: str) -> list[int]:
    cls, sep = TOKENIZER.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    ids = TOKENIZER.convert_tokens_to_ids(TOKENIZER.tokenize(text))
    return [cls, *ids[: LENGTH - 2], sep]


# ---------------------------------------------------------------------------- texts


@pytest.mark.parametrize("kind", ["classification", "pairs", "multi_label", "regression"])
def test_texts(answers, references, kind):
    found = answers[kind][0]
    asked = PAIRS if kind in ("pairs", "regression") else [(text, None) for text in TEXTS]
    labels = {"multi_label": LabelSets, "regression": Scores}.get(kind, Labels)()
    wanted = references[kind].texts(asked, labels)
    assert np.ptp(wanted, axis=0).max() > 0.02  # the texts make a difference
    if kind == "regression":
        near(found["score"], wanted[:, 0])
        return
    near(found["probabilities"], wanted)
    assert strings(found["labels"]) == [list(LABELS)] * len(asked)
    if kind == "multi_label":
        np.testing.assert_array_equal(found["applies"], wanted >= 0.5)
        assert 0 < found["applies"].sum() < found["applies"].size
    else:
        near(found["probability"], wanted.max(axis=1))
        assert strings(found["label"]) == [LABELS[i] for i in wanted.argmax(axis=1)]


def test_choices(answers, references, results):
    found = answers["multiple_choice"][0]
    wanted = np.array([references["multiple_choice"].choices(*choice) for choice in CHOICES])
    near(found["probabilities"], wanted)
    assert found["choice"].tolist() == wanted.argmax(axis=1).tolist()
    together, *alone = results["unequal"]  # records of other lengths, cut into their own sequences
    for row, one in enumerate(alone):
        near(together["probabilities"][row], one["probabilities"][0])
    assert np.ptp(together["probabilities"], axis=0).max() > 0.02


def test_vectors(answers, references, results):
    found = answers["embeddings"][0]
    for row, ids in enumerate(map(ids_of, TEXTS)):
        wanted = references["embeddings"].outputs(ids, [0] * len(ids))
        near(found["mean"][row], wanted["sequence_output"].mean(axis=0))
        near(found["pooled"][row], wanted["pooled_output"])
    (found,) = results["pieces"]
    pieces = [["[CLS]", "it", "by", "it", "[SEP]"], ["[CLS]", "who", "[SEP]", "", ""]]
    assert strings(found["pieces"]) == pieces
    assert found["num_pieces"].tolist() == [5, 3]
    wanted = references["embeddings"].outputs(ids_of("who"), [0] * 3)["sequence_output"]
    near(found["vectors"][1, :3], wanted)
    assert not found["vectors"][1, 3:].any()


def test_labels_of_words(answers, references):
    found = answers["token_labels"][0]
    for row, text in enumerate(WORDS):
        words = text.split()
        count = found["num_words"][row]
        assert strings(found["words"])[row][:count] == words
        places = zip(found["starts"][row], found["ends"][row], strict=True)
        assert [text[start:end] for start, end in list(places)[:count]] == words
        labels = strings(found["labels"])[row]
        assert set(labels[count:]) <= {""}
        if words:
            wanted = references["token_labels"].words(words)
            near(found["probabilities"][row][:count], wanted.max(axis=1))
            assert labels[:count] == [TAGS[i] for i in wanted.argmax(axis=1)]


def test_guesses_for_masks(answers, references):
    found = answers["fill_mask"][0]
    mask = TOKENIZER.vocab["[MASK]"]
    assert found["pieces"].shape == (len(MASKED), 3, TOP_K)
    for row, text in enumerate(MASKED):
        parts = [
            TOKENIZER.convert_tokens_to_ids(TOKENIZER.tokenize(x)) for x in text.split("[MASK]")
        ]
        ids = [i for part in parts for i in (mask, *part)][1 : LENGTH - 1]
        ids = [ids_of("")[0], *ids, ids_of("")[1]]
        places = [place for place, i in enumerate(ids) if i == mask]
        assert found["num_masks"][row] == len(places)
        assert set(found["pieces"][row][len(places) :].ravel()) <= {b""}
        outputs = references["fill_mask"].outputs(
            ids, [0] * len(ids), masked_lm_positions=[places or [0]]
        )
        logits = outputs["masked_lm_logits"][: len(places)].astype(np.float64)
        shares = Labels().probabilities(logits)  # [masks, V]
        best = np.argsort(-shares, kind="stable")[:, :TOP_K]
        near(found["probabilities"][row][: len(places)], np.take_along_axis(shares, best, 1))
        names = [[TOKENIZER.inv_vocab.get(i, f"#{i}") for i in ids] for ids in best.tolist()]
        assert strings(found["pieces"][row][: len(places)]) == names


def test_positions_are_of_the_ids_given(results):
    together, alone, *refused = results["positions"]
    near(alone["probabilities"][0], together["probabilities"][0])
    np.testing.assert_array_equal(alone["pieces"][0], together["pieces"][0])
    assert len(refused) == 4
    for message in refused:
        assert "masked_lm_positions must have a row for each of input_ids" in message


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


# ---------------------------------------------------------------------------- what all share


@pytest.mark.parametrize("kind", KINDS)
def test_no_texts_no_answers(answers, kind):
    some, none, *_ = answers[kind]
    wanted = {name: (0, value.dtype) for name, value in some.items()}
    assert {name: (len(value), value.dtype) for name, value in none.items()} == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_features_and_their_records_give_the_same(answers, references, kind):
    _, _, of_ids, of_examples = answers[kind]
    ids, _ = records(kind)
    if kind != "fill_mask":  # whose records have positions too
        for name, value in of_ids.items():
            if value.dtype == np.float32:
                near(of_examples[name], value)
            else:
                np.testing.assert_array_equal(of_examples[name], value, err_msg=name)
    if kind in ("question_answering", "no_answer"):  # whose texts are answered otherwise
        row = ids[0, 0][ids[0, 0] > 0].tolist()  # without padding
        outputs = references[kind].outputs(row, [0] * len(row))
        for name in ("start_logits", "end_logits"):
            near(of_ids[name][0, :4], outputs[name])
    elif kind == "multiple_choice":
        rows = [row[row > 0].tolist() for row in ids[0]]
        logits = [references[kind].outputs(row, [0] * len(row))["logits"][0] for row in rows]
        shares = Labels().probabilities(np.array(logits))
        near(of_ids["probabilities"][0], shares)
    elif kind == "token_labels":
        assert of_ids["label_ids"].tolist() == of_ids["probabilities"].argmax(-1).tolist()
    elif kind == "fill_mask":
        assert of_ids["probabilities"].shape == of_ids["pieces"].shape == (2, 2, TOP_K)
        names = [TOKENIZER.inv_vocab.get(i, f"#{i}") for i in of_ids["piece_ids"].ravel().tolist()]
        assert strings(of_ids["pieces"].ravel()) == names


def test_requests_that_cannot_be_answered_say_why(results):
    first, *refused, not_utf8, again = results["refused"]
    wanted = (
        "text_a and text_b must have the same length",
        "must have the same shape",
        f"input_ids must be 0 or more and below {CONFIG.vocab_size}",
        "segment_ids must be 0 or more and below 2",
        "more than 29 pieces",
        "Could not parse example input",
        "must have numbers of 32 bits",  # and not what is left of it in 32 bits
        "must be a multiple of 3",
    )
    assert [says in message for says, message in zip(wanted, refused, strict=True)] == [True] * 8
    assert not_utf8["probabilities"].shape == (2, 3)  # as empty texts
    np.testing.assert_array_equal(again["probabilities"], first["probabilities"])
