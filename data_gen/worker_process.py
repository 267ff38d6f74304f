"""What a worker needs, loaded before workers are forked; without TensorFlow's start-up notices."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1  # Linux only, as is this module
# Python would notice the end of the command only when everything is loaded.
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

from bert_tf.runtime import prepare_command, without_notices  # noqa: E402

prepare_command()
with without_notices():
    import data_gen.pipeline  # noqa: F401
