"""data_gen/beam/steps.py, step by step without Beam: the local generator's records."""

import collections
import dataclasses
import pathlib

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from generation import SAMPLE_TEXT, make_job, write_chinese

from bert_tf.data.patterns import expand_patterns
from bert_tf.errors import InputError
from bert_tf.files import read_json
from data_gen import shuffling
from data_gen.beam import steps
from data_gen.documents import Counts, DocumentReader
from data_gen.pipeline import Job, check_vocabulary, create, make_plan


def blocks_of(sizes: list[list[int]], block_characters: int) -> list[list[tuple[int, int]]]:
    """The documents (file, number) of each block, cut in one pass over all files."""
    blocks, size = [[]], 0
    for file, documents in enumerate(sizes):
        for number, length in enumerate(documents):
            if size >= block_characters:
                blocks.append([])
                size = 0
            blocks[-1].append((file, number))
            size += length
    return [block for block in blocks if block]


@hypothesis.given(st.lists(st.lists(st.integers(1, 9), max_size=7), max_size=5), st.integers(1, 30))
def test_cut_is_the_cut_of_one_pass(sizes, block_characters):
    files = [(i, np.array(characters, np.int64)) for i, characters in enumerate(sizes)]
    shares = steps.cut(reversed(files), block_characters)
    found = collections.defaultdict(list)
    for file in range(len(sizes)):
        for share in shares[file]:
            found[share.block] += [
                (file, n) for n in range(share.first_document, share.end_document)
            ]
    assert [found[i] for i in range(len(found))] == blocks_of(sizes, block_characters)


def test_documents_are_the_local_blocks(tmp_path):
    paths = expand_patterns(SAMPLE_TEXT)
    reader = DocumentReader(paths, input_format="text")
    expected = [block.documents for block in reader.blocks(7000)]
    measured = [(i, steps.measure(path, "text")) for i, path in enumerate(paths)]
    shares, counts = steps.cut(measured, 7000), Counts()
    parts = collections.defaultdict(list)
    for number in reversed(range(len(paths))):
        for block, text in steps.gather(paths[number], "text", shares[number], counts):
            parts[block].append((number, text))
    found = [steps.put_block_together(i, parts[i]).documents for i in sorted(parts)]
    assert found == expected
    assert len(found) > len(paths) > 1
    assert counts == reader.counts


@pytest.mark.parametrize("text", ["one\n\ntwo\n", "one\n\ntwo\n\nfour\n\nfive\n", "\n"])
def test_a_text_that_changes_between_the_passes(tmp_path, text):
    path = tmp_path / "text"
    path.write_text("one\n\ntwo\n\nthree\n")
    shares = steps.cut([(0, steps.measure(str(path), "text"))], 4)
    assert len(shares[0]) == 2
    path.write_text(text)
    with pytest.raises(InputError, match="text, which changed"):
        list(steps.gather(str(path), "text", shares[0], Counts()))


def made_by_steps(job: Job, tmp_path: pathlib.Path, *, num_shards: int) -> tuple[list, Counts]:
    """The records in the order of the shards, and all counts; every step in the least handy order.

    Also does each block twice, as a runner may.
    """
    paths, run_folder = expand_patterns(job.input_file), str(tmp_path / "run")
    job, _ = check_vocabulary(job)
    plan = make_plan(job, DocumentReader(paths, input_format="text"), tmp_path / "machine")
    measured = [(i, steps.measure(path, "text")) for i, path in enumerate(paths)]
    shares, counts = steps.cut(measured, job.block_characters), Counts()
    parts = collections.defaultdict(list)
    for number, path in enumerate(paths):
        for block, text in steps.gather(path, "text", shares[number], counts):
            parts[block].insert(0, (number, text))
    sizes = {}
    for block in [*reversed(parts), *parts]:
        text = steps.put_block_together(block, parts[block])
        num_documents, statistics = steps.tokenize(plan, text, run_folder)
        counts.update(statistics.counts if block not in sizes else {})
        sizes[block] = num_documents
    ends = np.cumsum([0, *(sizes[i] for i in range(len(sizes)))]).tolist()
    shards = steps.Shards([range(*ends[i : i + 2]) for i in range(len(sizes))], num_shards)
    rows = collections.defaultdict(list)
    for block in reversed(range(len(sizes))):
        keyed = steps.keyed_rows(plan, block, shards, run_folder, counts)
        for shard, part in steps.in_shards(keyed, num_shards):
            rows[shard].append(part)
    written = []
    for shard in range(num_shards):
        path = str(tmp_path / f"shard{shard}")
        number = steps.write_shard(path, rows[shard], plan)
        written += [item.numpy() for item in tf.data.TFRecordDataset(path)]
        assert len(written) >= number > 0
        assert sum(read_json(f"{path}.index")["block_records"]) == number
    assert not list(tmp_path.rglob("*.incomplete"))
    return written, counts


@pytest.mark.parametrize("block_characters", [9000, 1 << 30])
def test_the_steps_make_the_local_records(tmp_path, vocab_file, block_characters, monkeypatch):
    """In many blocks, and in a single one, which has another way."""
    monkeypatch.setattr(shuffling, "RUN_BYTES", 20_000)
    job = make_job(tmp_path, vocab_file, block_characters=block_characters)
    report = create(dataclasses.replace(job, output_file=str(tmp_path / "local")))
    expected = [item.numpy() for item in tf.data.TFRecordDataset(str(tmp_path / "local"))]
    found, counts = made_by_steps(job, tmp_path, num_shards=3)
    assert found == expected
    assert len(set(found)) > 1000
    for name in ("files", "documents", "sentences", "tokens", "instances"):
        assert counts[name] == report[name], name
    assert {name: counts[name] for name in report["dropped"]} == report["dropped"]


def test_words_between_spaces_are_the_local_ones(tmp_path):
    given = write_chinese(tmp_path)
    job = make_job(tmp_path, given["vocab_file"], input_file=given["input_file"],
                   block_characters=700, do_whole_word_mask=True, words_from_spaces=True,
                   one_draw_per_word=True)  # fmt: skip
    report = create(dataclasses.replace(job, output_file=str(tmp_path / "local")))
    expected = [item.numpy() for item in tf.data.TFRecordDataset(str(tmp_path / "local"))]
    found, counts = made_by_steps(job, tmp_path, num_shards=3)
    assert found == expected
    assert len(set(found)) > 100
    assert counts["tokens"] / counts["words"] == report["tokens_per_word"] > 1


def test_a_shard_without_records(tmp_path, vocab_file):
    job, _ = check_vocabulary(make_job(tmp_path, vocab_file))
    reader = DocumentReader(expand_patterns(job.input_file), input_format="text")
    plan = make_plan(job, reader, tmp_path)
    assert steps.write_shard(str(tmp_path / "shard"), [], plan) == 0
    assert (tmp_path / "shard").read_bytes() == b""
    assert read_json(str(tmp_path / "shard.index"))["num_bytes"] == 0
