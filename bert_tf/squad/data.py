"""SQuAD files -> questions; for training also the words of each answer.

    {"version": "v2.0",
     "data": [{"title": "Heidelberg",
               "paragraphs": [{"context": "Ruprecht founded it in 1386.",
                               "qas": [{"id": "q1", "question": "Who founded it?",
                                        "answers": [{"text": "Ruprecht", "answer_start": 0}],
                                        "is_impossible": false}]}]}]}

Each of the `qas` becomes a SquadExample. v1.1 has no is_impossible. For a question without an
answer some files leave out `answers`, and others have an answer that is none (`is_answer`). XQuAD
and other data sets have the same form.
"""

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.data.tfds import plain, read_split
from bert_tf.errors import InputError, quoted
from bert_tf.files import read_json

# White space as in the original; other kinds, such as no-break spaces, are part of a word.
WHITE_SPACE = " \t\r\n\u202f"
EXPECTED = 'SQuAD\'s format, {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}'
TFDS_TRAIN = "train"  # the split for training
TFDS_PREDICT = "validation"  # the split for prediction
WARNINGS_SHOWN = 10
NOWHERE = -1  # the answer_start of a text that is not in the context
_EXPECTED_IN_TRAINING = "questions with `answers` that are in their context at answer_start"
_CHECK_TRAINING = "check that it is the training data, or give another --train_file"


class Answer(NamedTuple):
    """An annotator's answer."""

    text: str
    answer_start: int | None  # code points of the context before it; None if the file has none


def is_answer(answer: Answer) -> bool:
    """Whether it is an answer. Annotation tools write one that is none for "no answer".

        "1386"   at 18     an answer
        ""       at 0      none; nor is white space
        "yes"    at -1     none: it is not in the context

    >>> [is_answer(answer) for answer in (Answer("1386", 18), Answer("", 0), Answer("yes", -1))]
    [True, False, False]
    """
    return bool(answer.text.strip()) and answer.answer_start != NOWHERE


@dataclasses.dataclass(frozen=True)
class SquadExample:
    """A question about a context.

    Attributes:
      qas_id: the question's id, the key of its prediction.
      question_text: the question.
      context: the paragraph; questions about one paragraph share the string.
      answers: the annotators' answers for which `is_answer` holds; none if it is unanswerable.
      is_impossible: as in the file; without the field, whether there is no answer. In any case true
        if the file has answers but `is_answer` holds for none of them.
      title: the title of the article.
    """

    qas_id: str
    question_text: str
    context: str
    answers: tuple[Answer, ...] = ()
    is_impossible: bool = False
    title: str = ""


@dataclasses.dataclass(frozen=True)
class SquadFile:
    """The questions of a file, in its order.

    Attributes:
      examples: the questions.
      version_2: whether questions may have no answer, as in SQuAD v2.0: by the file's version, an
        is_impossible in it, or a question without an answer.
      source: the path, for messages.
      has_golds: whether predictions can be scored: a question has an answer, is marked as
        impossible, or has an answer that is none.
    """

    examples: list[SquadExample]
    version_2: bool
    source: str
    has_golds: bool = True


# ---------------------------------------------------------------------------- files


def read_squad(path: str) -> SquadFile:
    """Reads a file in SQuAD's format (original: `read_squad_examples`).

    Args:
      path: the path of a JSON file in UTF-8, with or without byte order mark; local or remote.

    Raises:
      InputError: the file cannot be read, is not JSON, or a question in it lacks a field.
    """
    return parse_squad(read_json(path, expected=EXPECTED), path)


def parse_squad(content: Any, source: str) -> SquadFile:
    """The questions of a file's content.

    Args:
      content: as `json.load` returns it.
      source: the path, for messages.

    Raises:
      InputError: a field is missing or has another type; the message names its place in the file.
    """
    articles = _get(content, "data", source, kind=list)
    is_marked_version_2 = str(content.get("version", "")).lstrip("v").startswith("2")
    questions = list(_parse_questions(articles, source))
    examples = [question.example for question in questions]
    num_repeated = len(examples) - len({example.qas_id for example in examples})
    if num_repeated:
        text = "%s: %d questions have the id of another; the last counts"
        logging.warning(text, source, num_repeated)
    has_golds = any(
        question.all_answers or question.fields.get("is_impossible") for question in questions
    )
    _log_unanswered(questions, source, version_2=is_marked_version_2, has_golds=has_golds)
    has_field = any("is_impossible" in question.fields for question in questions)
    lacks_answers = not all(example.answers for example in examples)
    return SquadFile(
        examples,
        version_2=is_marked_version_2 or has_field or lacks_answers,
        source=source,
        has_golds=has_golds or not examples,
    )


