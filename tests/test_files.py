"""Files in and out: what is not text, not JSON or absent; and what a failure leaves behind."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import io
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import killed
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert_tf import decoding, files, runtime
from bert_tf.errors import InputError


def names(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ---------------------------------------------------------------------------- paths

NAMES = {  # and whether TensorFlow takes them for a pattern
    "lr=[1e-4]": True,
    "a\\b": True,
    "[!a]*?": True,
    "\\[x\\] {b,c}": True,
    "[new\nline]": True,
    "a]b[": False,
    "#50% ä": False,
    "new\nline": False,
    "x" * 200: False,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_no_pattern(tmp_path, name):
    """Of a folder, and of the files in it."""
    folder = tmp_path / name
    folder.mkdir()
    wanted = [folder / f"{name[:99]}.{end}" for end in ("data-0", "index")]
    for path in (*wanted, folder / "other"):
        path.write_text(path.name)
    assert files.paths_in(str(folder), r"\.(index|data-0)$") == [*map(str, wanted)]
    assert files.paths_in(str(folder / "none"), "") == []


@pytest.mark.parametrize("home", ["", "/tmp/", "gs://bucket/"])
@pytest.mark.parametrize(("name", "refused"), NAMES.items())
def test_what_tensorflow_takes_for_a_pattern_is_refused(name, refused, home):
    path = f"{home}{name}/model.ckpt-1"
    with contextlib.ExitStack() as stack:
        if refused:
            says = f"Received: {re.escape(path)}\nExpected: .* brackets .*\nTo do: rename"
            stack.enter_context(pytest.raises(InputError, match=says))
        files.refuse_pattern(path)


SAME = {  # names of the file "in/a": how one is made, and what it is called
    "itself": lambda home: "in/a",
    "relative": lambda home: "./in/../in//a",
    "absolute": lambda home: f"{home}/in/a",
    "home": lambda home: "~/in/a",
    "through a folder's link": lambda home: (home / "of").symlink_to("in") or "of/a",
    "link": lambda home: (home / "b").symlink_to("in/a") or "b",
    "hard link": lambda home: (home / "b").hardlink_to(home / "in/a") or home / "b",
}


@pytest.mark.parametrize("name_of", SAME.values(), ids=SAME)
def test_an_output_that_is_an_input_is_refused_by_any_name(tmp_path, monkeypatch, name_of):
    """Also where another one of several inputs is meant, and in either place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "in").mkdir()
    for name in ("a", "other"):
        (tmp_path / "in" / name).write_text("years of work")
    name = name_of(tmp_path)
    for path, inputs in ((name, ["in/other", "in/a"]), ("in/a", [None, "", name])):
        with pytest.raises(InputError) as caught:
            files.output(path, inputs)
        wanted = f"{files.own_path(path)} as the output, which is the input "
        assert caught.value.received == wanted + files.own_path(inputs[-1])
    assert (tmp_path / "in/a").read_text() == "years of work"
    assert files.output(name, ["in/other", "none", None]) == files.own_path(name)


