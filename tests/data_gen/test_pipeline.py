"""The command as a whole: the original's records, the original's distribution, and no mishaps."""

import dataclasses
import hashlib
import json
import pathlib
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import psutil
import pytest
import tensorflow as tf
import walking
from generation import LETTERS, ROOT, SAMPLE_TEXT, P, S, make_job, names, serialized

import bert_tf
from bert_tf.data.records import pretraining_record
from bert_tf.data.shards import read_description
from bert_tf.errors import InputError
from data_gen import outputs, pipeline
from data_gen.pipeline import Job, create


def read(path, *, max_seq_length: int = S, max_predictions_per_seq: int = P) -> dict:
    """All records of a file as arrays [records, size]."""
    record = pretraining_record(
        max_seq_length=max_seq_length, max_predictions_per_seq=max_predictions_per_seq
    )
    return {name: value.numpy() for name, value in record.parse(serialized(path)).items()}


# -------------------------------------------------------------------- equal to the original


@pytest.mark.parametrize("kind", ["wordpiece", "wwm"])
def test_a_small_corpus_gives_the_records_of_the_original(goldens_dir, vocab_dir, tmp_path, kind):
    (vocabulary,) = map(str, vocab_dir.glob("uncased*.txt"))
    sizes = {"max_seq_length": 128, "max_predictions_per_seq": 20}
    values = {"input_file": str(goldens_dir / "corpus.txt"), "dupe_factor": 5, **sizes}
    job = make_job(tmp_path, vocabulary, do_whole_word_mask=kind == "wwm", **values)
    report = create(job)
    golden = json.loads((goldens_dir / "pretraining_data_stats.json").read_text())[kind]
    assert {name: report[name] for name in golden if name in report} == pytest.approx(
        {name: value for name, value in golden.items() if name in report}, rel=1e-12
    )
    assert len(set(golden) & set(report)) == 7
    expected = read(goldens_dir / f"pretraining_{kind}.tfrecord", **sizes)
    found = read(job.output_file, **sizes)
    assert len(expected["input_ids"]) == 64
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name][:64], values, err_msg=name)


def test_the_report_counts_what_is_in_the_files(tmp_path, vocab_file):
    outputs = [str(tmp_path / name) for name in ("a", "b", "c")]
    job = make_job(tmp_path, vocab_file, output_file=",".join(outputs), block_characters=9000)
    report = create(job)
    assert json.loads((tmp_path / "report_a.json").read_text()) == report
    parts = [read(path) for path in outputs]
    assert [len(part["input_ids"]) for part in parts] == list(report["output_files"].values())
    assert max(report["output_files"].values()) - min(report["output_files"].values()) <= 1
    records = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    lengths = records["input_mask"].sum(axis=1)
    weights = records["masked_lm_weights"] == 1
    shown = np.take_along_axis(records["input_ids"], records["masked_lm_positions"], 1)[weights]
    labels = records["masked_lm_ids"][weights]
    expected = {
        "instances": len(lengths),
        "mean_length": lengths.mean(),
        "full_length_share": (lengths == S).mean(),
        "random_next_share": records["next_sentence_labels"].mean(),
        "mean_predictions": weights.sum(axis=1).mean(),
        "masked_share": weights.sum() / lengths.sum(),
        "mask_share": (shown == 4).mean(),
        "unchanged_share": (shown == labels).mean(),
    }
    assert {name: report[name] for name in expected} == pytest.approx(expected)
    assert (report["files"], report["dropped"]) == (2, {})
    (warning,) = report["warnings"]  # of a vocabulary of letters
    assert "of the text is cut off" in warning


# -------------------------------------------------------------- the same, however it is done


