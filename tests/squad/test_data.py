"""Reading SQuAD files: what is in them, where answers are, and what is wrong with them."""

import json

import numpy as np
import pytest
import small_squad as small

from bert_tf.data.tfds import DatasetSplit
from bert_tf.errors import InputError
from bert_tf.squad import data, evaluation
from bert_tf.squad.data import Answer, SquadExample

CONTEXT = "It was founded in 1386 (see below)."


def content_of(*questions: dict, context: str = CONTEXT, **fields) -> dict:
    return {
        "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(questions)}]}]
    } | fields


def question(qas_id="q1", **fields) -> dict:
    return {"id": qas_id, "question": "When?", "answers": []} | fields


def answer(text: str, start: int) -> dict:
    return {"text": text, "answer_start": start}


def training_examples(
    *questions: dict, context: str = CONTEXT, version_2_with_negative: bool = False
):
    file = data.parse_squad(content_of(*questions, context=context), "train.json")
    return data.training_examples(file, version_2_with_negative=version_2_with_negative)


def test_a_file_is_read_with_or_without_byte_order_mark(tmp_path):
    text = json.dumps(content_of(question(answers=[answer("1386", 18)]), version="1.1"))
    expected = SquadExample("q1", "When?", CONTEXT, (Answer("1386", 18),), False, "t")
    for mark in ("", "\ufeff"):
        path = tmp_path / "dev.json"
        path.write_text(mark + text, encoding="utf-8")
        file = data.read_squad(str(path))
        assert file.examples == [expected]
        assert not file.version_2


@pytest.mark.parametrize(
    ("fields", "questions", "version_2"),
    [
        ({"version": "1.1"}, [question(answers=[answer("1386", 18)])], False),
        ({}, [question(answers=[answer("1386", 18)])], False),
        ({"version": "v2.0"}, [question(answers=[answer("1386", 18)])], True),
        ({"version": "2.0"}, [question(answers=[answer("1386", 18)])], True),
        ({}, [question(answers=[answer("1386", 18)], is_impossible=False)], True),
        ({}, [question()], True),
    ],
)
def test_the_data_say_which_version_they_are(fields, questions, version_2):
    assert data.parse_squad(content_of(*questions, **fields), "x").version_2 == version_2


