"""Readers of what is asked: lines to predict, requests to the page, TF_CONFIG."""

import contextlib
import json
import os
import pathlib
import socket
import threading
import unittest.mock

import served_models
from readers import Reader

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.playground import api, server
from bert_tf.serving import pretrained, rows
from bert_tf.training import distribution


def changed(reader: Reader) -> list[str]:
    """The files that are not as they were made; all, if none is."""
    others = [n for n, valid in reader.valid.items() if (reader.folder / n).read_bytes() != valid]
    return others or list(reader.damaged)


# ---------------------------------------------------------------------------- requests

METADATA = {
    "text": served_models.metadata_of(text=[None]),
    "pair": served_models.metadata_of(text_a=[None], text_b=[None]),
    "choices": served_models.metadata_of(context=[None], endings=[None, None]),
}
LINES = {
    "text.text": "A fine film.\nEin schöner Film 😀\n\nlast",
    "pair.tsv": "He left.\tHe went away.\na\tb\n",
    "choices.tsv": "She\tleft.\tslept.\nx\ty\tz\n",
    "text.jsonl": '"a text"\n{"text": "b", "id": 7}\n["c"]\n',
    "pair.jsonl": '["a", "b"]\n{"text_a": "He left.", "text_b": "He went.", "id": [1]}\n',
    "choices.jsonl": '["She", ["left.", "slept."]]\n{"context": "x", "endings": ["y", "z"]}\n',
}


def predict_lines(folder: pathlib.Path) -> Reader:
    """The input files of `bert-tf predict`, in all formats, for models of all shapes."""
    for name, content in LINES.items():
        (folder / name).write_text(content, encoding="utf-8")

    def read(folder: pathlib.Path) -> None:
        for name in changed(reader):
            kind, _, file_format = name.partition(".")
            metadata, path = METADATA[kind], str(folder / name)
            lines, reads = files.read_lines(path), rows.RowReader(metadata)
            for place, item in rows.read_items(
                lines, metadata, input_format=file_format, name=path
            ):
                row = reads.read(item, place)
                assert list(row) == list(reads.is_list)

    ways = {name: "json_lines" if name.endswith("jsonl") else "lines" for name in LINES}
    reader = Reader(folder, ways, read)
    return reader


def features_lines(folder: pathlib.Path) -> Reader:
    """The input files of extract_features.py."""
    (folder / "x.txt").write_text("A fine film.\nwho? ||| Ruprecht 😀\n\n", encoding="utf-8")
    (folder / "x.jsonl").write_text('{"text": "a"}\n{"text_a": "b", "text_b": "c"}\n')

    def read(folder: pathlib.Path) -> None:
        for name in changed(reader):
            path = str(folder / name)
            for line in pretrained.read_lines(path, jsonl=name.endswith("jsonl")):
                assert isinstance(line[0], str)
                assert isinstance(line[1], str | None)

    reader = Reader(folder, {"x.txt": "lines", "x.jsonl": "json_lines"}, read)
    return reader


class _Echo:
    """A playground without a model, which reads the texts of requests as the real one does."""

    def __init__(self, kind: str):
        self._kind = kind

    def answer(self, request):
        playground = api.Playground.__new__(api.Playground)
        playground._rows = rows.RowReader(METADATA[self._kind])
        row = playground._row(request)
        return {"answer": len(repr(row)), "part": api._whole(request, "part", 3)}

    attention = answer

    def describe(self):
        return {"task": self._kind}


HEADERS = "POST /api/answer HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: application/json\r\n"
BODY = {"texts": {"context": "She", "endings": ["left.", "slept."]}, "part": 1, "layer": 0}


def _send(stream: socket.socket, request: bytes) -> None:
    with contextlib.suppress(OSError):  # the other end does not want more
        stream.sendall(request)
        stream.shutdown(socket.SHUT_WR)


def playground_requests(folder: pathlib.Path) -> Reader:
    """Requests to the page: bodies of JSON, and whole requests in HTTP."""
    body = json.dumps(BODY).encode()
    (folder / "body").write_bytes(body)
    (folder / "request").write_bytes(
        f"{HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body
    )
    listening = unittest.mock.Mock(
        spec=server.Server,
        playground=_Echo("choices"),
        hosts={"localhost:1"},
        url="http://localhost:1/",
    )
    listening.model_lock = unittest.mock.MagicMock()
    listening.describe = _Echo("choices").describe

    def read(folder: pathlib.Path) -> None:
        request = (folder / "request").read_bytes()
        if (content := (folder / "body").read_bytes()) != body:
            request = f"{HEADERS}Content-Length: {len(content)}\r\n\r\n".encode() + content
        ours, theirs = socket.socketpair()
        # In a thread: one that is longer than the system's buffers waits until it is read.
        sender = threading.Thread(target=_send, args=(ours, request))
        with ours:
            sender.start()
            with theirs:
                server.Handler(theirs, ("127.0.0.1", 9), listening)
                theirs.shutdown(socket.SHUT_WR)
                answered = b"".join(iter(lambda: ours.recv(1 << 16), b""))
            sender.join()
        first = answered.split(b"\r\n", 1)[0]
        assert b" 500 " not in first, answered[-400:]
        if b" 200 " not in first:
            raise InputError(repr(first[:100]), "a request", "correct it")

    return Reader(folder, {"body": "json", "request": "lines"}, read, named="")


def tf_config(folder: pathlib.Path) -> Reader:
    """The environment variable TF_CONFIG."""
    content = {
        "cluster": {"worker": ["host0:2222", "host1:2222"], "chief": ["host2:2222"]},
        "task": {"type": "worker", "index": 0},
    }
    (folder / "TF_CONFIG").write_text(json.dumps(content))

    def read(folder: pathlib.Path) -> None:
        value = os.fsdecode((folder / "TF_CONFIG").read_bytes()).replace("\0", "")
        with unittest.mock.patch.dict(os.environ, TF_CONFIG=value):
            assert distribution.num_processes() >= 1

    return Reader(folder, {"TF_CONFIG": "json"}, read, named="TF_CONFIG")


MAKERS = {
    "predict_lines": predict_lines,
    "features_lines": features_lines,
    "playground_requests": playground_requests,
    "tf_config": tf_config,
}
