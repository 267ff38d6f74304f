"""Damaged binary files, made of valid ones: TFRecord files, safetensors, archives."""

import io
import math
import random
import struct
import zipfile
from typing import Any

from damage import Damage, damage_bytes, damage_json
from frames import framed, unframed

# ---------------------------------------------------------------------------- TFRecords


def damage_records(rng: random.Random, content: bytes) -> bytes:
    """Frames with right or wrong checksums, of damaged features; or bytes."""
    kind = rng.random()
    if kind < 0.25:
        return damage_bytes(rng, content)
    records = unframed(content)
    at = rng.randrange(len(records))
    if kind < 0.7:
        records[at] = _damaged_example(rng, records[at])
    elif kind < 0.85:
        records[at] = damage_bytes(rng, records[at])
    frames = [framed(record) for record in records]
    if kind >= 0.85:
        length = rng.choice((0, 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64 - 1))
        frames[at] = framed(records[at], length=length)
    elif rng.random() < 0.2:
        rng.choice((frames.reverse, lambda: frames.extend(frames[at:]), lambda: frames.pop(at)))()
    return b"".join(frames)


def _damaged_example(rng: random.Random, record: bytes) -> bytes:
    import tensorflow as tf  # not at the top: takes seconds, and other damage needs none

    example = tf.train.Example.FromString(record)
    features = example.features.feature
    name = rng.choice(sorted(features))
    feature = features[name]
    values = getattr(feature, feature.WhichOneof("kind")).value
    kind = rng.randrange(7)
    if kind == 0:
        del features[name]
    elif kind == 1:
        features[rng.choice(("x", "", "input_ids2"))].CopyFrom(feature)
    elif kind == 2:
        numbers = [int(value) % 1000 for value in values]
        others = {"bytes_list": {"value": [b"1"] * len(numbers)}, "int64_list": {"value": numbers}}
        others["float_list"] = {"value": numbers}
        name = rng.choice((None, *others))
        feature.CopyFrom(tf.train.Feature(**{name: others[name]} if name else {}))
    elif kind == 3:
        del values[rng.randint(0, len(values)) :]
    elif kind == 4:
        values.extend(values[: rng.randint(0, len(values))])
    elif values:
        values[rng.randrange(len(values))] = _number_for(rng, values[0])
    return example.SerializeToString()


def _number_for(rng: random.Random, like: Any) -> Any:
    """A number that a feature of this type can hold."""
    if isinstance(like, float):
        return rng.choice((math.nan, math.inf, -math.inf, -1.0, 0.0, 2.0, 1e38, 1e-45, 0.5))
    return rng.choice((-1, 0, 1, 2, 3, 7, 41, 999, 2**31, 2**32 + 5, 2**63 - 1, -(2**63)))


# ---------------------------------------------------------------------------- tensors


def damage_safetensors(rng: random.Random, content: bytes) -> bytes:
    """The JSON of the header is damaged and its length made right or wrong; or bytes."""
    if rng.random() < 0.2:
        return damage_bytes(rng, content)
    (size,) = struct.unpack_from("<Q", content)
    header, body = content[8 : 8 + size], content[8 + size :]
    if rng.random() < 0.6:
        header = damage_json(rng, header)
    if rng.random() < 0.2:
        body = damage_bytes(rng, body)
    size = (
        len(header) if rng.random() < 0.85 else rng.choice((0, 7, 2**24, 2**40, 2**63, 2**64 - 1))
    )
    return struct.pack("<Q", size) + header + body


def damage_zip(rng: random.Random, content: bytes) -> bytes:
    """A member of a ZIP file is damaged, left out or renamed; or bytes."""
    if rng.random() < 0.3:
        return damage_bytes(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, kind = rng.choice(sorted(members)), rng.random()
    if kind < 0.1:
        del members[name]
    elif kind < 0.2:
        members[rng.choice(("../x", "/x", "x", name.upper()))] = members.pop(name)
    else:
        damage = damage_json if name.endswith(".json") else damage_bytes
        members[name] = damage(rng, members[name])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    return file.getvalue()


def damage_events(rng: random.Random, content: bytes) -> bytes:
    """Summaries: frames with right checksums around damaged protobufs; or bytes."""
    if rng.random() < 0.3:
        return damage_bytes(rng, content)
    records = unframed(content)
    at = rng.randrange(len(records))
    records[at] = damage_bytes(rng, records[at])
    return b"".join(map(framed, records))


WAYS: dict[str, Damage] = {
    "records": damage_records,
    "events": damage_events,
    "safetensors": damage_safetensors,
    "zip": damage_zip,
}
