"""Seconds from a SQuAD file to features: ours beside the original's way in plain Python.

    python benchmarks/squad_features.py --predict_file=dev-v1.1.json --vocab_file=vocab.txt

Both read the file and make every feature, taking turns in one process; every round is printed, and
then the medians and their ratio. The original's way is tests/helpers/reference_squad.py: the same
features, made one question and one token at a time, from a bare `json.load` of the file. Every
feature of both is compared.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import numpy as np
from bert_tf import FullTokenizer
from bert_tf.squad.data import read_squad
from bert_tf.squad.windows import Window, WindowSizes, prediction_windows

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "helpers"))
import reference_squad as reference

SIZES = {"max_seq_length": 384, "doc_stride": 128, "max_query_length": 64}


def main() -> None:
    """Both ways, turn by turn -> seconds, and whether they agree."""
    options = parse_options()
    tokenizer = FullTokenizer(options.vocab_file, options.do_lower_case)
    plain = reference.Tokenizer(tokenizer.vocab, do_lower_case=options.do_lower_case)
    ours(options.predict_file, tokenizer)  # the first call traces the tokenizer's graph
    wall, cpu = {"ours": [], "plain Python": []}, {"ours": [], "plain Python": []}
    for number in range(options.rounds):
        windows = measured(wall, cpu, "ours", lambda: ours(options.predict_file, tokenizer))
        features = measured(
            wall, cpu, "plain Python", lambda: plain_python(options.predict_file, plain)
        )
        print_round(number, wall, cpu)
    print(f"{'':14}{'features':>9}{'seconds':>9}{'CPU s':>9}")
    for name, result in (("ours", windows), ("plain Python", features)):
        medians = (statistics.median(times[name]) for times in (wall, cpu))
        print(f"{name:14}{len(result):9,}" + "".join(f"{m:9.2f}" for m in medians))
    ratios = [
        statistics.median(t["plain Python"]) / statistics.median(t["ours"]) for t in (wall, cpu)
    ]
    print(f"times as fast: {ratios[0]:.1f} (CPU time: {ratios[1]:.1f})")
    print(f"features that differ: {num_different(windows, features)}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--predict_file", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--do_lower_case", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def print_round(number: int, wall: dict, cpu: dict) -> None:
    seconds = ", ".join(f"{name} {times[-1]:.2f} s" for name, times in wall.items())
    ratio = wall["plain Python"][-1] / wall["ours"][-1]
    cpu_ratio = cpu["plain Python"][-1] / cpu["ours"][-1]
    print(f"round {number}: {seconds}: {ratio:.1f} times as fast (CPU time: {cpu_ratio:.1f})")


def measured(wall: dict, cpu: dict, name: str, work):
    """The result of `work`; its seconds are appended to the lists."""
    started = time.perf_counter(), time.process_time()
    result = work()
    wall[name].append(time.perf_counter() - started[0])
    cpu[name].append(time.process_time() - started[1])
    return result


def ours(path: str, tokenizer: FullTokenizer) -> list[Window]:
    return prediction_windows(read_squad(path).examples, tokenizer, WindowSizes(**SIZES))


def plain_python(path: str, tokenizer: reference.Tokenizer) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    result = []
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            words, _ = reference.split_context(paragraph["context"])
            for qa in paragraph["qas"]:
                result += reference.features(words, qa["question"], tokenizer, **SIZES)
    return result


def num_different(windows: list[Window], features: list[dict]) -> int:
    pairs = zip(windows, features, strict=True)
    return sum(not is_same(window, feature) for window, feature in pairs)


def is_same(window: Window, feature: dict) -> bool:
    length = len(feature["tokens"])
    is_max_context = list(feature["is_max_context"].values())
    return (
        np.array_equal(window.input_ids, feature["input_ids"][:length])
        and np.array_equal(window.segment_ids, feature["segment_ids"][:length])
        and np.array_equal(window.token_is_max_context, is_max_context)
    )


if __name__ == "__main__":
    main()
