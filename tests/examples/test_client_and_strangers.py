"""examples/client.py against mistakes, broken servers and hostile ones."""

import contextlib
import io
import json
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

CLIENT = pathlib.Path(__file__).parents[2] / "examples" / "client.py"
LINE = b'{"text": "a"}\n'


class Stranger:
    """Answers the requests of each connection with the next bytes, or by a function."""

    def __init__(self, *answers, asked=None):
        self._answers, self._asked = list(answers), asked if asked is not None else []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        for answer in self._answers:
            connection, _ = self._socket.accept()
            with connection, contextlib.suppress(OSError):
                self._asked.append(connection.recv(1 << 16))
                answer(connection) if callable(answer) else connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 16)
        self._socket.close()


def reply(body, status="200 OK", *headers, length=None):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(content) if length is None else length}"]
    return "\r\n".join([*head, *headers, "", ""]).encode() + content


def chunked(*chunks):
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)


def endless(before):
    def answer(connection):
        connection.sendall(before)
        while True:
            connection.sendall(b" " * (1 << 20))

    return answer


def dripping(before):
    def answer(connection):
        connection.sendall(before)
        for _ in range(60):
            connection.sendall(b"x")
            time.sleep(0.05)

    return answer


@pytest.fixture
def ask(client, capsys, monkeypatch):
    """Gives the client's command: server, input, flags -> code, output, message."""

    def run(stranger, content=LINE, *flags):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        given = {"--address": stranger.address if stranger else "127.0.0.1:1", "--model": "m"}
        given |= {"--timeout": "20"} | dict(flag.split("=", 1) for flag in flags)
        code = client.main([f"{name}={value}" for name, value in given.items()])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def assert_three_parts(code, out, message):
    assert code == 1
    assert out == ""
    lines = message.splitlines()
    assert lines[0].endswith(": failed.")
    assert [line.split(":")[0] for line in lines[1:]] == ["Received", "Expected", "To do"]
    assert all(line.isprintable() for line in lines)
    assert len(message) < 2000


