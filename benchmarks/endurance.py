"""Hours of pre-training with kills and signals, beside a twin that nothing disturbs.

    python benchmarks/endurance.py --output_dir=/tmp/endurance --text="$DATA/wiki/extracted/*/*" \
        --vocab_file=$DATA/vocab/uncased_en_30522.txt --minutes=120 --picture=docs/endurance.png

Two runs of the same command, BERT-Tiny, each on one core (--cores=0,0: on the same one, where the
twin has the smaller part of it and ends later). One is ended every two to five minutes, by SIGKILL,
SIGTERM or SIGINT in turn, and begun again by the same command; a checkpoint a minute.
At the end every final file but TensorBoard's must be the twin's, byte for byte. Memory and steps
are noted every ten seconds (samples.jsonl), and drawn.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import time

import psutil

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
MODEL |= {"intermediate_size": 512, "max_position_embeddings": 128}
SEQUENCE = {"max_seq_length": 64, "max_predictions_per_seq": 10}
BATCH = 32
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MINUTES_BETWEEN_SIGNALS = (2, 5)
SECONDS_BETWEEN_SAMPLES = 10
PART_OF_STEPS = 0.88  # of what an undisturbed run makes: beginning again takes the rest
STEP = re.compile(r"train: (\d+) of \d+ steps, ([\d.]+) a second")
MB = 1 << 20
TWINS_NICENESS = 2  # on a core of both: the disturbed run keeps its pace to its end


@dataclasses.dataclass
class Run:
    """One of the two runs: its process, begun again when it has ended too early."""

    name: str
    command: list[str]
    folder: pathlib.Path
    core: int
    num_train_steps: int
    niceness: int = 0
    starts: int = 0
    signals: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    samples: list[dict] = dataclasses.field(default_factory=list)
    process: subprocess.Popen = None  # until `start`
    _read: int = 0  # bytes of the log

    @property
    def log(self) -> pathlib.Path:
        """What all of its processes say."""
        return self.folder.with_suffix(".log")

    def start(self) -> None:
        """Gives the command, on its core."""
        self.starts += 1
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=ROOT)
        process = psutil.Process(self.process.pid)
        process.cpu_affinity([self.core])
        process.nice(self.niceness)

    def finished(self) -> bool:
        """Whether the last step's checkpoint is there and the process has ended."""
        last = self.folder / f"model.ckpt-{self.num_train_steps}.index"
        return self.process.poll() is not None and last.exists()

    def sample(self, minute: float) -> None:
        """Notes the step, the rate and the memory."""
        with open(self.log, "rb") as log:
            log.seek(self._read)
            text = log.read()
        self._read += len(text)
        found = STEP.findall(text.decode(errors="replace"))
        try:
            memory = psutil.Process(self.process.pid).memory_info().rss
        except psutil.Error:  # it has just ended
            return
        step, rate = found[-1] if found else (None, None)
        self.samples.append(
            {
                "run": self.name,
                "minute": round(minute, 3),
                "process": self.starts,
                "rss_mb": round(memory / MB, 1),
                "step": step and int(step),
                "steps_per_second": rate and float(rate),
            }
        )


def main() -> None:
    """Data -> two runs side by side -> comparison, figures, picture."""
    options = parse_options()
    options.output_dir.mkdir(parents=True)
    records = make_records(options)
    rate = measured_rate(options, records)
    num_train_steps = int(rate * 60 * options.minutes * PART_OF_STEPS)
    print(f"{rate:.1f} steps a second undisturbed; {num_train_steps} steps", flush=True)
    runs = [
        placed_run(
            options,
            records,
            name,
            num_train_steps=num_train_steps,
            save_checkpoints_steps=int(rate * 60),
            log_steps=max(1, int(rate * 5)),
        )
        for name in ("twin", "disturbed")
    ]
    minutes = disturb(*runs, seed=options.seed)
    with open(options.output_dir / "samples.jsonl", "w") as file:
        for sample in itertools.chain.from_iterable(run.samples for run in runs):
            print(json.dumps(sample), file=file)
    equal = report(*runs, minutes)
    if options.picture:
        draw(runs, options.picture)
    sys.exit(0 if equal else 1)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_dir", type=pathlib.Path, required=True, help="must be new")
    parser.add_argument("--text", required=True, help="WikiExtractor files")
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--cores", default="0,1", help="the twin's, the disturbed run's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", help="a .png or .svg")
    return parser.parse_args()