def test_packed_records_are_full_for_any_number_of_workers(tmp_path, vocab_file, monkeypatch):
    """The instances are those of the same command without --pack, in fewer records."""
    monkeypatch.setattr(pipeline, "BUCKET_BYTES", 100_000)
    sizes = {"max_seq_length": 512, "max_predictions_per_seq": 80, "short_seq_prob": 0.9}
    ways = {"unpacked": {}, "one": {"pack": True}, "two": {"pack": True, "num_workers": 2}}
    reports = {}
    for name, changes in ways.items():
        changes |= {"output_file": str(tmp_path / name), "block_characters": 5000, **sizes}
        reports[name] = create(make_job(tmp_path, vocab_file, **changes))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    unpacked, packed = reports["unpacked"], reports["one"]
    for name in ("instances", "mean_length", "masked_share", "random_next_share"):
        assert packed[name] == unpacked[name], name
    rows = sum(packed["output_files"].values())
    assert rows < 0.8 * unpacked["instances"]
    assert packed["instances_per_record"] == packed["instances"] / rows
    assert packed["real_share"] == packed["mean_length"] * packed["instances"] / (rows * 512) > 0.9
    assert read_description(str(tmp_path / "one")).pack


def test_the_files_depend_on_the_seed_alone(tmp_path, vocab_file, monkeypatch):
    """One and two workers, few and many buckets: the same bytes; another seed: others."""
    made = []
    for bucket_bytes, changes in (
        (pipeline.BUCKET_BYTES, {}),
        (20_000, {"num_workers": 2}),
        (20_000, {"random_seed": 54321}),
    ):
        monkeypatch.setattr(pipeline, "BUCKET_BYTES", bucket_bytes)
        job = make_job(tmp_path, vocab_file, block_characters=5000, **changes)
        create(job)
        made.append(pathlib.Path(job.output_file).read_bytes())
    assert made[0] == made[1] != made[2]
    assert len(made[0]) > 100_000


WHOLE_WORDS = {"do_whole_word_mask": True, "words_from_spaces": True}