class _Question(NamedTuple):
    """A question, and how it is in the file."""

    example: SquadExample
    fields: Mapping[str, Any]
    all_answers: tuple[Answer, ...]  # including those that are none


def _parse_questions(articles: Sequence[Any], source: str) -> Iterator[_Question]:
    """All questions of the articles, in order."""
    for a, article in enumerate(articles):
        place = f"{source}, data[{a}]"
        title = str(_get(article, "title", place, None, kind=str | int | None) or "")
        for p, paragraph in enumerate(_get(article, "paragraphs", place, kind=list)):
            place = f"{source}, data[{a}].paragraphs[{p}]"
            context = _get(paragraph, "context", place, kind=str)
            for q, qa in enumerate(_get(paragraph, "qas", place, kind=list)):
                yield _parse_question(qa, context, title, f"{place}.qas[{q}]")


def _parse_question(qa: Any, context: str, title: str, place: str) -> _Question:
    """One of the `qas`; raises `InputError` if a field is missing or has another type."""
    qas_id = str(_get(qa, "id", place, kind=str | int))
    place = f"{place}, question {qas_id!r}"
    all_answers = []
    for answer in _get(qa, "answers", place, None, kind=list | None) or ():
        text = _get(answer, "text", place, kind=str)
        start = _get(answer, "answer_start", place, None, kind=int | None)
        all_answers.append(Answer(text, start))
    answers = tuple(filter(is_answer, all_answers))
    is_impossible = _get(qa, "is_impossible", place, not answers, kind=bool)
    if all_answers and not answers:
        is_impossible = True
    question_text = _get(qa, "question", place, kind=str)
    example = SquadExample(qas_id, question_text, context, answers, is_impossible, title)
    return _Question(example, qa, tuple(all_answers))


def _log_unanswered(
    questions: Sequence[_Question], source: str, *, version_2: bool, has_golds: bool
) -> None:
    """Warns of questions that count as unanswerable although is_impossible does not say so.

    Args:
      questions: all of the file.
      source: the path, for messages.
      version_2: whether the file has that version.
      has_golds: as in `SquadFile`.
    """
    num_empty = 0  # questions with answers that are none
    num_unmarked = 0  # questions without any mark that they have no answer
    outside = []  # answers with a text that is not in the context, and the questions
    for question in questions:
        for answer in question.all_answers:
            if answer.text.strip() and not is_answer(answer):
                outside.append((answer, question.example))
        if question.example.answers or question.fields.get("is_impossible"):
            continue
        # In v2.0 an empty list is a mark; in v1.1 it means nothing.
        has_empty_list = version_2 and "answers" in question.fields
        if question.all_answers:
            num_empty += 1
        elif "is_impossible" not in question.fields and not has_empty_list:
            num_unmarked += 1
    if num_empty:
        text = (
            "%s: %d questions have an empty text, or one at answer_start -1, in place of an "
            "answer: they are taken as questions without an answer"
        )
        logging.warning(text, source, num_empty)
    if outside:
        text = (
            "%s: %d answers at answer_start -1 have a text, such as %r to question %r: they are "
            "ignored. Without answer_start such a text is scored, but cannot be trained on."
        )
        answer, example = outside[0]
        logging.warning(text, source, len(outside), answer.text, example.qas_id)
    if has_golds and num_unmarked:
        text = (
            "%s: %d questions have no answers and are not marked impossible: they are taken as "
            "unanswerable, and the file as one of SQuAD v2.0."
        )
        logging.warning(text, source, num_unmarked)


_REQUIRED = object()
_KINDS = {  # what a value should be, for messages
    bool: "true or false, a boolean, without quotation marks",
    list: "a list",
    list | None: "a list",
    str: "a text",
    str | int: "a text or a whole number",
    str | int | None: "a text",
    int | None: "a whole number, without quotation marks",
}


def _get(parent: Any, key: str, place: str, default: Any = _REQUIRED, *, kind: Any) -> Any:
    """parent[key], checked to be of that kind."""
    value = parent.get(key, default) if isinstance(parent, dict) else _REQUIRED
    is_wrong_bool = kind is not bool and isinstance(value, bool)  # a bool is an int to Python
    if value is not _REQUIRED and isinstance(value, kind) and not is_wrong_bool:
        return value
    if value is _REQUIRED:
        what = f"a {type(parent).__name__} without {key!r}"
    else:
        what = f"{key!r} that is {quoted(value)}"
    remedy = "correct the file, or check that it is the one you mean"
    raise InputError(f"{place}: {what}", f"{EXPECTED}; {key!r} is {_KINDS[kind]}", remedy)