@pytest.mark.parametrize(
    ("questions", "has_golds"),
    [
        ([question(), question()], False),  # a test set
        ([question(answers=[]), question()], False),
        ([question(), question(answers=[answer("1386", 18)])], True),
        ([question(is_impossible=True)], True),
        ([question(is_impossible=False)], False),
        ([], True),  # another complaint
    ],
)
def test_whether_there_is_anything_to_compare_with(questions, has_golds, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        file = data.parse_squad(content_of(*questions), "x")
    assert file.has_golds == has_golds
    mixed = len({bool(one.answers) for one in file.examples}) == 2
    assert ("1 questions have no answers" in caplog.text) == mixed
    if not has_golds:
        with pytest.raises(InputError, match="no answers to compare with"):
            evaluation.official_scores(file, {"q1": "1386"})


WRONG = {  # what stands in the message -> the content
    "dev.json: a list without 'data'": [],
    "dev.json: 'data' that is 3": {"data": 3},
    "dev.json, data[0]: a dict without 'paragraphs'": {"data": [{}]},
    "data[0].paragraphs[0]: a dict without 'context'": {"data": [{"paragraphs": [{"qas": []}]}]},
    "data[0].paragraphs[0].qas[0]: a dict without 'id'": content_of({"question": "?"}),
    "question 'q9': a dict without 'question'": content_of({"id": "q9"}),
    "question 'q1': 'answers' that is '1386'": content_of(question(answers="1386")),
    "question 'q1': a dict without 'text'": content_of(question(answers=[{}])),
    "'answer_start' that is '7'": content_of(question(answers=[answer("a", "7")])),
    "'answer_start' that is True": content_of(question(answers=[answer("a", True)])),
    "'answer_start' that is 7.0": content_of(question(answers=[answer("a", 7.0)])),
    "question 'q1': 'is_impossible' that is 'no'": content_of(question(is_impossible="no")),
    "'is_impossible' that is 1": content_of(question(is_impossible=1)),
    "qas[0]: 'id' that is True": content_of(question(True)),
    "data[0]: 'title' that is ['t']": {"data": [{"title": ["t"], "paragraphs": []}]},
}


@pytest.mark.parametrize("received", WRONG)
def test_what_is_not_as_expected_is_named(received):
    with pytest.raises(InputError) as error:
        data.parse_squad(WRONG[received], "dev.json")
    assert received in error.value.received
    assert "dev.json" in error.value.received


def test_what_a_file_may_have_or_lack(caplog):
    """No fields of answers, numbers as ids, the same id twice, an empty context, no title."""
    bare, null = {"id": 3, "question": "?"}, question("q4", answers=None, is_impossible=True)
    content = content_of(question("q1"), question("q1"), bare, null, context=" \n")
    content["data"][0]["title"] = None
    with caplog.at_level("WARNING", logger="absl"):
        examples = data.parse_squad(content, "dev.json").examples
    assert [(one.qas_id, one.is_impossible, one.answers, one.title) for one in examples] == [
        (qas_id, True, (), "") for qas_id in ("q1", "q1", "3", "q4")
    ]
    assert "1 questions have the id of another" in caplog.text


def test_only_the_original_white_space_parts_words():
    text = "a\u00a0b\u202fc\u3000d\u200be\nf\rg\u2028h"
    assert data.split_context(text).words == ["a\u00a0b", "c\u3000d\u200be", "f", "g\u2028h"]


@pytest.mark.parametrize(
    ("context", "text", "start", "expected"),
    [
        (CONTEXT, "1386", 18, (4, 4)),
        (CONTEXT, "founded in 1386", 7, (2, 4)),
        (CONTEXT, "1386", 3, None),
        (CONTEXT, "1386", 17, (3, 4)),  # a letter too early: still among the words from there
        (CONTEXT, "below).", 28, (6, 6)),
        (CONTEXT, "below).", 29, None),  # goes beyond the end
        *((CONTEXT, "1386", start, None) for start in (400, -17, None)),
        (CONTEXT, "", 18, None),
        ("So  it\n\nwas", "it\n\nwas", 4, (1, 2)),
        ("So  it\n\nwas", "it was", 4, (1, 2)),  # ends within "was"
        ("no\u00a0break", "no\u00a0break", 0, None),  # one word here, two in the answer
        ("  1386", "1386", 0, None),  # begins before the first word
    ],
)
def test_locate_answer(context, text, start, expected):
    words = data.split_context(context)
    found = data.locate_answer(words, Answer(text, start), num_characters=len(context))
    assert found == expected


def test_wrong_offsets_are_left_out_counted_and_reported(caplog):
    found = training_examples(
        question("q1", answers=[answer("1386", 18)]),
        question("q2", answers=[answer("1386", 2)]),
        question("q3", answers=[answer("1386", 999)]),
    )
    assert [one.example.qas_id for one in found] == ["q1"]
    assert "question 'q3': the answer '1386' is not at answer_start 999" in caplog.text
    assert "2 of 3 questions left out" in caplog.text


def test_impossible_counts_only_in_version_2():
    one = question(answers=[answer("1386", 18)], is_impossible=True)
    assert training_examples(one)[0].words == (4, 4)
    found = training_examples(one, version_2_with_negative=True)
    assert found[0].words is None
    assert found[0].answer is None


@pytest.mark.parametrize("version_2_with_negative", [False, True])
def test_a_question_without_the_answer_it_needs_is_named(version_2_with_negative):
    right, one = question("q4", answers=[answer("1386", 18)]), question("q5", is_impossible=False)
    with pytest.raises(
        InputError, match=r"train\.json, question 'q5', which has no answer"
    ) as error:
        training_examples(right, one, version_2_with_negative=version_2_with_negative)
    assert ("--version_2_with_negative" in error.value.remedy) != version_2_with_negative


def test_nothing_left_to_train_on():
    with pytest.raises(InputError, match=r"train\.json, none of whose questions has an answer"):
        training_examples(question(), version_2_with_negative=True)
    with pytest.raises(InputError, match="no answer is in its context"):
        training_examples(question(answers=[answer("1387", 18)]))


@pytest.mark.parametrize("language", ["en", "ru"])
def test_xquad_is_read_and_its_answers_are_found(data_dir, language):
    file = data.read_squad(str(data_dir / "xquad" / f"xquad.{language}.json"))
    assert (len(file.examples), file.version_2) == (1190, False)
    assert 1190 - 12 < len(data.training_examples(file, version_2_with_negative=False)) <= 1190


@pytest.mark.parametrize(
    ("version", "fields", "is_marked"),
    [
        ("v2.0", {}, False),
        ("v2.0", {"answers": []}, True),
        ("v2.0", {"is_impossible": True}, True),
        ("1.1", {"answers": []}, False),
    ],
)
def test_questions_that_nothing_marks_as_impossible(caplog, version, fields, is_marked):
    right, other = question(answers=[answer("1386", 18)]), {"id": "q", "question": "?"} | fields
    file = data.parse_squad(content_of(right, other, version=version), "a.json")
    assert file.examples[1].is_impossible
    assert ("1 questions have no answers and are not marked impossible" in caplog.text) != is_marked


# ---------------------------------------------------------------------------- tensorflow-datasets

ROW = {"id": b"q1", "context": b"Ruprecht founded it.", "question": b"Who?"}


@pytest.mark.parametrize(
    "changes",
    [
        {"answers": None},
        {"answers": {"text": [b"a", b"b"], "answer_start": [0]}},
        {"answers": {"text": [b"a"], "answer_start": [0.5]}},
        {"answers": {"text": []}},
        {"context": b"\xff"},
        {"question": 3},
    ],
)
def test_rows_of_a_dataset_that_are_no_questions(monkeypatch, changes):
    good = ROW | {"answers": {"text": [b"Ruprecht"], "answer_start": np.array([0])}}
    split = DatasetSplit([good, good | changes], dict.fromkeys(good), "own, train")
    monkeypatch.setattr(data, "read_split", lambda *_, **__: split)
    with pytest.raises(InputError, match="own, train, example 1: "):
        data.read_squad_tfds("own", "train")
    split.rows.pop()
    (example,) = data.read_squad_tfds("own", "train").examples
    assert example.answers == (Answer("Ruprecht", 0),)


ACCENTED = "😀 Ruprecht founded it in 1386."


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """A prepared squad of v1.1's kind, and squad/v2.0."""
    pytest.importorskip("tensorflow_datasets")
    folder = str(tmp_path_factory.mktemp("tfds"))
    who = question("q1", answers=[answer("Ruprecht", 2)])
    when = question("q2", answers=[answer("1386", 25), answer("in 1386", 22)])
    v1 = [content_of(*some, context=ACCENTED) for some in ((who, when), (who,))]
    small.write_tfds(folder, "v1.1", train=v1[0], validation=v1[1])
    v2 = content_of(who | {"is_impossible": False}, question("q3", is_impossible=True))
    small.write_tfds(folder, "v2.0", train=v2, validation=v2)
    return folder


def test_questions_of_a_dataset(folder):
    file = data.read_squad_tfds("squad/v1.1", data.TFDS_TRAIN, data_dir=folder)
    assert (file.version_2, file.source) == (False, "squad/v1.1, train")
    answers = (Answer("1386", 25), Answer("in 1386", 22))
    assert file.examples == [
        SquadExample("q1", "When?", ACCENTED, (Answer("Ruprecht", 2),), False, "t"),
        SquadExample("q2", "When?", ACCENTED, answers, False, "t"),
    ]
    found = data.training_examples(file, version_2_with_negative=False)
    assert [one.words for one in found] == [(1, 1), (5, 5)]  # offsets are code points
    file = data.read_squad_tfds("squad/v2.0", data.TFDS_PREDICT, data_dir=folder)
    assert file.version_2
    assert [one.is_impossible for one in file.examples] == [False, True]
