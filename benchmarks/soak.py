"""Watches long runs at full speed for growth of threads, memory and open files.

    python benchmarks/soak.py --output_dir=soak --text='wiki/*' --vocab_file=vocab.txt \
        --picture=docs/soak.png

    two_processes, three_processes   pre-training in processes of one run, 20,000 steps
    one_process                      the same in a single process, 100,000 steps
    served_export                    200,000 requests to an export behind TensorFlow Serving's REST
                                     API, by TensorFlow's C API in a process without this package
    playground                       50,000 requests to `bert-tf playground`, answers and attention
    data                             2 GB of text to records in shards

The models are tiny, so that an hour holds many steps and requests. The processes of the command
are sampled once a second; memory is what no file backs. A soak is flat if, after a warm-up (500
steps of training, else 5 %), threads and open files rise by at most 5 (data: 12, as each
of its stages opens files of its own), and the most memory of the second half is at most 5 % above
that of the first. Rates are printed and drawn but not judged, as
other programs on the machine change them. Exit code 1 if a soak is not flat.

--soaks selects some of them. --output_dir keeps the samples, and the picture shows all that it has.
"""

import argparse
import dataclasses
import functools
import http.client
import http.server
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import psutil

import endurance

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
MODEL |= {"intermediate_size": 16, "max_position_embeddings": 16, "vocab_size": 512}
SEQUENCE = {"max_seq_length": 16, "max_predictions_per_seq": 2}
BATCH = {1: 4, 2: 4, 3: 6}  # by the number of processes
MEGABYTES_FOR_TRAINING = 2
SECONDS_BETWEEN_SAMPLES = 1.0
FEWEST_SAMPLES = 8
WARM_STEPS, WARM_PART = 500, 0.05
MOST_MORE, MOST_GROWTH = 5, 1.05  # threads or files; memory
MORE_OF_DATA = 12  # files: its last stage reads and writes more of them than its first
STEP = re.compile(r"train: (\d+) of \d+ steps")
MB = 1e6


@dataclasses.dataclass
class Watched:
    """A process of a soak, its children included, and what it has done."""

    process: subprocess.Popen
    done: Callable[[], int]  # steps, requests, or megabytes so far
    samples: list[dict] = dataclasses.field(default_factory=list)

    def sample(self, begun: float) -> None:
        """Records the progress of the process, its threads, files and memory."""
        from data_generation import held_bytes  # not at the top: loads what the server must not

        try:
            first = psutil.Process(self.process.pid)
            family = [first, *first.children(recursive=True)]
            values = {
                "threads": sum(one.num_threads() for one in family),
                "files": sum(one.num_fds() for one in family),
                "mb": held_bytes(self.process.pid) / MB,
            }
        except (psutil.Error, OSError):  # one of them is just ending
            return
        seconds = time.monotonic() - begun
        self.samples.append({"seconds": round(seconds, 1), "done": self.done(), **values})


