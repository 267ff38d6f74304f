"""Private names of Keras stand in one file, and still are what they were."""

import ast
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import make_optimizer
from bert_tf.modeling.keras_private import index_of_variable

ROOT = pathlib.Path(__file__).parents[2]
HOME = ROOT / "bert_tf/modeling/keras_private.py"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def names_in(tree: ast.Module) -> set[str]:
    """Private names that a file makes itself: functions, classes, attributes that it sets."""
    made = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            made.add(node.attr)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            made |= {target.id for target in targets if isinstance(target, ast.Name)}
    return made


@pytest.fixture(scope="module")
def of_keras() -> set[str]:
    """The private attributes and methods that Keras has."""
    names = set()
    for path in (pathlib.Path(keras.__file__).parent / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                names.add(node.attr)
            elif isinstance(node, ast.FunctionDef) and is_private(node.name):
                names.add(node.name)
    names -= {"_replace", "_fields", "_asdict"}  # of named tuples
    assert {"_flatten_layers", "_keras_history", "_inbound_nodes", "_get_variable_index"} <= names
    return names


def uses(path: pathlib.Path, names: set[str]) -> set[str]:
    """Those of the names that a file uses, and does not make itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return (attributes & names) - names_in(tree)


def test_they_stand_in_one_file(of_keras):
    paths = [*ROOT.glob("*.py"), *ROOT.glob("bert_tf/**/*.py"), *ROOT.glob("data_gen/**/*.py")]
    found = {path: used for path in paths if (used := uses(path, of_keras))}
    assert found == {HOME: {"_get_variable_index"}}
    sources = [path.read_text(encoding="utf-8") for path in paths]
    assert not any("keras.src" in source for source in sources)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_index_of_a_variable(replicas, two_replicas):
    """Of a variable of Keras's, and of what a strategy hands to an update on each device."""
    strategy = two_replicas if replicas == 2 else tf.distribute.get_strategy()
    with strategy.scope():
        variables = [keras.Variable(np.zeros(n), name=f"v{n}") for n in (3, 4, 5)]
        optimizer = make_optimizer(7)
        optimizer.build(variables)
    for index, variable in enumerate(variables):
        assert index_of_variable(optimizer, variable) == index
        seen = []
        strategy.extended.update(
            variable.value,
            lambda part, seen=seen: seen.append(index_of_variable(optimizer, part)),
        )
        assert seen == [index] * replicas
