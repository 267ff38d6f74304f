"""Damages the content of valid files: bytes, lines, JSON values, records, tensors and archives.

    damage = WAYS["json"]
    damage(random.Random(7), b'{"vocab_size": 41}')       ->  b'{"vocab_size": NaN}'

The same state of the generator gives the same damage. The generator is a `random.Random` or one of
Hypothesis's `randoms`. Many functions damage the bytes instead in some of their calls ("or bytes").
"""

import io
import json
import math
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import tensor_index
import tensorflow as tf
from frames import framed, unframed
from tensorflow.core.protobuf import tensor_bundle_pb2

from bert_tf.checkpoints.tensor_index import read_table

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
# Bytes that are not UTF-8, bytes with a meaning in some format, and long runs of bytes.
BYTES = (
    *(b"", b"\0", b"\n", b"\r\n", b"\r", b"\t", b'"', b'""', b",", b"\\", b"\xff", b"\x80"),
    *(b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xff\xfe"),
    *(b"\x1b[2J", b"NaN", b"1e999", b"-0", b"9" * 5000, b"[" * 3000, b'{"a":' * 2000, b"--"),
    *(b"-DOCSTART-", b"<doc>", b"A" * 70_000, b"\0" * 300, b"##", b"[UNK]", b"../", b"  ", b"="),
)
MOST_BYTES = 300_000  # of a damaged file

# ---------------------------------------------------------------------------- texts


def damage_bytes(rng: random.Random, content: bytes) -> bytes:
    """Drops, repeats or replaces a part, changes bytes, or cuts the end off."""
    start = rng.randint(0, len(content))
    most = len(content) if rng.random() < 0.2 else min(len(content), start + 64)
    end = rng.randint(start, most)
    before = content[:start]
    part = content[start:end]
    after = content[end:]
    new = rng.choice(BYTES) if rng.random() < 0.8 else rng.randbytes(rng.randint(1, 40))
    flipped = bytes(rng.choice((0, 255, 127, 128, rng.randrange(256))) for _ in part[:4])
    return rng.choice((
        before + after,
        before + part * rng.choice((2, 3, 51)) + after,
        before,
        before + new + after,
        before + new + part + after,
        before + flipped + part[4:] + after,
        before + flipped[:1] + part[1:] + after,
    ))[:MOST_BYTES]  # fmt: skip


def damage_lines(rng: random.Random, content: bytes) -> bytes:
    """Replaces a cell, repeats, drops or joins lines, or damages bytes.

    Cells are separated by tabs, commas or spaces.
    """
    if rng.random() < 0.3:
        return damage_bytes(rng, content)
    lines = content.split(b"\n")
    kind = rng.random()
    at = rng.randrange(len(lines))
    if kind < 0.6:
        separator = rng.choice((b"\t", b",", b" "))
        cells = lines[at].split(separator)
        text = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
        number = json.dumps(rng.choice(NUMBERS)).encode()
        cells[rng.randrange(len(cells))] = rng.choice((rng.choice(BYTES), text, number))
        lines[at] = separator.join(cells)
    elif kind < 0.75:
        lines[at:at] = [rng.choice(lines)] * rng.choice((1, 2, 300))
    elif kind < 0.85:
        del lines[at]
    else:
        joint = rng.choice((b"", b"\t", b" ", b","))
        lines[at : at + 2] = [joint.join(lines[at : at + 2])]
    line_end = rng.choice((*[b"\n"] * 8, b"\r\n", b"\r", b"\n\n"))  # in most calls "\n"
    return line_end.join(lines)[:MOST_BYTES]


def damage_json(rng: random.Random, content: bytes) -> bytes:
    """Replaces values by values of any type, drops, adds or repeats keys; or bytes."""
    if rng.random() < 0.15:
        return damage_bytes(rng, content)
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2))):
        value = _damaged_value(rng, value)
    text = json.dumps(value, ensure_ascii=rng.random() < 0.8)
    if rng.random() < 0.05 and isinstance(value, dict) and value:
        repeated = json.dumps({rng.choice(list(value)): _random_value(rng)})
        text = f"{repeated[:-1]}, {text[1:]}"
    return text.encode("utf-8", "surrogatepass")


def damage_json_lines(rng: random.Random, content: bytes) -> bytes:
    """Damages the JSON of a line, or damages lines."""
    if rng.random() < 0.3:
        return damage_lines(rng, content)
    lines = content.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = damage_json(rng, lines[at])
    return b"\n".join(lines)