def test_the_description_says_what_the_records_were_made_with(tmp_path, vocab_file):
    """And the file's own numbers, without any path."""
    job = make_job(tmp_path, vocab_file, output_file=f"{tmp_path}/a,{tmp_path}/b")
    create(job)
    pieces = pathlib.Path(vocab_file).read_bytes()
    assert json.loads((tmp_path / "info_b.json").read_text()) == {
        **dataclasses.asdict(job.settings), "bert_tf_version": bert_tf.__version__,
        "do_lower_case": True, "num_bytes": (tmp_path / "b").stat().st_size,
        "num_records": len(serialized(tmp_path / "b")), "num_shards": 2, "shard": 2,
        "text_digest": "", "vocab_file": "vocab.txt",
        "vocab_sha256": hashlib.sha256(pieces).hexdigest(), "vocab_size": pieces.count(b"\n"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("beside", "flags", "described", "found"),
    [
        ({}, {}, {}, {6}),
        ({"strip_accents": False}, {}, {"strip_accents": False}, {5}),
        ({"strip_accents": True}, {}, {}, {6}),  # as lower-casing does anyway
        ({}, {"never_split": "<e1>,</e1>,<e1>"}, {"never_split": ["</e1>", "<e1>"]}, {6, 7, 8}),
        ({}, {"added_words": "<e1>,über"}, {"added_words": ["<e1>", "über"]}, {5, 7}),
    ],
)
def test_how_the_text_was_read(tmp_path, beside, flags, described, found):
    """In the records, and in their description; what is as always is not described."""
    vocabulary, text = tmp_path / "vocab.txt", tmp_path / "text.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "über", "uber", "<e1>", "</e1>", "ist"]
    vocabulary.write_text("\n".join([*pieces, "es", ".", "ein"]) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(beside))
    text.write_text("Es <e1>ist</e1> ein.\nEs ist Über.\n\nEin<e1>ÜBER.\nEs.\n" * 9, "utf-8")
    words = [f"--input_file={text}", "--dupe_factor=2", "--num_workers=1", "--do_lower_case"]
    words += ["--random_share=0"]  # or any piece may be there
    with walking.in_process("create_pretraining_data.py") as main:
        main(*words, f"--output_file={tmp_path}/a", vocab_file=vocabulary, **flags)
    values = json.loads((tmp_path / "info_a.json").read_text())
    names = values.keys() & {"strip_accents", "never_split", "added_words"}
    assert {name: values[name] for name in names} == described
    assert (values["mask_share"], values["random_share"]) == (0.8, 0)
    ids = read(tmp_path / "a", max_seq_length=128, max_predictions_per_seq=20)["input_ids"]
    assert {*ids.flat} & {5, 6, 7, 8} == found


def test_no_file_gets_its_name_before_all_are_complete(tmp_path, vocab_file, monkeypatch):
    """The disk may be full when the last records are written, which is when a file is closed."""

    class FullDisk(tf.io.TFRecordWriter):
        def __exit__(self, *_):
            raise OSError(28, "No space left on device")

    (tmp_path / "a").write_bytes(b"old")
    writers = iter([tf.io.TFRecordWriter, FullDisk])
    monkeypatch.setattr(tf.io, "TFRecordWriter", lambda path: next(writers)(path))
    with pytest.raises(InputError, match="No space"):
        create(make_job(tmp_path, vocab_file, output_file=f"{tmp_path}/a,{tmp_path}/b"))
    assert names(tmp_path) == ["a"]
    assert contents(tmp_path) == {"a": b"old"}


# ------------------------------------------------------------------------- its own process


def test_killed_in_the_middle(tmp_path, vocab_file):
    """By kill -9: no worker and no new file is left, the old one is kept; the next run clears up.

    A request to end: test_workers.py.
    """
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text("\n\n".join(["one two three\nfour five six seven"] * 31_000))  # 1.1 MB
    out.mkdir()
    (out / "a").write_bytes(b"old")
    command = [sys.executable, str(ROOT / "create_pretraining_data.py"), f"--input_file={text}",
               f"--output_file={out}/a,{out}/b", f"--vocab_file={vocab_file}", "--num_workers=2",
               "--dupe_factor=50", "--max_seq_length=512"]  # fmt: skip
    process = psutil.Popen(command, stderr=subprocess.DEVNULL)
    rows, end = out / ".a.working" / "rows", time.monotonic() + 300
    while not rows.exists():
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < end
        time.sleep(0.02)
    workers = process.children(recursive=True)
    assert len(workers) >= 2
    process.kill()
    process.wait()
    assert not psutil.wait_procs(workers, timeout=60)[1], "a worker lives on"
    assert rows.exists()
    assert [name for name in names(out) if not name.startswith(".")] == ["a"]
    assert (out / "a").read_bytes() == b"old"
    create(make_job(out, vocab_file, output_file=f"{out}/a,{out}/b"))
    beside = [f"{kind}_{name}.json" for kind in ("index", "info") for name in "ab"]
    assert names(out) == sorted(["a", "b", "report_a.json", *beside])


# -------------------------------------------------------------------------------- bad input


BAD_FILES = {
    "control": b"\x01\n",
    "latin": b"ok\n\xe9t\xe9\n",
    "text": b"ok\n",
    "cased": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nok\nOk\n",
    "no_mask": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
}
# What is given, with {0} for the folder of the files above, and what the message names.
BAD_INPUTS = {
    "dropped characters only": ({"input_file": "{0}/control"}, "without a sentence"),
    "no such file": ({"input_file": "{0}/none*"}, "none*"),
    "not UTF-8": ({"input_file": "{0}/text,{0}/latin"}, "latin, line 2"),
    "not wikiextractor": ({"input_file": "{0}/text", "input_format": "wikiextractor"}, "<doc"),
    "no vocabulary": ({"vocab_file": "{0}/none"}, "none"),
    "a piece that is not in it": ({"never_split": ("<e2>",)}, "without <e2>"),
    "case of a small vocabulary": ({"vocab_file": "{0}/cased"}, "which does not show"),
    "output is a folder": ({"output_file": "{0}"}, "it is a folder"),
    "output below a file": ({"output_file": "{0}/text/x"}, "cannot be written"),
    "the same output twice": ({"output_file": "{0}/x,{0}/x"}, "each once"),
    "no output": ({"output_file": ""}, "names of files"),
    "output is input": ({"input_file": "{0}/text", "output_file": "{0}/./text"}, "is the input"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_refused_and_leaves_no_file(tmp_path, vocab_file, case):
    changes, named = BAD_INPUTS[case]
    for name, content in BAD_FILES.items():
        (tmp_path / name).write_bytes(content)
    if "never_split" not in changes:
        changes = {name: value.format(tmp_path) for name, value in changes.items()}
    with pytest.raises(InputError) as error:
        create(make_job(tmp_path, vocab_file, **changes))
    assert named in error.value.received + error.value.expected
    assert names(tmp_path) == sorted(BAD_FILES)
    assert {name: (tmp_path / name).read_bytes() for name in BAD_FILES} == BAD_FILES


def test_the_vocabulary_is_not_replaced(tmp_path, vocab_file):
    """By records, under whatever name."""
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_bytes(pathlib.Path(vocab_file).read_bytes())
    (tmp_path / "text").write_bytes(b"one two three\n")
    (tmp_path / "records").symlink_to(vocabulary)
    job = make_job(tmp_path, str(vocabulary), input_file=f"{tmp_path}/text")
    job = dataclasses.replace(job, output_file=f"{tmp_path}/records")
    with pytest.raises(InputError, match=r"records as the output, which is the input .*vocab\.txt"):
        create(job)
    assert vocabulary.read_bytes() == pathlib.Path(vocab_file).read_bytes()
    assert names(tmp_path) == ["records", "text", "vocab.txt"]


def test_bad_input_of_several_blocks(tmp_path, vocab_file, monkeypatch):
    """The mistake is far behind, and worker processes are at work on what comes before it."""
    monkeypatch.setattr("bert_tf.files.READ_BYTES", 20_000)
    path = tmp_path / "text"
    path.write_bytes(b"one two three\n\n" * 20_000 + b"caf\xe9\n")
    out = tmp_path / "out"
    out.mkdir()
    values = {"num_workers": 2, "num_shards": 2, "block_characters": 30_000}
    job = make_job(out, vocab_file, input_file=str(path), **values)
    with pytest.raises(InputError, match="line 40001"):
        create(job)
    no_mask = tmp_path / "no_mask"
    no_mask.write_bytes(BAD_FILES["no_mask"])
    with pytest.raises(InputError, match=r"without \[MASK\]"):
        create(dataclasses.replace(job, vocab_file=str(no_mask)))
    assert names(out) == []


# -------------------------------------------------------------------------------- warnings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two\nthree four\n" * 40, ["single document"]),
        ("\n\n".join("abcdefghijklmnopqrstuvwxyz"), ["26 of 26 documents"]),
        (
            "\n\n".join(f"{a}\n\u4e00 {a}" for a in LETTERS),
            ["33 % of the tokens", "are random, not"],
        ),
        (
            "\n\n".join(f"{a}\n{a} {a}" for a in LETTERS),
            ["% of the next sentences are random, not"],
        ),
        ("\n\n".join("\n".join(f"{a} {b}" for b in LETTERS * 4) for a in LETTERS), []),
        (
            "\n".join("".join(LETTERS[int(d)] for d in str(n)) for n in range(3000)),
            ["1500 sentences on average", "were cut, 1 times"],
        ),
        (  # a paragraph a line: each pair is two lines of 60 pieces, cut to 17 each
            "\n\n".join(f"{a * 60}\n{a}{'b' * 59}\n{a}{'c' * 59}" for a in LETTERS),
            ["72 % of the text is cut off, and 100 % of the next sentences are random: a longer"],
        ),
    ],
)
def test_warnings(tmp_path, vocab_file, monkeypatch, text, expected):
    monkeypatch.setattr("data_gen.documents.MAX_DOCUMENT_CHARACTERS", 9000)
    path = tmp_path / "text"
    path.write_text(text, encoding="utf-8")
    warnings = create(make_job(tmp_path, vocab_file, input_file=str(path)))["warnings"]
    assert len(warnings) == len(expected)
    for warning, part in zip(warnings, expected, strict=True):
        assert part in warning.replace("%", " %").replace("  ", " ")


def test_what_the_splitter_does_not_know_is_said_once(tmp_path, vocab_file, caplog):
    """In the log and in the report; the records are those of the same text as paragraphs."""
    documents = [
        ["a b. c d.", "ไทย ไทย"],
        *([f"{a} {b}", "ab. ba. c"] for a in "ab" for b in "cd"),
    ]
    documents.append(documents[-1])
    texts = {
        "paragraphs": "\n\n".join("\n".join(lines) for lines in documents),
        "jsonl": "\n".join(json.dumps({"text": "\n".join(lines)}) for lines in documents),
    }
    made = []
    for input_format, text in texts.items():
        (tmp_path / input_format).write_text(text, encoding="utf-8")
        files = {"input_file": f"{tmp_path}/{input_format}", "input_format": input_format}
        caplog.clear()
        report = create(make_job(tmp_path, vocab_file, language="xx", **files))
        made.append((tmp_path / "out.tfrecord").read_bytes())
        assert (report["unsplit_paragraphs"], report["repeated_documents"]) == (1, 1)
        language, unsplit, repeated, *_ = report["warnings"]
        assert "no rules for --language=xx" in language
        assert "1 of 12 paragraphs in Thai" in unsplit
        assert repeated == "1 of 6 documents repeat another one: remove the copies."
        assert {*map(caplog.messages.count, report["warnings"])} == {1}
    assert made[0] == made[1]


# -------------------------------------------------------------------------------- shards


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def shard_job(folder: pathlib.Path, vocab_file: str, **changes) -> Job:
    folder.mkdir(exist_ok=True)
    values = {"output_file": str(folder / "x"), "block_characters": 2000, "num_shards": 3}
    return make_job(folder, vocab_file, **values | changes)


@pytest.mark.parametrize(("block_characters", "num_shards"), [(2000, 3), (1 << 20, 3), (9, 40)])
def test_shards_hold_the_records_of_a_single_file(
    tmp_path, vocab_file, block_characters, num_shards
):
    """One after the other; of many blocks, one, and few records."""
    changes = {"block_characters": block_characters, "dupe_factor": 1}
    if num_shards == 40:
        changes["input_file"] = str(tmp_path / "text")
        (tmp_path / "text").write_text("one two\nthree\n\nfour\nfive six\n")
    report = create(shard_job(tmp_path, vocab_file, num_shards=0, **changes))
    found = create(shard_job(tmp_path / "shards", vocab_file, num_shards=num_shards, **changes))
    assert serialized(*found["output_files"]) == serialized(tmp_path / "x")
    assert found["instances"] == report["instances"]
    shards = [f"x-{shard:05d}-of-{num_shards:05d}" for shard in range(num_shards)]
    beside = [f"{kind}_{shard}.json" for kind in ("index", "info") for shard in shards]
    assert names(tmp_path / "shards") == sorted([*shards, *beside, "report_x.json"])


class Killed(BaseException):
    """In place of a signal that nothing can catch."""


def watched_calls(patch, method: str = "", *, after: int = 0) -> dict[str, int]:
    """Counts what the worker does from now on; a method that is called more often is killed."""
    calls = dict.fromkeys(("tokenize", "rows_to_file", "shard_to_file"), 0)

    def watched(name: str, whole):
        def call(self, task):
            calls[name] += 1
            if name == method and calls[name] > after:
                raise Killed
            return whole(self, task)

        return call

    for name in calls:
        whole = getattr(pipeline.BlockWorker, name)
        patch.setattr(pipeline.BlockWorker, name, watched(name, whole))
    return calls


def interrupted(job: Job, monkeypatch, method: str, *, after: int) -> None:
    """Runs a job until a method of its worker has been called so often."""
    with monkeypatch.context() as patch:
        watched_calls(patch, method, after=after)
        with pytest.raises(Killed):
            create(job)


def test_a_killed_run_goes_on_where_it_was(tmp_path, vocab_file, monkeypatch):
    undisturbed = tmp_path / "undisturbed"
    with monkeypatch.context() as patch:
        calls = watched_calls(patch)
        create(shard_job(undisturbed, vocab_file))
    assert calls["tokenize"] == calls["rows_to_file"] > 8
    out = tmp_path / "out"
    job = shard_job(out, vocab_file)
    interrupted(job, monkeypatch, "tokenize", after=2)
    interrupted(job, monkeypatch, "rows_to_file", after=4)
    interrupted(job, monkeypatch, "rows_to_file", after=1)
    interrupted(job, monkeypatch, "shard_to_file", after=1)
    assert (out / "x-00000-of-00003").exists()
    calls = watched_calls(monkeypatch)
    undisturbed_report = json.loads((undisturbed / "report_x.json").read_text())
    (out / "report_x.json").write_text(json.dumps(undisturbed_report | {"settings": {}}))
    with monkeypatch.context() as patch:
        patch.setattr(outputs, "write_report", mock.Mock(side_effect=Killed))
        with pytest.raises(Killed):
            create(job)
    assert calls == {"tokenize": 0, "rows_to_file": 0, "shard_to_file": 2}
    report = create(job)
    for name, data in contents(undisturbed).items():
        if not name.startswith("report_"):
            assert (out / name).read_bytes() == data, name
    assert names(out) == names(undisturbed)
    assert {**report, "output_files": 0} == {**undisturbed_report, "output_files": 0}
    assert create(job) == report  # all is there
    assert calls == {"tokenize": 0, "rows_to_file": 0, "shard_to_file": 2}


def test_shards_that_were_lost_are_made_again(tmp_path, vocab_file, monkeypatch):
    """By the same command; another list of pieces that are never split is refused."""
    job = shard_job(tmp_path / "x", vocab_file, never_split=("a", "t"))
    create(job)
    made = contents(tmp_path / "x")
    for name in ("x-00001-of-00003", "info_x-00001-of-00003.json", "report_x.json"):
        (tmp_path / "x" / name).unlink()
    create(dataclasses.replace(job, num_workers=2))
    assert contents(tmp_path / "x") == made
    monkeypatch.setattr(pipeline, "make_files", None)  # all is there: nothing is made
    create(job)
    with pytest.raises(InputError, match=r"with the never_split \('a', 't'\)"):
        create(dataclasses.replace(job, never_split=("a",)))


def test_other_shards_are_not_mixed_with_those_that_are_there(tmp_path, vocab_file, monkeypatch):
    job = shard_job(tmp_path / "out", vocab_file, **WHOLE_WORDS)
    interrupted(job, monkeypatch, "shard_to_file", after=1)
    before = contents(tmp_path / "out")
    for changes, named in (
        ({"random_seed": 5}, "random_seed"),
        ({"words_from_spaces": False}, "words_from_spaces True\nExpected: False"),
        ({"num_shards": 4}, "--num_shards=4"),
        ({"input_file": SAMPLE_TEXT.replace("[ps]", "p")}, "text_digest"),
    ):
        with pytest.raises(InputError, match=named):
            create(shard_job(tmp_path / "out", vocab_file, **WHOLE_WORDS | changes))
        assert contents(tmp_path / "out") == before


def test_the_language_of_text_that_is_not_split_changes_nothing(tmp_path, vocab_file):
    jobs = [make_job(tmp_path, vocab_file, language=name) for name in ("en", "de", "pt-BR")]
    assert len({pipeline.text_digest(job, [vocab_file]) for job in jobs}) == 1
