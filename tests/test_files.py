"""Files in and out: what is not text, not JSON or absent; and what a failure leaves behind."""

import contextlib
import errno
import fcntl
import glob
import io
import os
import pathlib
import shutil
import subprocess
import sys

import killed
import pytest
import tensorflow as tf

from bert_tf import files, runtime
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.errors import InputError


def names(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ---------------------------------------------------------------------------- paths

PATTERNS = (
    "lr=[1e-4]",
    "a\\b",
    "[!a]*?",
    "\\[x\\] {b,c}",
    "a]b[",
    "#50% ä",
    "new\nline",
    "x" * 200,
)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_name_is_no_pattern(tmp_path, name):
    """Of a folder, and of the files in it."""
    folder = tmp_path / name
    folder.mkdir()
    wanted = [folder / f"{name[:99]}.{end}" for end in ("data-0", "index")]
    for path in (*wanted, folder / "other"):
        path.write_text(path.name)
    assert files.paths_in(str(folder), r"\.(index|data-0)$") == [*map(str, wanted)]
    with files.without_pattern(f"{folder}/{name[:99]}") as prefix:
        for path, end in zip(wanted, ("data-0", "index"), strict=True):
            (found,) = tf.io.gfile.glob(f"{prefix}.{end}")
            assert pathlib.Path(found).read_text() == path.name
    assert files.paths_in(str(folder / "none"), "") == []


@pytest.mark.parametrize("name", PATTERNS[:4])
def test_a_remote_name_that_would_be_a_pattern(name):
    with pytest.raises(InputError, match="rename the folder"):
        CheckpointFolder(f"gs://bucket/{name}")


# ---------------------------------------------------------------------------- in


ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-be")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_texts_in_every_encoding_that_its_mark_tells(tmp_path, monkeypatch, encoding):
    path, mark = tmp_path / "a", "\ufeff" if encoding.endswith("be") else ""
    path.write_bytes((mark + '{"zwei":\r\n["ä鿿𝄞", 2]}\n').encode(encoding))
    for size in (3, 5, 1 << 20):  # also where a block ends within a character
        monkeypatch.setattr(files, "READ_BYTES", size)
        assert files.read_json(str(path)) == {"zwei": ["ä鿿𝄞", 2]}
        assert [*files.read_text_lines(str(path))] == ['{"zwei":\r\n', '["ä鿿𝄞", 2]}\n']


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("GBK", "服务很好"), ("BIG5", "服務很好"), ("SHIFT_JIS", "日本語です"), ("EUC-KR", "서비스가"),
     ("WINDOWS-1252", "été\xa0où"), ("WINDOWS-1251", "Привет")],
)  # fmt: skip
def test_no_other_encoding_is_chosen(tmp_path, encoding, text):
    (tmp_path / "a").write_bytes(b"ok\n" + text.encode(encoding) + b"\n")
    for read in (lambda path: [*files.read_text_lines(path)], files.read_json):
        with pytest.raises(InputError, match="a, line 2: bytes that are not UTF-8") as caught:
            read(str(tmp_path / "a"))
        assert "iconv -f ENCODING" in caught.value.remedy
        assert "ISO-8859-1" not in caught.value.remedy
    (tmp_path / "a").write_bytes(b"\xff\xfea\0b")
    with pytest.raises(InputError, match="begins as UTF-16 and is not"):
        [*files.read_text_lines(str(tmp_path / "a"))]


def test_a_line_is_given_before_the_next_one_arrives():
    def blocks():
        yield b"a\n"
        raise AssertionError("too early")

    assert next(files.lines_of(blocks(), "in")) == b"a\n"


NO_JSON = {  # content: the reason
    b"": "",
    b"{": "",
    b"[1, 2]": "not an object",
    b"null": "not an object",
    b"[" * 10**6: "nested too deep",
    b'{"b": {"a": 1, "c": 2, "a": 1}}': "'a' is given twice",
    b'{"a": NaN}': "NaN is not a finite number",
    b'{"a": -1e999}': "-1e999 is not a finite number",
}


