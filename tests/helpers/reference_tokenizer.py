"""The original's tokenizer in plain Python: the reference for `bert_tf.tokenization`.

Written from what google-research/bert does, step by step, without any thought of speed. The
answer for a character depends on `unicodedata`: compare under Python 3.11 (Unicode 14.0).
"""

import functools
import unicodedata

UNKNOWN = "[UNK]"
LONGEST_WORD = 200
CJK = frozenset().union(
    range(0x4E00, 0xA000), range(0x3400, 0x4DC0), range(0x20000, 0x2A6E0), range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820), range(0x2B820, 0x2CEB0), range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
)  # fmt: skip


def tokenize(text: str, vocab: dict[str, int], *, do_lower_case: bool) -> list[str]:
    """The word pieces of `text`."""
    return [
        piece
        for word in split_words(text, do_lower_case=do_lower_case)
        for piece in split_pieces(word, vocab)
    ]


def split_words(text: str, *, do_lower_case: bool) -> list[str]:
    """The words of `text`, normalized; each punctuation mark and CJK ideograph is a word."""
    text = "".join(map(clean, text))
    text = "".join(f" {c} " if is_cjk(c) else c for c in text)
    words = []
    for token in text.split():
        if do_lower_case:
            token = strip_accents(token.lower())
        token = "".join(f" {c} " if is_punctuation(c) else c for c in token)
        words += token.split()
    return words


def tokenize_with_spans(
    text: str, vocab: dict[str, int], *, do_lower_case: bool
) -> list[tuple[str, int, int]]:
    """(piece, start, end) for each piece, which comes from text[start:end].

    The original has no such function. The span of a piece is from its first to its last character,
    that of [UNK] its word. A removed accent belongs to the last character before it that remains.
    """
    ends = accents_added(text, do_lower_case=do_lower_case)
    result = []
    for word in placed_words(text, do_lower_case=do_lower_case):
        pieces = split_pieces("".join(char for char, _ in word), vocab)
        first = 0
        for piece in pieces:
            size = len(word) if piece == UNKNOWN else len(piece.removeprefix("##"))
            places = [place for _, place in word[first : first + size]]
            result.append((piece, places[0], ends[places[-1]]))
            first += size
    return result


def placed_words(text: str, *, do_lower_case: bool) -> list[list[tuple[str, int]]]:
    """The words of `text` as lists of (character, its index in `text`), normalized."""
    tokens = [[]]
    for place, char in enumerate(text):
        if is_cjk(char):
            tokens += [[place], []]
        elif clean(char).isspace():
            tokens.append([])
        elif clean(char):
            tokens[-1].append(place)
    words = []
    for token in tokens:
        normalized = "".join(text[place] for place in token)
        places = token
        if do_lower_case:
            normalized = strip_accents(normalized.lower())
            places = []
            for place in token:
                places += [place] * len(strip_accents(text[place].lower()))
        words.append([])
        for char, place in zip(normalized, places, strict=True):
            if is_punctuation(char):
                words += [[(char, place)], []]
            else:
                words[-1].append((char, place))
    return [word for word in words if word]


def accents_added(text: str, *, do_lower_case: bool) -> list[int]:
    """For each character, the index after it and the removed accents that belong to it."""
    ends = []
    owner = None  # the last character that remains
    for place, char in enumerate(text):
        ends.append(place + 1)
        cleaned = clean(char)
        is_accent = do_lower_case and cleaned and not strip_accents(cleaned.lower())
        if is_accent and owner is not None:
            ends[owner] = place + 1
        elif cleaned and not is_accent:
            owner = place
    return ends


@functools.lru_cache(maxsize=4096)
def clean(char: str) -> str:
    """The character; "" in place of control characters, a space in place of white space."""
    if char in "\0\ufffd":
        return ""
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    return "" if unicodedata.category(char) in ("Cc", "Cf") else char


def is_cjk(char: str) -> bool:
    return ord(char) in CJK


@functools.lru_cache(maxsize=4096)
def is_punctuation(char: str) -> bool:
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")


def strip_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def split_pieces(word: str, vocab: dict[str, int]) -> list[str]:
    """The longest pieces from the left, or [UNK] for the whole word."""
    if len(word) > LONGEST_WORD:
        return [UNKNOWN]
    pieces = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if prefix + word[start:end] in vocab), None)
        if end is None:
            return [UNKNOWN]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces
