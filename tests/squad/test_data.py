"""Reading SQuAD files: what is in them, where answers are, and what is wrong with them."""

import json

import numpy as np
import pytest

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


def training_examples(*questions: dict, version_2_with_negative: bool = False):
    file = data.parse_squad(content_of(*questions, context=CONTEXT), "train.json")
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


RIGHT = question(answers=[answer("1386", 18)])


@pytest.mark.parametrize(
    ("fields", "questions", "version_2", "has_golds"),
    [
        ({"version": "1.1"}, [RIGHT], False, True),
        ({"version": "v2.0"}, [RIGHT], True, True),
        ({"version": "2.0"}, [RIGHT], True, True),
        ({}, [RIGHT | {"is_impossible": False}], True, True),
        ({}, [question(), RIGHT], True, True),
        ({}, [question(), question()], True, False),  # a test set
        ({}, [question(is_impossible=True)], True, True),
        ({}, [question(is_impossible=False)], True, False),
        ({}, [], False, True),  # another complaint
    ],
)
def test_what_the_data_say_of_themselves(fields, questions, version_2, has_golds):
    file = data.parse_squad(content_of(*questions, **fields), "x")
    assert (file.version_2, file.has_golds) == (version_2, has_golds)
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
    "'is_impossible' that is 0": content_of(question(is_impossible=0)),
    "'is_impossible' that is 'False'": content_of(question(is_impossible="False")),
    "qas[0]: 'id' that is True": content_of(question(True)),
    "data[0]: 'title' that is ['t']": {"data": [{"title": ["t"], "paragraphs": []}]},
}


@pytest.mark.parametrize("received", WRONG)
def test_what_is_not_as_expected_is_named(received):
    with pytest.raises(InputError) as error:
        data.parse_squad(WRONG[received], "dev.json")
    assert received in error.value.received
    assert "dev.json" in error.value.received
    assert error.value.expected.startswith(data.EXPECTED)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            content_of(question(is_impossible="False")),
            "'is_impossible' is true or false, a boolean",
        ),
        (content_of(question(is_impossible=0)), "'is_impossible' is true or false, a boolean"),
        (content_of(question(answers=[answer("a", "7")])), "'answer_start' is a whole number"),
        (content_of(question(answers="1386")), "'answers' is a list"),
        (content_of(question(answers=[answer(7, 18)])), "'text' is a text"),
        (content_of(question(3.5)), "'id' is a text or a whole number"),
        ({"data": {}}, "'data' is a list"),
        ({"data": [{"title": [], "paragraphs": []}]}, "'title' is a text"),
    ],
)
def test_the_type_that_is_wanted_is_named(content, expected):
    with pytest.raises(InputError) as error:
        data.parse_squad(content, "dev.json")
    assert expected in error.value.expected


def test_what_a_file_may_have_or_lack(caplog):
    """No fields of answers, numbers as ids, the same id twice, an empty context, no title."""
    bare, null = {"id": 3, "question": "?"}, question("q4", answers=None, is_impossible=True)
    content = content_of(question("q1"), question("q1"), bare, null, context=" \n")
    content["data"][0]["title"] = None
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
        *(
            (f"in{space}no{space}break", f"no{space}break", 3, (0, 0))  # one word here, else two
            for space in "\u00a0\u2003\u2009\u2028\u3000\u0085\x0c"
        ),
        ("a \u3000b c", "\u3000b", 2, (1, 1)),
        ("in 1386", " 1386", 2, (0, 1)),
        ("  1386", "  1386", 0, (0, 0)),  # begins before the first word
        ("  1386", "1386", 0, (0, 0)),
        ("  1386", "  ", 0, None),
    ],
)
def test_locate_answer(context, text, start, expected):
    words = data.split_context(context)
    assert data.locate_answer(words, Answer(text, start), context) == expected


def test_wrong_offsets_are_left_out_counted_and_reported(caplog):
    found = training_examples(
        question("q1", answers=[answer("1386", 18)]),
        question("q2", answers=[answer("1386", 2)]),
        question("q3", answers=[answer("1386", 999)]),
    )
    assert [one.example.qas_id for one in found] == ["q1"]
    assert "question 'q3': the answer '1386' is not at answer_start 999" in caplog.text
    assert "2 of 3 questions left out" in caplog.text


@pytest.mark.parametrize("version_2_with_negative", [False, True])
def test_a_question_that_should_have_an_answer_is_named(version_2_with_negative):
    right, one = question("q4", answers=[answer("1386", 18)]), question("q5", is_impossible=False)
    with pytest.raises(
        InputError, match=r"train\.json, question 'q5', which has no answer"
    ) as error:
        training_examples(right, one, version_2_with_negative=version_2_with_negative)
    assert '"is_impossible": true' in error.value.remedy


NO_ANSWERS = [  # as annotation tools write that there is none
    [answer("", 0)],
    [answer("", 18)],
    [answer(" \n", 2)],
    [answer("1386", -1)],
    [answer("", -1), answer("", 0), answer("yes", -1)],
    [{"text": ""}],
]


