"""Which folder imports which: only what stands before it, so that each can be read alone."""

import ast
import functools
import io
import pathlib
import re
import tokenize

import pytest
from documents import docs_script

ROOT = pathlib.Path(__file__).parents[1]
house = docs_script("house")
FLOORS = house.FLOORS
MODULES = house.MODULES
RANKS = {folder: rank for rank, folders in enumerate(FLOORS) for folder in folders}
SCRIPTS = {path.stem for path in ROOT.glob("*.py")} - {"setup"}
# What the model's folder imports so that Keras finds all classes that files of models name.
REGISTERED = {
    "bert_tf.library.text_models",
    "bert_tf.training.optimization",
    "bert_tf.tokenization.layer",
}
# What data generation may know of the package, besides the ground; metadata: what lies beside a
# vocabulary.
FOR_DATA_GENERATION = ("tokenization.", "data.records", "checkpoints.metadata")

tree_of = functools.cache(house.tree_of)
imported = functools.cache(house.imported)
folder_of = house.folder_of
INSIDE = [
    name
    for name in MODULES
    if name.startswith("bert_tf.") and folder_of(name) in RANKS and "__main__" not in name
]


def test_there_is_something_to_compare():
    assert len(INSIDE) > 60
    assert imported(ROOT / "run_squad.py") >= {"bert_tf.cli.main", "bert_tf.squad.options"}
    assert {folder_of(name) for name in INSIDE} == RANKS.keys()


def test_a_module_imports_what_stands_before_it():
    for module in INSIDE:
        own = folder_of(module)
        for other in imported(MODULES[module]):
            said = f"{module} imports {other}"
            if module == "bert_tf.modeling" and other in REGISTERED:
                continue
            if own == "cli":
                assert other.split(".")[0] in {"bert_tf", "data_gen"} | SCRIPTS, said
                continue
            assert other.startswith("bert_tf."), said
            theirs = folder_of(other)
            ground = FLOORS[0] if own in FLOORS[0] else (own,)  # which know each other
            assert RANKS[theirs] < RANKS[own] or theirs in ground, said


def test_data_generation_reaches_no_model():
    for module in (name for name in MODULES if name.startswith("data_gen")):
        for other in imported(MODULES[module]):
            own = other.removeprefix("bert_tf.")
            may = own in FLOORS[0] or own.startswith((*FOR_DATA_GENERATION, "data_gen"))
            assert may, f"{module} imports {other}"


@pytest.mark.parametrize("script", ["run_pretraining", "run_classifier", "run_squad"])
def test_training_reaches_no_serving(script):
    files = loaded(ROOT / f"{script}.py")
    reached = {name for name, path in MODULES.items() if path in files}
    folders = {folder_of(name) for name in reached if name.startswith("bert_tf.")}
    assert "training" in folders
    assert not folders & {"serving", "planning", "http"}
    formats = ("hub", "hugging_face", "keras_files", "tf2")  # opened by a table
    assert not {f"bert_tf.checkpoints.{name}" for name in formats} & reached
    of_tasks = {name for name in reached if name.startswith("bert_tf.tasks.")}
    assert bool(of_tasks) == (script == "run_classifier")
    assert ("squad" in folders) == (script == "run_squad")


def test_only_commands_read_flags():
    for module in (name for name in INSIDE if folder_of(name) != "cli"):
        text = MODULES[module].read_text(encoding="utf-8")
        assert not re.search(r"^from absl import.*\bflags", text, re.M), module


def test_the_package_is_small_at_its_top_and_reads_no_file_by_a_thread_that_asks_the_clock():
    assert len(list((ROOT / "bert_tf").glob("*.py"))) <= 13
    assert len(SCRIPTS) == 5
    text = "".join(path.read_text(encoding="utf-8") for path in MODULES.values())
    assert text.count("tf.data.TFRecordDataset(") == text.count("untuned(tf.data.TFRecordDataset(")


# ------------------------------------------------------------------------------ files reached

# Files with code that a script reaches by imports at the top of modules, and anywhere in itself and
# in commands, which import late. Whoever needs more says so here. Ten are the heads, a page a kind
# of label, which `bert_tf.heads` imports plainly: they load no TensorFlow.
MOST_FILES = {
    "run_pretraining.py": 73,
    "run_classifier.py": 94,
    "run_squad.py": 80,
    "create_pretraining_data.py": 30,
}


@functools.cache
def code_lines(path: pathlib.Path) -> int:
    """The lines of a file that hold code."""
    text = path.read_text(encoding="utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree_of(path)):
        has_body = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if has_body and ast.get_docstring(node, clean=False) is not None:
            lines -= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    return len(lines)


@functools.cache
def loaded(path: pathlib.Path) -> set[pathlib.Path]:
    """The files of the project that importing a file loads, itself included."""
    found, todo = set(), [path]
    while todo:
        path = todo.pop()
        found.add(path)
        for node in imports_of(path):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            if isinstance(node, ast.ImportFrom):
                names = [node.module, *(f"{node.module}.{name}" for name in names)]
            elif not isinstance(node, ast.Import):
                continue
            for name in names:
                places = [
                    ROOT.joinpath(*name.split(".")[:n]) for n in range(1, name.count(".") + 2)
                ]
                files = [f for p in places for f in (p.with_suffix(".py"), p / "__init__.py")]
                todo += [file for file in files if file.is_file() and file not in found]
    return found


def imports_of(path: pathlib.Path) -> list[ast.stmt]:
    """The statements that import: those of the top; of commands all but for type checkers."""
    body = [node for node in tree_of(path).body if not isinstance(node, ast.If)]
    if path.parent.name == "cli" or path.parent == ROOT:
        return [node for statement in body for node in ast.walk(statement)]
    return body


@pytest.mark.parametrize("script", MOST_FILES)
def test_a_script_reaches_few_files(script):
    files = loaded(ROOT / script)
    rooms = [file for file in files if file.name != "__init__.py" or code_lines(file) > 10]
    assert len(rooms) <= MOST_FILES[script]
