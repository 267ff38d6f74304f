"""What a worker needs, loaded before workers are forked."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1  # Linux only, as is this module
# Python would notice the end of the command only when everything is loaded.
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

from bert_tf.runtime import prepare_command  # noqa: E402

prepare_command()
import data_gen.pipeline  # noqa: E402, F401