def main() -> None:
    """Data and a model -> the soaks, one after the other -> figures, picture."""
    options = parse_options()
    if options.serve:
        serve(options)
        return
    folder = options.output_dir
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "export").exists():
        prepare(options)
    print("| soak | minutes | threads | open files | MB | a second, in quarters | |")
    print("|---|---|---|---|---|---|---|")
    flat = True
    for name in options.soaks:
        unit, count, run = SOAKS[name]
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
        count = max(1, int(count * options.part))
        watched = run(options, folder / name, count)
        samples = {"unit": unit, "count": count, "runs": [one.samples for one in watched]}
        (folder / f"{name}.json").write_text(json.dumps(samples))
        ended = [one.process.returncode for one in watched]
        if any(ended):
            sys.exit(f"{name}: exit codes {ended}; see {folder / name}")
        for number, one in enumerate(watched):
            flat &= report(name if len(watched) == 1 else f"{name}, {number}", one.samples)
    if options.picture:
        draw(folder, options.picture)
    sys.exit(0 if flat else 1)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--text", help="WikiExtractor files")
    parser.add_argument("--vocab_file")
    parser.add_argument(
        "--soaks", type=lambda names: names.split(","), default=list(SOAKS), help="default: all"
    )
    parser.add_argument("--part", type=float, default=1.0, help="of the steps or requests of each")
    parser.add_argument("--picture", help="a .png or .svg")
    parser.add_argument("--serve", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def prepare(options: argparse.Namespace) -> None:
    """Text -> vocabulary, records, a model of ten steps, its export."""
    folder = options.output_dir
    text = folder / "text.txt"
    write_text(options, text, MEGABYTES_FOR_TRAINING)
    run_verb(
        "vocab", input_file=text, output_file=folder / "vocab.txt", vocab_size=MODEL["vocab_size"]
    )
    (folder / "bert_config.json").write_text(json.dumps(MODEL))
    run_verb(
        "data",
        input_file=text,
        output_file=folder / "train.tfrecord",
        vocab_file=folder / "vocab.txt",
        dupe_factor=1,
        **SEQUENCE,
    )
    subprocess.run(training_command(folder, folder / "model", processes=1, steps=10), check=True)
    run_verb("export", init_checkpoint=folder / "model", export_dir=folder / "export")


def write_text(options: argparse.Namespace, path: pathlib.Path, megabytes: float) -> None:
    """WikiExtractor's documents, a sentence a line, until there are that many megabytes."""
    import data_generation

    data_generation.write_text(path, options.text, int(megabytes * MB))


def run_verb(verb: str, **flags: object) -> None:
    """Runs a verb to its end."""
    subprocess.run(verb_command(verb, **flags), check=True, cwd=ROOT)


def verb_command(verb: str, *words: str, **flags: object) -> list[str]:
    """The command line of a verb."""
    return [sys.executable, "-m", "bert_tf", verb, *words, *endurance.as_flags(flags)]


# -------------------------------------------------------------------------------- the soaks


def training_command(
    folder: pathlib.Path, output_dir: pathlib.Path, *, processes: int, steps: int
) -> list[str]:
    """Pre-training of the small model."""
    return verb_command(
        "pretrain",
        "--do_train",
        input_file=folder / "train.tfrecord",
        bert_config_file=folder / "bert_config.json",
        vocab_file=folder / "vocab.txt",
        output_dir=output_dir,
        train_batch_size=BATCH[processes],
        num_train_steps=steps,
        num_warmup_steps=min(1000, steps // 2),
        save_checkpoints_steps=2000,
        iterations_per_loop=100,
        log_steps=100,
        learning_rate=1e-3,
        **SEQUENCE,
    )


def train(
    options: argparse.Namespace, folder: pathlib.Path, steps: int, *, processes: int
) -> list[Watched]:
    """Pre-training in that many processes of one run."""
    command = training_command(options.output_dir, folder / "run", processes=processes, steps=steps)
    addresses = [f"127.0.0.1:{port}" for port in free_ports(processes)]
    watched = []
    for index in range(processes):
        cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {"TF_CONFIG": json.dumps(cluster)} if processes > 1 else {}
        log = folder / f"{index}.log"
        process = begin(command, log, **environment)
        watched.append(Watched(process, functools.partial(steps_said, log)))
    watch(watched, lambda: all(one.process.poll() is not None for one in watched))
    return watched


def steps_said(log: pathlib.Path) -> int:
    """The last step in a log."""
    with open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 5000))
        found = STEP.findall(file.read().decode(errors="replace"))
    return int(found[-1]) if found else 0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def ask_export(options: argparse.Namespace, folder: pathlib.Path, count: int) -> list[Watched]:
    """Requests to the export, served by TensorFlow's C API."""
    (port,) = free_ports(1)
    export = options.output_dir / "export"
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    import saved_models

    version = max(export.iterdir(), key=lambda path: int(path.name))
    (meta_graph,) = saved_models.read_saved_model(str(version)).meta_graphs
    signature = meta_graph.signature_def["serving_default"]
    names = {
        "libraries": [str(saved_models.LIBRARY), *map(str, saved_models.OPERATIONS)],
        "inputs": {name: info.name for name, info in signature.inputs.items()},
        "outputs": {name: info.name for name, info in signature.outputs.items()},
        "export": str(version),
        "port": port,
    }
    (folder / "served.json").write_text(json.dumps(names))
    command = [sys.executable, __file__, f"--output_dir={folder}"]
    process = begin([*command, f"--serve={folder / 'served.json'}"], folder / "server.log")

    def request(text: str) -> tuple[str, dict]:
        return "/v1/models/export:predict", {"instances": [{"text": text}]}

    return [ask(process, port, count, itertools.repeat(request))]


