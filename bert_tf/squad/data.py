"""SQuAD files -> questions, and in training the words that each answer covers.

    {"version": "v2.0",
     "data": [{"title": "Heidelberg",
               "paragraphs": [{"context": "Ruprecht founded it in 1386.",
                               "qas": [{"id": "q1", "question": "Who founded it?",
                                        "answers": [{"text": "Ruprecht", "answer_start": 0}],
                                        "is_impossible": false}]}]}]}

One SquadExample for each of the `qas`. v1.1 has no is_impossible; some files leave out `answers`
where there are none, others write an answer that is none (`is_answer`). XQuAD and other data sets
of this form are read alike.
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

# The original's own white space; other kinds, such as no-break spaces, are part of a word.
WHITE_SPACE = " \t\r\n\u202f"
EXPECTED = 'SQuAD\'s format, {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}'
TFDS_TRAIN, TFDS_PREDICT = "train", "validation"  # the splits for training and for prediction
WARNINGS_SHOWN = 10
NOWHERE = -1  # the answer_start of what is not in the context
_TO_LEARN = (  # what training data are expected to have, and what to do
    "questions with `answers` that are in their context at answer_start",
    "check that it is the training data, or give another --train_file",
)


class Answer(NamedTuple):
    """An annotator's answer."""

    text: str
    answer_start: int | None  # code points of the context before it; None if the file has none


def is_answer(answer: Answer) -> bool:
    """Whether it is an answer; annotation tools write one that is not where there is no answer.

        "1386"   at 18     an answer
        ""       at 0      none, nor is white space
        "yes"    at -1     none: it is not in the context

    >>> [is_answer(Answer(*one)) for one in (("1386", 18), ("", 0), ("yes", -1))]
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
      answers: of the annotators, as far as they are answers; none for an unanswerable question.
      is_impossible: as in the file; true without the field if there is no answer, and with it if
        the file has answers none of which is one (`is_answer`).
      title: of the article.
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
      version_2: whether questions may have no answer, as in SQuAD v2.0: the version or a question
        says so, or a question has none.
      source: the path, for messages.
      has_golds: whether any question has an answer, or is marked or written as one without, so that
        predictions can be scored.
    """

    examples: list[SquadExample]
    version_2: bool
    source: str
    has_golds: bool = True


# ---------------------------------------------------------------------------- files


def read_squad(path: str) -> SquadFile:
    """Reads a file in SQuAD's format (original: `read_squad_examples`).

    Args:
      path: of JSON in UTF-8, with or without byte order mark; local or remote.

    Raises:
      InputError: the file cannot be read, is not JSON, or a question in it lacks a field.
    """
    return parse_squad(read_json(path, expected=EXPECTED), path)


def parse_squad(content: Any, source: str) -> SquadFile:
    """The questions of a file's content.

    Args:
      content: what `json.load` gives.
      source: the path, for messages.

    Raises:
      InputError: a field is missing or has another type; names the file and the place in it.
    """
    articles = _get(content, "data", source, kind=list)
    version_2 = str(content.get("version", "")).lstrip("v").startswith("2")
    questions = list(_parse_questions(articles, source))
    examples = [question.example for question in questions]
    if repeated := len(examples) - len({example.qas_id for example in examples}):
        logging.warning(
            "%s: %d questions have the id of another; the last counts", source, repeated
        )
    has_golds = any(
        question.given or question.fields.get("is_impossible") for question in questions
    )
    _log_unanswered(questions, source, version_2=version_2, has_golds=has_golds)
    marked = any("is_impossible" in question.fields for question in questions)
    version_2 = version_2 or marked or not all(example.answers for example in examples)
    return SquadFile(examples, version_2, source, has_golds=has_golds or not examples)


class _Question(NamedTuple):
    """A question, and how the file has it."""

    example: SquadExample
    fields: Mapping[str, Any]
    given: tuple[Answer, ...]  # also those that are no answers


def _parse_questions(articles: Sequence[Any], source: str) -> Iterator[_Question]:
    """All questions, in order."""
    for a, article in enumerate(articles):
        place = f"{source}, data[{a}]"
        title = str(_get(article, "title", place, None, kind=str | int | None) or "")
        for p, paragraph in enumerate(_get(article, "paragraphs", place, kind=list)):
            place = f"{source}, data[{a}].paragraphs[{p}]"
            context = _get(paragraph, "context", place, kind=str)
            for q, qa in enumerate(_get(paragraph, "qas", place, kind=list)):
                yield _parse_question(qa, context, title, f"{place}.qas[{q}]")


