"""Programs of a workload, lowered in a process of its own: TensorFlow keeps what it has lowered.

This process needs no TensorFlow, and the other one ends with it, even when it is killed.
"""

import contextlib
import multiprocessing
import signal
from multiprocessing.connection import Connection

from bert_tf import runtime
from bert_tf.errors import InputError, first_line, is_system_error, remedy_of
from bert_tf.planning.workload import Workload

NO_XLA = "could not find registered transfer manager"  # TensorFlow's words


class Programs:
    """The programs of a workload on one device.

    The model, as large as weights and moments, is built once for all shapes, at the first of them.
    """

    def __init__(self, work: Workload):
        """Starts nothing yet."""
        self.work = work
        self._lowered: dict[tuple[str, int], bytes] = {}

    def __enter__(self):
        context = multiprocessing.get_context("spawn")
        self._connection, its_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(its_end, self.work), daemon=True)
        # Ctrl-C reaches all processes of a terminal; this one ends the other, without a traceback.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        self._process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        its_end.close()
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.join()
        self._connection.close()

    def lowered(self, step: str, batch_size: int) -> bytes:
        """The HLO of a step of `STEPS`, a serialized HloModuleProto.

        Raises:
          InputError: the model or the batch cannot be made, or the process was killed.
        """
        key = step, batch_size
        if key not in self._lowered:
            self._lowered[key] = self._ask(key)
        return self._lowered[key]

    def _ask(self, key: tuple[str, int]) -> bytes:
        try:
            self._connection.send(key)
            found = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            if code > 0:  # with a traceback
                raise RuntimeError("the process that makes the programs has failed") from None
            raise InputError(
                f"a process that ended with code {code} while it made the step {key[0]}",
                "memory for weights and moments, three times the weights, and for the program",
                "free memory, or use a machine with more",
            ) from None
        if isinstance(found, Exception):
            raise found
        return found


def _serve(connection: Connection, work: Workload) -> None:
    """Answers (step, batch size) with a program, or with the error, until the other end closes."""
    trainer = None
    while True:
        try:
            key = connection.recv()
        except EOFError:
            return
        try:
            if trainer is None:
                runtime.prepare_command()
                runtime.load_tensorflow()
                from bert_tf.planning import programs  # not above: it loads TensorFlow

                trainer = programs.make_trainer(work)
            found = programs.lower(trainer, work, *key)
        except Exception as error:
            found = _as_input_error(error)
            if found is None:  # an error of ours, which ends the process with a traceback
                raise
        with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
            connection.send(found)


def _as_input_error(error: Exception) -> InputError | None:
    """What the other end is to raise; None if neither user nor system have caused the error."""
    if isinstance(error, InputError):
        return error
    if NO_XLA in str(error):
        return InputError(
            f"a TensorFlow without XLA for CPUs ({first_line(error)})",
            "tensorflow; the build for TPUs, tensorflow-tpu, has none",
            "run bert-tf compile-check in an environment of its own",
        )
    is_system = isinstance(error, MemoryError) or is_system_error(error)
    return InputError(first_line(error), *remedy_of(error)) if is_system else None
