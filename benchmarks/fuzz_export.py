"""Fuzzes one loaded export: thousands of random requests, each answered or refused, memory flat.

    bert-tf export --init_checkpoint=... --export_dir=/serving/squad
    python benchmarks/fuzz_export.py --export=/serving/squad/1 --requests=10000
    python benchmarks/fuzz_export.py --kind=fill_mask

--kind exports the tests' model of that kind (one layer, random weights) and fuzzes that.

The export is loaded once by TensorFlow's C API, in a process with neither Keras nor this package,
as TensorFlow Serving runs it. Requests of these kinds come in random order:

    bytes        strings of random bytes, mostly not UTF-8
    characters   strings of random code points, of all planes
    cut          real sentences in UTF-8, cut in the middle of a character
    long         strings of 1 MB: bytes, one word, a text, spaces, [MASK] without end
    empty        empty strings
    no_rows      the empty batch
    unequal      text inputs with unequal numbers of rows          must be refused
    wrong_rank   strings in a matrix                               must be refused
    wrong_type   integers in place of strings                      must be refused
    ids          random ids and positions, in and out of range      refused if any is out
    examples     random bytes in place of tf.Examples               must be refused
    missing      an input is left out                              must be refused

Texts of 1 MB come first, some of each kind: the greatest of them, a context cut into 300,000
windows, decides how much memory the process keeps. From then on it must be flat.

Prints how many of each kind were answered and refused, the seconds, and the memory over time.
An answer must have a row for each row asked, and finite numbers. Ends with an error if a request
was answered that must be refused or the other way round, if memory grew by more than --growth
in the second half, or if a sane request is not answered at the end exactly as at the beginning.
"""

import argparse
import collections
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import time

import numpy as np

TESTS = pathlib.Path(__file__).parents[1] / "tests" / "helpers"
SENTENCE = "Ruprecht I. gründete 1386 die Universität Heidelberg — 海德堡大学 — 😀. "
REFUSED = ("unequal", "wrong_rank", "wrong_type", "examples", "missing")
LONG = 1_000_000  # bytes
LONG_FIRST = 80  # requests of 1 MB before the others, about as many as among them
# glibc gives freed memory back at once, so that what the process has is what it needs.
GIVE_BACK = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
OFTEN, SELDOM = 12, 1  # shares of short requests and of those of 1 MB


def main() -> None:
    """Draws requests, sends them, counts."""
    options = parse_options()
    if options.process:
        serve()
        return
    sys.path.insert(0, str(TESTS))
    with tempfile.TemporaryDirectory() as folder:
        options.export = options.export or export_small(options.kind, pathlib.Path(folder))
        faults = measure(options)
    print("\n".join(faults) or "right afterwards, as before")
    sys.exit(1 if faults else 0)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--export", type=pathlib.Path, help="of one version")
    which.add_argument("--kind", help="of tests/helpers/served_models.py: pairs, no_answer, ...")
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--growth", type=float, default=0.05, help="of memory, allowed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--process", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def export_small(kind: str, folder: pathlib.Path) -> pathlib.Path:
    """The export of a small model of a kind."""
    import served_models
    from bert_tf.serving.export import export_checkpoint

    weights = served_models.write_folder(kind, folder / "model")
    return pathlib.Path(
        export_checkpoint(
            weights,
            served_models.CONFIG,
            served_models.TOKENIZER,
            str(folder / "export"),
            options=served_models.options(kind),
        )
    )


def measure(options: argparse.Namespace) -> list[str]:
    """Loads the export in its own process and sends the requests; returns the faults."""
    import saved_models

    (meta_graph,) = saved_models.read_saved_model(str(options.export)).meta_graphs
    facts = json.loads((options.export / "export.json").read_text())
    command = [sys.executable, "-I", __file__, f"--export={options.export}", "--process"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | GIVE_BACK
    )
    libraries = [str(saved_models.LIBRARY), *map(str, saved_models.OPERATIONS)]
    write(process.stdin, (libraries, str(options.export)))
    client = Client(process, meta_graph.signature_def)
    sane = {name: sane_texts(rank) for name, rank in ranks_of(facts).items()}
    first = client.ask("serving_default", sane)
    if isinstance(first, str):
        raise SystemExit(f"the sane request was refused: {first}")
    faults = run(client, facts, options)
    last = client.ask("serving_default", sane)
    if not all(np.array_equal(first[name], last[name]) for name in first):
        faults.append("the sane request is answered otherwise than at the beginning")
    process.stdin.close()
    process.wait()
    return faults