def test_outputs_that_are_no_inputs(tmp_path, monkeypatch):
    """What is not there, a copy, remote paths but the same one, and every stream."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a", "b"):
        (tmp_path / name).write_text("the same")
    os.mkfifo(tmp_path / "pipe")
    inputs = [f"{tmp_path}/a", "gs://bucket/a", "/dev/stdout", f"{tmp_path}/pipe", "hf:a/b"]
    for path in ("b", "new", "no folder/a"):
        assert files.output(f"~/{path}", inputs) == f"{tmp_path}/{path}"
        assert files.output(f"~/{path}/", inputs) == f"{tmp_path}/{path}/"
    for path in ("gs://bucket/b", "gs://other/a", "/dev/stdout", f"{tmp_path}/pipe"):
        assert files.output(path, inputs) == path
    with pytest.raises(InputError, match="gs://bucket/a/ as the output, which is the input gs://b"):
        files.output("gs://bucket/a/", inputs)
    with pytest.raises(InputError, match="none/x as the output, which is the input"):
        files.output(tmp_path / "none/x", [f"{tmp_path}/none/x"])  # it may be made meanwhile


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


# encoding of a text, a line of it, and the flag that the error gives for it
OTHER_ENCODINGS = {
    "utf-16-le": ("Größe 10", "utf-16-le"),
    "utf-16-be": ("Größe 10", "utf-16-be"),
    "gb18030": ("服务很好，我很喜欢", "gb18030"),
    "cp949": ("서비스가 좋아요", "cp949"),
    "shift_jis": ("日本語です。これは本当のテキストです。", "cp932"),
    "big5": ("服務很好，我很喜歡", "big5"),
    "cp1251": ("Привет, как дела?", "cp1251"),
    "koi8_r": ("Привет, как дела?", "koi8_r"),
    "cp1252": ("été où ça", "cp1252"),
    "iso8859_1": ("Größe;schön", "cp1252"),
}


@pytest.mark.parametrize("encoding", OTHER_ENCODINGS)
@pytest.mark.parametrize("has_option", [True, False])
def test_the_error_names_the_encodings_that_a_text_may_be_in(tmp_path, encoding, has_option):
    line, name = OTHER_ENCODINGS[encoding]
    path, before = tmp_path / "a", "" if encoding.startswith("utf") else "ok\n"
    path.write_bytes(f"{before}{line}\nok\n".encode(encoding))
    given = {"encoding": ""} if has_option else {}
    number = 2 if before else 1
    kind = "bytes that are not UTF-8|NUL bytes"
    with pytest.raises(InputError, match=f"a, line {number}: ({kind})") as caught:
        [*files.read_text_lines(str(path), **given)]
    flag = "--encoding=" if has_option else ""
    remedy = caught.value.remedy
    assert f"{flag}{name} ({line!r})" in remedy
    assert remedy.startswith("give the encoding" if has_option else "convert the file to UTF-8")
    assert ("--encoding" in remedy) == has_option
    assert [*files.read_text_lines(str(path), encoding=name)] == [
        f"{part}\n" for part in (*before.split(), line, "ok")
    ]


def test_what_is_read_in_another_encoding_than_it_is(tmp_path):
    path = tmp_path / "a"
    cases = {  # content, encoding: received, remedy
        (b"ok\n\xc3\xa9\n", "ascii"): ("line 2: bytes that are not ASC", "--encoding=utf-8 ('é')"),
        (b"ok\n3 \x80\n", "latin1"): ("line 2: the control character", "--encoding=cp1252 ('3 €')"),
        (b"a\0b\n", ""): ("line 1: NUL bytes", "or --encoding=utf-8, if"),
        (b"ok\na\0b\n", ""): ("line 2: NUL bytes", "UTF-8 from its encoding; or --encoding=utf-8,"),
        (b"\xff\xfea\0b", ""): ("line 1: bytes that are not UTF-16-LE", "or --encoding_errors=rep"),
        (b"\xff\xfea\0\n\0\0\xd8c\0", ""): ("line 2: bytes that are not UTF-16-LE", "convert"),
    }  # fmt: skip
    for (content, encoding), (received, remedy) in cases.items():
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            [*files.read_text_lines(str(path), encoding=encoding)]
        assert received in caught.value.received
        assert remedy in caught.value.remedy


def test_replaced_bytes_are_counted(tmp_path, caplog):
    """In UTF-8, in an encoding of several bytes, and in UTF-16, whose line feed has two."""
    cases = {
        "": (b"a\xff\xfeb\nok\n\xe9", ["a\ufffd\ufffdb\n", "ok\n", "\ufffd"]),
        "shift_jis": (b"\x93\xfa\x81\n\xffok\n\x81", ["日\ufffd\n", "\ufffdok\n", "\ufffd"]),
        "utf-16-le": (b"a\0\0\xd8\n\0\0\xdc\n\0b", ["a\ufffd\n", "\ufffd\n", "\ufffd"]),
    }
    places = {"": "3 places of 2 lines", "shift_jis": "3 places of 3", "utf-16-le": "3 places of 3"}
    for encoding, (content, lines) in cases.items():
        caplog.clear()
        (tmp_path / "a").write_bytes(content)
        given = {"encoding": encoding, "encoding_errors": "replace"}
        assert [*files.read_text_lines(str(tmp_path / "a"), **given)] == lines
        (said,) = caplog.messages
        assert f"U+FFFD stands in {places[encoding]}" in said
        counts: dict[str, int] = {}
        [*decoding.text_lines_of([content], "in", **given, counts=counts)]
        assert len(caplog.messages) == 1
        assert decoding.replacement_warning(counts) in said


def test_a_bad_byte_deep_in_a_text_is_found_when_it_is_reached():
    """Of a text that never ends; what comes before it was given, and little was read ahead."""
    taken = []

    def blocks():
        for number in itertools.count():
            taken.append(number)
            yield "é, line\n".encode() * 1000 if number != 5 else b"ok\n\xe9t\xe9\n"

    lines = decoding.text_lines_of(blocks(), "in", encoding="")
    assert [next(lines) for _ in range(5000)] == ["é, line\n"] * 5000
    assert len(taken) == 5
    assert next(lines) == "ok\n"
    with pytest.raises(InputError, match="in, line 5002: bytes that are not UTF-8") as caught:
        next(lines)
    assert "--encoding=cp1252 ('été')" in caught.value.remedy
    assert len(taken) == 6


NO_SURROGATES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ANY_ENCODING = st.sampled_from([*decoding._MARKS.values(), "utf-8-sig", "gb18030"])


@given(text=NO_SURROGATES, encoding=ANY_ENCODING, size=st.integers(1, 9), errors=st.data())
def test_what_is_valid_is_never_changed(text, encoding, size, errors):
    text = text.removeprefix("\ufeff")
    content = text.encode(encoding)
    blocks = [content[at : at + size] for at in range(0, len(content), size)]
    given = {
        "encoding": encoding,
        "encoding_errors": errors.draw(st.sampled_from(["strict", "replace"])),
    }
    try:
        decoding.refuse_binary("in", content)
    except InputError:
        return
    assert "".join(decoding.text_lines_of(blocks, "in", **given)) == text


def test_a_line_is_given_before_the_next_one_arrives():
    def blocks():
        yield b"a\n"
        raise AssertionError("too early")

    assert next(decoding.text_lines_of(blocks(), "in")) == "a\n"


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
    lines = decoding.text_lines_of(blocks, "in", limit=20)
    assert [next(lines), next(lines)] == ["one\n", "two2\r\n"]
    with pytest.raises(InputError, match="in, line 3, which is longer than 20 bytes"):
        next(lines)
    assert len(list(blocks)) == 97
    (tmp_path / "in").write_bytes(b"1234567\n89\n")
    assert list(files.read_text_lines(str(tmp_path / "in"), limit=7)) == ["1234567\n", "89\n"]
    with pytest.raises(InputError, match=r"in, line 1, which is longer than 6 bytes"):
        list(files.read_text_lines(str(tmp_path / "in"), limit=6))


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
    found = files.read_text_lines(str(tmp_path / "in"))
    assert next(found) == "one\n"
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
    for name in ("thesis", ".a.txt.incomplete"):
        (tmp_path / name).write_text("mine")
    for folder in (tmp_path, tmp_path / "run", tmp_path / "run/best"):
        killed.leave(folder / "a.txt")
        killed.leave(folder / "model", None)
    (tmp_path / "run/.lock").touch()
    with files.locked(str(tmp_path / "run"), folder=True):
        assert names(tmp_path / "run") == {".lock", "best"}
        assert names(tmp_path / "run/best") == set()
    files.write_text(str(tmp_path / "a.txt"), "one\n")
    kept = {"thesis", ".a.txt.incomplete", killed.left_name("model")}
    assert names(tmp_path) == kept | {"a.txt", "run"}


def test_what_another_process_writes_in_the_folder_of_a_killed_run_stays(tmp_path):
    run = tmp_path / "run"
    written = killed.leave(run / "export/1", None)
    left = killed.leave(run / "model.ckpt-1", None)
    (run / ".lock").touch()
    with (written / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with files.locked(str(run), folder=True):
            assert (written / "1").is_dir()
            assert not left.exists()


@pytest.mark.parametrize("make", [os.symlink, lambda _, path: path.write_text("mine")])
def test_only_a_folder_of_the_hidden_name_is_ours(tmp_path, make):
    """A link is not followed: nothing is removed where it leads."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/1.tex").write_text("years of work")
    make("thesis", tmp_path / killed.left_name("a.txt"))
    files.write_text(str(tmp_path / "a.txt"), "one\n")
    assert names(tmp_path) == {"a.txt", "thesis"}
    assert names(tmp_path / "thesis") == {"1.tex"}


