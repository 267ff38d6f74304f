"""Public reports on words: named entities, word pieces, offsets."""

import numpy as np
import pytest
import served_models

from bert_tf import Predictor
from bert_tf.heads import Tags
from bert_tf.heads.labels import IGNORED
from bert_tf.tasks.examples import WordColumns, WordsExample
from bert_tf.tasks.features import make_features
from bert_tf.tasks.results import compute_metrics

TAGS = Tags(names=("O", "B-PER", "I-PER"))
ROOM = 8  # max_seq_length


def scored(words, tokenizer) -> int:
    """How many words are scored, in all windows."""
    rows = make_features([WordsExample("0", tuple(words))], TAGS, tokenizer, max_seq_length=ROOM)
    return sum(int((np.array(row.label_ids) != IGNORED).sum()) for row in rows)


# ------------------------------------------------------------------------------ named entities

BLANK = ["\u00a0", "\u3000", "\u2009", "\u2028", "\x0b", "\x85", "\u200b", "\ufffd"]


def test_words_that_cannot_be_seen(write, tokenizer):
    """BERT-BiLSTM-CRF-NER-pytorch#13, argilla#1264: a word of white space shifted all tags."""
    pieces = tokenizer("w1", "w2")
    for blank in BLANK:
        path = write("a.txt", f"w1 B-PER\n{blank} I-PER\nw2 O\n\nw3 O\n")
        first, second = WordColumns().read(path, TAGS)
        assert first.words == ("w1", blank, "w2"), ascii(blank)
        assert first.label == ("B-PER", "I-PER", "O")
        assert scored(first.words, pieces) == 3
        assert second.words == ("w3",)


@pytest.mark.parametrize("gap", ["\n", " \n", "\t\n", "\r\n", "\n\n\n"], ids=repr)
def test_lines_between_sentences(write, gap):
    """BERT-NER#57: blanks in an empty line joined two sentences."""
    path = write("a.txt", f"w1 O\nw2 O\n{gap}w3 O\n{gap}{gap}")
    assert [one.words for one in WordColumns().read(path, TAGS)] == [("w1", "w2"), ("w3",)]


def test_data_without_an_entity_are_scored():
    """seqeval#60: "Weights sum to zero" where all gold tags are O."""
    found = compute_metrics(["entity_f1"], [["O", "O"], ["O"]], [["O", "B-PER"], ["O"]])
    assert set(found.values()) == {0.0}
    right = compute_metrics(["accuracy"], [["O", "O"], ["O"]], [["O", "B-PER"], ["O"]])
    assert right == {"eval_accuracy": pytest.approx(2 / 3)}


def test_places_of_words_that_occur_twice(tmp_path):
    """transformers#2247, #8781, #18738: only the words came back, changed by the tokenizer."""
    served_models.write_folder("token_labels", tmp_path / "model")
    text = "Sarah (Ruprecht) met 😀 Sarah, naïve café.\n\u00a0who?"
    (found,) = Predictor(tmp_path / "model").predict([text])
    places = list(zip(found["starts"], found["ends"], strict=True))
    assert [text[start:end] for start, end in places] == found["words"]
    assert [text[start:end] for start, end in places] == [
        *("Sarah", "(", "Ruprecht", ")", "met", "😀", "Sarah", ",", "naïve", "café", ".", "who"),
        "?",
    ]
    assert places[0] == (0, 5)
    assert places[6] == (23, 28)


# ------------------------------------------------------------------------------ pieces


CUT = {
    "one\nline": ["one", "line"],  # machinelearning#7724: "oneline"
    "one\tline\r\none": ["one", "line", "one"],
    "one\u2028line\u00a0one": ["one", "line", "one"],
    "one\x97line": ["one", "##line"],  # text#817: a control character is dropped
    "one\x00\ufffdline": ["one", "##line"],
    "$1+1=<2> ~one|": ["$", "1", "+", "1", "=", "<", "2", ">", "~", "one", "|"],  # #7725
    "one😊": ["[UNK]"],  # bert#896: one word, as in the original
    "😊 one": ["[UNK]", "one"],  # tokenizers#450
    "[MASK] one": ["[", "mask", "]", "one"],  # text#656: as in the original
}


def test_white_space_controls_symbols_and_emoji(tokenizer):
    """machinelearning#7724 and #7725, text#817, bert#896: words joined, symbols lost."""
    made = tokenizer("one", "line", "##line", "mask", "1", "2", *"$+=<>~|[]")
    assert dict(zip(CUT, made.tokenize(list(CUT)), strict=True)) == CUT


def test_places_of_pieces_in_the_text_as_it_was(tokenizer):
    """tokenizers#215, transformers#3058: offsets of the lower-cased text, accents gone."""
    text = "A, naïve ババです"
    made = tokenizer("a", ",", "naive", "ハ", "##ハ", "##て", "##す")
    ids, starts, ends = (ragged.to_list()[0] for ragged in made.tokenize_with_offsets([text]))
    assert made.convert_ids_to_tokens(ids) == ["a", ",", "naive", "ハ", "##ハ", "##て", "##す"]
    spans = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    assert spans == ["A", ",", "naïve", "バ", "バ", "で", "す"]


def test_a_cased_vocabulary_keeps_voiced_marks(tokenizer):
    """tokenizers#215: バ became ハ, which is another letter; only where case is lowered."""
    made = tokenizer("バ", "##バ", "ハ", "##ハ", do_lower_case=False)
    assert made.tokenize("ババハ") == ["バ", "##バ", "##ハ"]
