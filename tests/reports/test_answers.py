"""Public reports on answers: questions, vectors, masks, scores."""

import json
import math

import numpy as np
import pytest
import reference
import served_models
from walking import in_process

from bert_tf import Predictor
from bert_tf.checkpoints.loading import open_weights
from bert_tf.errors import InputError
from bert_tf.squad.data import parse_squad, read_squad
from bert_tf.squad.evaluation import official_scores
from bert_tf.squad.windows import WindowSizes, doc_spans

LENGTH = served_models.LENGTH


def model(kind: str, folder) -> Predictor:
    """A model of that kind with random weights, opened."""
    served_models.write_folder(kind, folder / kind)
    task = {"embeddings": "embeddings", "fill_mask": "fill_mask"}.get(kind)
    return Predictor(folder / kind, task=task, max_seq_length=LENGTH, batch_size=4)


# ------------------------------------------------------------------------------ questions


@pytest.mark.parametrize(("length", "query"), [(64, 64), (64, 61), (16, 64), (7, 4)])
def test_windows_without_room_for_the_context(length, query):
    """bert#29, transformers#1879: an endless loop that took all memory."""
    with pytest.raises(InputError, match=f"--max_seq_length={length} --max_query_length={query}"):
        WindowSizes(max_seq_length=length, doc_stride=128, max_query_length=query)


@pytest.mark.parametrize("stride", [1, 113, 114, 128, 500])
def test_no_piece_is_between_two_windows(stride):
    """transformers#2548, FARM#536: a stride above the room of a window skipped pieces."""
    spans = doc_spans(157, room=114, doc_stride=stride)
    assert {n for span in spans for n in range(span.start, span.start + span.length)} == {
        *range(157)
    }


def squad(golds, **qa) -> dict:
    context = " ".join(golds) or "x"
    answers = [{"text": gold, "answer_start": context.index(gold)} for gold in golds]
    question = {"id": "q", "question": "?", "answers": answers} | qa
    return {"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]}


@pytest.mark.parametrize(
    ("golds", "prediction", "exact", "f1"),
    [
        (["A"], "A", 100.0, 0.0),  # as the official script of v1.1: no word is left to share
        (["A"], "b", 0.0, 0.0),
        (["The A"], "", 100.0, 0.0),
        (["The Who"], "who", 100.0, 100.0),
    ],
)
def test_answers_that_are_articles(golds, prediction, exact, f1):
    """UltraRAG#510: a gold answer "A" is empty after normalization, and made all right."""
    found = official_scores(parse_squad(squad(golds), "a.json"), {"q": prediction})
    assert found == {"exact_match": exact, "f1": f1}


def test_rows_of_datasets_are_not_the_files_form(write):
    """Rows of the datasets library: one object a question; SQuAD's files nest them."""
    row = {"id": "1", "context": "w1 w2", "question": "w2?"}
    row["answers"] = {"text": ["w1"], "answer_start": [0]}
    for content in (json.dumps([row]), json.dumps(row) + "\n" + json.dumps(row)):
        with pytest.raises(InputError, match=r"a\.json, which is not JSON as expected") as caught:
            read_squad(write("a.json", content))
        assert caught.value.expected.startswith("SQuAD's format")
    with pytest.raises(InputError, match=r"a\.json"):
        read_squad(write("a.json", json.dumps({"data": [row]})))


def test_contexts_without_a_word_and_wide_gaps(tmp_path):
    """transformers#2623: a crash for an empty context; FARM#756, haystack#3526: blank answers."""
    folder = tmp_path / "no_answer"
    served_models.write_folder("no_answer", folder)
    asked = served_models.open_kind(open_weights(folder), "no_answer")
    gaps = "  Ruprecht \n\n\n\n  founded\t it in   1386. "
    rows = [("who?", ""), ("who?", " \n"), ("", gaps), ("who founded it?", gaps)]
    found = Predictor(asked).predict(rows)
    assert [(one["answer"], one["has_answer"]) for one in found[:2]] == [("", False)] * 2
    for one in found[2:]:
        spans = zip(one["nbest_starts"], one["nbest_ends"], strict=True)
        cut = [gaps[start:end] for start, end in spans]
        assert one["nbest_answers"] == cut
        assert cut == [answer.strip() for answer in cut]
        assert all(cut)


# ------------------------------------------------------------------------------ vectors

TEXTS = ["who founded it", "", "it", "in 1386 by Ruprecht who founded it", "who founded it", "😀"]


def test_vectors_do_not_depend_on_the_batch_or_its_order(tmp_path):
    """sentence-transformers#2312, #3197, #663: other numbers in another batch, rows mixed up."""
    asked = model("embeddings", tmp_path)
    wanted = [asked.predict([text])[0]["mean"] for text in TEXTS]
    together = [one["mean"] for one in asked.predict(TEXTS)]
    assert together == [pytest.approx(one, abs=1e-5) for one in wanted]
    backwards = [one["mean"] for one in asked.predict(TEXTS[::-1])]
    assert backwards[::-1] == [pytest.approx(one, abs=1e-5) for one in wanted]
    assert wanted[0] == wanted[4] != wanted[2]
    assert all(map(math.isfinite, wanted[1]))  # clip-as-service#333, #121: an empty text
    assert asked.predict([]) == []


def test_a_pair_has_two_segments(write, tmp_path):
    """transformers#263: `a ||| b` was read as one text; clip-as-service#36."""
    weights = served_models.write_folder("embeddings", tmp_path / "m")
    with in_process("extract_features.py") as main:
        main(
            input_file=write("a.txt", "who founded ||| it by\nwho|||it\n"),
            output_file=tmp_path / "a.jsonl", init_checkpoint=tmp_path / "m", layers="-1",
            max_seq_length=LENGTH,
        )  # fmt: skip
    pair, single = (json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines())
    tokens = [one["token"] for one in pair["features"]]
    assert tokens == ["[CLS]", "who", "founded", "[SEP]", "it", "by", "[SEP]"]
    assert len([one for one in single["features"] if one["token"] == "[SEP]"]) == 1
    ids = served_models.TOKENIZER.convert_tokens_to_ids(tokens)
    tensors = {name: weights.read(name).astype(np.float64) for name in weights.shapes}
    hidden = reference.embed(tensors, np.array(ids), np.array([0, 0, 0, 0, 1, 1, 1]))
    scope = "bert/encoder/layer_0"
    mask = np.ones(len(ids))
    expected = reference.encoder_block(tensors, weights.config, scope, hidden, mask)
    for one, vector in zip(pair["features"], expected, strict=True):
        assert one["layers"][0]["values"] == pytest.approx(vector.tolist(), abs=1e-4)


# ------------------------------------------------------------------------------ masks


def test_several_masks_and_none(tmp_path):
    """transformers#4306, #5389: more than one [MASK], or none, ended in a traceback."""
    asked = model("fill_mask", tmp_path)
    several, one, none, other = asked.predict(
        ["[MASK] founded [MASK][MASK]", "it [MASK]", "who founded it", "<mask> founded [mask]"]
    )
    assert [found["num_masks"] for found in (several, one, none, other)] == [3, 1, 0, 0]
    assert [len(found["pieces"]) for found in (several, one, none, other)] == [3, 1, 0, 0]
    with in_process("fill-mask") as main, pytest.raises(InputError, match=r"without \[MASK\]"):
        main("<mask> founded it", init_checkpoint=tmp_path / "fill_mask")
