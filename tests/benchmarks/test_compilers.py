"""What benchmarks/compilers.py makes of the answers of compilers."""

import doctest
import math

import compilers
import pytest
from compilers import Compiled, answer

from bert_tf.planning.workload import DEVICES

V5E, H100 = DEVICES["v5e"], DEVICES["h100"]


def test_examples_in_docstrings():
    assert doctest.testmod(compilers) == (0, 2)


@pytest.mark.parametrize(
    ("error", "needed", "refused"),
    [
        ("Ran out of memory on HBM, the total memory required for HLO temporaries (336.00G) "
         "exceeds available HBM (15.75G).", (336 << 30) + 5, ""),
        ("Ran out of memory in memory space hbm. Used 17.50G of 15.75G hbm.",
         int(17.5 * 2**30), ""),
        ("Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem.", math.inf,
         "Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem."),
        ("UNIMPLEMENTED: no strings\nat foo", math.inf, "UNIMPLEMENTED: no strings"),
        ("", math.inf, "no reason given"),
    ],
)  # fmt: skip
def test_a_program_that_does_not_fit_or_is_refused(error, needed, refused):
    found = answer({"error": error, "arguments": 5})
    assert (found.bytes_on(V5E), found.refused) == (needed, refused)


def test_what_a_program_takes_of_a_device():
    """A TPU's sums may exceed what its compiler has found room for; what it needs is rounded."""
    large = V5E.memory_bytes + 10**9
    assert answer({"arguments": 10**9, "temporary": large - 10**9}).bytes_on(V5E) < large
    assert Compiled(needed=int(15.75 * 2**30)).bytes_on(V5E) == V5E.memory_bytes + 1
    assert Compiled(temporary=H100.memory_bytes, code=7).bytes_on(H100) == H100.memory_bytes + 7