def run(client: "Client", facts: dict, options) -> list[str]:
    """Sends all requests; returns the faults."""
    rng = random.Random(options.seed)
    counts: dict = collections.Counter()
    seconds: dict = collections.Counter()
    faults, memory = [], []
    print(f"at the beginning: {client.memory() / 2**20:.0f} MB")
    for _ in range(LONG_FIRST):
        client.ask(*drawn(rng, facts, "long")[1:3])
    for number in range(options.requests):
        if number % max(options.requests // 20, 1) == 0:
            memory.append(client.memory())
            print(f"after {number:6d} requests: {memory[-1] / 2**20:.0f} MB", flush=True)
        kind, signature, arrays, refuse = drawn(rng, facts)
        begin = time.perf_counter()
        answer = client.ask(signature, arrays)
        seconds[kind] += time.perf_counter() - begin
        is_refused = isinstance(answer, str)
        counts[kind, is_refused] += 1
        if is_refused != refuse:
            shown = answer[:300] if is_refused else "an answer"
            faults.append(f"request {number}, {kind}: {shown}")
        elif not is_refused and (fault := unsound(answer, rows_of(arrays))):
            faults.append(f"request {number}, {kind}: {fault}")
    memory.append(client.memory())
    print(f"\n{'kind':12} {'answered':>8} {'refused':>8} {'ms each':>8}")
    for kind in dict.fromkeys(name for name, _ in counts):
        answered, refused = counts[kind, False], counts[kind, True]
        each = 1000 * seconds[kind] / (answered + refused)
        print(f"{kind:12} {answered:8d} {refused:8d} {each:8.1f}")
    print(f"all: {sum(seconds.values()):.0f} s")
    half = len(memory) // 2
    before, after = max(memory[:half]), max(memory[half:])
    print(
        f"memory at most: {before / 2**20:.0f} MB in the first half, {after / 2**20:.0f} after it"
    )
    if after > before * (1 + options.growth):
        faults.append(f"memory grew by {after / before - 1:.1%}")
    return faults


# -------------------------------------------------------------------------------- requests


def drawn(
    rng: random.Random, facts: dict, kind: str | None = None
) -> tuple[str, str, dict[str, np.ndarray], bool]:
    """Kind, signature, inputs, whether it must be refused; of a random kind if none is given."""
    names = list(facts["texts"])
    ranks = ranks_of(facts)
    kinds = [*MAKERS] * OFTEN + ["long"] * SELDOM
    kinds += ["empty", "no_rows", "wrong_rank", "wrong_type", "ids", "examples", "missing"] * OFTEN
    kinds += ["unequal"] * OFTEN if len(names) > 1 else []
    kind = kind or rng.choice(kinds)
    if kind == "examples":
        rows = [rng.randbytes(rng.randint(1, 200)) for _ in range(rng.randint(1, 3))]
        return kind, "examples", {"examples": as_bytes(rows)}, True
    if kind == "ids":
        return kind, "ids", *drawn_ids(rng, facts)
    rows = 0 if kind == "no_rows" else 1 if kind == "long" else rng.randint(1, 4)
    make = MAKERS.get(kind, MAKERS["characters"])
    make = {"long": one_megabyte, "empty": lambda _: b""}.get(kind, make)

    def array(rank: int, count: int) -> np.ndarray:
        shape = (count, *(3 for _ in range(rank - 1)))
        return as_bytes([make(rng) for _ in range(int(np.prod(shape)))]).reshape(shape)

    arrays = {name: array(ranks[name], rows) for name in names}
    if kind == "long" and len(names) > 1:  # one of them alone is long
        other = rng.choice(names)
        arrays[other] = as_bytes([SENTENCE]).reshape(1, *[1] * (ranks[other] - 1))
    if kind == "unequal":
        arrays[names[0]] = array(ranks[names[0]], rows + 1)
    elif kind == "wrong_rank":
        arrays[names[0]] = arrays[names[0]][..., np.newaxis]
    elif kind == "wrong_type":
        arrays[names[0]] = np.zeros(arrays[names[0]].shape, np.int32)
    elif kind == "missing":
        del arrays[names[0]]
    return kind, "serving_default", arrays, kind in REFUSED


def sane_texts(rank: int) -> np.ndarray:
    """Four rows, the last ones empty or nearly so."""
    shape = (4, *[3] * (rank - 1))
    return as_bytes([SENTENCE * 3, SENTENCE, "", "a"] * (int(np.prod(shape)) // 4)).reshape(shape)


def ranks_of(facts: dict) -> dict[str, int]:
    """The rank of every text input."""
    specs = facts["signatures"]["serving_default"]
    return {name: len(specs[name]["shape"]) for name in facts["texts"]}


def drawn_ids(rng: random.Random, facts: dict) -> tuple[dict[str, np.ndarray], bool]:
    """Features of random ids; whether one of them is out of range."""
    vocabulary, types = facts["config"]["vocab_size"], facts["config"]["type_vocab_size"]
    shapes = {name: len(spec["shape"]) for name, spec in facts["signatures"]["ids"].items()}
    sizes = (rng.randint(1, 3), 2, rng.randint(1, facts["options"]["max_seq_length"]))
    numbers = np.random.default_rng(rng.getrandbits(32))
    arrays, refuse = {}, rng.random() < 0.5
    limits = {"input_ids": vocabulary, "segment_ids": types, "masked_lm_positions": sizes[2]}
    for name, rank in shapes.items():
        length = rng.randint(1, 20) if name == "masked_lm_positions" else sizes[2]
        shape = (*sizes[: rank - 1], length)
        arrays[name] = numbers.integers(0, limits.get(name, 1), shape, np.int32)
    arrays["input_mask"] = np.ones_like(arrays["input_ids"])
    if not refuse and "masked_lm_positions" in arrays:  # some of them are of padding
        arrays["input_mask"][:, rng.randint(1, sizes[2]) :] = 0
    if refuse:
        name = rng.choice([name for name in limits if name in arrays])
        if name == "masked_lm_positions" and rng.random() < 0.3:  # rows that no ids have
            arrays[name] = np.repeat(arrays[name], 2, 0)
            return arrays, True
        wrong = rng.choice([limits[name], -1, 2**31 - 1])
        place = tuple(rng.randrange(size) for size in arrays[name].shape)
        arrays[name][place] = wrong
    return arrays, refuse


def of_bytes(rng: random.Random) -> bytes:
    """0 to 600 bytes of any value."""
    return rng.randbytes(rng.randint(0, 600))


def of_characters(rng: random.Random) -> bytes:
    """0 to 200 code points of all planes, those of surrogates left out."""
    points = [
        rng.randrange(rng.choice((0x80, 0x3000, 0x110000))) for _ in range(rng.randint(0, 200))
    ]
    return "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000).encode()


def cut(rng: random.Random) -> bytes:
    """A real text that ends anywhere."""
    return (SENTENCE.encode() * 8)[: rng.randint(1, 500)]


def one_megabyte(rng: random.Random) -> bytes:
    """A string of 1 MB."""
    fills = (b"a", SENTENCE.encode(), b" ", b"[MASK] ", "é".encode(), b"\0", b"##")
    fill = rng.choice((rng.randbytes(LONG), *fills))
    return (fill * (LONG // len(fill) + 1))[:LONG]


MAKERS = {"bytes": of_bytes, "characters": of_characters, "cut": cut}


def as_bytes(values: list) -> np.ndarray:
    """An array of objects [n]."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    array = np.empty(len(encoded), object)
    array[:] = encoded
    return array


def rows_of(arrays: dict[str, np.ndarray]) -> int:
    """B of a request."""
    return len(next(iter(arrays.values())))


def unsound(answer: dict[str, np.ndarray], rows: int) -> str:
    """What is wrong with an answer; empty if nothing is."""
    for name, value in answer.items():
        if len(value) != rows:
            return f"{name} has {len(value)} rows for {rows}"
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return f"{name} is not finite"
    return ""


# -------------------------------------------------------------------------------- the other side


class Client:
    """Asks the process that has the export loaded."""

    def __init__(self, process: subprocess.Popen, signatures):
        """Takes a process that `serve`s, and the names of the export's tensors."""
        self._process, self._signatures = process, signatures

    def ask(self, signature: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray] | str:
        """The answers by name, or the message of a refusal."""
        signature = self._signatures[signature]
        fed = {signature.inputs[name].name: value for name, value in arrays.items()}
        names = sorted(signature.outputs)
        write(self._process.stdin, (fed, [signature.outputs[name].name for name in names]))
        result = read(self._process.stdout)
        if result is None:
            raise SystemExit(f"the process ended with {self._process.wait()} on {describe(arrays)}")
        return result if isinstance(result, str) else dict(zip(names, result, strict=True))

    def memory(self) -> int:
        """Bytes of memory that the process has."""
        pages = pathlib.Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096


def describe(arrays: dict[str, np.ndarray]) -> str:
    """Types, shapes and beginnings."""
    parts = (f"{k}: {v.dtype} {v.shape} {str(v.reshape(-1)[:2])[:200]}" for k, v in arrays.items())
    return "; ".join(parts)


def serve() -> None:
    """In its own process: requests from standard input, answers to standard output."""
    sys.path.insert(0, str(TESTS))
    from saved_model_process import FOREIGN, SavedModel, TensorFlow

    (library, *operations), path = read(sys.stdin.buffer)
    model = SavedModel(TensorFlow(library, operations), path)
    while (request := read(sys.stdin.buffer)) is not None:
        try:
            answer = model.run(*request)
        except RuntimeError as error:
            answer = str(error)
        write(sys.stdout.buffer, answer)
    if foreign := {name.partition(".")[0] for name in sys.modules} & set(FOREIGN):
        raise SystemExit(f"this process has imported {sorted(foreign)}")


def write(stream, value) -> None:
    """One message."""
    content = pickle.dumps(value)
    stream.write(len(content).to_bytes(8, "little") + content)
    stream.flush()


def read(stream):
    """The next message, None behind the last."""
    size = stream.read(8)
    return pickle.loads(stream.read(int.from_bytes(size, "little"))) if size else None


if __name__ == "__main__":
    main()
