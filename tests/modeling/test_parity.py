"""The original's own figures: forward pass, gradients, twelve updates, by the code of the check."""

import numpy as np
import pytest

from bert_tf.cli import check
from bert_tf.training import parity

# Those that ship are compared in float32 by tests/cli/test_check.py.
PAIRS = (("BERT_TF_GOLDENS", "float32"), ("shipped", "bfloat16"), ("shipped", "float16"))
each = pytest.mark.parametrize(("goldens_dir", "found"), PAIRS, indirect=True, scope="module")


@pytest.fixture(scope="module")
def found(request, tiny):
    return request.param, parity.differences("CPU:0", request.param, tiny)


@each
def test_within_the_limits(found):
    precision, kinds = found
    for kind, differences in kinds.items():
        limit = getattr(check.LIMITS[precision], kind)
        assert max(differences.values()) <= limit, (kind, differences)
        assert max(differences.values()) > limit / 300  # limits that catch something


@each
def test_all_of_the_original_is_compared(found, tiny):
    precision, kinds = found
    compared = {name for differences in kinds.values() for name in differences}
    stored = np.load(tiny / "forward.npz").files
    trained = [n for n in np.load(tiny / "train_one_hot.npz").files if n.startswith("final/")]
    losses = {f"loss {step}" for step in range(1, 13)}
    left = {*stored, *trained, *losses} - compared - {"mlm_per_example"}
    assert len(left) == (0 if precision == "float32" else 2)
    assert all(name.startswith("final/") and name.endswith("/key/bias") for name in left)