BAD_REPLIES = {
    "closed": (b"", "Remote end closed"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9\r\n", "BadStatusLine|SSH"),
    "no status": (b"HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 abc"),
    "many headers": (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "100 headers"),
    "cut body": (reply(b'{"outputs": [1', length=99), "14 bytes of 99"),
    "odd chunk": (chunked(b"zz\r\n{"), "IncompleteRead|invalid literal"),
    "endless": (endless(b"HTTP/1.1 200 OK\r\n\r\n"), "more than 1048576 bytes"),
    "endless chunk": (endless(chunked(b"-1\r\n")), "more than 1048576 bytes"),
    "promised": (reply(b"{}", length=10**15), "bytes of 1000000000000000"),
    "empty": (reply(b""), "Expecting value"),
    "not JSON": (reply(b"<html>no</html>"), "Expecting value"),
    "not UTF-8": (reply(b'{"outputs": "\xff"}'), "codec"),
    "deep": (reply(b"[" * 200_000), "nested too deep"),
    "NaN": (reply(b'{"outputs": {"a": [NaN]}}'), "the number NaN"),
    "infinite": (reply(b'{"outputs": {"a": [1e999]}}'), "the number 1e999"),
    "digits": (reply(b'{"outputs": {"a": [' + b"1" * 5000 + b"]}}"), "integer string"),
    "a list": (reply([1]), "without outputs"),
    "a number": (reply({"outputs": {"a": 5}}), "a without a value for each of 1 rows"),
    "too many": (reply({"outputs": {"a": [1, 2]}}), "a without a value for each"),
    "gzip": (reply(b"x", "200 OK", "Content-Encoding: gzip"), "the encoding gzip"),
    "redirected": (reply(b"", "302 Found", "Location: http://127.0.0.1:1/"), "302"),
    "error": (reply({"error": "no \x1b[31msuch\x07 model"}, "404 Not Found"), r"404 no \\x1b\[31m"),
    "error of bytes": (reply(b"\x1b]0;x\x07\xff" * 999, "500 Oops"), r"500 \\x1b"),
    "error without": (reply({}, "503 Busy"), "503"),
    "deep error": (reply(b"[" * 200_000, "400 Bad"), r"400 \[\["),
    "names that act": (reply({"outputs": {"\x1b[2J": 5}}), r"\\x1b\[2J without"),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_bad_reply_is_said_in_three_parts(ask, client, monkeypatch, name):
    monkeypatch.setattr(client, "MOST_BYTES", 1 << 20)
    answer, says = BAD_REPLIES[name]
    code, out, message = ask(Stranger(answer))
    assert_three_parts(code, out, message)
    assert re.search(says, message), message


@pytest.mark.parametrize(
    "metadata", [{}, 5, {"metadata": {"signature_def": {"signature_def": {}}}}]
)
def test_a_single_output_without_a_name(ask, metadata):
    stranger = Stranger(reply({"outputs": [1]}), reply(metadata))
    code, out, message = ask(stranger)
    assert_three_parts(code, out, message)
    assert "not the name of one output" in message


@pytest.mark.parametrize(
    "before", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"]
)
def test_the_time_is_for_the_whole_answer(ask, before):
    start = time.monotonic()
    code, out, message = ask(Stranger(dripping(before)), LINE, "--timeout=0.4")
    assert 0.3 < time.monotonic() - start < 3
    assert_three_parts(code, out, message)
    assert "no whole answer in 0.4 seconds" in message


@pytest.mark.parametrize(
    ("content", "flags", "says"),
    [
        (b"[1]\n", [], "line 1 is not a JSON object"),
        (LINE + b"\n", [], "line 2 is not a JSON object"),
        (b"{" * 100_000, [], "line 1 is not a JSON object"),
        (b'{"a":' * 100_000, [], "nested too deep"),
        (b'{"text": "\\ud800"}', [], "line 1 is not"),
        (b'{"text": NaN}', [], "the number NaN"),
        (b"\xff\xfe\x00", [], "line 1 is not"),
        (b"x" * 2_000_000, [], "longer than 1048576 bytes"),
        (LINE, ["--address=127.0.0.1:99999"], "not host:port"),
        (LINE, ["--address=localhost"], "not host:port"),
        (LINE, ["--address=a\r\nX: y:80"], "not host:port"),
        (LINE, ["--address=http://localhost:80"], "not host:port"),
        (LINE, ["--address=no-such-host.invalid:80"], "no-such-host.invalid"),
        (LINE, ["--model=\x1b[2J"], "not printable"),
        (LINE, ["--version=-1"], "--version=-1"),
        (LINE, ["--timeout=nan"], "--timeout=nan"),
        (LINE, ["--batch_size=0"], "--batch_size=0"),
        (LINE, ["--protocol=soap"], "soap"),
        (LINE, ["--colour=red"], "--colour"),
        (LINE, ["--input_file=/nowhere/at/all"], "/nowhere/at/all"),
        (LINE, ["--input_file=/"], "directory"),
    ],
)
def test_a_mistake_is_said_in_three_parts(ask, client, monkeypatch, content, flags, says):
    monkeypatch.setattr(client, "LONGEST_LINE", 1 << 20)
    code, out, message = ask(None, content, *flags)
    assert_three_parts(code, out, message)
    assert says in message


def test_any_name_of_a_model_is_asked_for(ask):
    asked = []
    stranger = Stranger(reply({"outputs": {"a": [1]}}), asked=asked)
    code, out, _ = ask(stranger, LINE, "--model=a b/../é?#")
    assert (code, json.loads(out)) == (0, {"a": 1})
    assert asked[0].startswith(b"POST /v1/models/a%20b%2F..%2F%C3%A9%3F%23:predict HTTP/1.1\r\n")


def test_answers_hold_nothing_that_a_terminal_obeys(ask):
    text = "\x1b[31m\x07\x7f\x9b2J é 中 \ud800"
    code, out, message = ask(Stranger(reply({"outputs": {text: [text]}})))
    assert (code, message) == (0, "")
    assert out.removesuffix("\n").isprintable()
    assert "é 中" in out
    assert json.loads(out) == {text: text}


@pytest.mark.parametrize("closed", ["<&-", ">&-", ">/dev/full", "2>&-"])
def test_streams_that_are_not_there(closed):
    stranger = Stranger(reply({"outputs": {"a": [1]}}))
    words = f"{sys.executable} {CLIENT} --address={stranger.address} --model=m"
    done = subprocess.run(
        ["sh", "-c", f"{words} {closed}"], input=LINE, capture_output=True, timeout=60
    )
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.returncode == (0 if closed == "2>&-" else 1)
