"""docs/reports.md: every test that it names exists."""

import ast
import pathlib
import re

TESTS = pathlib.Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/reports.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE))


def functions_in(path: pathlib.Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_tests_of_all_rows_exist():
    rows = [line for line in PAGE.splitlines() if line.startswith("| [")]
    assert 20 <= len(rows) <= 45
    assert all(re.search(r"\.py::test_\w+` \|$", row) and row.count(" | ") == 2 for row in rows)
    missing = [name for file, name in NAMED if name not in functions_in(TESTS / file)]
    assert missing == []
