"""One file, one answer: the same through every door, or refused by the same words.

`make test` takes a part of the files, another one with BERT_TF_MATRIX_SEED=2; `make matrix` all.
"""

import os
import re

import door_files
import pytest

from bert_tf.errors import InputError

pytestmark = pytest.mark.walk
IS_WHOLE = "BERT_TF_MATRIX_ALL" in os.environ
FILES = door_files.FILES


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    import doors  # starts TensorFlow, before devices are configured

    return doors.Doors(tmp_path_factory.mktemp("doors"))


@pytest.mark.parametrize("kind", door_files.KINDS)
def test_rows_through_every_door(kind, doors):
    import doors as of

    wanted = doors.of_fit(kind)
    for found in (
        [*of.read_results(doors.trained(kind), kind).values()],
        doors.of_predictor(kind),
        doors.of_server(kind),
    ):
        assert not of.differences(found, wanted, 1e-3), (found, wanted)
