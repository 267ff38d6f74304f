"""What is written is read again as it was: any text, any number, in every format with a writer."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.checkpoints import hugging_face_tokenizer, metadata
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.heads import NAMES, Tags, head_named
from bert_tf.serving import rows
from bert_tf.squad import data
from bert_tf.tasks.examples import WordColumns
from bert_tf.tokenization.wordpiece import FullTokenizer

ARCHITECTURES = sorted({head_named(name).architecture for name in NAMES})
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
FILLED = TEXT.filter(str.strip)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
# What a line of a vocabulary can hold.
PIECE = FILLED.filter(lambda text: text == text.strip() and "\n" not in text)
PIECES = st.lists(PIECE, min_size=1, max_size=9, unique=True)
FEW = settings(derandomize=True, database=None, max_examples=60)


def optional(strategy):
    return st.none() | strategy


def written(factory, name: str, text: str) -> str:
    path = factory.mktemp("file") / name
    path.write_text(text, encoding="utf-8")
    return str(path)


METADATA = st.builds(
    ModelMetadata,
    do_lower_case=optional(st.booleans()),
    never_split=optional(st.lists(FILLED, min_size=1, max_size=4, unique=True).map(tuple)),
    added_words=optional(st.lists(FILLED, min_size=1, max_size=4, unique=True).map(tuple)),
    architecture=optional(st.sampled_from(ARCHITECTURES)),
    labels=optional(st.lists(FILLED, min_size=1, max_size=4, unique=True).map(tuple)),
    null_score_diff_threshold=optional(NUMBER),
    task=optional(st.sampled_from(sorted(NAMES))),
    pairs=optional(st.booleans()),
    max_seq_length=optional(st.integers(5, 512)),
)


@FEW
@given(METADATA)
def test_metadata(tmp_path_factory, values):
    path = written(tmp_path_factory, "model_facts.json", values.to_json_string())
    assert ModelMetadata.from_json_file(path) == values


@FEW
@given(PIECES, st.booleans(), st.integers(0, 3))
def test_vocabulary_and_tokenizer(tmp_path_factory, pieces, lower, num_kept):
    folder = tmp_path_factory.mktemp("tokenizer")
    pieces = list(dict.fromkeys(["[UNK]", *pieces]))
    kept = tuple(filter(None, pieces[-num_kept:])) if num_kept else ()
    tokenizer = FullTokenizer("v", lower, pieces=pieces, never_split=kept)
    texts = hugging_face_tokenizer.write_tokenizer(tokenizer, 13)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    assert texts[metadata.VOCAB_FILE] == metadata.vocabulary_text(pieces)
    read = hugging_face_tokenizer.read_tokenizer(str(folder))
    assert (list(read.pieces), read.do_lower_case) == (pieces, lower)
    assert read.never_split == kept
    assert read.vocab_file == str(folder / metadata.VOCAB_FILE)


@FEW
@given(FILLED, st.lists(st.tuples(TEXT, FILLED), min_size=1, max_size=3))
def test_squad(tmp_path_factory, context, questions):
    qas = [
        {"id": str(number), "question": question, "answers": [{"text": text, "answer_start": 0}]}
        for number, (question, text) in enumerate(questions)
    ]
    content = {"data": [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]}]}
    file = data.read_squad(written(tmp_path_factory, "s.json", json.dumps(content)))
    assert [(one.question_text, one.answers[0].text) for one in file.examples] == questions
    assert {one.context for one in file.examples} == {context}


WORD = st.text(st.characters(exclude_characters="\0 \t\r\n", exclude_categories=["Cs"]), min_size=1)
SENTENCE = st.lists(st.tuples(WORD, st.sampled_from(["O", "B-X", "B-Y"])), min_size=1)


@FEW
@given(st.lists(SENTENCE, min_size=1, max_size=3))
def test_conll(tmp_path_factory, sentences):
    sentences = [[("x" + word, tag) for word, tag in one] for one in sentences]
    text = "\n".join("".join(f"{word}\t{tag}\n" for word, tag in one) for one in sentences)
    path = written(tmp_path_factory, "train.txt", "\n" + text)
    examples = WordColumns().read(path, Tags())
    assert [list(zip(one.words, one.label, strict=True)) for one in examples] == sentences


@FEW
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
def test_lines_to_predict(tmp_path_factory, pairs):
    specs = {name: {"shape": [None]} for name in ("a", "b")}
    model = {
        "task": "embeddings",
        "texts": {"a": "", "b": ""},
        "signatures": {"serving_default": specs},
    }
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    questions = rows.read_questions(written(tmp_path_factory, "x", lines), model)
    assert [tuple(question.item) for question in questions.rows] == pairs