def read_squad_tfds(name: str, split: str) -> SquadFile:
    """The questions of a split of a dataset from tensorflow-datasets, downloaded if need be.

    Args:
      name: the name of the dataset, such as squad or squad/v2.0.
      split: its name, such as train or validation.

    Raises:
      InputError: there is no such dataset or split, or it lacks a feature of SQuAD.
    """
    dataset = read_split(name, split, purpose="questions about contexts")
    articles = []
    for number, row in enumerate(dataset.rows):
        try:
            articles.append(article_of_row(row))
        except (IndexError, KeyError, TypeError, ValueError) as error:
            received = f"{dataset.source}, example {number}: {quoted(row)} ({error!r})"
            expected = "the features of SQuAD: id, question, context, answers; texts in UTF-8"
            remedy = "give a dataset in SQuAD's form, such as --tfds_name=squad"
            raise InputError(received, expected, remedy) from None
    return parse_squad({"data": articles}, dataset.source)


def article_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of tensorflow-datasets, where answers are columns, as an article of a SQuAD file.

    >>> answers = {"text": [b"Ruprecht"], "answer_start": np.array([0])}
    >>> row = {"id": b"q1", "context": b"Ruprecht founded it.", "question": b"Who?"}
    >>> (paragraph,) = article_of_row(row | {"answers": answers})["paragraphs"]
    >>> paragraph["qas"][0]["answers"]
    [{'text': 'Ruprecht', 'answer_start': 0}]
    """
    values = {name: plain(value, name) for name, value in row.items() if name != "answers"}
    texts = plain(row["answers"]["text"], "text")
    starts = plain(row["answers"]["answer_start"], "answer_start")
    golds = []
    for text, start in zip(texts, starts, strict=True):
        golds.append({"text": text, "answer_start": start})
    paragraph = {"context": values["context"], "qas": [values | {"answers": golds}]}
    return {"title": values.get("title"), "paragraphs": [paragraph]}


# ---------------------------------------------------------------------------- words and answers


class ContextWords(NamedTuple):
    """The words of a context, separated by white space.

    context   "So it was\\tin 1386."
    words      So it was  in 1386.
    starts     0  3  6    10 13

    >>> split_context("So it was\\tin 1386.").starts.tolist()
    [0, 3, 6, 10, 13]
    """

    words: list[str]
    starts: np.ndarray  # int64 [W]: the character at which each begins

    def word_of_character(self, position) -> Any:
        """The number of a character's word; of white space that of the word before, or -1."""
        return np.searchsorted(self.starts, position, side="right") - 1


def split_context(context: str) -> ContextWords:
    """The words of a context, cut at `WHITE_SPACE`."""
    for space in WHITE_SPACE[1:]:
        context = context.replace(space, " ")
    parts = context.split(" ")  # much faster than a pattern; between two spaces a part is empty
    lengths = np.array([len(part) for part in parts], np.int64)
    starts = np.cumsum(lengths + 1) - lengths - 1
    return ContextWords([part for part in parts if part], starts[lengths > 0])


class WordSpan(NamedTuple):
    """The first and the last word of an answer."""

    start_position: int
    end_position: int


def locate_answer(words: ContextWords, answer: Answer, context: str) -> WordSpan | None:
    """The words that an answer covers; None if it is not at its offset.

    context          "It was founded in 1386 (see below)."
    words             It was founded in 1386 (see below).
    answer           ("1386", 18)   ->  words 4 to 4
                     ("see", 24)    ->  words 5 to 5: the answer may be a part of a word
                     ("1386", 3)    ->  None: there it says "was"

    >>> context = "It was founded in 1386 (see below)."
    >>> words = split_context(context)
    >>> tuple(locate_answer(words, Answer("1386", 18), context))
    (4, 4)
    >>> tuple(locate_answer(words, Answer("see", 24), context))
    (5, 5)
    >>> locate_answer(words, Answer("1386", 3), context)

    As in the original, an answer that is not exactly at its offset is accepted if it occurs in the
    words from its first to its last character, with single spaces for white space.

    Args:
      words: the words of the context.
      answer: as in the file.
      context: the text.
    """
    first = answer.answer_start
    if first is None or not answer.text.strip():
        return None
    last = first + len(answer.text) - 1
    if not 0 <= first <= last < len(context):
        return None
    # White space before the first word counts as part of that word.
    start = max(0, int(words.word_of_character(first)))
    end = max(0, int(words.word_of_character(last)))
    is_exact = context.startswith(answer.text, first)
    covered_text = " ".join(words.words[start : end + 1])
    if is_exact or " ".join(answer.text.split()) in covered_text:
        return WordSpan(start, end)
    return None


