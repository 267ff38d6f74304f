"""Rates and latency of `bert-tf serve`, beside ONNX Runtime and PyTorch behind the same server.

    pip install -r benchmarks/requirements.txt
    BERT_TF_DATA=... python benchmarks/serving_http.py --models=minilm --clients=1,4,16
    BERT_TF_DATA=... python benchmarks/serving_http.py --models=tiny --mixed=200000 --clients=1,8,64

POST .../v1/models/NAME:predict with raw texts, mean-pooled vectors back, in JSON. Ours is the
command itself, on an export; for the others this package's server, which computes in turns, has
their model in place of ours (serving_latency.py's contenders). So all pay the same for HTTP and
JSON, and differ in tokenizer and model. A client keeps its connection, and sends its next request
when it has the answer; the clients are threads of this process, on the same cores. --others_python
names a Python that has this package, torch, transformers and onnxruntime.

Servers take turns of --requests requests. Prints p50 and p99 of the time of a request, requests a
second in the median turn, and the greatest difference of the vectors from ours.

--mixed asks for so many answers of each server, a share at each load, short and long texts mixed:
85 of 100 requests have a text of 3 to 30 words, 10 one of 100 to 400, 4 eight of 20, 1 thirty-two
of 50 to 200. Meanwhile ours is ended by SIGTERM and started again --restarts times, and killed
--kills times; its clients wait for a refused port, and ask again where a connection ends without an
answer: these are counted, by what ended it. Others get a tenth of the requests and are left alone.
tiny has 2 layers of 128 and random weights.
"""

import concurrent.futures
import contextlib
import functools
import http.client
import itertools
import json
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import numpy as np

import serving_latency
from measuring import command, data_dir, in_turn, parse_options, print_rows, print_titles
from serving_latency import ROUNDING, make_models, texts_of

CASES = ((20, 1), (200, 1), (20, 32))  # words of a text, texts of a request


class Server:
    """A server's process, on one port also when it is started again."""

    def __init__(self, name: str, folder: pathlib.Path, python: str = sys.executable):
        """Starts it, and waits until it answers."""
        self._words = command(__file__, python=python, contender=name, folder=folder)
        if name == "ours":
            path = folder / "export-float32"
            flags = {"name": "m", "noaccess_log": True}
            self._words = command("-m", "bert_tf", "serve", path, **flags)
        self.port = 0
        self.start()

    def start(self) -> None:
        """Starts its process."""
        words = [*self._words, f"--port={self.port}"]
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        for line in self._process.stderr:
            if served := re.search(r" at (http://\S+?/)v1", line):
                break
        else:
            sys.exit(f"{words} has ended")
        self._address = urllib.parse.urlsplit(served[1]).netloc
        self.port = int(self._address.rpartition(":")[2])
        threading.Thread(target=self._process.stderr.read, daemon=True).start()  # else it may fill

    def end(self, number: int) -> int:
        """Ends its process by a signal; its exit code."""
        self._process.send_signal(number)
        return self._process.wait()

    def connect(self) -> http.client.HTTPConnection:
        """A connection, once the port is open."""
        while True:
            connection = http.client.HTTPConnection(self._address, timeout=120)
            with contextlib.suppress(ConnectionRefusedError):
                connection.connect()
                return connection
            time.sleep(0.05)

    def ask(self, requests: list[list[str]], clients: int) -> tuple[list, list, float]:
        """Seconds and vectors of each request, by so many clients; and the seconds of all."""

        def of_client(number: int) -> list[tuple[int, float, list]]:
            connection = self.connect()
            found = []
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
        self.end(signal.SIGTERM)


def main() -> None:
    """Models, servers -> a table."""
    options = parse_options(
        __doc__,
        models=("minilm",),
        clients=(1, 4, 16),
        rounds=5,
        requests=64,  # of a turn
        contenders=("ours", "pytorch", "onnxruntime"),
        mixed=0,
        restarts=5,
        kills=3,
        others_python=sys.executable,
        contender=None,
        port=0,
        folder=None,
    )
    if options.contender:
        contender(options)
        return
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            make_models(model, pathlib.Path(folder))
            (mixed if options.mixed else compare)(model, pathlib.Path(folder), options)


def compare(model: str, folder: pathlib.Path, options) -> None:
    """All servers in turns."""
    titles = "model", "request", "clients", "server", "p50 ms", "p99 ms", "requests/s", "differs"
    print_titles(*titles)
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                Server(name, folder, sys.executable if name == "ours" else options.others_python)
            )
            for name in options.contenders
        }
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


# -------------------------------------------------------------------------------- mixed loads


def mixed(model: str, folder: pathlib.Path, options) -> None:
    """All servers at each load; ours is restarted and killed meanwhile."""
    titles = ["model", "server", "clients", "requests", "p50 ms", "p99 ms", "p99 of single texts"]
    titles += ["requests/s", "MB before, most, after", "restarts, broken", "kills, broken", "lost"]
    print_titles(*titles)
    words = WORDS.findall((data_dir() / "squad/dev-v1.1.json").read_text(encoding="utf-8"))
    for name in options.contenders:
        python = sys.executable if name == "ours" else options.others_python
        with Server(name, folder, python) as server:
            share = options.mixed // (1 if name == "ours" else 10) // len(options.clients)
            ends = ["restart"] * options.restarts + ["kill"] * options.kills
            for number, clients in enumerate(options.clients):
                part = ends[number :: len(options.clients)] if name == "ours" else []
                load = Load(server, words, clients, share, part, seed=number)
                print_rows([model, name, *load.run()])


WORDS = re.compile(r"[A-Za-z]{2,}")