LOCKS_OF_OTHERS = {  # and whether they are refused
    "text": (lambda path: path.write_text("mine"), False),
    "another name of a file": (lambda path: path.hardlink_to(path.parents[1] / "thesis"), False),
    "a link": (lambda path: path.symlink_to("../thesis"), True),
    "a folder": (lambda path: path.mkdir(), True),
}


@pytest.mark.parametrize(("make", "refused"), LOCKS_OF_OTHERS.values(), ids=LOCKS_OF_OTHERS)
def test_a_lock_file_of_others_stays_as_it_is(tmp_path, make, refused):
    (tmp_path / "thesis").write_text("years of work")
    (tmp_path / "run").mkdir()
    make(tmp_path / "run/.lock")
    what = pytest.raises(InputError, match="run, which") if refused else contextlib.nullcontext()
    with what, files.locked(str(tmp_path / "run"), folder=True):
        assert not refused
    assert (tmp_path / "thesis").read_text() == "years of work"
    assert names(tmp_path / "run") == {".lock"}


def test_a_folder_that_is_removed_while_it_is_locked(tmp_path):
    """The process ends with an error."""
    run, path = tmp_path / "run", str(tmp_path / "run/a.txt")
    with files.locked(str(run), folder=True):
        files.write_text(path, "one\n")
        shutil.rmtree(run)
        with pytest.raises(
            InputError, match=rf"Received: {path}, which cannot be written \(.*No s"
        ):
            files.write_text(path, "two\n")
    assert not run.exists()


