"""Damaged files, made of valid ones: by bytes, by lines, by JSON values.

    damage = WAYS["json"]
    damage(random.Random(7), b'{"vocab_size": 41}')       ->  b'{"vocab_size": NaN}'

The same state of the generator gives the same damage. Hypothesis's `randoms` serve as well as
`random.Random`.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

Damage = Callable[[random.Random, bytes], bytes]

NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 12, 255, 1000, 2**31 - 1, 2**31, -(2**31), 2**32 + 5, 2**62, 2**63),
    *(-(2**63), 10**20, 10**400, 0.5, 1.0, 1.5, -0.0, 1e-320, 1e308),
    *(math.nan, math.inf, -math.inf),
)
TEXTS = (
    *("", " ", "a", "\0", "\n", "\r", "\t", "\ud800", "\udfff\ud800", "\ufeff", "\u2028"),
    *("\u202e", "\x1b[31m", "\x7f", "\x85", "NaN", "true", "null", "0", "-1", "1_0", "1e5"),
    *("٣", "𝟙", "é", "e\u0301", "😀", "../x", "/etc/passwd", "a,b", "{}", "[UNK]", "##"),
    *("<doc", "O", "B-", "x" * 300),
)
# Inside UTF-8, what is none, what has a meaning to some format, and what is long.
BYTES = (
    *(b"", b"\0", b"\n", b"\r\n", b"\r", b"\t", b'"', b'""', b",", b"\\", b"\xff", b"\x80"),
    *(b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xff\xfe"),
    *(b"\x1b[2J", b"NaN", b"1e999", b"-0", b"9" * 5000, b"[" * 3000, b'{"a":' * 2000, b"--"),
    *(b"-DOCSTART-", b"<doc>", b"A" * 70_000, b"\0" * 300, b"##", b"[UNK]", b"../", b"  ", b"="),
)
MOST_BYTES = 300_000  # of a damaged file

# ---------------------------------------------------------------------------- bytes


def damage_bytes(rng: random.Random, content: bytes) -> bytes:
    """One to three changes anywhere."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        content = _changed_bytes(rng, content)[:MOST_BYTES]
    return content


def _changed_bytes(rng: random.Random, content: bytes) -> bytes:
    start, end = _span(rng, content)
    before, span, after = content[:start], content[start:end], content[end:]
    match rng.choice(("flip", "flip", "drop", "double", "move", "cut", "new", "new", "other")):
        case "flip":
            changed = bytearray(content)
            for _ in range(rng.choice((1, 1, 1, 4, 40)) if content else 0):
                byte = rng.choice((0, 255, 127, 128, rng.randrange(256)))
                changed[rng.randrange(len(changed))] = byte
            return bytes(changed)
        case "drop":
            return before + after
        case "double":
            return before + span * rng.choice((2, 3, 51)) + after
        case "move":
            to = rng.randint(0, len(before + after))
            return (before + after)[:to] + span + (before + after)[to:]
        case "cut":
            return before
        case "new":
            new = rng.choice(BYTES) if rng.random() < 0.8 else rng.randbytes(rng.randint(1, 40))
            return before + new + (after if rng.random() < 0.5 else span + after)
    return rng.choice((b"", rng.randbytes(rng.randint(1, 200)), content * 2, content[::-1]))


def _span(rng: random.Random, content: Sequence) -> tuple[int, int]:
    """A part of at most 64 elements, or of any size."""
    start = rng.randint(0, len(content))
    most = len(content) if rng.random() < 0.2 else min(len(content), start + 64)
    return start, rng.randint(start, most)


# ---------------------------------------------------------------------------- lines


