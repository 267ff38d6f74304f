"""Windows against the original's golden features, the plain reference, and cases by hand."""

import dataclasses

import numpy as np
import pytest
import reference_squad as reference
import small_squad as small
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import InputError
from bert_tf.squad import data, windows
from bert_tf.squad.windows import WindowSizes
from bert_tf.tokenization.whole_pieces import KEPT_WHOLE
from bert_tf.tokenization.wordpiece import FullTokenizer

SIZES = {384: WindowSizes(384, 128, 64), 96: WindowSizes(96, 24, 20)}


def training_windows(example, tokenizer, sizes, *, version_2_with_negative=False):
    found = data.training_examples(
        small.squad_file(example), version_2_with_negative=version_2_with_negative
    )
    return windows.training_windows(found, tokenizer, sizes)


def pieces(window, tokenizer, start=0, end=None) -> list[str]:
    return tokenizer.convert_ids_to_tokens(window.input_ids[start:end].tolist())


# ---------------------------------------------------------------------------- goldens


@pytest.mark.parametrize("length", [384, 96])
@pytest.mark.parametrize("version", ["squad_v1", "squad_v2"])
@pytest.mark.parametrize("mode", ["predict", "train"])
def test_golden_features(goldens_dir, uncased, version, mode, length):
    name = {"predict": "input.json", "train": "input_train.json"}[mode]
    file = data.read_squad(str(goldens_dir / version / name))
    golden = np.load(goldens_dir / version / f"features_{mode}_{length}.npz")
    if mode == "predict":
        ours = windows.prediction_windows(file.examples, uncased, SIZES[length])
    else:
        found = data.training_examples(file, version_2_with_negative=version == "squad_v2")
        assert [one.example.qas_id for one in found] == golden["kept_ids"].tolist()
        ours = windows.training_windows(found, uncased, SIZES[length])
    values = [windows.record_values(w, length) for w in ours]
    columns = {name: np.stack([value[name] for value in values]) for name in values[0]}
    np.testing.assert_array_equal(columns["input_ids"], golden["input_ids"])
    np.testing.assert_array_equal(columns["segment_ids"], golden["segment_ids"])
    np.testing.assert_array_equal(columns["input_mask"].sum(1), golden["lengths"])
    np.testing.assert_array_equal(columns["unique_ids"][:, 0], golden["unique_id"])
    for field in ("example_index", "doc_span_index"):
        assert [getattr(window, field) for window in ours] == golden[field].tolist()
    if mode == "train":
        np.testing.assert_array_equal(columns["start_positions"][:, 0], golden["start"])
        np.testing.assert_array_equal(columns["end_positions"][:, 0], golden["end"])


# ---------------------------------------------------------------------------- the plain reference


@settings(max_examples=70, deadline=None)
@given(
    st.lists(
        st.tuples(small.long_texts, small.texts, st.integers(0, 60), st.integers(1, 12)),
        min_size=1,
        max_size=3,
    ),
    st.integers(8, 17),
    st.integers(1, 5),
    st.booleans(),
)
def test_random_texts_as_in_the_reference(tokenizers, questions, length, doc_stride, lower):
    sizes = WindowSizes(length, doc_stride, max_query_length=4)
    kept, expected = [], []
    for context, question, start, size in questions:
        text = context[start : start + size]
        kept += data.training_examples(
            small.squad_file(
                small.example(context, question, [(text, start)]),
                small.example("1895", "", [("1895", 0)]),  # so that there always is one to train on
            ),
            version_2_with_negative=False,
        )
        expected += expected_features(tokenizers[lower], sizes, context, question, text, start)
        expected += expected_features(tokenizers[lower], sizes, "1895", "", "1895", 0)
    for window, (feature, start, end) in zip(
        windows.training_windows(kept, tokenizers[lower], sizes), expected, strict=True
    ):
        check_window(window, feature, length)
        check_answer(window, feature["positions"], start, end)


def expected_features(tokenizer, sizes, context, question, text, start) -> list[tuple]:
    """The reference's, and from where to where the answer stands; none for a blank answer."""
    words, word_of_character = reference.split_context(context)
    if not text.strip() or not words:
        return []
    end = start + len(text)
    span = max(word_of_character[start], 0), max(word_of_character[end - 1], 0)
    plain = reference.Tokenizer(tokenizer.vocab, do_lower_case=tokenizer.do_lower_case)
    sizes = dataclasses.asdict(sizes)
    found = reference.features(words, question, plain, answer=(text, *span), **sizes)
    return [(feature, start, end) for feature in found]


def check_window(window, feature, length):
    values = windows.record_values(window, length)
    for name in ("input_ids", "input_mask", "segment_ids"):
        assert values[name] == feature[name]
    first = window.span.start
    word_of_piece = window.document.word_of_piece[first : first + window.span.length]
    assert list(feature["word_of_token"].values()) == word_of_piece.tolist()
    assert list(feature["is_max_context"].values()) == window.token_is_max_context.tolist()
    assert next(iter(feature["word_of_token"])) == window.doc_offset


