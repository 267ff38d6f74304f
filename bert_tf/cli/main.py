"""Runs a command: flags are parsed before TensorFlow loads; errors and signals get exit codes."""

import os
import sys
from collections.abc import Callable, Sequence

from absl import app, flags, logging

from bert_tf import runtime
from bert_tf.errors import InputError
from bert_tf.runtime import Interrupted, sigterm_came

_words: list[str] = []  # the command line without its flags


def parse(
    define_flags: Callable[[], None],
    check_flags: Callable[[Sequence[str]], None] = lambda _: None,
    *,
    needs_tensorflow: bool = True,
) -> None:
    """Parses the command line, then loads TensorFlow.

    So --help, a misspelt flag and flags that contradict each other are answered at once.

    Args:
      define_flags: defines the command's flags.
      check_flags: called with the words outside the flags; raises `InputError`.
      needs_tensorflow: whether the command computes with it.
    """
    logging.set_verbosity(logging.INFO)  # before the flags, one of which is --verbosity
    define_flags()
    list_shared_flags()
    app.define_help_flags()
    _words[:] = app.parse_flags_with_usage(sys.argv)
    try:
        check_flags(_words[1:])
    except InputError as error:
        end(1, failure(error))
    if needs_tensorflow:
        runtime.load_tensorflow()


def run(main: Callable[[list[str]], None]) -> None:
    """Runs a command's `main` with the words of `parse`; `InputError` exits with code 1."""
    # Training, and all that opens weights, loads `cluster`; other commands have no peers.
    guard = main_or_message if "bert_tf.cluster" in sys.modules else _main_alone_or_message
    app.run(lambda argv: guard(main, argv), flags_parser=lambda _: _words)


def _main_alone_or_message(main: Callable[[list[str]], None], argv: list[str]) -> None:
    try:
        main(argv)
    except InputError as error:
        end(1, failure(error))
    except Exception as error:
        if type(error).__name__ != "ResourceExhaustedError":  # of TensorFlow, if that is loaded
            raise
        end(1, failure(_exhausted(error)))


def list_shared_flags() -> None:
    """Lets --help list the flags that other modules define for the command, which absl omits."""
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if module.startswith("bert_tf."):
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def main_or_message(main: Callable[[list[str]], None], argv: list[str]) -> None:
    """Runs `main` and reports what ended it. No process of several ends before all are done."""
    # Not imported at the top: they load TensorFlow, and `parse` must answer before.
    tf, cluster = sys.modules["tensorflow"], sys.modules["bert_tf.cluster"]
    tf.get_logger().setLevel("WARNING")  # below it every collective operation is logged
    try:
        main(argv)
        cluster.barrier()  # a process lost up to here is waited for, as during training
    except InputError as error:
        cluster.let_peers_read()
        end(1, failure(error))
    except Interrupted as stop:
        cluster.leave()
        message = f"ended by SIGTERM, with a checkpoint of step {stop.step} in {stop.output_dir}."
        end(0, f"\n{sys.argv[0]}: {message} The same command goes on from there.")
    except tf.errors.ResourceExhaustedError as error:
        cluster.let_peers_read()
        end(1, failure(_exhausted(error)))
    except cluster.LOST_PEER as error:
        if not cluster.expects_peers():
            raise
        if sigterm_came():
            message = "ended by SIGTERM. Another process of this run was lost;"
            end(0, f"\n{sys.argv[0]}: {message} the same command goes on from the last checkpoint.")
        cluster.restart_or_exit(error, max_restarts=flags.FLAGS.max_restarts)
    if cluster.has_peers():
        cluster.leave()
        end(0)


def failure(error: InputError) -> str:
    """The message of a command that failed."""
    return f"\n{sys.argv[0]}: failed.\n{error}"


def _exhausted(error: Exception) -> InputError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return InputError(
        f"out of memory or disk space ({reason})",
        "steps that fit into the memory (see bert-tf plan), files that fit onto the disk",
        "for memory: smaller batches (in training --gradient_accumulation_steps=2 gives the same "
        "result), --recompute, --precision=bfloat16, a smaller --max_seq_length; on a disk: make "
        "room, and give the same command again",
    )


def end(code: int, message: str = "") -> None:
    """Ends the process at once, with a message on the error stream.

    Not by sys.exit: an error keeps tf.data's iterators alive, and Python's shutdown can wait for
    them for ever. Everything was cleaned up on the way here.
    """
    sys.stdout.flush()
    if message:
        print(message, file=sys.stderr)
    sys.stderr.flush()
    os._exit(code)
