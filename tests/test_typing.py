"""mypy and pyright find the mistakes in typing/calls.py, and no others there or in the package."""

import ast
import dataclasses
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import bert_tf
from bert_tf.serving.options import ServingOptions
from bert_tf.training.optimization import KERAS_OPTIONS, AdamWeightDecay

ROOT = pathlib.Path(__file__).parents[1]
CALLS = "tests/typing/calls.py"


@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_a_type_checker_finds_every_mistake_and_refuses_no_right_call(checker):
    pytest.importorskip(checker)
    ended = subprocess.run([sys.executable, "-m", checker], cwd=ROOT, capture_output=True)
    said = ended.stdout.decode()
    found = set(re.findall(r"([\w./]+):(\d+)(?::\d+)?(?: -|:) error", said.replace(f"{ROOT}/", "")))
    lines = enumerate((ROOT / CALLS).read_text().splitlines(), 1)
    wanted = {(CALLS, str(number)) for number, line in lines if "# error: " in line}
    assert len(wanted) >= 28, said
    assert [wanted - found, found - wanted] == [set(), set()], f"not found, refused; {said}"


def test_the_keywords_of_options_are_those_of_what_takes_them():
    tree = ast.parse((ROOT / "bert_tf/keywords.pyi").read_text())
    found = [{x.target.id for x in one.body[1:]} for one in tree.body[2:]]
    takers = bert_tf.load, bert_tf.heads.Pretraining.model, AdamWeightDecay
    of_takers = [{*inspect.signature(taker).parameters} for taker in takers]
    of_serving = {field.name for field in dataclasses.fields(ServingOptions)}
    of_takers[2] |= {*KERAS_OPTIONS}
    of_load = {"path", "head", "labels", "name", "dtype"}
    others = of_load, {"self", "config"}, {"learning_rate", "kwargs"}, set()
    wanted = zip([*of_takers, of_serving], others, strict=True)
    assert found == [names - others for names, others in wanted]
