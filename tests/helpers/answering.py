"""Runs commands in a process without TensorFlow, for what they answer before it loads.

    python answering.py '[["bert-tf", "--help"], ["run_squad.py", "--do_eval"]]'

Runs each command in a fork of the process; prints exit code and output of each as JSON.
"""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]


class Answer(NamedTuple):
    """The exit code and the output of a command: a traceback if it needs TensorFlow or Keras."""

    code: int
    text: str


def answers(*commands: list[str], columns: int = 100) -> list[Answer]:
    """Runs commands in a new process; each is a list of a script or `bert-tf`, and its words."""
    words = [sys.executable, __file__, json.dumps(commands)]
    environment = {**os.environ, "COLUMNS": str(columns), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    return [Answer(*answer) for answer in json.loads(done.stdout)]


def answer(words: list[str]) -> Answer:
    """Runs a command in a fork of this process."""
    from bert_tf.__main__ import main
    from bert_tf.cli.main import run

    with tempfile.TemporaryFile() as file:
        pid = os.fork()
        if not pid:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            folder, _, module = words[0].removesuffix(".py").rpartition("/")
            code = 0
            try:
                sys.argv = words
                sys.path.insert(0, str(ROOT / folder))
                if words[0] == "bert-tf":
                    code = main()
                else:
                    run(importlib.import_module(module).main)
            except SystemExit as error:
                code = error.code
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code or 0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        file.seek(0)
        return Answer(code, file.read().decode())


if __name__ == "__main__":
    sys.modules |= dict.fromkeys(("tensorflow", "keras"))  # None: an import of them fails
    print(json.dumps([answer(words) for words in json.loads(sys.argv[1])]))
