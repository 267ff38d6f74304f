"""The original's run_squad.py in plain Python: the reference for `bert_tf.squad`.

Written from what google-research/bert does, one question and one token at a time, without any
thought of speed. Where the original crashes, the result is None.
"""

import math

import reference_tokenizer

WHITE_SPACE = " \t\r\n\u202f"


class Tokenizer:
    """The original's tokenizer for a vocabulary."""

    def __init__(self, vocab: dict[str, int], *, do_lower_case: bool):
        self.vocab = vocab
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str) -> list[str]:
        return reference_tokenizer.tokenize(text, self.vocab, do_lower_case=self.do_lower_case)

    def basic(self, text: str) -> str:
        words = reference_tokenizer.split_words(text, do_lower_case=self.do_lower_case)
        return " ".join(words)


def split_context(context: str) -> tuple[list[str], list[int]]:
    """Words, and for each character the number of its word."""
    words = []
    word_of_character = []
    in_word = False
    for character in context:
        if character in WHITE_SPACE:
            in_word = False
        elif in_word:
            words[-1] += character
        else:
            words.append(character)
            in_word = True
        word_of_character.append(len(words) - 1)
    return words, word_of_character


def features(
    words: list[str],
    question: str,
    tokenizer: Tokenizer,
    *,
    answer: tuple[str, int, int] | None = None,  # text, first word, last word
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
) -> list[dict]:
    """The windows of one question."""
    query = tokenizer.tokenize(question)[:max_query_length]
    pieces = []
    word_of_piece = []
    first_piece = []  # of each word
    for number, word in enumerate(words):
        first_piece.append(len(pieces))
        for piece in tokenizer.tokenize(word):
            pieces.append(piece)
            word_of_piece.append(number)
    span = answer and improved_span(pieces, first_piece, answer, tokenizer)
    runs = window_runs(len(pieces), max_seq_length - len(query) - 3, doc_stride)
    windows = []
    for number, (start, length) in enumerate(runs):
        window = window_of(query, pieces, word_of_piece, runs, number)
        tokens = window["tokens"]
        padding = [0] * (max_seq_length - len(tokens))
        window["input_ids"] = [tokenizer.vocab[token] for token in tokens] + padding
        window["input_mask"] = [1] * len(tokens) + padding
        window["segment_ids"] += padding
        window["positions"] = (0, 0)
        if span and start <= span[0] and span[1] < start + length:
            shift = len(query) + 2 - start
            window["positions"] = (span[0] + shift, span[1] + shift)
        windows.append(window)
    return windows


def window_runs(num_pieces: int, room: int, doc_stride: int) -> list[tuple[int, int]]:
    """(first piece, number of pieces) of each window of a context; `room`: pieces at most."""
    runs = []
    start = 0
    while start < num_pieces:
        length = min(num_pieces - start, room)
        runs.append((start, length))
        if start + length == num_pieces:
            break
        start += min(length, doc_stride)
    return runs


def window_of(
    query: list[str],
    pieces: list[str],
    word_of_piece: list[int],
    runs: list[tuple[int, int]],
    number: int,
) -> dict:
    """The tokens of a window without padding, their segments, and what is known of each token."""
    start, length = runs[number]
    tokens = ["[CLS]", *query, "[SEP]"]
    segment_ids = [0] * (len(query) + 2)
    word_of_token = {}
    is_max_context = {}
    for piece in range(start, start + length):
        word_of_token[len(tokens)] = word_of_piece[piece]
        is_max_context[len(tokens)] = has_max_context(runs, number, piece)
        tokens.append(pieces[piece])
        segment_ids.append(1)
    tokens.append("[SEP]")
    segment_ids.append(1)
    return {
        "tokens": tokens,
        "segment_ids": segment_ids,
        "word_of_token": word_of_token,
        "is_max_context": is_max_context,
    }


def improved_span(
    pieces: list[str], first_piece: list[int], answer: tuple[str, int, int], tokenizer: Tokenizer
) -> tuple[int, int]:
    """The first and last piece of an answer: those that spell it, or those of its words."""
    text, first_word, last_word = answer
    first = first_piece[first_word]
    behind = first_piece[last_word + 1] if last_word + 1 < len(first_piece) else len(pieces)
    wanted = " ".join(tokenizer.tokenize(text))
    for start in range(first, behind):
        for end in range(behind, start, -1):
            if " ".join(pieces[start:end]) == wanted:
                return start, end - 1
    return first, behind - 1


