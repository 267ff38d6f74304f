"""Readers of TFRecord files: records, their indexes and descriptions, and summaries."""

import dataclasses
import json
import pathlib

import numpy as np
import small
import tensorflow as tf
from readers import Reader

from bert_tf.cli.plot import read_curves
from bert_tf.data.batches import Batches, ShuffledSampler
from bert_tf.data.records import Record, description_path, index_path, pretraining_record
from bert_tf.data.shards import RecordFiles, read_description
from bert_tf.tasks.features import classifier_record

MODEL = {"vocab_size": small.CONFIG.vocab_size, "type_vocab_size": small.CONFIG.type_vocab_size}
PRETRAINING = pretraining_record(max_seq_length=small.S, max_predictions_per_seq=small.P, **MODEL)


def _records(folder: pathlib.Path, record: Record, values: dict) -> Reader:
    """A file of three records."""
    path = small.write_records(folder / "train.tfrecord", values, record)

    def read(_: pathlib.Path) -> None:
        files = RecordFiles(path, record)
        batch = files.read(range(len(files)))
        for feature in record.features:
            value = batch[feature.name]
            assert value.shape == (len(files), feature.size)
            assert ((value >= feature.least) & (value <= feature.most)).all(), feature.name

    return Reader(folder, {"train.tfrecord": "records"}, read)


def pretraining_records(folder: pathlib.Path) -> Reader:
    """Records for pre-training, read record by record."""
    return _records(folder, PRETRAINING, small.examples(3))


def _read_blocks(path: str) -> None:
    """Reads records as pre-training does, in blocks."""
    files = RecordFiles(path, PRETRAINING, keep_indexes=True)
    order = ShuffledSampler(files.block_records, batch_size=2, seed=1)
    batches = Batches(files, order, batch_size=2, num_examples=len(files))
    with batches.record_errors():
        for batch in batches.dataset().as_numpy_iterator():
            for feature in PRETRAINING.features:
                value = batch[feature.name]
                assert value.shape == (2, feature.size)
                assert ((value >= feature.least) & (value <= feature.most)).all(), feature.name


def pretraining_blocks(folder: pathlib.Path) -> Reader:
    """Records for pre-training without an index."""
    reader = pretraining_records(folder)
    path = str(folder / "train.tfrecord")

    def read(_: pathlib.Path) -> None:
        try:
            _read_blocks(path)
        finally:
            pathlib.Path(index_path(path)).unlink(missing_ok=True)

    return dataclasses.replace(reader, read=read)


def block_index(folder: pathlib.Path) -> Reader:
    """The index of records."""
    path = small.write_records(folder / "train.tfrecord", small.examples(3), PRETRAINING)
    RecordFiles(path, PRETRAINING, keep_indexes=True)
    name = pathlib.Path(index_path(path)).name
    return Reader(folder, {name: "json"}, lambda _: _read_blocks(path))


def task_records(folder: pathlib.Path) -> Reader:
    """Records of a task, as in the folder of a run."""
    record = classifier_record(max_seq_length=small.S, head="regression", **MODEL)
    values = small.examples(3) | {"label_ids": np.float32([[0], [1.5], [-2]])}
    return _records(folder, record, values | {"is_real_example": np.ones([3, 1], np.int64)})


def data_description(folder: pathlib.Path) -> Reader:
    """The description that data generation writes beside records."""
    reader = pretraining_records(folder)
    content = {
        **dict.fromkeys(("bert_tf_version", "vocab_file", "vocab_sha256", "text_digest"), "0"),
        **dict.fromkeys(("do_lower_case", "do_whole_word_mask"), True),
        **dict.fromkeys(("words_from_spaces", "one_draw_per_word"), False),
        **dict.fromkeys(("max_seq_length", "max_predictions_per_seq", "vocab_size"), 7),
        **dict.fromkeys(("masked_lm_prob", "short_seq_prob"), 0.15),
        "mask_share": 0.8,
        **dict.fromkeys(("random_share", "unchanged_share"), 0.1),
        **dict.fromkeys(("dupe_factor", "random_seed", "shard", "num_shards"), 1),
        "never_split": ("<e1>",),
        "added_words": ("Covid-19",),
        "strip_accents": True,
        "num_records": 3,
        "pack": False,
        "num_bytes": len(reader.valid["train.tfrecord"]),
    }
    path = pathlib.Path(description_path(str(folder / "train.tfrecord")))
    path.write_text(json.dumps(content))

    def read(folder: pathlib.Path) -> None:
        description = dataclasses.asdict(read_description(str(folder / "train.tfrecord")))
        for name, value in description.items():
            kind = int | float if isinstance(content[name], float) else type(content[name])
            if name == "strip_accents":
                kind = kind | None  # None: the same as do_lower_case
            assert isinstance(value, kind), name
        reader.read(folder)

    return Reader(folder, {path.name: "json"}, read)


def summaries(folder: pathlib.Path) -> Reader:
    """The summaries that `bert-tf plot` draws."""
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for step in (10, 20):
            tf.summary.write("loss", tf.constant(7.0 / step), step=step)
    writer.close()
    (path,) = folder.iterdir()

    def read(folder: pathlib.Path) -> None:
        for curve in read_curves(str(folder)).values():
            for step, value in curve.items():
                assert isinstance(step, int)
                assert isinstance(value, float)

    return Reader(folder, {path.name: "events"}, read)


MAKERS = {
    "pretraining_records": pretraining_records,
    "pretraining_blocks": pretraining_blocks,
    "block_index": block_index,
    "task_records": task_records,
    "data_description": data_description,
    "summaries": summaries,
}
