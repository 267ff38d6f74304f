"""Runs a command: flags are parsed before TensorFlow loads; errors and signals get exit codes."""

import contextlib
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import app, flags, logging

from bert_tf import runtime
from bert_tf.cli.help import define_help_flags
from bert_tf.errors import InputError, first_line, is_system_error, remedy_of
from bert_tf.runtime import Interrupted, sigterm_came
from bert_tf.terminal import messages
from bert_tf.terminal.progress import SCREEN

LONGEST_NAME = 100  # of a flag
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
    prepare()
    logging.set_verbosity(logging.INFO)  # before the flags, one of which is --verbosity
    define_flags()
    define_help_flags()
    with guard():
        check_words(sys.argv[1:])
        _words[:] = app.parse_flags_with_usage(sys.argv)
        check_flags(_words[1:])
        if needs_tensorflow:
            runtime.load_tensorflow()


def check_words(words: Sequence[str]) -> None:
    """Refuses words that no flag can have: absl and TensorFlow fail on them with other errors."""
    for word in words:
        name = word.partition("=")[0]
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{word!r}, with bytes that are not UTF-8",
                "text and names of files in UTF-8",
                "correct the word, or rename the file",
            ) from None
        if name.startswith("-") and len(name) > LONGEST_NAME:
            raise InputError(
                f"a flag with a name of {len(name)} characters, {name[:40]}...",
                "flags as --help lists them",
                "write --flag=value with an equals sign",
            )


def prepare() -> None:
    """Prepares streams, signals, the handling of stray errors, and settings; before all else."""
    sys.excepthook = report_or_traceback  # for what is imported between `parse` and `run`
    sys.unraisablehook = warn_or_traceback
    with guard():
        open_standard_streams()
        stop_on_signals()
    runtime.prepare_command()
    messages.format_log_lines()
    SCREEN.open()


def report_or_traceback(kind: type, error: BaseException, trace: Any) -> None:
    """The last resort: reports an error, or prints the traceback of a bug."""
    report(error)
    sys.__excepthook__(kind, error, trace)


def warn_or_traceback(lost: Any) -> None:
    """For errors at the very end: a temporary file of TensorFlow's that cannot be removed, say.

    A signal that comes there ends nothing any more; one that is lost before, `_end_when_stuck` has.
    """
    if isinstance(lost.exc_value, Stopped):
        return
    if is_system_error(lost.exc_value):
        logging.warning("%s", first_line(lost.exc_value))
    else:
        sys.__unraisablehook__(lost)


def run(main: Callable[[list[str]], None]) -> None:
    """Runs a command's `main` with the words of `parse`; `InputError` exits with code 1."""
    app.run(lambda argv: main_or_message(main, argv), flags_parser=lambda _: _words)


def main_or_message(main: Callable[[list[str]], None], argv: list[str]) -> None:
    """Runs `main` and reports what ended it. No process of several ends before all are done."""
    # Loaded by training, and by all that opens weights; other commands have no peers.
    cluster = sys.modules.get("bert_tf.cluster")
    if tf := sys.modules.get("tensorflow"):  # neither is imported at the top: `parse` comes before
        tf.get_logger().setLevel("ERROR")  # else collectives and retracing are logged
    with guard():
        main(argv)
        if cluster:
            cluster.barrier()  # a process lost up to here is waited for, as during training
    if cluster and cluster.has_peers():
        cluster.leave()
        end(0)


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Within it every error that the user or the system caused ends the process with a message."""
    try:
        yield
        flush_output()
    except BaseException as error:
        report(error)
        raise


def report(error: BaseException) -> None:
    """Ends the process with the message and exit code of an error; returns where it is a bug."""
    cluster = sys.modules.get("bert_tf.cluster")
    if isinstance(error, Interrupted):
        cluster.leave()
        message = f"ended by SIGTERM, with a checkpoint of step {error.step} in {error.output_dir}."
        end(0, f"\n{sys.argv[0]}: {message} The same command resumes from there.")
    if _stopped_by and _is_of_loading(error):
        error = Stopped(_stopped_by[0])  # which C code that was being loaded has replaced
    if isinstance(error, KeyboardInterrupt):
        end_by(error)
    if cluster and cluster.expects_peers() and isinstance(error, cluster.LOST_PEER):
        if told := cluster.failure_of_peer(error):
            cluster.let_peers_read()
            end(1, f"\n{sys.argv[0]}: failed, as another process of this run did: {told}")
        if sigterm_came():
            message = "ended by SIGTERM. Another process of this run was lost;"
            end(0, f"\n{sys.argv[0]}: {message} the same command resumes from the last checkpoint.")
        cluster.restart_or_exit(error, max_restarts=flags.FLAGS.max_restarts)
    if isinstance(error, SystemExit):  # of --help
        try:
            flush_output()
        except (InputError, BrokenPipeError) as not_written:
            error = not_written
    if isinstance(error, BrokenPipeError) and nobody_reads():
        end(128 + signal.SIGPIPE)
    if not isinstance(error, InputError) and _has_system_cause(error):
        logging.debug("Raised here:", exc_info=error)
        received = first_line(error)
        if isinstance(error, OSError) and not error.filename:
            received = f"input or output that failed ({received})"
        error = InputError(received, *remedy_of(error))
    if isinstance(error, InputError):
        if cluster:
            cluster.tell_peers(error.received)
        end(1, failure(error))


def _is_of_loading(error: BaseException) -> bool:
    kinds = (ImportError, SystemError)
    return isinstance(error, kinds) or isinstance(error.__cause__, kinds)


def _has_system_cause(error: BaseException) -> bool:
    kinds = (MemoryError, ImportError) if "Too many open files" in str(error) else MemoryError
    return isinstance(error, kinds) or is_system_error(error)


def flush_output() -> None:
    """Writes what is left of the output; a result that cannot be written is an error too."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        received = f"standard output, which cannot be written ({error.strerror})"
        raise InputError(received, *remedy_of(error)) from None