def test_permissions_are_those_of_the_file_before_or_the_usual(tmp_path):
    for mode in (0o600, 0o444, 0o755):
        path = tmp_path / f"{mode}.txt"
        path.touch()
        path.chmod(mode)
        with files.published(str(path)) as name:
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
    assert names(tmp_path) == {killed.left_name("it's"), "run"}
    assert names(tmp_path / "run") == {".lock", killed.left_name("model")}
    for path, folder in outputs.items():
        with files.locked(str(path), folder=folder), files.temporary(str(path)):
            pass
    assert names(tmp_path) == {"run"}
    assert names(tmp_path / "run") == set()


WRITER = """
import os, sys
from bert_tf import files
from bert_tf.errors import InputError
path, word, folder = sys.argv[1], sys.argv[2], sys.argv[3] == "folder"
written = refused = 0
print("begun", flush=True)
sys.stdin.readline()
while written < 40:
    try:
        with files.locked(path, parents=folder):
            os.mkdir(f"{path}.alone")  # fails where two are here
            if os.path.exists(path):
                files.remove(path)
            with files.published(path, folder=folder) as name:
                with open(f"{name}/a" if folder else name, "w") as file:
                    for _ in range(9):
                        file.write(word)
            os.rmdir(f"{path}.alone")
        written += 1
    except InputError as error:
        if "another process is writing" not in error.received:
            raise
        refused += 1
print(refused)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_two_processes_that_race_for_an_output(tmp_path, kind):
    """One at a time has it; whoever comes while the other removes its lock gets the next one."""
    path = tmp_path / "out"
    commands = [[sys.executable, "-c", WRITER, path, word, kind] for word in ("one", "three", "42")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(line, **pipes)) for line in commands]
        assert [process.stdout.readline() for process in processes] == ["begun\n"] * 3
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        refused = [int(process.communicate(timeout=120)[0]) for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0]
    assert sum(refused) > 0
    text = (path / "a" if kind == "folder" else path).read_text()
    assert text in {"one" * 9, "three" * 9, "42" * 9}
    assert names(tmp_path) == {"out"}


PUBLISHER = """
import os, sys, time
from hypothesis import given
from hypothesis import strategies as st

