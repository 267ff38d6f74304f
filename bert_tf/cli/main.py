"""Runs a command: flags are parsed before TensorFlow loads; errors and signals get exit codes."""

import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags, logging

from bert_tf import runtime, terminal
from bert_tf.cli.flags import FLAGS, check_effects
from bert_tf.errors import InputError, first_line, is_system_error, remedy_of

_words: list[str] = []  # the command line without its flags


def parse(
    define_flags: Callable[[], None],
    check_flags: Callable[[Sequence[str]], None] = lambda _: None,
    *,
    about: str = "",
    needs_tensorflow: bool = True,
) -> None:
    """Parses the command line, then loads TensorFlow.

    So --help, a misspelt flag and flags that contradict each other are answered at once.

    Args:
      define_flags: defines the command's flags.
      check_flags: called with the words outside the flags; raises `InputError`.
      about: what --help prints above the flags; default: the docstring of the script.
      needs_tensorflow: whether the command computes with it.
    """
    prepare()
    logging.set_verbosity(logging.INFO)  # before the flags, one of which is --verbosity
    define_flags()
    if {"--help", "-help", "--helpshort", "-h", "-?"} & {*sys.argv[1:]}:
        from bert_tf.cli.command_line import page  # here and below: most commands do without

        print(page(about or sys.modules["__main__"].__doc__ or ""), flush=True)
        sys.exit(0)
    app.define_help_flags()  # --helpfull
    try:
        _words[:] = FLAGS(without_true(sys.argv))
    except (flags.Error, UnicodeError) as error:
        from bert_tf.cli.command_line import flag_error

        raise flag_error(error) from None
    check_flags(_words[1:])
    check_effects()
    if needs_tensorflow:
        runtime.load_tensorflow()


def without_true(words: Sequence[str]) -> list[str]:
    """The words without each True behind a switch, which published commands have for some.

    The original ignores it, as it does False: that is refused here.
    """
    switches = {f"--{name}" for name in FLAGS if FLAGS[name].boolean}
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if not (before in switches and word.lower() == "true")]


def prepare() -> None:
    """Prepares streams, signals, the handling of errors, and settings; before all else."""
    sys.excepthook = report_or_traceback
    sys.unraisablehook = lambda lost: logging.warning("%s", first_line(lost.exc_value))
    open_standard_streams()
    stop_on_signals()
    runtime.prepare_command()
    terminal.prepare()


def run(main: Callable[[list[str]], None]) -> None:
    """Runs a command's `main` with the words of `parse`; `InputError` exits with code 1."""
    app.run(lambda _: run_to_end(main, _words), flags_parser=lambda _: _words)


def run_to_end(main: Callable[[list[str]], None], argv: list[str]) -> None:
    """Runs `main` and writes its output. No process of several ends before all are done."""
    if tf := sys.modules.get("tensorflow"):  # not imported at the top: `parse` comes before
        tf.get_logger().setLevel("ERROR")  # else collectives and retracing are logged
    try:
        main(argv)
    except runtime.Interrupted as error:
        runtime.process.leave()
        saved = f"with a checkpoint of step {error.step} in {error.output_dir}"
        name = runtime.name_of_signal(error.number)
        is_sigterm = error.number == signal.SIGTERM and "sigterm_exit_code" in FLAGS
        code = FLAGS["sigterm_exit_code"].value if is_sigterm else error.code
        end(code, f"ended by {name}, {saved}. The same command resumes from there.")
    sys.stdout.flush()
    flush_messages()
    if runtime.has_peers():
        runtime.barrier()  # a process lost up to here is noticed, as during training
        runtime.process.leave()
        end(0)


# ---------------------------------------------------------------------------- errors


def report_or_traceback(kind: type, error: BaseException, trace: Any) -> None:
    """Reports an error that nothing has caught, or prints the traceback of a bug."""
    report(error)
    sys.__excepthook__(kind, error, trace)


def report(error: BaseException) -> None:
    """Ends the process with the message and exit code of an error; returns where it is a bug."""
    is_signal = isinstance(error, KeyboardInterrupt)  # C code may have replaced it
    if is_signal or (runtime.signal_came() and not isinstance(error, InputError)):
        _end_by_signal(runtime.signal_came() or signal.SIGINT)
    if ending := runtime.process.ending(error):
        end(*ending)
    if isinstance(error, BrokenPipeError):  # `head`, say, which has enough
        end(128 + signal.SIGPIPE)
    if is_system_error(error) or isinstance(error, MemoryError):
        logging.debug("Raised here:", exc_info=error)
        error = InputError(first_line(error), *remedy_of(error))
    if isinstance(error, InputError):
        runtime.process.tell_failure()
        end(1, f"failed.\n{error}")


def end(code: int, message: str = "") -> None:
    """Ends the process at once, with a message on the error stream.

    Not by sys.exit: an error keeps tf.data's iterators alive, and Python's shutdown can wait for
    them for ever. Everything was cleaned up on the way here.
    """
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        sys.stderr.write(f"\n{sys.argv[0]}: {message}\n" * bool(message))
        sys.stderr.flush()
    os._exit(code)


# ---------------------------------------------------------------------------- streams


def open_standard_streams() -> None:
    """Opens closed standard streams, so that no other file gets their descriptors.

    TensorFlow would write its messages into that file. They are empty; to write to standard output
    is an error, as a command must not lose its results, and messages are lost.
    """
    modes = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for name, mode in modes.items():
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, mode)  # the lowest that is free
            stream = open(opened, "r" if name == "stdin" else "w")  # noqa: SIM115
            vars(sys).update({name: stream, f"__{name}__": stream})  # the latter keeps it open
    if isinstance(sys.stdout, io.TextIOWrapper):  # a notebook has streams of its own
        sys.stdout.reconfigure(errors="backslashreplace")


def flush_messages() -> None:
    """Writes what standard error holds back; what cannot be written is lost, without an error."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


# ---------------------------------------------------------------------------- signals


def stop_on_signals() -> None:
    """Lets Ctrl-C, SIGTERM and SIGHUP raise `KeyboardInterrupt`, so that everything is cleaned up.

    What is ignored already, by nohup for instance, stays so. Training saves before it ends. Python
    handles signals between its own instructions, and TensorFlow may compute for minutes: a second
    Ctrl-C ends the process at once, from a thread that is told of signals by a pipe.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _stop)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_end_at_second_ctrl_c, args=(reader,), daemon=True).start()


def _stop(number: int, _: Any) -> None:
    is_first = not runtime.signal_came()
    runtime.note_signal(number)
    if is_first:
        raise KeyboardInterrupt


def _end_at_second_ctrl_c(reader: int) -> None:
    first = 0.0
    while True:
        now = os.read(reader, 1)[0] == signal.SIGINT and time.monotonic()
        if now and not first:
            first = now
            if signal.getsignal(signal.SIGINT) is runtime.note_signal:
                logging.info("Ctrl-C: ends after this step, with a checkpoint; at a second at once")
        elif now > first + 1:  # `timeout` sends each signal twice
            _end_by_signal(signal.SIGINT)


def _end_by_signal(number: int) -> None:
    name = runtime.name_of_signal(number)
    again = "Give the same command again: training goes on from its last checkpoint, if any"
    end(128 + number, f"ended by {name}. No file is half written. {again}.")
