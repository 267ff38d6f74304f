"""data_gen/outputs.py: complete files or none, what an earlier run left, and the report."""

import doctest
import os
import re
import shutil

import killed
import pytest
from generation import SETTINGS, names, serialized

from bert_tf.data.records import BlockIndex, description_path, index_path
from bert_tf.data.shards import read_description
from bert_tf.declarations import typed
from bert_tf.errors import InputError
from bert_tf.files import published, read_json
from data_gen import documents, masking, outputs, vocabulary
from data_gen.documents import Counts
from data_gen.outputs import (
    check_paths,
    finished_shards,
    make_report,
    output_paths,
    working_folder,
    write_beside,
    write_in_turn,
)

MADE_WITH = {"bert_tf_version": "7", "do_lower_case": False, "vocab_file": "v",
             "vocab_sha256": "0", "vocab_size": 9, **vars(SETTINGS)}  # fmt: skip


@pytest.mark.parametrize("module", [documents, masking, outputs, vocabulary])
def test_the_drawn_examples(module):
    assert doctest.testmod(module).failed == 0


def test_records_go_to_the_files_in_turn(tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    indexes = write_in_turn(paths, (b"%d" % number for number in range(7)))
    assert [index.num_records for index in indexes] == [3, 2, 2]
    assert [serialized(path) for path in paths] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]
    for shard, (path, index) in enumerate(zip(paths, indexes, strict=True), start=1):
        write_beside(path, index, MADE_WITH, shard, 3)
        data = read_description(path)
        size, number = os.path.getsize(path), len(serialized(path))
        numbers_of_file = (data.shard, data.num_shards, data.num_records, data.num_bytes)
        assert numbers_of_file == (shard, 3, number, size)
        index = typed(BlockIndex, read_json(index_path(path)), source=path)
        assert (index.num_bytes, index.num_records, index.block_bytes) == (size, number, (size,))


def test_names_of_outputs(tmp_path):
    assert output_paths("a,b", 0) == ["a", "b"]
    paths = output_paths(f"{tmp_path}/new/x", 3)
    check_paths([str(tmp_path / "text")], paths)
    assert names(tmp_path) == ["new"]
    same = f"{tmp_path}/new/../new/x-00001-of-00003"
    for files in ([*paths, same], [*paths, ""]):
        with pytest.raises(InputError, match=rf"--output_file with {files[-1]!r}\n.* each once"):
            check_paths([], files)


@pytest.mark.parametrize("beside", ["{}", "info_{}.json", "index_{}.json", "report_x-0.json"])
def test_an_output_that_is_an_input_or_would_be_replaced_with_it(tmp_path, beside):
    """Under another name, too, and of any of several shards; the folder is not made."""
    (tmp_path / "in").mkdir()
    paths = [f"{tmp_path}/in/x-{shard}" for shard in range(3)]
    read = tmp_path / "in" / beside.format("x-1")
    read.write_text("years of work")
    (tmp_path / "linked").symlink_to(read)
    for name in (read, tmp_path / "linked"):
        with pytest.raises(InputError, match=rf"{read} as the output, which is the input {name}\n"):
            check_paths([str(tmp_path / "other"), str(name)], [*paths, f"{tmp_path}/new/x-3"])
    assert names(tmp_path) == ["in", "linked"]


# ------------------------------------------------------------------------- working folder


def test_what_no_run_has_left_stays_in_a_working_folder(tmp_path):
    folder = tmp_path / ".out.working"
    folder.mkdir()
    (folder / "thesis").write_text("years of work")
    (folder / "corpus").mkdir()
    with working_folder(str(tmp_path / "out"), None):
        assert names(folder) == [".lock", "thesis"]
    assert names(folder) == ["thesis"]


def test_working_folder_elsewhere(tmp_path):
    with working_folder("gs://bucket/out", str(tmp_path / "t")) as folder:
        assert folder.parent == tmp_path / "t"
    assert names(tmp_path) == []  # its home was made for it
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"file/out\.working, which cannot be written"),
        working_folder("out", str(tmp_path / "file")),
    ):
        pass