from bert_tf import decoding, files, runtime
from bert_tf.cli.main import run
from bert_tf.options import Options
LOADS_TENSORFLOW = False
path, when, folder = sys.argv[1], sys.argv[2], sys.argv[3] == "folder"
del sys.argv[1:]

def wait():
    print("begun", flush=True)
    time.sleep(60)

def prove(name):
    with open(f"{name}/a/b" if folder else name) as file:
        assert file.read() == "whole"
    if when == "proving":
        wait()

def renamed(before, after):
    replace(before, after)
    wait()

def main(options: Options):
    with files.published(path, prove, folder=folder) as name:
        if folder:
            os.mkdir(f"{name}/a")
        with open(f"{name}/a/b" if folder else name, "w") as file:
            file.write("whole")
            if when == "writing":
                wait()
    print("ended", flush=True)

replace = os.replace
if when == "renamed":
    os.replace = renamed
run(main)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("when", ["writing", "proving", "renamed"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_a_signal_leaves(tmp_path, number, when, kind):
    """Nothing; after SIGKILL one hidden folder, which the next writer replaces."""
    path, home = tmp_path / "x/out", tmp_path / "x"
    command = [sys.executable, "-c", PUBLISHER, path, "at once", kind]
    home.mkdir()
    waiting = [*command[:4], when, kind]
    with subprocess.Popen(waiting, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n", process.stderr.read()
        assert names(home) == {killed.left_name("out"), *(["out"] if when == "renamed" else [])}
        process.send_signal(number)
        said = process.stderr.read().decode()
    was_killed = number == signal.SIGKILL
    assert process.returncode == (-number if was_killed else 128 + number), said
    there = {"out"} if when == "renamed" else set()
    assert names(home) == there | ({killed.left_name("out")} if was_killed else set())
    files.remove(path)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr
    assert names(home) == {"out"}
    assert (path / "a/b" if kind == "folder" else path).read_text() == "whole"


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
        killed.leave(tmp_path / name, "half")
    with files.locked(str(tmp_path), folder=True):
        files.write_text(str(tmp_path / "a.txt"), "one\n")
    assert names(tmp_path) == {"a.txt"}


# ---------------------------------------------------------------------------- published


def fill(name: str, *, folder: bool) -> None:
    """Writes a file, or a folder with one and a folder in it."""
    if folder:
        os.mkdir(f"{name}/in")
        pathlib.Path(f"{name}/in/a").write_text("new")
    pathlib.Path(f"{name}/b" if folder else name).write_text("new")


@pytest.mark.parametrize("folder", [False, True])
def test_all_is_on_the_disk_before_it_is_proved_and_has_its_name(tmp_path, monkeypatch, folder):
    calls = []
    path, fsync, rename = str(tmp_path / "out"), os.fsync, os.replace

    def synced(opened):
        calls.append(os.readlink(f"/proc/self/fd/{opened}"))
        fsync(opened)

    def renamed(before, after):
        calls.append(f"rename {after}")
        rename(before, after)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    with files.published(path, lambda name: calls.append(f"prove {name}"), folder=folder) as new:
        fill(new, folder=folder)
    assert new == f"{tmp_path}/{killed.left_name('out')}/out"
    synced_paths = {new, f"{new}/b", f"{new}/in", f"{new}/in/a"} if folder else {new}
    assert {*calls[: len(synced_paths)]} == synced_paths
    assert calls[len(synced_paths) :] == [f"prove {new}", f"rename {path}", str(tmp_path)]
    assert names(tmp_path) == {"out"}


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("other answers")])
def test_what_is_not_proved_leaves_nothing(tmp_path, folder, error):
    """The file from before stays; the folders that were made go."""
    path = tmp_path / "x/y/out" if folder else tmp_path / "out"
    if not folder:
        path.write_text("old")

    def fail(name):
        assert os.path.exists(f"{name}/in/a" if folder else name)
        raise error

    with (
        pytest.raises(type(error)) as caught,
        files.published(str(path), fail, folder=folder) as new,
    ):
        fill(new, folder=folder)
    assert caught.value is error
    assert names(tmp_path) == (set() if folder else {"out"})
    assert folder or path.read_text() == "old"


def test_a_folder_that_is_there_is_not_replaced(tmp_path):
    for path in (tmp_path, tmp_path / "file"):
        (tmp_path / "file").write_text("mine")
        with (
            pytest.raises(InputError, match=f"Received: {path}, which already exists"),
            files.published(str(path), folder=True),
        ):
            pytest.fail("the work was begun")
    assert names(tmp_path) == {"file"}


@pytest.mark.parametrize("folder", [False, True])
def test_only_the_chief_publishes(tmp_path, monkeypatch, folder):
    monkeypatch.setattr(runtime, "is_chief", lambda: False)
    with files.published(str(tmp_path / "out"), pytest.fail, folder=folder) as new:
        fill(new, folder=folder)
    assert names(tmp_path) == set()
    assert folder != os.path.exists(new)  # /dev/null is


def test_a_remote_folder_is_copied_and_what_makes_it_whole_comes_last(monkeypatch):
    """If that fails nothing is left."""
    copy, copied, proved = tf.io.gfile.copy, [], []

    def noting(source, target, **more):
        copied.append(target)
        if len(copied) == number:
            raise tf.errors.UnavailableError(None, None, "gone")
        copy(source, target, **more)

    monkeypatch.setattr(tf.io.gfile, "copy", noting)
    path = "ram://published/model"
    for number in (3, 0):
        fails = pytest.raises(InputError, match=r"model, which cannot be written \(gone")
        with (
            fails if number else contextlib.nullcontext(),
            files.published(path, proved.append, folder=True, last="a.index") as new,
        ):
            for name in ("a.index", "b", "in/a"):
                files.make_folder(os.path.dirname(f"{new}/{name}"))
                files.write_text(f"{new}/{name}", name)
        assert [name.removeprefix(f"{path}/") for name in copied] == ["b", "in/a", "a.index"]
        assert tf.io.gfile.exists(path) == (not number)
        copied.clear()
    assert proved == [f"ram://published/{killed.left_name('model')}"] * 2
    assert tf.io.gfile.listdir("ram://published") == ["model"]
    assert files.digest_of(f"{path}/in/a") == hashlib.sha256(b"in/a").hexdigest()


def test_what_is_written_as_it_is(tmp_path):
    """Pipes and devices: nothing can be made in their folder."""
    for path in ("/dev/stdout", "/dev/null", "/dev/fd/1"):
        with files.locked(path):
            assert not glob.glob(f"{os.path.dirname(path)}/.*")
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
        (files.published("/nothing/a"), "No such file"),
        (files.published(str(tmp_path)), "it is a folder"),
        (files.published(str(tmp_path / "file" / "a")), "Not a directory"),
        (files.published(str(tmp_path / "file" / "a"), folder=True), "File exists"),
        (files.locked(str(tmp_path / "file"), folder=True), "Not a directory"),
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