def ask_playground(options: argparse.Namespace, folder: pathlib.Path, count: int) -> list[Watched]:
    """Requests to the page's server, for answers and attention in turn."""
    (port,) = free_ports(1)
    command = verb_command("playground", str(options.output_dir / "export"), port=port)
    process = begin(command, folder / "server.log")

    def answer(text: str) -> tuple[str, dict]:
        return "/api/answer", {"texts": {"text": text}}

    def attention(text: str) -> tuple[str, dict]:
        return "/api/attention", {"texts": {"text": text}, "part": 0, "layer": 0}

    return [ask(process, port, count, itertools.cycle([answer, attention]))]


def ask(process: subprocess.Popen, port: int, count: int, requests) -> Watched:
    """Sends that many requests, one after the other, on connections of a thousand each."""
    asked, draws = [0], random.Random(1)
    watched = Watched(process, lambda: asked[0])
    begun = wait_for_server(process, port)
    next_sample = begun
    words = ["the", "sun", "and", "wind", "of", "a", "year", "in", "this", "old", "city", "were"]
    connection = None
    for number in range(count):
        if number % 1000 == 0:
            if connection:
                connection.close()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        text = " ".join(draws.choices(words, k=draws.randrange(1, 20))) + " [MASK]."
        path, body = next(requests)(text)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            process.kill()
            sys.exit(f"request {number} {body}: {response.status} {answer[:500]!r}")
        asked[0] += 1
        if time.monotonic() >= next_sample:
            next_sample += SECONDS_BETWEEN_SAMPLES
            watched.sample(begun)
    watched.sample(begun)
    process.terminate()
    process.wait()
    process.returncode = 0  # a server is ended by a signal
    return watched


def wait_for_server(process: subprocess.Popen, port: int) -> float:
    """Waits until the port accepts connections; returns the time."""
    while True:
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return time.monotonic()
        except OSError:
            time.sleep(0.1)


def generate(options: argparse.Namespace, folder: pathlib.Path, megabytes: int) -> list[Watched]:
    """Text to records in 64 shards, by two workers."""
    text, records = folder / "text.txt", folder / "records"
    records.mkdir()
    write_text(options, text, megabytes)
    command = verb_command(
        "data",
        input_file=text,
        output_file=records / "train.tfrecord",
        vocab_file=options.vocab_file,
        dupe_factor=5,
        num_workers=2,
        num_shards=64,
        temp_dir=records,
    )
    most = [0]

    def written() -> int:
        size = sum(path.stat().st_size for path in list(records.rglob("*")) if path.is_file())
        most[0] = max(most[0], int(size / MB))
        return most[0]

    watched = [Watched(begin(command, folder / "data.log"), written)]
    watch(watched, lambda: watched[0].process.poll() is not None)
    text.unlink()
    shutil.rmtree(records)
    return watched


def begin(command: list[str], log: pathlib.Path, **environment: str) -> subprocess.Popen:
    """Starts a command whose output goes to a file."""
    with open(log, "wb") as file:
        return subprocess.Popen(
            command, stdout=file, stderr=file, cwd=ROOT, env=os.environ | environment
        )


def watch(watched: list[Watched], ended: Callable[[], bool]) -> None:
    """Takes samples until all have ended."""
    begun = time.monotonic()
    while not ended():
        time.sleep(SECONDS_BETWEEN_SAMPLES)
        for one in watched:
            one.sample(begun)


SOAKS = {  # what is counted, how many
    "two_processes": ("steps", 20_000, functools.partial(train, processes=2)),
    "three_processes": ("steps", 20_000, functools.partial(train, processes=3)),
    "one_process": ("steps", 100_000, functools.partial(train, processes=1)),
    "served_export": ("requests", 200_000, ask_export),
    "playground": ("requests", 50_000, ask_playground),
    "data": ("MB", 2_000, generate),
}


# -------------------------------------------------------------------------------- the server