def damage_lines(rng: random.Random, content: bytes) -> bytes:
    """Lines and their cells, between tabs, commas or spaces, are changed; or bytes."""
    if rng.random() < 0.3:
        return damage_bytes(rng, content)
    lines = content.split(b"\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change_lines(rng, lines)
    ends = rng.choice((b"\n",) * 8 + (b"\r\n", b"\r", b"\n\n"))
    return (rng.choice((b"",) * 9 + (b"\xef\xbb\xbf",)) + ends.join(lines))[:MOST_BYTES]


def _change_lines(rng: random.Random, lines: list[bytes]) -> None:
    at, (start, end) = rng.randrange(len(lines)), _span(rng, lines)
    match rng.choice(("cell",) * 6 + ("repeat", "drop", "shuffle", "join")):
        case "cell":
            separator = rng.choice((b"\t", b",", b" "))
            cells = lines[at].split(separator)
            text = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
            number = json.dumps(rng.choice(NUMBERS)).encode()
            cells[rng.randrange(len(cells))] = rng.choice((rng.choice(BYTES), text, number))
            lines[at] = separator.join(cells)
        case "repeat":
            lines[at:at] = [rng.choice(lines)] * rng.choice((1, 2, 300))
        case "drop":
            lines[start:end] = [] if end - start < len(lines) else [b""]
        case "shuffle":
            rng.shuffle(lines)
        case "join":
            lines[start:end] = [rng.choice((b"", b"\t", b" ", b",")).join(lines[start:end])]


# ---------------------------------------------------------------------------- JSON


def damage_json(rng: random.Random, content: bytes) -> bytes:
    """Values of any type in place of others, keys gone, new or twice, deep nesting; or bytes."""
    if rng.random() < 0.15:
        return damage_bytes(rng, content)
    return json_bytes(rng, damaged_value(rng, json.loads(content)))


def damage_json_lines(rng: random.Random, content: bytes) -> bytes:
    """One line's JSON is damaged, or lines are."""
    if rng.random() < 0.3:
        return damage_lines(rng, content)
    lines = content.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = damage_json(rng, lines[at])
    return b"\n".join(lines)


def json_bytes(rng: random.Random, value: Any) -> bytes:
    """The value as JSON, spelled in one of several ways; sometimes with a key that comes twice."""
    text = json.dumps(value, ensure_ascii=rng.random() < 0.8, indent=rng.choice((None, None, 1)))
    if rng.random() < 0.05 and isinstance(value, dict) and value:
        twice = json.dumps({rng.choice(list(value)): random_value(rng)})
        text = f"{twice[:-1]}, {text[1:]}"
    return text.encode("utf-8", "surrogatepass")


def damaged_value(rng: random.Random, value: Any) -> Any:
    """A JSON value with one to three of its parts changed."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _damaged_somewhere(rng, value)
    return value


def _damaged_somewhere(rng: random.Random, value: Any) -> Any:
    is_leaf = not isinstance(value, dict | list) or not value
    if is_leaf or rng.random() < 0.15:
        return rng.choice((random_value(rng), [value], {"a": value}, nested(rng, value)))
    if isinstance(value, dict):
        return _damaged_object(rng, dict(value))
    changed = list(value)
    at = rng.randrange(len(changed))
    kind = rng.random()
    if kind < 0.1:
        del changed[at]
    elif kind < 0.2:
        changed.insert(at, changed[at])
    elif kind < 0.3:
        changed[at] = random_value(rng)
    else:
        changed[at] = _damaged_somewhere(rng, changed[at])
    return changed


def _damaged_object(rng: random.Random, changed: dict) -> dict:
    key, kind = rng.choice(list(changed)), rng.random()
    if kind < 0.12:
        del changed[key]
    elif kind < 0.2:
        changed[rng.choice(TEXTS)] = random_value(rng)
    elif kind < 0.25:
        changed[rng.choice((key + " ", key.upper(), key[:-1], f"{key}s"))] = changed.pop(key)
    elif kind < 0.32:
        changed[key] = changed[rng.choice(list(changed))]
    elif kind < 0.55:
        changed[key] = random_value(rng)
    else:
        changed[key] = _damaged_somewhere(rng, changed[key])
    return changed


def random_value(rng: random.Random) -> Any:
    """A JSON value of any type."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.choice((None, True, False))
    if kind == 6:
        return [random_value(rng) for _ in range(rng.randint(0, 2))]
    return {rng.choice(TEXTS): random_value(rng) for _ in range(rng.randint(0, 2))}


def nested(rng: random.Random, value: Any) -> Any:
    """The value inside many lists or objects; `json.dumps` can still write it."""
    for _ in range(rng.choice((3, 40, 150))):
        value = rng.choice(([value], {"a": value}))
    return value


WAYS: dict[str, Damage] = {
    "bytes": damage_bytes,
    "lines": damage_lines,
    "json": damage_json,
    "json_lines": damage_json_lines,
}