@pytest.mark.parametrize(("kept_with", "kept"), [("rows", ["rows"]), ("corpus.json", [])])
def test_what_a_failed_run_leaves_is_kept_with_a_file(tmp_path, kept_with, kept):
    """Of a run that was killed, too, which has left its lock."""
    output = str(tmp_path / "out")
    opened = working_folder(output, None, kept_with=kept_with)
    (opened.__enter__() / "rows").write_text("half of them")
    opened.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert names(tmp_path) == [".out.working"] * len(kept)
    if kept:
        (tmp_path / ".out.working" / ".lock").touch()
    with working_folder(output, None, kept_with="rows") as folder:
        assert names(folder) == [".lock", *kept]
    assert names(tmp_path) == []


@pytest.mark.parametrize("kept_with", ["", "corpus.json"])
def test_a_folder_that_is_half_removed_is_not_kept(tmp_path, monkeypatch, kept_with):
    """What says that the rows are complete goes before any of them."""

    def killed(*_, **__):
        raise KeyboardInterrupt

    output = str(tmp_path / "out")
    with monkeypatch.context() as patch:
        opened = working_folder(output, None, kept_with="corpus.json")
        folder = opened.__enter__()
        (folder / "rows").mkdir()
        (folder / "corpus.json").write_text("complete")
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            opened.__exit__(None, None, None)
    assert names(folder) == ["rows"]
    with working_folder(output, None, kept_with=kept_with) as folder:
        assert names(folder) == [".lock"]


# ------------------------------------------------------------------------- shards


def write_shards(prefix: str, *shards: int, of: int, **changes) -> list[str]:
    paths = output_paths(prefix, of)
    for shard in shards:
        with published(paths[shard]) as path:
            (index,) = write_in_turn([path], (b"%d" % number for number in range(10 + shard)))
            write_beside(paths[shard], index, MADE_WITH | changes, shard + 1, of)
    return paths


def test_finished_shards_are_found(tmp_path):
    prefix = str(tmp_path / "x")
    assert finished_shards(prefix, 4, MADE_WITH) == {}
    paths = write_shards(prefix, 0, 2, of=4)
    dead = killed.leave(tmp_path / "x-00002-of-00004")  # when the shard was whole
    assert finished_shards(prefix, 4, MADE_WITH) == {paths[0]: 10, paths[2]: 12}
    assert not dead.exists()


def test_other_files_in_the_place_of_shards_are_refused(tmp_path):
    prefix = str(tmp_path / "x")
    (path, *_) = write_shards(prefix, 0, of=3)
    with pytest.raises(InputError, match=r"--num_shards=4, where x-00000-of-00003 is there"):
        finished_shards(prefix, 4, MADE_WITH)
    (tmp_path / "x").write_text("a single file")
    with pytest.raises(InputError, match=r"--num_shards=3, where x is there"):
        finished_shards(prefix, 3, MADE_WITH)
    os.unlink(prefix)
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match="a shard with the num_bytes"):
        finished_shards(prefix, 3, MADE_WITH)
    os.unlink(description_path(path))
    for change in (lambda: None, lambda: (os.unlink(path), os.mkdir(path))):
        change()
        with pytest.raises(InputError, match=r"info_x-00000-of-00003\.json, which is not a file"):
            finished_shards(prefix, 3, MADE_WITH)


def test_other_shards_are_seen_however_their_folder_is_written(tmp_path):
    (tmp_path / "a[1]").mkdir()
    prefix = f"{tmp_path}/a[1]/..//a[1]/x*"
    write_shards(prefix, 1, of=3)
    write_shards(f"{prefix}-of-others", 0, of=2)  # with a name of their own
    assert finished_shards(prefix, 3, MADE_WITH).keys() == {f"{prefix}-00001-of-00003"}
    with pytest.raises(InputError, match=r"--num_shards=2, where x\*-00001-of-00003 is there"):
        finished_shards(prefix, 2, MADE_WITH)


# ------------------------------------------------------------------------- the report

COUNTS = Counts(
    files=1, documents=4, documents_of_one_sentence=1, sentences=40, sentences_without_tokens=3,
    tokens=400, unknown_tokens=60, instances=10, instance_tokens=90, full_instances=4,
    random_next=6, masked=20, masked_as_mask=15, masked_as_itself=3, kept_tokens=1140,
)  # fmt: skip