def serve(options: argparse.Namespace) -> None:
    """Serves an export by the C API; the REST API of TensorFlow Serving, one request at a time."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    import numpy as np
    from saved_model_process import SavedModel, TensorFlow

    names = json.loads(options.serve.read_text())
    model = SavedModel(TensorFlow(names["libraries"][0], names["libraries"][1:]), names["export"])
    tensors = list(names["outputs"].values())

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            rows = request["instances"]
            feed = {
                tensor: np.array([row[name].encode() for row in rows], object)
                for name, tensor in names["inputs"].items()
            }
            found = zip(names["outputs"], model.run(feed, tensors), strict=True)
            values = {name: array.tolist() for name, array in found}
            body = json.dumps({"outputs": values}, default=bytes.decode).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    http.server.HTTPServer(("127.0.0.1", names["port"]), Handler).serve_forever()


# -------------------------------------------------------------------------------- figures


def report(name: str, samples: list[dict]) -> bool:
    """Prints a row; returns whether it is flat."""
    warm = min(WARM_STEPS, samples[-1]["done"] / 2) if "process" in name else 0
    warm = warm or WARM_PART * samples[-1]["done"]
    samples = [s for s in samples if s["done"] >= warm]
    if len(samples) < FEWEST_SAMPLES:
        sys.exit(f"{name}: {len(samples)} samples are too few; raise --part")
    first, middle = samples[0], samples[0]["seconds"] / 2 + samples[-1]["seconds"] / 2
    more = {key: max(s[key] for s in samples) - first[key] for key in ("threads", "files")}
    halves = [
        [s["mb"] for s in samples if (s["seconds"] > middle) is late] for late in (False, True)
    ]
    growth = max(halves[1]) / max(halves[0])
    most = MORE_OF_DATA if name == "data" else MOST_MORE
    flat = max(more.values()) <= most and growth <= MOST_GROWTH
    rates = ", ".join(f"{rate:.0f}" for rate in rates_of_quarters(samples))
    last = samples[-1]
    print(
        f"| {name}: {last['done']:,} | {last['seconds'] / 60:.1f} | "
        f"{first['threads']}, {last['threads']} | {first['files']}, {last['files']} | "
        f"{first['mb']:.0f}, {last['mb']:.0f} ({100 * growth - 100:+.1f} %) | {rates} | "
        f"{'flat' if flat else 'NOT FLAT'} |",
        flush=True,
    )
    return flat


def rates_of_quarters(samples: list[dict]) -> list[float]:
    """The rate in each quarter of the samples."""
    size = len(samples) // 4
    parts = [samples[i * size : (i + 1) * size + 1] for i in range(4)] if size else []
    return [
        (part[-1]["done"] - part[0]["done"]) / (part[-1]["seconds"] - part[0]["seconds"])
        for part in parts
    ]


def draw(folder: pathlib.Path, picture: str) -> None:
    """A column for each soak: rate, memory, threads, open files."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    found = {name: folder / f"{name}.json" for name in SOAKS}
    found = {name: json.loads(path.read_text()) for name, path in found.items() if path.exists()}
    rows = ("rate", "mb", "threads", "files")
    figure, panels = plt.subplots(
        len(rows), len(found), figsize=(3 * len(found), 8), layout="constrained", squeeze=False
    )
    for column, (name, soak) in zip(panels.T, found.items(), strict=True):
        column[0].set_title(f"{name}\n{soak['count']:,} {soak['unit']}", fontsize=9)
        labels = (f"{soak['unit']} a second", "memory, MB", "threads", "open files")
        for axes, key, label in zip(column, rows, labels, strict=True):
            for samples in soak["runs"]:
                minutes = [s["seconds"] / 60 for s in samples]
                values = smooth_rates(samples) if key == "rate" else [s[key] for s in samples]
                axes.plot(minutes, values, lw=1)
            axes.set(ylabel=label, ylim=(0, 1.1 * axes.dataLim.ymax))
            axes.grid(alpha=0.3)
        column[-1].set(xlabel="minutes")
    figure.savefig(picture, dpi=110)


def smooth_rates(samples: list[dict], width: int = 15) -> list[float]:
    """The rate around each sample."""
    found = []
    for number in range(len(samples)):
        part = samples[max(0, number - width) : number + width + 1]
        seconds = part[-1]["seconds"] - part[0]["seconds"]
        found.append((part[-1]["done"] - part[0]["done"]) / seconds if seconds else 0.0)
    return found


if __name__ == "__main__":
    main()