def labelled(window, positions) -> set[int]:
    """The pieces of the context between two positions of a window; none for (0, 0)."""
    shift = window.span.start - window.doc_offset
    return {place + shift for place in range(positions[0], positions[1] + 1) if positions[0]}


def check_answer(window, theirs, start, end):
    """The original's label, unless it lacks a part of the answer or is of unspaced text."""
    document = window.document
    places = enumerate(zip(document.starts, document.ends, strict=True))
    answer = {number for number, (begin, behind) in places if begin < end and behind > start}
    if window.answer != theirs:
        is_unspaced = any(ord(character) > 0x2E7F for character in document.context)
        assert is_unspaced or not answer <= labelled(window, theirs)
        assert window.answer == (0, 0) or answer <= labelled(window, window.answer)


# ---------------------------------------------------------------------------- where answers are

PLACES = [  # context, answer, its number among its like, the text of the labelled pieces
    ("the 3-3 by 1895", "3", 2, "3"),
    ("by 1895-1943/1895-1386 in", "1895", 2, "1895"),
    ("in 1386-1412-1386.", "1386", 2, "1386"),
    ("1943,1943,1943", "1943", 3, "1943"),
    ("(Japan),(japan)-Japan", "Japan", 2, "Japan"),
    ("in (Japanese) by", "Japan", 1, "Japan"),
    ("a11-1", "1", 2, "a11-1"),  # not the 1 of its own, which is another
    ("中國人在中國。中國", "中國", 2, "中國"),
    ("中國人在中國。中國", "中國", 3, "中國"),
    ("韓國在1895年，中在1895年", "1895年", 2, "1895年"),
    ("中國人1943年在中", "43", 1, "1943"),  # a part of a word there
    ("日本はとても日本、日本です", "日本", 3, "日本"),
    ("ドイツとドイツ人", "ドイツ", 2, "ドイツとドイツ"),  # [UNK] in this vocabulary
    ("กรุงเทพ ไปกรุงเทพ", "กรุงเทพ", 2, "ไปกรุงเทพ"),
]


@pytest.mark.parametrize(("context", "text", "number", "expected"), PLACES)
def test_an_answer_is_where_its_offset_says(tokenizers, context, text, number, expected):
    start = -1
    for _ in range(number):
        start = context.index(text, start + 1)
    example = small.example(context, answers=[(text, start)])
    (window,) = training_windows(example, tokenizers[True], WindowSizes(64, 30, 2))
    span = sorted(labelled(window, window.answer))
    begin, end = window.document.starts[span[0]], window.document.ends[span[-1]]
    assert context[begin:end] == expected
    assert begin <= start < start + len(text) <= end


@pytest.mark.parametrize("how", KEPT_WHOLE)
@pytest.mark.parametrize(
    ("context", "text", "expected"),
    [
        ("in the cafe", "cafe", "the cafe"),  # the last word has no piece of its own
        ("the cafe in japan", "cafe in", "the cafe in"),
        ("in the cafe by", "by", "by"),
    ],
)
def test_an_answer_may_begin_within_a_piece_that_is_kept_whole(how, context, text, expected):
    pieces = [*small.PIECES, "the cafe"]
    tokenizer = FullTokenizer("vocab.txt", pieces=pieces, **{how: ("the cafe",)})
    example = small.example(context, answers=[(text, context.index(text))])
    (window,) = training_windows(example, tokenizer, WindowSizes(64, 30, 2))
    span = sorted(labelled(window, window.answer))
    begin = window.document.starts[span[0]]
    end = window.document.ends[span[-1]]
    assert context[begin:end] == expected


# ---------------------------------------------------------------------------- hard cases


def test_unanswerable_questions_point_at_cls(tokenizers):
    example, sizes = small.example("in 1895", is_impossible=True), WindowSizes(11, 3, 2)
    (window,) = training_windows(example, tokenizers[True], sizes, version_2_with_negative=True)
    assert (window.answer, window.is_impossible) == ((0, 0), True)
    values = windows.record_values(window, 11)
    assert values["is_impossible"] == [1]


@pytest.mark.parametrize("context", ["", " \n", "\u200b \0"])
def test_an_empty_context_has_no_window(tokenizers, context):
    examples = [small.example(context), small.example("1895")]
    found = windows.prediction_windows(examples, tokenizers[True], WindowSizes(11, 3, 2))
    assert [window.example_index for window in found] == [1]


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ((64, 128, 64), "--max_seq_length=64 --max_query_length=64"),
        ((67, 128, 64), "--max_seq_length=67 --max_query_length=64"),
        ((64, 0, 20), "--doc_stride=0"),
        ((64, 5, -1), "--max_query_length=-1"),
    ],
)
def test_sizes_that_cannot_be(sizes, named):
    with pytest.raises(InputError) as error:
        WindowSizes(*sizes)
    assert named in error.value.received