def test_long_words_between_spaces_are_noticed():
    """Text that no segmenter has cut; without --words_from_spaces words are not counted."""
    counts = Counts(documents=2, sentences=4, tokens=30, kept_tokens=90)  # and no instances
    made = make_report(counts, vars(SETTINGS), {})
    assert "tokens_per_word" not in made
    assert (made["warnings"], made["mean_length"]) == ([], 0)
    for words, warned in ((10, False), (9, True)):
        made = make_report(counts + Counts(words=words), vars(SETTINGS), {})
        assert made["tokens_per_word"] == 30 / words
        assert len(made["warnings"]) == warned
        assert all("have 3.3 tokens on average" in warning for warning in made["warnings"])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lines_with_special_tokens", r"5 lines with \[CLS\], \[SEP\] or"),
        ("lines_with_carriage_returns", "5 lines with carriage returns inside"),
        ("repeated_documents", "5 of 23 documents repeat another one"),
    ],
)
def test_what_is_counted_in_the_text_is_in_report_and_warnings(name, says):
    counts = COUNTS + Counts(documents=19, sentences=100, tokens=600, kept_tokens=1800)
    assert make_report(counts, vars(SETTINGS), {})["warnings"] == []
    made = make_report(counts + Counts({name: 5}), vars(SETTINGS), {}, ["of the splitter"])
    assert made[name] == 5
    first, second = made["warnings"]
    assert first == "of the splitter"
    assert re.match(says, second)


@pytest.mark.parametrize(
    ("length", "most", "masked", "says"),
    [
        (512, 20, 45, "4.5% of the tokens are masked, fewer than --masked_lm_prob=0.15: use "
         "--max_predictions_per_seq=77."),
        (1024, 77, 75, "use --max_predictions_per_seq=154."),
        (512, 20, 140, None),  # the sequences are short
        (512, 77, 120, None),  # so do whole words
        (128, 20, 120, None),
    ],
)  # fmt: skip
def test_masking_below_its_share_is_noticed(length, most, masked, says):
    counts = COUNTS + Counts(instance_tokens=910, masked=masked - 20)  # of 1,000 tokens
    sizes = {"max_seq_length": length, "max_predictions_per_seq": most}
    made = make_report(counts, vars(SETTINGS) | sizes, {"x": 10})
    found = [warning for warning in made["warnings"] if "masked" in warning]
    assert len(found) == (says is not None)
    assert all(warning.endswith(says) for warning in found)


def test_a_record_in_a_line():
    pieces = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "he", "went", "home", "it", "was", "late"]
    values = {
        "input_ids": [1, 4, 5, 3, 2, 7, 8, 9, 2, 0, 0],
        "input_mask": [1] * 9 + [0] * 2,
        "masked_lm_positions": [3, 5, 0],
        "masked_lm_ids": [6, 7, 0],
        "next_sentence_labels": [0],
    }
    line = "[CLS] he went [MASK]{home} [SEP] it{it} was late [SEP]"
    assert outputs.in_a_line(values, pieces) == f"(next) {line}"
    assert outputs.in_a_line(values | {"next_sentence_labels": [1]}, pieces) == f"(random) {line}"


def test_the_report_as_it_is_logged(caplog):
    with caplog.at_level("INFO", logger="absl"):
        made = make_report(COUNTS, vars(SETTINGS), {"a": 3, "b": 2})
        outputs.log_report(made)
    assert made["dropped"] == {"sentences_without_tokens": 3}
    assert (made["mean_predictions"], made["settings"]) == (2, vars(SETTINGS))
    said = [record.getMessage() for record in caplog.records]
    assert {
        "documents: 4",
        "full length share: 0.4",
        "mean length: 9",
        "instances per record: 2",
        "cut off share: 0.05",
        "sentences without tokens: 3",
    } <= {*said}  # 1140 of 3 * 400
    assert said[-1] == "15% of the tokens are [UNK]: do vocabulary and --do_lower_case fit?"