@dataclasses.dataclass(frozen=True)
class TrainingExample:
    """A question and the answer it is trained on.

    Attributes:
      example: the question.
      answer: None for an unanswerable question.
      words: the words of the answer; None without an answer.
    """

    example: SquadExample
    answer: Answer | None
    words: WordSpan | None


def training_examples(file: SquadFile, *, version_2_with_negative: bool) -> list[TrainingExample]:
    """Finds the answer of each question; leaves out, with a warning, those with a wrong offset.

    The original refuses a question with more than one answer. Here the first answer counts, which
    is the only one in the official training files; the number of the others is logged.

    Args:
      file: the questions.
      version_2_with_negative: whether questions may be unanswerable. If not, those without an
        answer are left out, with a warning, and is_impossible of the others is ignored, as in the
        original.

    Raises:
      InputError: a question has no answer although is_impossible is false, or no question is left.
    """
    if not file.has_golds:
        received = f"{file.source}, none of whose questions has an answer"
        raise InputError(received, _EXPECTED_IN_TRAINING, _CHECK_TRAINING)
    trained: list[TrainingExample] = []
    unanswered: list[SquadExample] = []
    misplaced: list[SquadExample] = []  # whose answer is not at its offset
    words_of: dict[str, ContextWords] = {}  # by context
    for example in file.examples:
        if version_2_with_negative and example.is_impossible:
            trained.append(TrainingExample(example, None, None))
            continue
        if not example.answers and example.is_impossible:
            unanswered.append(example)
            continue
        if not example.answers:
            received = f"{file.source}, question {example.qas_id!r}, which has no answer"
            remedy = 'add the answer, or write "is_impossible": true'
            raise InputError(received, "an answer where is_impossible is false", remedy)
        if example.context not in words_of:
            words_of[example.context] = split_context(example.context)
        answer = example.answers[0]
        span = locate_answer(words_of[example.context], answer, example.context)
        if span is None:
            misplaced.append(example)
        else:
            trained.append(TrainingExample(example, answer, span))
    _log_left_out(file, trained, unanswered, misplaced)
    if unanswered and not trained and not misplaced:
        received = f"{file.source}, none of whose questions has an answer"
        remedy = "add --version_2_with_negative, or give another --train_file"
        raise InputError(received, _EXPECTED_IN_TRAINING, remedy)
    if not trained:
        received = f"{file.source}: no answer is in its context at answer_start"
        raise InputError(received, _EXPECTED_IN_TRAINING, _CHECK_TRAINING)
    return trained


def _log_left_out(
    file: SquadFile,
    trained: Sequence[TrainingExample],
    unanswered: Sequence[SquadExample],
    misplaced: Sequence[SquadExample],
) -> None:
    """Warns of questions that are not trained on, and of further answers that are not."""
    num_examples = len(file.examples)
    if unanswered:
        text = (
            "%s: %d of %d questions left out, because they have no answer, such as %r: to train "
            "on them too, give --version_2_with_negative"
        )
        logging.warning(text, file.source, len(unanswered), num_examples, unanswered[0].qas_id)
    for example in misplaced[:WARNINGS_SHOWN]:
        text = "%s, question %r: the answer %r is not at answer_start %s"
        answer = example.answers[0]
        logging.warning(text, file.source, example.qas_id, answer.text, answer.answer_start)
    if misplaced:
        text = "%s: %d of %d questions left out, because the answer is not where its offset says"
        logging.warning(text, file.source, len(misplaced), num_examples)
    num_further = [
        len(set(question.example.answers)) - 1
        for question in trained
        if question.answer is not None
    ]
    if any(num_further):
        text = (
            "%s: %d questions have several different answers; the first is trained on, %d others "
            "are not"
        )
        num_questions = sum(count > 0 for count in num_further)
        logging.warning(text, file.source, num_questions, sum(num_further))


def original_order(examples: Sequence[TrainingExample]) -> list[TrainingExample]:
    """The questions in the order in which the original writes them to train.tf_record.

    As its shuffle buffer of 100 records mixes little, the original shuffles the questions first,
    always with the same seed.
    """
    shuffled = list(examples)
    random.Random(12345).shuffle(shuffled)
    return shuffled
