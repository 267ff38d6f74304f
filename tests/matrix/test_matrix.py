"""Every command and public function with every format, head and way to write a path.

Each pair runs in a new process that has imported nothing else. It answers what the same call
answers in this process, which has made the model; or it is refused by name, and writes nothing.

`make test` runs a few pairs, others with BERT_TF_MATRIX_SEED=2 and so on; `make matrix` runs all.
"""

import os
import re

import matrix_calls
import matrix_functions
import matrix_models
import matrix_pairs
import pytest
from walking import module_of

import bert_tf
from bert_tf.__main__ import VERBS
from bert_tf.checkpoints import metadata
from bert_tf.cli.main import options_class
from bert_tf.options import options_of
from bert_tf.serving import options

pytestmark = pytest.mark.walk
SEED = int(os.environ.get("BERT_TF_MATRIX_SEED", "1"))
PAIRS = 3
IS_WHOLE = "BERT_TF_MATRIX_ALL" in os.environ
CHOSEN = matrix_pairs.all_pairs() if IS_WHOLE else matrix_pairs.sample(SEED, PAIRS)


@pytest.mark.parametrize("pair", CHOSEN, ids=str)
def test_a_pair(pair, files, record_property):
    if pair.format == "hub":
        pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
    outcome = matrix_pairs.outcome(pair, files)
    is_known = outcome in (matrix_pairs.EQUAL, matrix_pairs.REFUSED)
    record_property("outcome", outcome if is_known else "other")
    assert is_known, outcome


PARTS = "x: failed.\nReceived: a\nExpected: b\nTo do: c\n"


@pytest.mark.parametrize(
    ("ended", "written", "says"),
    [
        ((0, "1 PLACE/OUT", ""), "place/OUT/new", "equal"),
        ((0, "1 PLACE/OUT/", ""), "place/OUT/new", "equal"),
        ((0, "2 PLACE/OUT", ""), "place/OUT/new", "answers 2 PLACE"),
        ((0, "1 PLACE/OUT", ""), "cwd/~", "written elsewhere: .*~"),
        ((0, "1 PLACE/OUT", ""), "place/IN/vocab.txt", "written elsewhere: .*vocab"),
        ((1, "", PARTS), "", "refused: "),
        ((1, "", PARTS), "place/OUT/new", "refused, but files were written"),
        ((1, "", f"Traceback\n{PARTS}"), "", "exit code 1 without a message"),
        ((1, "", "Received: a"), "", "exit code 1 without a message"),
    ],
)
def test_what_a_pair_is_judged_by(ended, written, says, files, tmp_path):
    pair = matrix_pairs.Pair("plan")
    place = matrix_pairs.Place(tmp_path, pair, files)
    if written:
        (tmp_path / written).write_text("new")
    ended = matrix_calls.Ended(*ended)
    ended = ended._replace(printed=ended.printed.replace("PLACE", str(tmp_path / "place")))
    found = matrix_pairs.judged(pair, place, ended, (matrix_pairs.EQUAL, "1 PLACE/OUT"))
    assert re.match(says, found), found


def test_every_verb_is_called():
    called = {name.split()[0] for name in matrix_calls.VERBS}
    add = "add a call to VERBS of tests/helpers/matrix_calls.py"
    assert called | {"check"} == VERBS.keys(), add


def test_every_public_function_is_called():
    known = {*matrix_functions.NAMES} | matrix_functions.WITHOUT_A_PATH
    add = "add a function of that name to tests/helpers/matrix_functions.py, or WITHOUT_A_PATH"
    assert known == {*bert_tf.__all__}, add


def test_every_format_is_written():
    known = matrix_models.FORMATS.keys()
    add = "add how it is written to READ_ONLY of tests/helpers/matrix_models.py"
    assert known >= metadata.FORMATS.keys() | {*options.EXPORT_FORMATS}, add


def test_samples_of_all_seeds_are_the_matrix():
    """Every verb, function, format, head and style is in some sample."""
    wanted = {*matrix_pairs.all_pairs()}
    found = {pair for seed in range(len(wanted)) for pair in matrix_pairs.sample(seed, PAIRS)}
    assert found == wanted
    assert {pair.call for pair in wanted} == matrix_calls.CALLS.keys()
    assert {pair.format for pair in wanted} - {None} == matrix_models.FORMATS.keys()
    assert {pair.style for pair in wanted} == matrix_pairs.STYLES.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_every_path_flag_is_given(verb):
    """In some call of a verb each flag that is a path is given with a path of the matrix."""
    listed = options_of(options_class(module_of(verb).main))
    declared = {option.flag for option in listed if option.says("path")}
    calls = [call for name, call in matrix_calls.VERBS.items() if name.split()[0] == verb]
    words = " ".join(f"{call.words} {call.further}" for call in calls)
    lacking = [name for name in sorted(declared) if f"--{name}=" not in words]
    assert not lacking, f"add {lacking} to a call of {verb} in tests/helpers/matrix_calls.py"