def nobody_reads() -> bool:
    """Whether what read standard output has ended: `head`, say, which has enough."""
    poll = select.poll()
    poll.register(1, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def end_by(error: KeyboardInterrupt) -> None:
    """Ends a command that a signal has stopped; says what is kept."""
    stopped = error if isinstance(error, Stopped) else Stopped(signal.SIGINT)
    is_training = flags.FLAGS.is_parsed() and getattr(flags.FLAGS, "do_train", False)
    kept = "The checkpoints are complete; the same command resumes from the last one."
    gone = "Incomplete files were removed; run the same command to start again."
    message = f"ended by {stopped.name}. {kept if is_training else gone}"
    end(stopped.exit_code, f"\n{sys.argv[0]}: {message}")


def failure(error: InputError) -> str:
    """The message of a command that failed."""
    return f"\n{sys.argv[0]}: failed.\n{error}"


def end(code: int, message: str = "") -> None:
    """Ends the process at once, with a message on the error stream.

    Not by sys.exit: an error keeps tf.data's iterators alive, and Python's shutdown can wait for
    them for ever. Everything was cleaned up on the way here.
    """
    with contextlib.suppress(OSError), SCREEN.line():
        sys.stdout.flush()
    if message:
        print(message, file=sys.stderr)
    sys.stderr.flush()
    os._exit(code)


# ---------------------------------------------------------------------------- streams, signals


def open_standard_streams() -> None:
    """Opens the standard streams that are closed, so that no other file gets their numbers.

    TensorFlow would write its messages into it. Reading such input, and writing such output, is an
    error, that no result is lost in silence; messages are lost.
    """
    for number, (name, mode, way) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, way)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # a notebook has streams of its own
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Messages(sys.stderr.buffer, errors="backslashreplace", line_buffering=True)


class _Messages(io.TextIOWrapper):
    """Standard error: a message that cannot be written is lost, and no error of the command."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError), SCREEN.line():
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


_STREAMS = (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))


class Stopped(KeyboardInterrupt):
    """Raised in the main thread by the first signal that asks a command to end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self.exit_code = 128 + number


SECONDS_TO_END = 10
_stopped_by: list[int] = []


def stop_on_signals() -> None:
    """Lets Ctrl-C, SIGTERM and SIGHUP raise `Stopped`, so that a command leaves nothing behind.

    What is ignored already, by nohup for instance, stays so. Python handles signals between its own
    instructions, and TensorFlow may compute for minutes: `SECONDS_TO_END` after the signal, or by
    a second one, the process ends all the same.
    """
    default = (signal.SIG_DFL, signal.default_int_handler)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in default:
            signal.signal(number, _stop)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_end_when_stuck, args=(reader,), daemon=True).start()


def _stop(number: int, _: Any) -> None:
    if not _stopped_by:
        _stopped_by.append(number)
        raise Stopped(number)


def _end_when_stuck(reader: int) -> None:
    while signal.getsignal(number := os.read(reader, 1)[0]) is not _stop:
        pass  # a signal that means something else now
    first = time.monotonic()
    while (left := first + SECONDS_TO_END - time.monotonic()) > 0:
        if select.select([reader], [], [], left)[0]:
            os.read(reader, 1)
            if time.monotonic() > first + 1:  # `timeout` sends a signal twice
                break
    with contextlib.suppress(OSError):
        os.write(2, f"\nended by {Stopped(number).name}, at once.\n".encode())
    os._exit(128 + number)