@pytest.mark.parametrize("content", NO_JSON, ids=NO_JSON.values())
def test_what_is_no_json(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    match = rf"a\.json, which is not JSON as expected \(.*{NO_JSON[content]}"
    with pytest.raises(InputError, match=match) as caught:
        files.read_json(str(tmp_path / "a.json"), expected="sizes", remedy="find them")
    assert (caught.value.expected, caught.value.remedy) == ("sizes", "find them")


def test_a_line_that_is_too_long_is_never_held_whole(tmp_path):
    blocks = iter([b"one\ntwo", b"2\r\n", *[b"abcdefg"] * 100])
    lines = files.lines_of(blocks, "in", limit=20)
    assert [next(lines), next(lines)] == [b"one\n", b"two2\r\n"]
    with pytest.raises(InputError, match="in, line 3, which is longer than 20 bytes"):
        next(lines)
    assert len(list(blocks)) == 97
    (tmp_path / "in").write_bytes(b"1234567\n89\n")
    assert list(files.read_lines(str(tmp_path / "in"), limit=7)) == [b"1234567\n", b"89\n"]
    with pytest.raises(InputError, match=r"in, line 1, which is longer than 6 bytes"):
        list(files.read_lines(str(tmp_path / "in"), limit=6))


def test_what_cannot_be_read(tmp_path):
    """A pipe is refused before it is opened: nobody may ever write to it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a").write_bytes(b"one\ntwo\nthr\xff\n")
    for name, says in (
        ("none", "none, which cannot be read"),
        ("", r"which cannot be read \(.*it is a folder"),
        ("pipe", "pipe, which is a pipe, a socket or a device\n"),
        ("a", "a, line 3: bytes that are not UTF-8"),
    ):
        with pytest.raises(InputError, match=says):
            list(files.read_text_lines(str(tmp_path / name)))
    with pytest.raises(InputError, match="pipe, which is a pipe"):
        files.digest_of(str(tmp_path / "pipe"))
    for name in ("none", ""):
        with pytest.raises(InputError, match="which is not a file"):
            files.read_json(str(tmp_path / name))


def test_an_error_within_a_file_is_not_its_end(tmp_path, monkeypatch):
    (tmp_path / "in").write_bytes(b"one\ntwo\n")
    blocks = [b"one\nt"]

    class Broken(io.FileIO):
        def read(self, *_):
            if blocks:
                return blocks.pop()
            raise OSError(errno.EIO, "a bad sector")

    monkeypatch.setattr(files.gfile("in"), "GFile", Broken)
    found = files.read_lines(str(tmp_path / "in"))
    assert next(found) == b"one\n"
    with pytest.raises(InputError, match="a bad sector"):
        next(found)


# ---------------------------------------------------------------------------- out


@pytest.mark.parametrize("call", ["rename", "write", "close"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_what_was_there_stays_when_writing_fails(tmp_path, monkeypatch, call, error):
    path = str(tmp_path / "a.txt")
    files.write_text(path, "one\n")
    files.write_text(path, "zwei ä\n")

    def fail(file, *_, **__):
        if call == "close":
            io.FileIO.close(file)
        raise error

    local = files.gfile(path)
    with monkeypatch.context() as patch:
        broken = fail if call == "rename" else type("Broken", (io.FileIO,), {call: fail})
        patch.setattr(local, "rename" if call == "rename" else "GFile", broken)
        with pytest.raises((KeyboardInterrupt, InputError)) as caught:
            files.write_text(path, "two\n")
    told = f"Received: {path}, which cannot be written ([Errno 28] No space left)"
    assert caught.value is error or str(caught.value).startswith(told)
    assert pathlib.Path(path).read_text(encoding="utf-8") == "zwei ä\n"
    assert names(tmp_path) == {"a.txt"}


def test_only_what_a_killed_process_left_is_removed(tmp_path):
    """In a folder that is locked: all of it; beside an output: that of the same name."""
    kept = {"thesis", ".a.txt.incomplete", killed.left_name("b.txt")}
    for name in kept:
        (tmp_path / name).write_text("mine")
    for output in ("a.txt", "run/a.txt"):
        left = tmp_path / output
        left.parent.mkdir(exist_ok=True)
        left.with_name(killed.left_name("a.txt")).write_text("begun")
        left.with_name(killed.left_name("model")).mkdir()
    (tmp_path / "run/.lock").touch()
    with files.locked(str(tmp_path / "run"), folder=True):
        assert names(tmp_path / "run") == {".lock"}
    files.write_text(str(tmp_path / "a.txt"), "one\n")
    assert names(tmp_path) == kept | {"a.txt", "run", killed.left_name("model")}


def test_what_another_process_writes_in_the_folder_of_a_killed_run_stays(tmp_path):
    """A run or an export in a folder of its own there, or a file beside its lock."""
    run, inside = tmp_path / "run", tmp_path / "run/export"
    inside.mkdir(parents=True)
    written = {run / killed.left_name("model.keras"), inside / killed.left_name("1")}
    left = {run / killed.left_name("model.ckpt-1"), run / "best" / killed.left_name("a.txt")}
    (run / "best").mkdir()
    for path in (run / ".lock", inside / ".lock", run / ".model.keras.lock", *written, *left):
        path.touch()
    with files.locked(str(run), folder=True):
        assert {*run.rglob(killed.left_name("*"))} == written


LOCKS_OF_OTHERS = {  # and whether they are refused
    "text": (lambda path: path.write_text("mine"), False),
    "another name of a file": (lambda path: path.hardlink_to(path.parent / "thesis"), False),
    "a link": (lambda path: path.symlink_to("thesis"), True),
    "a folder": (lambda path: path.mkdir(), True),
}


@pytest.mark.parametrize(("make", "refused"), LOCKS_OF_OTHERS.values(), ids=LOCKS_OF_OTHERS)
def test_a_lock_file_of_others_stays_as_it_is(tmp_path, make, refused):
    (tmp_path / "thesis").write_text("years of work")
    make(tmp_path / ".out.lock")
    what = pytest.raises(InputError, match="out, which") if refused else contextlib.nullcontext()
    with what, files.locked(str(tmp_path / "out")):
        assert not refused
    assert (tmp_path / "thesis").read_text() == "years of work"
    assert names(tmp_path) == {"thesis", ".out.lock"}


@pytest.mark.parametrize("again", [False, True], ids=["removed", "and made again by another"])
def test_a_folder_that_is_removed_while_it_is_locked(tmp_path, again):
    """The process ends with an error, and leaves alone what is in its place."""
    run, path = tmp_path / "run", str(tmp_path / "run/a.txt")
    with files.locked(str(run), folder=True):
        files.write_text(path, "one\n")
        shutil.rmtree(run)
        if again:
            run.mkdir()
            (run / ".lock").touch()
        with pytest.raises(
            InputError, match=rf"Received: {run}/\.lock, which was removed or repla"
        ):
            files.write_text(path, "two\n")
    assert run.exists() == again
    assert not again or names(run) == {".lock"}


def test_permissions_are_those_of_the_file_before_or_the_usual(tmp_path):
    for mode in (0o600, 0o444, 0o755):
        path = tmp_path / f"{mode}.txt"
        path.touch()
        path.chmod(mode)
        with files.whole_file(str(path)) as name:
            assert pathlib.Path(name).stat().st_mode & 0o077 == 0  # others cannot read it yet
            pathlib.Path(name).write_text("new")
        assert path.read_text() == "new"
        assert path.stat().st_mode & 0o777 == mode
    files.write_text(str(tmp_path / "a"), "")
    (tmp_path / "usual").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_link_is_replaced_and_its_target_stays(tmp_path):
    (tmp_path / "thesis").write_text("years of work")
    (tmp_path / "out").symlink_to("thesis")
    files.write_text(str(tmp_path / "out"), "new")
    assert (tmp_path / "thesis").read_text() == "years of work"
    assert (tmp_path / "out").read_text() == "new"


HOLDER = """
import sys, time
from bert_tf import files
with files.locked(sys.argv[1]), files.locked(sys.argv[2], folder=True):
    with files.temporary(sys.argv[1], folder=True), files.temporary(sys.argv[2] + "/model"):
        print("locked", flush=True)
        time.sleep(60)
"""


def test_one_process_writes_an_output(tmp_path):
    """Another one is refused; when the first was killed it cleans up."""
    outputs = {tmp_path / "it's": False, tmp_path / "run": True}
    command = [sys.executable, "-c", HOLDER, *map(str, outputs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        for path, folder in outputs.items():
            with pytest.raises(InputError) as caught, files.locked(str(path), folder=folder):
                pytest.fail("two hold it")
            assert caught.value.received == f"{path}, which another process is writing"
        process.kill()
        process.wait()
    assert len({*tmp_path.rglob(".*")}) == 4
    for path, folder in outputs.items():
        with files.locked(str(path), folder=folder), files.temporary(str(path)):
            pass
    assert names(tmp_path) == {"run"}
    assert names(tmp_path / "run") == set()


def test_folders_that_are_made_for_nothing_are_gone(tmp_path):
    """With those above them, as far as they were not there."""
    (tmp_path / "a").mkdir()
    with files.locked(f"{tmp_path}/a/b/c/run", folder=True):
        assert (tmp_path / "a/b/c/run").is_dir()
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]
    with files.locked(f"{tmp_path}/a/b/run", folder=True):
        (tmp_path / "a/b/kept").touch()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "kept"]


def test_of_several_processes_of_a_run_only_the_chief_locks_and_leaves_files(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "is_chief", lambda: False)
    with files.locked(str(tmp_path / "run"), folder=True):
        files.write_text(str(tmp_path / "run/a.txt"), "whole")
        assert names(tmp_path) == set()


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    """What a killed process left is replaced or removed."""

    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / ".lock").touch()
    for name in ("a.txt", "b.txt"):
        (tmp_path / killed.left_name(name)).write_text("half")
    with files.locked(str(tmp_path), folder=True):
        files.write_text(str(tmp_path / "a.txt"), "one\n")
    assert names(tmp_path) == {"a.txt"}


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    path, fsync, rename = str(tmp_path / "a.txt"), os.fsync, os.replace

    def synced(opened):
        calls.append(os.readlink(f"/proc/self/fd/{opened}"))
        fsync(opened)

    def renamed(before, after):
        calls.append(after)
        rename(before, after)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    files.write_text(path, "one\n")
    assert calls == [f"{tmp_path}/{killed.left_name('a.txt')}", path, str(tmp_path)]


def test_what_is_written_as_it_is(tmp_path):
    """Pipes and devices: nothing can be made in their folder."""
    for path in ("/dev/stdout", "/dev/null", "/dev/fd/1"):
        with files.locked(path):
            assert not glob.glob(f"{os.path.dirname(path)}/.*lock")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(str(pipe), "one\n")
    assert os.read(reader, 100) == b"one\n"
    os.close(reader)
    assert names(tmp_path) == {"pipe"}


def test_a_file_that_cannot_be_made_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("text")
    for context, reason in (
        (files.whole_file("/nothing/a"), "No such file"),
        (files.whole_file(str(tmp_path)), "it is a folder"),
        (files.locked(str(tmp_path / "file"), folder=True), "File exists"),
        (files.whole_file(str(tmp_path / "file" / "a")), "Not a directory"),
    ):
        says = rf"which cannot be written \(.*{reason}"
        with pytest.raises(InputError, match=says), context:
            pytest.fail("the work was begun")


def test_remote_paths_too():
    files.write_text("ram://files/a.json", '{"a": 1}')
    assert files.read_json("ram://files/a.json") == {"a": 1}
    files.make_folder("ram://files/run")
    assert tf.io.gfile.listdir("ram://files") == ["a.json", "run"]
    assert tf.io.gfile.listdir("ram://files/run") == []
