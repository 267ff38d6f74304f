"""Readers of what is asked: command lines, lines to predict, requests to the page, TF_CONFIG."""

# ruff: noqa: S101 (what a reader accepts is asserted)

import contextlib
import io
import json
import os
import pathlib
import socket
import threading
import unittest.mock
from collections.abc import Iterator

import served_models
from absl import flags as absl_flags
from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.playground import api, server
from bert_tf.serving import pretrained, rows
from bert_tf.training import distribution
from readers import Reader
from walking import module_of, parsed

# ---------------------------------------------------------------------------- command lines

# Of every command a line that it takes, without what is in files.
COMMANDS = {
    "run_pretraining.py": (
        "--input_file=x.tfrecord --bert_config_file=c.json --output_dir=out --do_train "
        "--do_eval --train_batch_size=8 --learning_rate=1e-4 --num_train_steps=100 "
        "--num_warmup_steps=10 --max_seq_length=16 --max_predictions_per_seq=3 --precision=float32"
    ),
    "run_classifier.py": (
        "--task_name=csv --data_dir=x --output_dir=out --do_train --do_eval "
        "--init_checkpoint=m.ckpt --learning_rate=5e-5,3e-5 --num_train_epochs=2.5 --labels=a,b "
        "--label_kind=multi_label --label_separator=; --num_trials=2 --warmup_proportion=0.2"
    ),
    "run_squad.py": (
        "--train_file=t.json --output_dir=out --do_train --do_predict --predict_file=d.json "
        "--doc_stride=64 --max_query_length=32 --n_best_size=5 --max_answer_length=9 "
        "--version_2_with_negative --null_score_diff_threshold=-1.5"
    ),
    "create_pretraining_data.py": (
        "--input_file=x.txt --output_file=o.tfrecord --vocab_file=v.txt --max_seq_length=32 "
        "--masked_lm_prob=0.15 --short_seq_prob=0.1 --dupe_factor=3 --random_seed=5 "
        "--do_whole_word_mask --num_workers=2"
    ),
    "extract_features.py": (
        "--input_file=x.txt --output_file=o.jsonl --init_checkpoint=m --layers=-1,-2 "
        "--max_seq_length=16 --batch_size=4"
    ),
    "vocab": "--input_file=x --output_file=v.txt --vocab_size=900 --character_coverage=0.99",
    "evaluate-squad": "dev.json predictions.json --na_prob_file=null_odds.json",
    "predict": "--model=m --input_file=x.tsv --input_format=tsv --batch_size=4 --labels=a,b",
    "export": "--init_checkpoint=m --export_dir=out --task=classification --max_seq_length=16",
    "convert": "--from=m --to=out --to_format=hugging_face",
    "plot": "--output_dir=out --picture=c.png",
    "fill-mask": "--init_checkpoint=m --top_k=3",
    "score": "--init_checkpoint=m --input_file=x.txt --output_file=o.jsonl --batch_size=4",
    "playground": "m --port=8000 --host=127.0.0.1 --task=classification --max_seq_length=9",
}
PLAN = (
    "--bert_config_file={} --head=classification --max_seq_length=24 --train_batch_size=8 "
    "--num_classes=3 --precision=bfloat16 --num_replicas=4 --num_train_steps=900 --memory_gb=16 "
    "--device_tflops=15.7 --device_gb_per_s=900 --link_gb_per_s=12.5 --variables"
)


@contextlib.contextmanager
def _flags_of(command: str) -> Iterator[object]:
    """The module of a command, with its flags defined."""
    module = module_of(command)
    before = set(absl_flags.FLAGS)
    module.define_flags()
    try:
        absl_flags.FLAGS.unparse_flags()
        yield module
    finally:
        for name in set(absl_flags.FLAGS) - before:
            delattr(absl_flags.FLAGS, name)
        absl_flags.FLAGS.mark_as_parsed()


def _words(path: pathlib.Path) -> list[str]:
    """A word a line, as a process gets them: none has a NUL."""
    text = path.read_bytes().decode("utf-8", "replace").replace("\0", "")
    return [word for word in text.split("\n") if len(word.partition("=")[0]) <= 100]


def flags(folder: pathlib.Path) -> Reader:
    """The command lines of all commands."""
    for command, line in COMMANDS.items():
        (folder / command).write_text("\n".join(line.split(" ")))

    def read(folder: pathlib.Path) -> None:
        for command in changed(reader):
            with _flags_of(command) as module, contextlib.redirect_stdout(io.StringIO()):
                outside = parsed([command, *_words(folder / command)])
                getattr(module, "check_flags", lambda _: None)(outside[1:])
                getattr(module, "job_from_flags", dict)()  # of data generation, with its settings

    reader = Reader(folder, dict.fromkeys(COMMANDS, "lines"), read, named="")
    return reader


def changed(reader: Reader) -> list[str]:
    """The files that are not as they were made; all, if none is."""
    others = [n for n, valid in reader.valid.items() if (reader.folder / n).read_bytes() != valid]
    return others or list(reader.damaged)


def plan(folder: pathlib.Path) -> Reader:
    """`bert-tf plan` with its configuration: all that it computes."""
    config = folder / "bert_config.json"
    config.write_text(served_models.CONFIG.to_json_string())
    (folder / "words").write_text("\n".join(PLAN.format(config).split(" ")))

    def read(folder: pathlib.Path) -> None:
        with _flags_of("plan") as module, contextlib.redirect_stdout(io.StringIO()) as page:
            outside = parsed(["plan", *_words(folder / "words")])
            module.check_flags(outside[1:])
            module.main(outside)
        assert "nan" not in page.getvalue()

    return Reader(folder, {"words": "lines", config.name: "json"}, read, named="")


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
    "flags": flags,
    "plan": plan,
    "predict_lines": predict_lines,
    "features_lines": features_lines,
    "playground_requests": playground_requests,
    "tf_config": tf_config,
}