def _parse_question(qa: Any, context: str, title: str, place: str) -> _Question:
    qas_id = str(_get(qa, "id", place, kind=str | int))
    place = f"{place}, question {qas_id!r}"
    given = tuple(
        Answer(
            _get(answer, "text", place, kind=str),
            _get(answer, "answer_start", place, None, kind=int | None),
        )
        for answer in _get(qa, "answers", place, None, kind=list | None) or ()
    )
    answers = tuple(filter(is_answer, given))
    is_impossible = _get(qa, "is_impossible", place, not answers, kind=bool)
    if given and not answers:
        is_impossible = True
    text = _get(qa, "question", place, kind=str)
    example = SquadExample(qas_id, text, context, answers, is_impossible, title)
    return _Question(example, qa, given)


def _log_unanswered(
    questions: Sequence[_Question], source: str, *, version_2: bool, has_golds: bool
) -> None:
    """Reports what is taken as no answer, though no is_impossible says so."""
    unmarked = [
        question
        for question in questions
        if not question.example.answers and not question.fields.get("is_impossible")
    ]
    if written := sum(bool(question.given) for question in unmarked):
        logging.warning(
            "%s: %d questions have an empty text, or one at answer_start -1, in place of an "
            "answer: they are taken as questions without an answer",
            *(source, written),
        )
    outside = [
        (answer.text, question.example.qas_id)
        for question in questions
        for answer in question.given
        if answer.text.strip() and not is_answer(answer)
    ]
    if outside:
        logging.warning(
            "%s: %d answers at answer_start -1 have a text, such as %r to question %r: they are "
            "ignored. Without answer_start such a text is scored, but cannot be trained on.",
            *(source, len(outside), *outside[0]),
        )
    # v2.0 marks it with an empty list; in v1.1 an empty list means nothing.
    unsaid = sum(
        not question.given
        and "is_impossible" not in question.fields
        and not (version_2 and "answers" in question.fields)
        for question in unmarked
    )
    if has_golds and unsaid:
        logging.warning(
            "%s: %d questions have no answers and are not marked impossible: they are taken as "
            "unanswerable, and the file as one of SQuAD v2.0.",
            *(source, unsaid),
        )


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
    is_no_number = kind is not bool and isinstance(value, bool)  # though to Python it is an int
    if value is not _REQUIRED and isinstance(value, kind) and not is_no_number:
        return value
    found = f"{key!r} that is {quoted(value)}"
    if value is _REQUIRED:
        found = f"a {type(parent).__name__} without {key!r}"
    remedy = "correct the file, or check that it is the one you mean"
    raise InputError(f"{place}: {found}", f"{EXPECTED}; {key!r} is {_KINDS[kind]}", remedy)


def read_squad_tfds(name: str, split: str) -> SquadFile:
    """The questions of a split of a dataset from tensorflow-datasets, prepared if need be.

    Args:
      name: of the dataset, such as squad or squad/v2.0.
      split: train, validation or another that it has.

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
    """A row of tensorflow-datasets, with columns for the answers -> an article of a SQuAD file.

    >>> answers = {"text": [b"Ruprecht"], "answer_start": np.array([0])}
    >>> row = {"id": b"q1", "context": b"Ruprecht founded it.", "question": b"Who?"}
    >>> (paragraph,) = article_of_row(row | {"answers": answers})["paragraphs"]
    >>> paragraph["qas"][0]["answers"]
    [{'text': 'Ruprecht', 'answer_start': 0}]
    """
    values = {name: plain(value, name) for name, value in row.items() if name != "answers"}
    texts, starts = (plain(row["answers"][name], name) for name in ("text", "answer_start"))
    pairs = zip(texts, starts, strict=True)
    golds = [{"text": text, "answer_start": start} for text, start in pairs]
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
        """The word of a character; white space is of the word before it, -1 if there is none."""
        return np.searchsorted(self.starts, position, side="right") - 1


def split_context(context: str) -> ContextWords:
    """Cuts a context into words at the original's white space."""
    for space in WHITE_SPACE[1:]:
        context = context.replace(space, " ")
    parts = context.split(" ")  # much faster than a pattern; two spaces enclose an empty part
    lengths = np.array([len(part) for part in parts], np.int64)
    starts = np.cumsum(lengths + 1) - lengths - 1
    return ContextWords([part for part in parts if part], starts[lengths > 0])


