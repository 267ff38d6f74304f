"""One of several processes that compute nothing but operations between them.

    python collectives.py 'SECONDS NUMBER'

It joins the others so many seconds late. It says how many threads it has after its first operations
and after NUMBER more. What takes longer than a second is a hang.
"""

import sys
import time

from absl import logging

from bert_tf import runtime, terminal
from bert_tf.terminal import WATCHDOG
from bert_tf.training import distribution


def num_threads() -> int:
    """Of this process, TensorFlow's included."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Threads:"))


if __name__ == "__main__":
    seconds, number = map(int, sys.argv[1].split())
    logging.set_verbosity(logging.INFO)
    terminal.format_log_lines()
    WATCHDOG.set_limit(1.0)
    time.sleep(seconds)
    distribution.make_strategy("multiworker")
    for count in (20, number):
        for step in range(count):
            assert runtime.all_gather(step) == [step, step]
        print(f"{num_threads()} threads", flush=True)
    runtime.leave()