def _damaged_value(rng: random.Random, value: Any) -> Any:
    """A JSON value with one of its parts changed."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        nested = json.loads("[" * 150 + json.dumps(value) + "]" * 150)
        return rng.choice((_random_value(rng), [value], {"a": value}, nested))
    changed = value.copy()
    key = rng.choice([*changed]) if isinstance(changed, dict) else rng.randrange(len(changed))
    kind = rng.random()
    if kind < 0.12:
        del changed[key]
    elif kind < 0.3:
        changed[key] = _random_value(rng)
    elif kind < 0.4 and isinstance(changed, dict):
        changed[rng.choice((*TEXTS, f"{key} ", key.upper(), f"{key}s"))] = changed[key]
    elif kind < 0.4:
        changed.insert(key, changed[key])
    else:
        changed[key] = _damaged_value(rng, changed[key])
    return changed


def _random_value(rng: random.Random) -> Any:
    """A JSON value of any type."""
    text = rng.choice(TEXTS)
    number = rng.choice(NUMBERS)
    return rng.choice((number, number, text, text, None, True, False, [], [number], {text: number}))


# ---------------------------------------------------------------------------- TFRecords


def damage_records(rng: random.Random, content: bytes) -> bytes:
    """Damages features or a record inside frames with right checksums, or a length; or bytes."""
    kind = rng.random()
    records = unframed(content)
    if kind < 0.25:
        return damage_bytes(rng, content)
    at = rng.randrange(len(records))
    if kind < 0.7:
        records[at] = _damaged_example(rng, records[at])
    frames = [framed(record) for record in records]
    if kind >= 0.85:
        length = rng.choice((0, 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64 - 1))
        frames[at] = framed(records[at], length=length)
    elif kind >= 0.7:
        frames[at] = framed(damage_bytes(rng, records[at]))
    return b"".join(frames)


def _damaged_example(rng: random.Random, record: bytes) -> bytes:
    """A tf.Example with one feature missing, of another type or length, or with a new value."""
    example = tf.train.Example.FromString(record)
    features = example.features.feature
    name = rng.choice(sorted(features))
    feature = features[name]
    values = getattr(feature, feature.WhichOneof("kind")).value
    match rng.randrange(6):
        case 0:
            del features[name]
        case 1:
            numbers = [int(value) % 1000 for value in values]
            lists = {
                "bytes_list": {"value": [b"1"] * len(numbers)},
                "int64_list": {"value": numbers},
                "float_list": {"value": numbers},
            }
            kind = rng.choice((None, *lists))
            feature.CopyFrom(tf.train.Feature(**{kind: lists[kind]} if kind else {}))
        case 2:
            del values[rng.randint(0, len(values)) :]
        case 3:
            values.extend(values[: rng.randint(0, len(values))])
        case _ if values:
            values[rng.randrange(len(values))] = _number_for(rng, values[0])
    return example.SerializeToString()


def _number_for(rng: random.Random, like: Any) -> Any:
    """A number that a feature with values such as `like` can hold."""
    if isinstance(like, float):
        return rng.choice((math.nan, math.inf, -math.inf, -1.0, 0.0, 2.0, 1e38, 1e-45, 0.5))
    return rng.choice((-1, 0, 1, 2, 3, 7, 41, 999, 2**31, 2**32 + 5, 2**63 - 1, -(2**63)))


def damage_events(rng: random.Random, content: bytes) -> bytes:
    """Damages the protobuf of a summary inside a frame with right checksums; or bytes."""
    if rng.random() < 0.3:
        return damage_bytes(rng, content)
    records = unframed(content)
    at = rng.randrange(len(records))
    records[at] = damage_bytes(rng, records[at])
    return b"".join(map(framed, records))


# ---------------------------------------------------------------------------- tensors


def damage_safetensors(rng: random.Random, content: bytes) -> bytes:
    """Damages the JSON of the header, and in some calls its length; or bytes."""
    if rng.random() < 0.2:
        return damage_bytes(rng, content)
    (size,) = struct.unpack_from("<Q", content)
    header = damage_json(rng, content[8 : 8 + size])
    body = content[8 + size :]
    wrong = rng.choice((0, 7, 2**24, 2**40, 2**63, 2**64 - 1))
    length = len(header) if rng.random() < 0.85 else wrong
    return struct.pack("<Q", length) + header + body


def damage_tensor_index(rng: random.Random, content: bytes) -> bytes:
    """Changes a field, or the name, of an entry of a checkpoint's index, or its header; or bytes.

    All checksums are right.
    """
    if rng.random() < 0.2:
        return damage_bytes(rng, content)
    values = dict(read_table(content))
    key = rng.choice(sorted(values))
    integers = [number for number in NUMBERS if isinstance(number, int)]

    def number(bits: int) -> int:
        """A signed integer of this many bits."""
        limit = 2 ** (bits - 1)
        fitting = [integer for integer in integers if -limit <= integer < limit]
        return rng.choice((*fitting, rng.randrange(60)))

    if not key:
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(values[key])
        header.num_shards = number(32)
        values[key] = header.SerializeToString()
        return tensor_index.table(values)
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(values[key])
    field = rng.choice(("dtype", "shape", "shard_id", "offset", "size", "crc32c", "slices", "key"))
    if field == "shape":
        dimensions = entry.shape.dim or [entry.shape.dim.add()]
        rng.choice(dimensions).size = number(64)
    elif field == "slices":
        entry.slices.add().extent.add(start=number(64), length=number(64))
    elif field == "key":
        values[rng.choice(TEXTS).encode("utf-8", "surrogatepass") or key] = values.pop(key)
        return tensor_index.table(dict(sorted(values.items())))
    elif field == "crc32c":
        entry.crc32c = rng.randrange(2**32)
    else:
        setattr(entry, field, number(64 if field in ("offset", "size") else 32))
    values[key] = entry.SerializeToString()
    return tensor_index.table(values)


def damage_archive(rng: random.Random, content: bytes) -> bytes:
    """Damages, drops or repeats a member of a zip archive, or makes it 100 MB long; or bytes."""
    if rng.random() < 0.2:
        return damage_bytes(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    damage = damage_json if name.endswith(".json") else damage_bytes
    kind = rng.random()
    if kind < 0.1:
        del members[name]
    elif kind < 0.2:
        members[rng.choice(("../x", "/x", "assets/x", f"{name}x"))] = members[name]
    elif kind < 0.4:
        members[name] += b" " * (100 << 20)  # compressed, these are a few KB
    else:
        members[name] = damage(rng, members[name])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return packed.getvalue()


WAYS: dict[str, Damage] = {
    "tensor_index": damage_tensor_index,
    "archive": damage_archive,
    "bytes": damage_bytes,
    "lines": damage_lines,
    "json": damage_json,
    "json_lines": damage_json_lines,
    "records": damage_records,
    "events": damage_events,
    "safetensors": damage_safetensors,
}
