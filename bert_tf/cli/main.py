"""The way a script is run: what ends it, and how that is said."""

import os
import sys
from collections.abc import Callable

import tensorflow as tf
from absl import app, flags, logging

from bert_tf import cluster
from bert_tf.errors import InputError
from bert_tf.training.intervals import Interrupted, sigterm_came
from bert_tf.runtime import without_notices


def run(main: Callable[[list[str]], None]) -> None:
    """Runs a script's `main`; an `InputError` is printed without a traceback, exit code 1."""
    logging.set_verbosity(logging.INFO)
    tf.get_logger().setLevel("WARNING")  # else every collective operation of many hosts is told
    with without_notices():
        tf.config.list_physical_devices()
    list_shared_flags()
    app.run(lambda argv: main_or_message(main, argv))


def list_shared_flags() -> None:
    """Has --help list the flags that modules define for the script, which absl leaves out."""
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if module.startswith(("bert_tf.", "data_gen.")):
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def main_or_message(main: Callable[[list[str]], None], argv: list[str]) -> None:
    """Runs `main`; says what ended it. None of several processes ends before all are done."""
    try:
        main(argv)
        cluster.wait_for_all()  # what is lost up to here is waited for, as it is while they train
    except InputError as error:
        cluster.let_others_read()
        _end(1, f"\n{sys.argv[0]}: cannot go on.\n{error}")
    except Interrupted as stop:
        cluster.leave()
        _end(
            0,
            f"\n{sys.argv[0]}: ended by SIGTERM, with a checkpoint of step {stop.step} in "
            f"{stop.output_dir}. The same command goes on from there.",
        )
    except tf.errors.ResourceExhaustedError as error:
        cluster.let_others_read()
        _end(1, f"\n{sys.argv[0]}: cannot go on.\n{_exhausted(error)}")
    except cluster.LOST as error:
        if not cluster.are_expected():
            raise
        if sigterm_came():
            _end(
                0,
                f"\n{sys.argv[0]}: ended by SIGTERM. Another process of this run was lost; "
                "the same command goes on from the latest checkpoint.",
            )
        cluster.begin_again_or_end(error, max_restarts=flags.FLAGS.max_restarts)
    if cluster.are_several():
        cluster.leave()
        _end(0)


def _exhausted(error: Exception) -> InputError:
    says = (str(error) or type(error).__name__).splitlines()[0]
    return InputError(
        received=f"more to be kept than there is room for ({says})",
        expected="steps that fit into the memory (see plan.py), files that fit onto the disk",
        remedy="for memory: smaller batches (in training --gradient_accumulation_steps=2 gives the "
        "same result), --recompute, --precision=bfloat16, a smaller --max_seq_length; on a disk: "
        "make room, and give the same command again",
    )


def _end(code: int, message: str = "") -> None:
    """Ends the process at once.

    Not by sys.exit: an error keeps tf.data's iterators alive, and to end them while Python ends can
    wait for ever. What had to be cleaned up was so on the way here.
    """
    sys.stdout.flush()
    if message:
        print(message, file=sys.stderr)
    sys.stderr.flush()
    os._exit(code)