def has_max_context(runs: list[tuple[int, int]], number: int, piece: int) -> bool:
    """Whether no other window has more context on both sides of the piece."""
    best_score = None
    best_number = None
    for candidate, (start, length) in enumerate(runs):
        if start <= piece < start + length:
            sides = min(piece - start, start + length - 1 - piece)
            score = sides + 0.01 * length
            if best_score is None or score > best_score:
                best_score = score
                best_number = candidate
    return best_number == number


# ---------------------------------------------------------------------------- answers


def nbest(
    words: list[str],
    windows: list[dict],
    logits: list[tuple[list[float], list[float]]],
    tokenizer: Tokenizer,
    *,
    n_best_size: int,
    max_answer_length: int,
    version_2: bool,
) -> tuple[list[tuple[str, float, float, float]], float | None] | None:
    """The best answers of one question, and its null odds.

    Returns:
      A list (text, probability, start logit, end logit), best first, and the null odds, None
      without `version_2`; or None alone where the original crashes.
    """
    candidates = span_candidates(windows, logits, n_best_size, max_answer_length)
    null = null_candidate(logits)
    if version_2:
        if null is None:
            return None
        candidates.append(null)
    candidates.sort(key=lambda candidate: candidate[3] + candidate[4], reverse=True)
    entries = {}
    for number, start, end, start_logit, end_logit in candidates:
        if len(entries) >= n_best_size:
            break
        text = span_text(words, windows[number], start, end, tokenizer) if start else ""
        entries.setdefault(text, (start_logit, end_logit))
    if version_2:
        entries.setdefault("", null[3:])
    if not entries:
        entries["empty"] = (0.0, 0.0)
    top = max(start + end for start, end in entries.values())
    total = sum(math.exp(start + end - top) for start, end in entries.values())
    result = [
        (text, math.exp(start + end - top) / total, start, end)
        for text, (start, end) in entries.items()
    ]
    if not version_2:
        return result, None
    for text, _, start_logit, end_logit in result:
        if text:
            return result, null[3] + null[4] - start_logit - end_logit
    return None


# A candidate is (number of the window, first token, last token, start logit, end logit).
Candidate = tuple[int, int, int, float, float]


def span_candidates(
    windows: list[dict],
    logits: list[tuple[list[float], list[float]]],
    n_best_size: int,
    max_answer_length: int,
) -> list[Candidate]:
    """The valid spans between the best starts and ends of each window."""
    candidates = []
    for number, (window, (starts, ends)) in enumerate(zip(windows, logits, strict=True)):
        for start in best_indexes(starts, n_best_size):
            for end in best_indexes(ends, n_best_size):
                if (
                    window["is_max_context"].get(start)
                    and end in window["word_of_token"]
                    and start <= end < start + max_answer_length
                ):
                    candidates.append((number, start, end, starts[start], ends[end]))
    return candidates


def null_candidate(logits: list[tuple[list[float], list[float]]]) -> Candidate | None:
    """The span of [CLS] with the lowest score of all windows, the first of equals."""
    null = None
    for number, (starts, ends) in enumerate(logits):
        if null is None or starts[0] + ends[0] < null[3] + null[4]:
            null = (number, 0, 0, starts[0], ends[0])
    return null


def best_indexes(logits: list[float], n_best_size: int) -> list[int]:
    """The positions of the greatest logits, greatest first."""
    return sorted(range(len(logits)), key=lambda i: logits[i], reverse=True)[:n_best_size]


def span_text(words: list[str], window: dict, start: int, end: int, tokenizer: Tokenizer) -> str:
    """The text of a span of tokens, as the context writes it."""
    text = " ".join(window["tokens"][start : end + 1])
    text = " ".join(text.replace(" ##", "").replace("##", "").split())
    first = window["word_of_token"][start]
    last = window["word_of_token"][end]
    return final_text(text, " ".join(words[first : last + 1]), tokenizer)


def final_text(pred_text: str, orig_text: str, tokenizer: Tokenizer) -> str:
    """The part of `orig_text` that `pred_text` was made of; all of it if the two do not align."""
    normal = tokenizer.basic(orig_text)
    start = normal.find(pred_text)
    end = start + len(pred_text) - 1
    orig_letters = [place for place, character in enumerate(orig_text) if character != " "]
    normal_letters = [place for place, character in enumerate(normal) if character != " "]
    if start == -1 or len(orig_letters) != len(normal_letters):
        return orig_text
    number = {place: letter for letter, place in enumerate(normal_letters)}
    if start not in number or end not in number:
        return orig_text
    return orig_text[orig_letters[number[start]] : orig_letters[number[end]] + 1]