@pytest.mark.parametrize("mark", [{}, {"is_impossible": False}, {"is_impossible": True}])
@pytest.mark.parametrize("answers", NO_ANSWERS)
def test_answers_that_are_none(caplog, answers, mark):
    questions = [RIGHT, question("q2", answers=answers, **mark), question("q3", answers=answers)]
    file = data.parse_squad(content_of(*questions, version="1.1"), "a.json")
    assert [one.answers for one in file.examples] == [(Answer("1386", 18),), (), ()]
    assert [one.is_impossible for one in file.examples] == [False, True, True]
    assert (file.version_2, file.has_golds) == (True, True)
    count = 1 if mark.get("is_impossible") else 2  # the one that says so itself needs no word
    assert f"a.json: {count} questions have an empty text, or one at answer_start -1" in caplog.text
    assert "not marked impossible" not in caplog.text
    (text, *_) = [one["text"] for one in answers if one["text"].strip()] or [None]
    named = f"2 answers at answer_start -1 have a text, such as {text!r} to question 'q2'"
    assert (named in caplog.text) == (text is not None)
    assert ("have a text" in caplog.text) == (text is not None)


def test_the_answers_among_those_that_are_none(caplog):
    """The others count as if they were not there; so also the one that is trained on."""
    mixed = [answer("", 0), answer("yes", -1), answer("1386", 18), answer("in", 15)]
    (found,) = training_examples(question("q6", answers=mixed, is_impossible=False))
    assert found.example.answers == (Answer("1386", 18), Answer("in", 15))
    assert (found.answer, found.words) == (Answer("1386", 18), (4, 4))
    assert "1 answers at answer_start -1 have a text, such as 'yes' to question 'q6'" in caplog.text
    assert "questions have an empty text" not in caplog.text
    assert "1 questions have several different answers; the first is trained on, 1" in caplog.text


@pytest.mark.parametrize("answers", [*NO_ANSWERS, []])
def test_questions_without_an_answer_are_trained_on_or_left_out(caplog, answers):
    asked = [
        RIGHT,
        *(question(f"q{n}", answers=answers, is_impossible=not answers) for n in (2, 3)),
    ]
    found = training_examples(*asked, version_2_with_negative=True)
    assert [one.words for one in found] == [(4, 4), None, None]
    assert [one.answer for one in found] == [Answer("1386", 18), None, None]
    assert "left out" not in caplog.text
    (kept,) = training_examples(*asked)
    assert kept.example.qas_id == "q1"
    assert (
        "train.json: 2 of 3 questions left out, because they have no answer, such as 'q2': "
        "to train on them too, give --version_2_with_negative"
    ) in caplog.text
    with pytest.raises(InputError, match="none of whose questions has an answer") as error:
        training_examples(*asked[1:])
    assert error.value.remedy.startswith("add --version_2_with_negative")


def test_answers_that_are_not_trained_on_are_counted(caplog):
    """Different ones, whether by their text or by their place; only of questions with an answer."""
    twice = [answer("1386", 18), answer("1386", 18)]
    others = [*twice, answer("in 1386", 15), answer("1386 (see", 18), answer("in 1386", 15)]
    questions = [
        question("q1", answers=twice),
        question("q2", answers=others),
        question("q3", answers=[answer("It", 0), answer("see", 24)]),
        question("q4", answers=others, is_impossible=True),
        question("q5", answers=[answer("1386", 3), answer("1386", 18)]),
    ]
    found = training_examples(*questions, version_2_with_negative=True)
    assert [one.words for one in found] == [(4, 4), (4, 4), (0, 0), None]
    assert (
        "train.json: 2 questions have several different answers; the first is trained on, 3 others "
        "are not"
    ) in caplog.text
    caplog.clear()
    training_examples(questions[0])
    assert "several" not in caplog.text


def test_nothing_left_to_train_on():
    with pytest.raises(InputError, match=r"train\.json, none of whose questions has an answer"):
        training_examples(question(), version_2_with_negative=True)
    with pytest.raises(InputError, match="no answer is in its context"):
        training_examples(question(answers=[answer("1387", 18)]))


@pytest.mark.parametrize("language", ["de", "en", "es", "ru"])
def test_xquad_is_read_and_all_its_answers_are_found(data_dir, language):
    file = data.read_squad(str(data_dir / "xquad" / f"xquad.{language}.json"))
    assert (len(file.examples), file.version_2) == (1190, False)
    assert len(data.training_examples(file, version_2_with_negative=False)) == 1190


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
    with pytest.raises(InputError, match=r"own, train, (example 1|data\[1\])"):
        data.read_squad_tfds("own", "train")
    split.rows.pop()
    (example,) = data.read_squad_tfds("own", "train").examples
    assert example.answers == (Answer("Ruprecht", 0),)