class Load:
    """Requests of some clients to a server, which is ended and started again meanwhile."""

    def __init__(self, server: Server, words: list[str], clients: int, count: int, ends, seed: int):
        """Takes how many requests, and how the server is ended: "restart" or "kill"."""
        self._server = server
        self._words = words
        self._clients = clients
        self._count = count
        self._ends = ends
        self._seed = seed
        self._cause = ""
        self._seconds: dict[int, list[float]] = {}  # by the texts of a request
        self._broken = {"": 0, "restart": 0, "kill": 0}
        self._lock = threading.Lock()

    def run(self) -> list:
        """Asks all; the cells of a row."""
        before = most = self._server.megabytes()
        begin = time.perf_counter()
        away = 0.0  # seconds without a server
        ends = [*self._ends]
        with concurrent.futures.ThreadPoolExecutor(self._clients) as pool:
            asking = [pool.submit(self._ask, client) for client in range(self._clients)]
            while not all(future.done() for future in asking):
                time.sleep(0.2)
                most = max(most, self._server.megabytes())
                num_done = sum(map(len, self._seconds.values()))
                due = (len(self._ends) - len(ends) + 0.5) / max(1, len(self._ends)) * self._count
                if ends and num_done > due:
                    at = time.perf_counter()
                    self._end(ends.pop(0))
                    away += time.perf_counter() - at
            answered = sum(future.result() for future in asking)
        wall = time.perf_counter() - begin - away
        time.sleep(3)
        every = [second for seconds in self._seconds.values() for second in seconds]
        p50, p99 = 1000 * np.quantile(every, [0.5, 0.99])
        single = 1000 * np.quantile(self._seconds[1], 0.99)
        memory = f"{before:.0f}, {most:.0f}, {self._server.megabytes():.0f}"
        cells = [self._clients, self._count, *(f"{x:.1f}" for x in (p50, p99, single))]
        cells += [f"{self._count / wall:.0f}", memory]
        for cause in ("restart", "kill"):
            cells.append(f"{self._ends.count(cause)}, {self._broken[cause]}")
        return [*cells, self._count - answered + self._broken[""]]

    def _end(self, how: str) -> None:
        """Ends the server while it is asked, and starts it again."""
        self._cause = how
        code = self._server.end(signal.SIGTERM if how == "restart" else signal.SIGKILL)
        if how == "restart" and code:
            sys.exit(f"after SIGTERM the exit code is {code}")
        self._server.start()
        time.sleep(0.5)  # by then all have noticed
        self._cause = ""

    def _ask(self, client: int) -> int:
        """A client's requests; how many are answered."""
        connection = self._server.connect()
        answered = 0
        for number in range(client, self._count, self._clients):
            texts = self._texts(number)
            body = json.dumps({"instances": texts})
            while True:
                begin = time.perf_counter()
                try:
                    connection.request("POST", "/v1/models/m:predict", body)
                    response = connection.getresponse()
                    content = response.read()
                except (OSError, http.client.HTTPException):
                    with self._lock:
                        self._broken[self._cause] += 1
                    connection = self._server.connect()
                    continue
                seconds = time.perf_counter() - begin
                if response.will_close:
                    connection.close()
                    connection = self._server.connect()
                if response.status != 503:
                    break
                time.sleep(1)
            if response.status != 200 or len(json.loads(content)["predictions"]) != len(texts):
                sys.exit(f"{response.status}: {content[:300]}")
            with self._lock:
                self._seconds.setdefault(len(texts), []).append(seconds)
            answered += 1
        connection.close()
        return answered

    def _texts(self, number: int) -> list[str]:
        """The texts of a request, the same for the same number."""
        choose = random.Random(self._seed << 32 | number)
        kind = choose.random()
        if kind < 0.85:
            sizes = [choose.randint(3, 30)]
        elif kind < 0.95:
            sizes = [choose.randint(100, 400)]
        elif kind < 0.99:
            sizes = [20] * 8
        else:
            sizes = [choose.randint(50, 200) for _ in range(32)]
        starts = [choose.randrange(len(self._words) - size) for size in sizes]
        both = zip(starts, sizes, strict=True)
        return [" ".join(self._words[start : start + size]) for start, size in both]


# -------------------------------------------------------------------------------- contenders


class OtherModel:
    """What the server asks of a model, answered by another library."""

    path = "1"
    tokenizer = None  # tokens are not counted

    def __init__(self, answer):
        """Takes a function from texts to vectors [N, D]."""
        self._answer = answer
        text = {"text": {"dtype": "string", "shape": [None]}}
        self.metadata = {
            "padded": [],
            "signatures": {"serving_default": text},
        }

    def run(self, arrays, _: str) -> dict[str, np.ndarray]:
        """As of `ServedModel`; ours answers two vectors, so these do, too."""
        vectors = self._answer([text.decode() for text in arrays["text"]])
        return {"mean": vectors, "pooled": vectors}


def contender(options) -> None:
    """Serves another library's model."""
    from bert_tf.http.application import Application
    from bert_tf.http.callers import Callers
    from bert_tf.http.server import Server as HttpServer
    from bert_tf.http.server import bound, url_of

    make = {"pytorch": serving_latency.pytorch, "onnxruntime": serving_latency.onnx}
    model = OtherModel(make[options.contender](options))
    listener, address = bound("127.0.0.1", options.port)
    message = f"served at {url_of(listener, address)}v1"
    tell = functools.partial(print, message, file=sys.stderr, flush=True)
    application = Application(model, "m", callers=Callers(address))
    HttpServer(application, listener, on_started=tell).serve_to_end()


if __name__ == "__main__":
    main()
