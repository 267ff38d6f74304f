"""Examples -> features: the original's own for texts; every word scored once for words."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import InputError
from bert_tf.heads import Choices, Labels, Tags
from bert_tf.heads.labels import IGNORED, UNKNOWN
from bert_tf.tasks.examples import ChoiceExample, Example, WordsExample
from bert_tf.tasks.features import (
    WordWindow,
    classifier_record,
    join_words,
    make_features,
    sentence_windows,
    text_windows,
    word_windows,
)
from bert_tf.tasks.registry import get_task
from bert_tf.tokenization.wordpiece import FullTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "d", "e", "##x", "##y"]
IDS = {piece: number for number, piece in enumerate(PIECES)}
TWO = Labels(names=("bad", "good"))
TAGS = Tags(names=("O", "B-P", "I-P"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES))
    return FullTokenizer(path)


def ids(text: str) -> list[int]:
    return [IDS[piece] for piece in text.split()]


@pytest.mark.parametrize("goldens_dir", ["BERT_TF_GOLDENS"], indirect=True)
@pytest.mark.parametrize(
    ("folder", "split", "size"), itertools.product(["MRPC", "CoLA"], ["dev", "test"], [128, 32])
)
def test_the_originals_features(data_dir, goldens_dir, uncased, folder, split, size):
    golden = np.load(goldens_dir / f"classifier_{folder}_{split}_{size}.npz")
    task = get_task(folder)
    first, count = int(golden["first"]), len(golden["label_id"])
    examples = task.read(str(data_dir / "glue" / folder), split)[first : first + count]
    record = classifier_record(max_seq_length=size)
    features = make_features(examples, task.labels, uncased, max_seq_length=size)
    parsed = record.parse([record.serialize(f.values(size)) for f in features])
    assert len(parsed["label_ids"]) == count == 100
    for name in ("input_ids", "input_mask", "segment_ids"):
        np.testing.assert_array_equal(parsed[name], golden[name], err_msg=name)
    np.testing.assert_array_equal(parsed["label_ids"][:, 0], golden["label_id"])
    np.testing.assert_array_equal(parsed["is_real_example"], np.ones([count, 1]))


@pytest.mark.parametrize(
    ("head", "least", "most"),
    [("classification", 0, 4), ("multi_label", 0, 1), ("multiple_choice", 0, 2),
     ("token_labels", UNKNOWN, 4)],
)  # fmt: skip
def test_the_labels_that_a_record_may_have(head, least, most):
    """Of five labels and three choices; others would be read as some label, or give NaN."""
    record = classifier_record(max_seq_length=7, head=head, num_labels=5, num_choices=3)
    (labels,) = (feature for feature in record.features if feature.name == "label_ids")
    assert (labels.least, labels.most) == (least, most)


def test_a_text_and_pairs(tokenizer):
    examples = [
        Example("7", "a b c d e", None, "good"),
        Example("8", "a b", "c d e", "bad"),
        Example("9", "a", "b", None),
        Example("10", "a", "", None),
        Example("11", "a", "\u200b", None),  # a text that has no piece
    ]
    found = list(make_features(examples, TWO, tokenizer, max_seq_length=6))
    assert [f.guid for f in found] == ["7", "8", "9", "10", "11"]
    assert [f.is_cut for f in found] == [True, True, False, False, False]
    assert [f.input_ids[0] for f in found] == [
        ids("[CLS] a b c d [SEP]"),
        ids("[CLS] a b [SEP] c [SEP]"),
        ids("[CLS] a [SEP] b [SEP]"),
        ids("[CLS] a [SEP]"),
        ids("[CLS] a [SEP]"),
    ]
    assert found[1].segment_ids[0] == [0, 0, 0, 0, 1, 1]
    assert [f.label_ids for f in found] == [[1], [0], [0], [0], [0]]
    assert found[2].values(6) == {
        "input_ids": [*ids("[CLS] a [SEP] b [SEP]"), 0],
        "input_mask": [1, 1, 1, 1, 1, 0],
        "segment_ids": [0, 0, 0, 1, 1, 0],
        "label_ids": [0],
        "is_real_example": [1],
    }


def test_windows_of_long_texts(tokenizer):
    """S = 6: four pieces of a text alone, or parts of the longer text beside the shorter one."""
    examples = [
        Example("7", "a b c d e a b", None, "good"),
        Example("9", "a b c d", "e", None),
        Example("10", "e", "a b c d", None),
        Example("11", "a b c", "c d e", None),  # room for one piece of the first: 3 // 2
    ]
    found = list(make_features(examples, TWO, tokenizer, max_seq_length=6, doc_stride=3))
    assert [(f.guid, f.input_ids[0]) for f in found] == [
        ("7", ids("[CLS] a b c d [SEP]")),
        ("7", ids("[CLS] d e a b [SEP]")),
        ("9", ids("[CLS] a b [SEP] e [SEP]")),
        ("9", ids("[CLS] c d [SEP] e [SEP]")),  # parts have two pieces: the stride is no longer
        ("10", ids("[CLS] e [SEP] a b [SEP]")),
        ("10", ids("[CLS] e [SEP] c d [SEP]")),
        ("11", ids("[CLS] a [SEP] c d [SEP]")),
        ("11", ids("[CLS] a [SEP] e [SEP]")),
    ]
    assert [f.label_ids for f in found] == [[1], [1]] + [[0]] * 6
    assert [f.is_cut for f in found] == [False] * 6 + [True, False]
    assert found[4].segment_ids[0] == [0, 0, 0, 1, 1, 1]


@given(st.integers(0, 23), st.integers(0, 23), st.integers(5, 11), st.integers(1, 9))
def test_every_piece_of_the_longer_text_is_in_a_window(len_a, len_b, size, stride):
    a, b = list(range(len_a)), list(range(100, 100 + len_b))
    windows, is_cut = text_windows(a, b, size, stride)
    pairs = [pair for (pair,) in windows]
    assert all(len(x) + len(y) <= size - (3 if b else 2) for x, y in pairs)
    longer = 0 if len_a > len_b else 1
    parts, kept = [pair[longer] for pair in pairs], {tuple(pair[1 - longer]) for pair in pairs}
    assert sorted({piece for part in parts for piece in part}) == (a, b)[longer]
    assert len(kept) == 1
    assert is_cut == (len(min(kept)) < len((a, b)[1 - longer]))
    starts = [part[0] for part in parts if part]
    assert all(0 < later - earlier <= stride for earlier, later in itertools.pairwise(starts))
    assert len(parts) < 2 or parts[-2][-1] < parts[-1][-1]  # no window more than is needed


def test_choices(tokenizer):
    labels = Choices(names=("0", "1", "2"))
    example = ChoiceExample("5", (("a b", "c"), ("a b", "d e"), ("a b", "e")), "2")
    (found,) = make_features([example], labels, tokenizer, max_seq_length=7)
    record = classifier_record(max_seq_length=7, head="multiple_choice", num_choices=3)
    parsed = record.parse([record.serialize(found.values(7))])
    assert tf.reshape(parsed["input_ids"], [3, 7]).numpy().tolist() == [
        [*ids("[CLS] a b [SEP] c [SEP]"), 0],
        ids("[CLS] a b [SEP] d e [SEP]"),
        [*ids("[CLS] a b [SEP] e [SEP]"), 0],
    ]
    assert parsed["segment_ids"].numpy()[0, 7:14].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert parsed["label_ids"].numpy().tolist() == [[2]]


def test_words(tokenizer):
    example = WordsExample("3", ("ax", "b", "\u200b", "cyx"), label=("B-P", "I-P", "O", "B-P"))
    (found,) = make_features([example], TAGS, tokenizer, max_seq_length=11)
    assert found.input_ids == (ids("[CLS] a ##x b [UNK] c ##y ##x [SEP]"),)
    n = IGNORED
    assert found.label_ids == [n, 1, n, 2, 0, 1, n, n, n]
    record = classifier_record(max_seq_length=11, head="token_labels", num_labels=3)
    parsed = record.parse([record.serialize(found.values(11))])
    assert parsed["label_ids"].numpy().tolist() == [[n, 1, n, 2, 0, 1, n, n, n, n, n]]
    assert parsed["input_mask"].numpy().sum() == 9


def test_windows_drawn():
    assert word_windows([1] * 6, room=6) == [(0, 6, 0, 6)]
    assert word_windows([1] * 9, room=6) == [(0, 6, 0, 5), (3, 9, 5, 9)]
    assert word_windows([6, 6], room=6) == [(0, 1, 0, 1), (1, 2, 1, 2)]


def test_sentences_in_their_document(tokenizer):
    words = ("a",), ("b", "c"), ("ax",), ("d",)
    examples = [
        WordsExample(str(i), of, 1 + (i == 3), ("B-P",) * len(of)) for i, of in enumerate(words)
    ]
    found = make_features(examples, TAGS, tokenizer, max_seq_length=6, document_context=True)
    n = IGNORED
    assert [(f.input_ids[0], f.label_ids) for f in found] == [
        (ids("[CLS] a b c [SEP]"), [n, 1, n, n, n]),  # a word is not cut
        (ids("[CLS] a b c [SEP]"), [n, n, 1, 1, n]),
        (ids("[CLS] b c a ##x [SEP]"), [n, n, n, 1, n, n]),
        (ids("[CLS] d [SEP]"), [n, 1, n]),
    ]


def test_context_drawn():
    assert sentence_windows([1] * 9, 4, 5, room=5) == [(2, 7, 4, 5)]
    assert sentence_windows([1] * 9, 1, 2, room=6) == [(0, 6, 1, 2)]
    assert sentence_windows([1] * 9, 7, 9, room=6) == [(3, 9, 7, 9)]
    assert sentence_windows([1, 3, 1, 3, 1], 2, 3, room=6) == [(2, 5, 2, 3)]
    assert sentence_windows([1] * 12, 1, 10, room=6) == [(1, 7, 1, 6), (4, 10, 6, 10)]


SIZES = st.integers(1, 7).flatmap(
    lambda room: st.tuples(st.lists(st.integers(1, room), min_size=1, max_size=40), st.just(room))
)


@settings(deadline=None)
@given(SIZES)
def test_every_word_is_scored_once_where_it_has_most_context(case):
    sizes, room = case
    windows = word_windows(sizes, room=room)
    scored = [word for w in windows for word in range(w.first, w.last)]
    assert scored == list(range(len(sizes)))
    for window in windows:
        assert window.start <= window.first < window.last <= window.stop
        assert sum(sizes[window.start : window.stop]) <= room
        for word in range(window.first, window.last):
            best = max(scarcer_side(sizes, w, word) for w in windows if w.start <= word < w.stop)
            assert scarcer_side(sizes, window, word) == best


def scarcer_side(sizes: list[int], window: WordWindow, word: int) -> int:
    """Pieces on the side of a word that has fewer."""
    return min(sum(sizes[window.start : word]), sum(sizes[word + 1 : window.stop]))


WORD = st.text("abcdexyz\u200b\u00ad ", min_size=1, max_size=9).filter(str.strip)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(WORD, min_size=1, max_size=20), min_size=1, max_size=4), st.integers(5, 9))
def test_words_come_back_in_order(tokenizer, sentences, size):
    examples = [WordsExample(str(i), tuple(words)) for i, words in enumerate(sentences)]
    found = list(make_features(examples, TAGS, tokenizer, max_seq_length=size))
    padded = [f.values(size) for f in found]
    first_pieces = join_words(
        [f.guid for f in found], [v["label_ids"] for v in padded], [v["input_ids"] for v in padded]
    )
    expected = [
        [(piece_ids or [IDS["[UNK]"]])[0] for piece_ids in tokenizer.iter_ids(words)]
        for words in sentences
    ]
    assert [list(pieces) for pieces in first_pieces] == expected


def test_what_cannot_be_made(tmp_path, tokenizer):
    with pytest.raises(InputError, match="--max_seq_length=4"):
        list(make_features([], TWO, tokenizer, max_seq_length=4))
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\na")
    with pytest.raises(InputError, match="without"):
        list(make_features([], TWO, FullTokenizer(tmp_path / "vocab.txt"), max_seq_length=8))