class WordSpan(NamedTuple):
    """The first and the last word of an answer."""

    start_position: int
    end_position: int


def locate_answer(words: ContextWords, answer: Answer, context: str) -> WordSpan | None:
    """The words that an answer covers, or None if it is not where its offset says.

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

    An answer that does not stand there to the letter is accepted, as in the original, if it occurs,
    white space made single spaces, somewhere in the words between its first and its last character.

    Args:
      words: of the context.
      answer: as the file gives it.
      context: the text.
    """
    first, last = answer.answer_start, (answer.answer_start or 0) + len(answer.text) - 1
    if first is None or not 0 <= first <= last < len(context) or not answer.text.strip():
        return None
    # White space before the first word is taken as of that word.
    start, end = (max(0, int(words.word_of_character(place))) for place in (first, last))
    text = " ".join(words.words[start : end + 1])
    is_there = context.startswith(answer.text, first) or " ".join(answer.text.split()) in text
    return WordSpan(start, end) if is_there else None


@dataclasses.dataclass(frozen=True)
class TrainingExample:
    """A question and the one answer it is trained on; both None for an unanswerable question."""

    example: SquadExample
    answer: Answer | None
    words: WordSpan | None


def training_examples(file: SquadFile, *, version_2_with_negative: bool) -> list[TrainingExample]:
    """Finds the answer of each question; reports and leaves out those whose offset is wrong.

    The original refuses a question with more than one answer; here the first one counts, which is
    the only one in the official training files. How many are not trained on is reported.

    Args:
      file: the questions.
      version_2_with_negative: whether questions may be unanswerable. If not, those without an
        answer are left out, which is reported, and is_impossible of the others is ignored, as in
        the original.

    Raises:
      InputError: a question lacks the answer that is_impossible says it has, or no question is
        left.
    """
    if not file.has_golds:
        raise InputError(f"{file.source}, none of whose questions has an answer", *_TO_LEARN)
    kept: list[TrainingExample] = []
    unanswered: list[SquadExample] = []
    wrong: list[SquadExample] = []
    words_of: dict[str, ContextWords] = {}
    for example in file.examples:
        if version_2_with_negative and example.is_impossible:
            kept.append(TrainingExample(example, None, None))
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
        answer, words = example.answers[0], words_of[example.context]
        span = locate_answer(words, answer, example.context)
        if span is None:
            wrong.append(example)
        else:
            kept.append(TrainingExample(example, answer, span))
    _log_left_out(file, kept, unanswered, wrong)
    if unanswered and not kept and not wrong:
        received = f"{file.source}, none of whose questions has an answer"
        remedy = "add --version_2_with_negative, or give another --train_file"
        raise InputError(received, _TO_LEARN[0], remedy)
    if not kept:
        raise InputError(f"{file.source}: no answer is in its context at answer_start", *_TO_LEARN)
    return kept


def _log_left_out(
    file: SquadFile,
    kept: Sequence[TrainingExample],
    unanswered: Sequence[SquadExample],
    wrong: Sequence[SquadExample],
) -> None:
    """Reports the questions, and the answers of the others, that are not trained on."""
    if unanswered:
        logging.warning(
            "%s: %d of %d questions left out, because they have no answer, such as %r: to train "
            "on them too, give --version_2_with_negative",
            *(file.source, len(unanswered), len(file.examples), unanswered[0].qas_id),
        )
    for example in wrong[:WARNINGS_SHOWN]:
        given = (file.source, example.qas_id, *example.answers[0])
        logging.warning("%s, question %r: the answer %r is not at answer_start %s", *given)
    if wrong:
        logging.warning(
            "%s: %d of %d questions left out, because the answer is not where its offset says",
            *(file.source, len(wrong), len(file.examples)),
        )
    others = [len(set(one.example.answers)) - 1 for one in kept if one.answer is not None]
    if any(others):
        logging.warning(
            "%s: %d questions have several different answers; the first is trained on, %d others "
            "are not",
            *(file.source, sum(count > 0 for count in others), sum(others)),
        )


def original_order(examples: Sequence[TrainingExample]) -> list[TrainingExample]:
    """The order in which the original writes questions to train.tf_record.

    Its shuffle buffer of 100 records mixes little while it trains, so it shuffles the questions
    before, always with the same seed.
    """
    shuffled = list(examples)
    random.Random(12345).shuffle(shuffled)
    return shuffled
