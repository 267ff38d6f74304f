"""Rates and latency of `bert-tf serve`, beside ONNX Runtime and PyTorch behind the same server.

    pip install -r benchmarks/requirements.txt
    BERT_TF_DATA=... python benchmarks/serving_http.py --models=minilm --clients=1,4,16
    BERT_TF_DATA=... python benchmarks/serving_http.py --flat=50000

POST .../v1/models/NAME:predict with raw texts, mean-pooled vectors back, in JSON. Ours is the
command itself, on an export; for the others this package's HTTP server, which joins requests that
wait, has their model in place of ours (serving_latency.py's contenders). So all pay the same for
HTTP and JSON, and differ in tokenizer and model. A client keeps its connection, and sends its next
request when it has the answer; the clients are threads of this process, on the same cores.

Servers take turns of --requests requests. Prints p50 and p99 of the time of a request, requests a
second in the median turn, and the greatest difference of the vectors from ours.

--flat asks ours alone, four clients: p50, requests a second and memory in each tenth.
"""

import concurrent.futures
import contextlib
import http.client
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import numpy as np

import serving_latency
from measuring import command, in_turn, parse_options, print_rows, print_titles
from serving_latency import CONTENDERS, ROUNDING, make_models, texts_of

CASES = ((20, 1), (200, 1), (20, 32))  # words of a text, texts of a request


class Server:
    """A server's process."""

    def __init__(self, name: str, folder: pathlib.Path):
        """Starts it, and waits until it answers."""
        words = command(__file__, contender=name, folder=folder)
        if name == "ours":
            words = command("-m", "bert_tf", "serve", folder / "export", "--name=m", port=0)
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        for line in self._process.stderr:
            if found := re.search(r" at (http://\S+?/)v1", line):
                break
        else:
            sys.exit(f"{name} has ended")
        self._address = urllib.parse.urlsplit(found[1]).netloc
        threading.Thread(target=self._process.stderr.read, daemon=True).start()  # else it may fill

    def ask(self, requests: list[list[str]], clients: int) -> tuple[list, list, float]:
        """Seconds and vectors of each request, by so many clients; and the seconds of all."""

        def of_client(number: int) -> list[tuple[int, float, list]]:
            connection, found = http.client.HTTPConnection(self._address), []
            for at in range(number, len(requests), clients):
                body = json.dumps({"instances": requests[at]})
                begin = time.perf_counter()
                connection.request("POST", "/v1/models/m:predict", body)
                answer = connection.getresponse()
                content = answer.read()
                seconds = time.perf_counter() - begin
                if answer.status != 200:
                    sys.exit(content.decode())
                found.append((at, seconds, content))
            connection.close()  # the server would, before the next turn
            return found

        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            parts = [*pool.map(of_client, range(clients))]
        wall = time.perf_counter() - begin
        found = sorted(one for part in parts for one in part)
        rows = (json.loads(content)["predictions"] for _, _, content in found)
        vectors = [[one["mean"] for one in row] for row in rows]
        return [seconds for _, seconds, _ in found], vectors, wall

    def megabytes(self) -> float:
        """Memory in use."""
        status = pathlib.Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1000

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_) -> None:
        self._process.terminate()
        self._process.wait()


def main() -> None:
    """Models, servers -> a table."""
    options = parse_options(
        __doc__,
        models=("minilm",),
        clients=(1, 4, 16),
        rounds=5,
        requests=64,  # of a turn
        flat=0,
        contender=None,
        folder=None,
    )
    if options.contender:
        contender(options)
        return
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            make_models(model, pathlib.Path(folder))
            (flat if options.flat else compare)(model, pathlib.Path(folder), options)


def compare(model: str, folder: pathlib.Path, options) -> None:
    """All servers in turns."""
    titles = "model", "request", "clients", "server", "p50 ms", "p99 ms", "requests/s", "differs"
    print_titles(*titles)
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(Server(name, folder)) for name in CONTENDERS}
        for (words, texts), clients in itertools.product(CASES, options.clients):
            count = max(options.requests // texts, 2 * clients)
            found: dict = {name: ([], [], []) for name in servers}
            for turn, name in enumerate(in_turn(servers, options.rounds + 1)):
                number = turn // len(servers)
                requests = texts_of(words, texts, number, count)
                seconds, vectors, wall = servers[name].ask(requests, clients)
                if number:  # the first warms up
                    found[name][0].extend(seconds)
                    found[name][1].extend(vectors)
                    found[name][2].append(count / wall)
            for name, (seconds, vectors, rates) in found.items():
                pairs = zip(vectors, found["ours"][1], strict=True)
                differs = max(np.abs(np.subtract(a, b)).max() for a, b in pairs)
                figures = *(1000 * np.quantile(seconds, [0.5, 0.99])), statistics.median(rates)
                cells = model, f"{texts} x {words} words", clients, name
                print_rows([*cells, *(f"{x:.1f}" for x in figures), f"{differs:.1e}"])
                if not differs < ROUNDING:
                    sys.exit(f"{name} gives other vectors")


def flat(model: str, folder: pathlib.Path, options) -> None:
    """Many requests to ours."""
    print_titles("model", "requests", "p50 ms", "p99 ms", "requests/s", "MB")
    with Server("ours", folder) as server:
        for part in range(10):
            count = options.flat // 10
            seconds, _, wall = server.ask(texts_of(20, 1, part, count), 4)
            figures = *(1000 * np.quantile(seconds, [0.5, 0.99])), count / wall, server.megabytes()
            print_rows([model, (part + 1) * count, *(f"{x:.1f}" for x in figures)])


# -------------------------------------------------------------------------------- contenders


class OtherModel:
    """What the server asks of a model, answered by another library."""

    path = "1"

    def __init__(self, answer):
        """Takes a function from texts to vectors [N, D]."""
        self._answer = answer
        text = {"text": {"dtype": "string", "shape": [None]}}
        self.metadata = {
            "answers": {"serving_default": []},
            "signatures": {"serving_default": text},
        }

    def run(self, arrays, _: str) -> dict[str, np.ndarray]:
        """As of `ServedModel`; ours answers two vectors, so these do, too."""
        vectors = self._answer([text.decode() for text in arrays["text"]])
        return {"mean": vectors, "pooled": vectors}


def contender(options) -> None:
    """Serves another library's model."""
    from bert_tf.playground.rest import RestModel
    from bert_tf.playground.server import Server as HttpServer

    make = {"pytorch": serving_latency.pytorch, "onnxruntime": serving_latency.onnx}
    with HttpServer() as server:
        server.rest = RestModel(OtherModel(make[options.contender](options)), "m")
        print(f"served at {server.url}v1", file=sys.stderr, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