def make_records(options: argparse.Namespace) -> pathlib.Path:
    """Records of the text, and the model's configuration beside them."""
    records = options.output_dir / "train.tfrecord"
    config = MODEL | {"vocab_size": pathlib.Path(options.vocab_file).read_bytes().count(b"\n")}
    (options.output_dir / "bert_config.json").write_text(json.dumps(config))
    flags = {"input_file": options.text, "output_file": records, "vocab_file": options.vocab_file}
    flags |= {"input_format": "wikiextractor", "dupe_factor": 1} | SEQUENCE
    words = [sys.executable, "create_pretraining_data.py", "--do_lower_case"]
    subprocess.run([*words, *as_flags(flags)], check=True, cwd=ROOT)
    return records


def as_flags(values: dict) -> list[str]:
    """Values by name -> words of a command line."""
    return [f"--{name}={value}" for name, value in values.items()]


def training_command(
    options: argparse.Namespace, records: pathlib.Path, folder: pathlib.Path, **values: int
) -> list[str]:
    """The command of both runs."""
    flags = {
        "input_file": records,
        "bert_config_file": options.output_dir / "bert_config.json",
        "vocab_file": options.vocab_file,
        "output_dir": folder,
        "train_batch_size": BATCH,
        "num_warmup_steps": 1000,
        "keep_checkpoint_max": 3,
        "learning_rate": 1e-3,
        "seed": options.seed,
    }
    words = [sys.executable, "run_pretraining.py", "--do_train"]
    return [*words, *as_flags(flags | SEQUENCE | values)]


def measured_rate(options: argparse.Namespace, records: pathlib.Path) -> float:
    """Steps a second of the run to be disturbed, beside its twin."""
    lengths = {"num_train_steps": 2000, "save_checkpoints_steps": 2000}
    runs = [placed_run(options, records, name, **lengths) for name in ("twin_rate", "rate")]
    for run in runs:
        run.start()
    for run in runs:
        run.process.wait()
    rates = [float(rate) for _, rate in STEP.findall(runs[1].log.read_text())[-5:]]
    return statistics.median(rates)


def placed_run(options: argparse.Namespace, records: pathlib.Path, name: str, **values: int) -> Run:
    """A run with its core and its niceness, not yet begun."""
    folder = options.output_dir / name
    cores = [int(core) for core in options.cores.split(",")]
    is_twin = name.startswith("twin")
    niceness = TWINS_NICENESS if is_twin and cores[0] == cores[1] else 0
    command = training_command(options, records, folder, **values)
    core = cores[0 if is_twin else 1]
    return Run(name, command, folder, core, values["num_train_steps"], niceness)


def disturb(twin: Run, disturbed: Run, *, seed: int) -> float:
    """Runs both to their ends; returns the minutes that the disturbed one took."""
    draws = random.Random(seed)
    kinds = itertools.cycle(SIGNALS)
    begun = time.monotonic()
    for run in (twin, disturbed):
        run.start()
    next_signal = draws.uniform(*MINUTES_BETWEEN_SIGNALS)
    next_sample, minutes = 0.0, 0.0
    while not (twin.finished() and disturbed.finished()):
        time.sleep(0.2)
        minute = (time.monotonic() - begun) / 60
        if minute * 60 >= next_sample:
            next_sample += SECONDS_BETWEEN_SAMPLES
            for run in (twin, disturbed):
                run.sample(minute)
        if twin.process.poll() not in (None, 0):
            raise SystemExit(f"the twin ended with {twin.process.returncode}: see {twin.log}")
        if disturbed.finished():
            minutes = minutes or minute
        elif disturbed.process.poll() is not None:
            disturbed.start()
        elif minute >= next_signal:
            kind = next(kinds)
            disturbed.process.send_signal(kind)
            disturbed.signals.append((minute, kind.name))
            next_signal = minute + draws.uniform(*MINUTES_BETWEEN_SIGNALS)
            print(f"minute {minute:.1f}: {kind.name}", flush=True)
    return minutes


