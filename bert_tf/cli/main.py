"""Runs a command: options are read before TensorFlow loads; errors and signals get exit codes.

A command is a module: its docstring is its help, its class of options declares its flags, and its
function `main` runs it. It imports nothing at its top that loads TensorFlow.
"""

import contextlib
import inspect
import io
import os
import signal
import sys
import typing
from collections.abc import Callable
from typing import Any

from absl import app, logging

from bert_tf import runtime, terminal
from bert_tf.errors import InputError, first_line, is_system_error, remedy_of
from bert_tf.options import Options, values_of

HELP = {"--help", "-help", "--helpshort", "-h", "-?"}
ALL_HELP = {"--helpfull", "-helpfull"}


def run(main: Callable[[Any], None]) -> None:
    """Runs a command with the words of the command line; an error ends the process.

    --help, a misspelt flag and options that contradict each other are answered at once, before
    TensorFlow loads.

    Args:
      main: the function of the command; its parameter `options` is annotated with the class of its
        options. A module that needs no TensorFlow sets LOADS_TENSORFLOW = False.
    """
    prepare()
    if sys.stdout is None:
        remedy = "leave >&- out; >/dev/null discards what is printed"
        raise InputError("a closed standard output", "one that can be written", remedy)
    cls = options_class(main)
    flags = {word.partition("=")[0] for word in sys.argv[1:]}
    if flags & (HELP | ALL_HELP):
        from bert_tf.cli.command_line import further_flags, page  # only --help needs them

        print(page(about(main), cls), flush=True)
        if flags & ALL_HELP:
            print(further_flags(), flush=True)
        return
    from bert_tf.cli.flags import parse

    options = parse(cls, sys.argv)
    options.prepare()
    if getattr(sys.modules[main.__module__], "LOADS_TENSORFLOW", True):
        runtime.load_tensorflow()
    # absl gets the program's name alone: the options are parsed already.
    app.run(lambda _: run_to_end(main, options), flags_parser=lambda words: words[:1])


def options_class(main: Callable) -> type[Options]:
    """The class of a command's options: that of the parameter of its `main`."""
    return typing.get_type_hints(main)["options"]


def about(main: Callable) -> str:
    """What a command does: the docstring of its module; none with python -OO."""
    return inspect.getdoc(sys.modules[main.__module__]) or ""


def prepare() -> None:
    """Prepares streams, signals, the handling of errors, and settings. Call it first."""
    sys.excepthook = report_or_traceback
    sys.unraisablehook = lambda lost: logging.warning("%s", first_line(lost.exc_value))
    if isinstance(sys.stdout, io.TextIOWrapper):  # not so in a notebook
        sys.stdout.reconfigure(errors="backslashreplace")
    stop_on_signals()
    runtime.prepare_command()
    terminal.prepare()
    logging.set_verbosity(logging.INFO)  # before the flags, one of which is --verbosity


def run_to_end(main: Callable[[Any], None], options: Options) -> None:
    """Runs `main` and flushes its output. In a run of several processes it waits for all."""
    if tf := sys.modules.get("tensorflow"):
        tf.get_logger().setLevel("ERROR")  # without notes on collectives and retracing
    try:
        main(options)
    except runtime.Interrupted as error:
        runtime.process.leave()
        saved = f"with a checkpoint of step {error.step} in {error.output_dir}"
        name = runtime.name_of_signal(error.number)
        code = error.code
        if error.number == signal.SIGTERM:
            code = values_of(options).get("sigterm_exit_code", code)
        end(code, f"ended by {name}, {saved}. The same command resumes from there.")
    sys.stdout.flush()
    flush_messages()
    if runtime.has_peers():
        runtime.barrier()  # fails if a process was lost, as during training
        runtime.process.leave()
        end(0)


# ---------------------------------------------------------------------------- errors


def report_or_traceback(kind: type, error: BaseException, trace: Any) -> None:
    """Reports an uncaught error; for a bug it prints the traceback."""
    report(error)
    sys.__excepthook__(kind, error, trace)


def report(error: BaseException) -> None:
    """Ends the process with the message and exit code of an error; returns if it is a bug."""
    is_signal = isinstance(error, KeyboardInterrupt)
    # After a signal C code may have raised another error in place of KeyboardInterrupt.
    if is_signal or (runtime.signal_came() and not isinstance(error, InputError)):
        _end_by_signal(runtime.signal_came() or signal.SIGINT)
    if ending := runtime.process.ending(error):
        code, message = ending
        end(code, message)
    if isinstance(error, BrokenPipeError):  # the reader has ended, such as `head`
        end(128 + signal.SIGPIPE)
    if is_system_error(error) or isinstance(error, MemoryError):
        logging.debug("Raised here:", exc_info=error)
        error = InputError(first_line(error), *remedy_of(error))
    if isinstance(error, InputError):
        runtime.process.tell_failure()
        end(1, f"failed.\n{error}")


def end(code: int, message: str = "") -> None:
    """Ends the process at once, with a message on the error stream.

    It does not use sys.exit: an error keeps tf.data's iterators alive, and Python's shutdown can
    wait for them for ever. Contexts have cleaned up on the way here.
    """
    with contextlib.suppress(OSError, AttributeError):  # a closed stream is None
        sys.stdout.flush()
    with contextlib.suppress(OSError, AttributeError):
        if message:
            sys.stderr.write(f"\n{sys.argv[0]}: {message}\n")
        sys.stderr.flush()
    os._exit(code)


def flush_messages() -> None:
    """Flushes standard error; text that cannot be written is lost, without an error."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


# ---------------------------------------------------------------------------- signals


def stop_on_signals() -> None:
    """Lets Ctrl-C, SIGTERM and SIGHUP raise `KeyboardInterrupt`, so that everything is cleaned up.

    A signal that is ignored, by nohup for instance, stays ignored. Training saves before it ends.
    Python handles signals between its own instructions: TensorFlow's computation ends first.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _stop)


def _stop(number: int, _: Any) -> None:
    is_first = not runtime.signal_came()
    runtime.note_signal(number)
    if is_first:
        raise KeyboardInterrupt


def _end_by_signal(number: int) -> None:
    name = runtime.name_of_signal(number)
    again = "Give the same command again: training goes on from its last checkpoint, if any"
    end(128 + number, f"ended by {name}. No file is half written. {again}.")
