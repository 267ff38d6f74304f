"""Text to pre-training records: seconds and memory, beside the original's generator.

    pip download --no-deps bert-tensorflow==1.0.4 && unzip -q bert_tensorflow-*.whl -d original
    python benchmarks/data_generation.py --input_file='wiki/*' --vocab_file=vocab.txt \\
        --output_dir=speed --original=original
    python benchmarks/data_generation.py ... --megabytes=1000 --rounds=1

The input is WikiExtractor's; it is written as a sentence a line, with documents again in another
order until there are enough. One worker, two workers, and the original if it is given, in turn,
each a process from its start to its end. Files of one and two workers must be the same. Memory is
that of the largest process.
"""

import glob
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

from data_gen.documents import DocumentReader
from data_gen.sentences import sentence_splitter

from measuring import ROOT, command, in_turn, parse_options, print_rows, print_titles


def main() -> None:
    """Text -> records by each, in turn -> a table."""
    options = parse_options(
        __doc__,
        input_file="",
        vocab_file="",
        output_dir="",
        original=None,  # a folder with the original as the package bert
        rounds=3,
        megabytes=16,
        dupe_factor=5,
    )
    folder = pathlib.Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "text.txt", options.input_file, options.megabytes * 10**6)
    commands = commands_of(folder, options)
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    memory = dict.fromkeys(commands, 0)
    paths = [str(ROOT), *filter(None, [options.original])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    for name in in_turn(commands, options.rounds):
        begin = time.perf_counter()
        process = subprocess.Popen(commands[name], stderr=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"{name} failed with status {status}")
        seconds[name].append(time.perf_counter() - begin)
        memory[name] = max(memory[name], used.ru_maxrss)
    print_titles(f"{options.megabytes} MB of text", "seconds", "times as fast", "MB")
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    for name, median in medians.items():
        times = f"{medians['original'] / median:.1f}" if "original" in medians else ""
        print_rows([name, median, times, memory[name] >> 10])
    same = (folder / "one").read_bytes() == (folder / "two").read_bytes()
    print(f"one and two workers, the same bytes: {same}")
    sys.exit(0 if same else 1)


def commands_of(folder: pathlib.Path, options) -> dict[str, list[str]]:
    """The command lines by name."""
    flags = {"input_file": folder / "text.txt", "vocab_file": options.vocab_file}
    flags |= {"dupe_factor": options.dupe_factor, "max_seq_length": 128}
    script = ROOT / "create_pretraining_data.py"
    found = {
        name: command(script, output_file=folder / name, num_workers=number, **flags)
        for number, name in enumerate(("one", "two"), 1)
    }
    if options.original:
        words = ("-m", "bert.create_pretraining_data")
        found["original"] = command(*words, output_file=folder / "original", **flags)
    return found


def write_text(path: pathlib.Path, pattern: str, num_bytes: int) -> None:
    """Documents of WikiExtractor's files, one sentence a line, until there are `num_bytes`."""
    paths = sorted(glob.glob(pattern))
    reader = DocumentReader(paths, input_format="wikiextractor")
    split = sentence_splitter("wikiextractor", "en")
    documents = [
        "\n".join(sentence for line in document for sentence in split(line)) + "\n\n"
        for document in reader.documents()
    ]
    order, size = random.Random(1), 0
    with open(path, "w", encoding="utf-8") as file:
        while size < num_bytes:
            for document in documents:
                size += file.write(document)
                if size >= num_bytes:
                    return
            order.shuffle(documents)


if __name__ == "__main__":
    main()