def report(twin: Run, disturbed: Run, minutes: float) -> bool:
    """Prints what came of it; returns whether the final files are equal."""
    counts = {kind.name: 0 for kind in SIGNALS}
    for _, name in disturbed.signals:
        counts[name] += 1
    listed = ", ".join(f"{number} {name}" for name, number in counts.items())
    print(f"{minutes:.1f} minutes, {disturbed.starts} processes; {listed}")
    for run in (twin, disturbed):
        print_memory(run)
        rates = rates_of_parts(run)
        print(f"{run.name}: steps a second in ten-minute parts: {rates}")
    found = [files_of(run.folder) for run in (twin, disturbed)]
    different = sorted(
        name for name in found[0].keys() | found[1] if found[0].get(name) != found[1].get(name)
    )
    print(f"{len(found[0])} final files, {len(different)} differ {different or ''}")
    log = disturbed.log.read_text(errors="replace")
    print(f"tracebacks: {log.count('Traceback')}")
    return not different and "Traceback" not in log


def print_memory(run: Run) -> None:
    """Memory after ten minutes and at the end: medians over a minute."""
    early = [s["rss_mb"] for s in run.samples if 10 <= s["minute"] < 11]
    end = run.samples[-1]["minute"]
    late = [s["rss_mb"] for s in run.samples if s["minute"] > end - 1]
    if early:
        first, last = statistics.median(early), statistics.median(late)
        change = 100 * (last / first - 1)
        print(
            f"{run.name}: {first:.0f} MB after ten minutes, {last:.0f} at the end ({change:+.1f} %)"
        )


def rates_of_parts(run: Run) -> list[float]:
    """Median rate of every ten minutes."""
    parts: dict[int, list[float]] = {}
    for sample in run.samples:
        if sample["steps_per_second"]:
            parts.setdefault(int(sample["minute"] // 10), []).append(sample["steps_per_second"])
    return [round(statistics.median(rates), 1) for _, rates in sorted(parts.items())]


def files_of(folder: pathlib.Path) -> dict[str, str]:
    """A hash of every file but TensorBoard's, by its path."""
    return {
        os.fspath(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("events.out.tfevents")
    }


def draw(runs: list[Run], picture: str) -> None:
    """Steps, rate and memory over the minutes; a line for every signal."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    figure, panels = plt.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
    colours = {"twin": "tab:gray", "disturbed": "tab:blue"}
    styles = {"SIGKILL": "tab:red", "SIGTERM": "tab:orange", "SIGINT": "tab:green"}
    for axes, key, label in zip(
        panels,
        ("step", "steps_per_second", "rss_mb"),
        ("step", "steps a second", "resident memory, MB"),
        strict=True,
    ):
        for run in runs:
            points = [(s["minute"], s[key]) for s in run.samples if s[key] is not None]
            axes.plot(
                *zip(*points, strict=True), ".", ms=3, label=run.name, color=colours[run.name]
            )
        for minute, name in runs[1].signals:
            axes.axvline(minute, color=styles[name], lw=0.6, alpha=0.7)
        axes.set(ylabel=label, ylim=(0, None))
        axes.grid(alpha=0.3)
    for name, colour in styles.items():
        panels[0].plot([], [], color=colour, lw=0.8, label=name)
    panels[0].legend(fontsize=8)
    panels[-1].set(xlabel="minutes")
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    main()
