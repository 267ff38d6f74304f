"""A small vocabulary, and strategies of random texts, for the tests of bert_tf.squad."""

import functools
import tempfile

from hypothesis import strategies as st

from bert_tf.squad.data import Answer, SquadExample, SquadFile
from bert_tf.tokenization.wordpiece import FullTokenizer

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("who", "founded", "it", "in", "138", "##6", "141", "##2", "ru", "##pre", "##cht", "by"),
    *("1895", "-", "1943", "(", ")", ".", ",", "'", "?", "!", "the", "cafe", "japan", "##ese"),
    *(prefix + char for char in "abcdefnorsuvi中éßº1ᄒ\u1161\u11ab" for prefix in ("", "##")),
    *("😀", "👩", "Ab", "É"),
]
# Accents, CJK, emoji and their joiners, combining marks, white space of all kinds, and characters
# that the tokenizer drops, makes longer or shorter, or treats by their neighbours.
CHARACTERS = (
    "aaabbcdefnorsuvi  AÉéßİΣσŞ한中國ﬁº①½1.,'-()[]#!?\t\n\r\u00a0\u202f\u2028\u3000\x0b\x85"
    "\u200b\u200d\ufeff\0\ufffd\u0301\u0323\u0327\u093f😀👩\ufe0f\ud800"
)
texts = st.text(st.sampled_from(CHARACTERS) | st.characters(), max_size=40)
long_texts = st.lists(texts | st.sampled_from(PIECES[5:]), max_size=12).map(" ".join)


@functools.cache
def make_tokenizer(*, do_lower_case: bool) -> FullTokenizer:
    """A tokenizer of PIECES."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("".join(f"{piece}\n" for piece in PIECES))
        file.flush()
        return FullTokenizer(file.name, do_lower_case)


def example(context: str, question: str = "who", answers=(), **fields) -> SquadExample:
    """An example; answers are tuples of the fields of `Answer`."""
    answers = tuple(Answer(*answer) for answer in answers)
    return SquadExample("q1", question, context, answers, **fields)


def squad_file(*examples: SquadExample, version_2: bool = False) -> SquadFile:
    """A file of these examples."""
    return SquadFile(list(examples), version_2, "test.json")
