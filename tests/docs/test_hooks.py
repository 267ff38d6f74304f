"""docs/hooks.py, and the pages that are made or checked with it."""

import pathlib
import re

import pytest
from documents import ROOT, docs_script, read

import bert_tf

hooks = docs_script("hooks")
MESSAGES = list(hooks.messages())
SYMBOLS = hooks.SYMBOL.findall(read("docs/paper.md"))
STEPS = re.findall(r"`([\w/]+\.py):([\w.]+(?:`, `[\w.]+)*)`", read("CONTRIBUTING.md"))
for path, names in STEPS:
    SYMBOLS += [(path, name) for name in names.split("`, `")]


def test_the_paper_and_the_paths_have_their_symbols():
    assert len(SYMBOLS) > 110
    assert ("bert_tf/modeling/layers.py", "SelfAttention.call") in SYMBOLS
    assert ("bert_tf/modeling/layers.py", "Pooler") in SYMBOLS


@pytest.mark.parametrize(("path", "name"), sorted(set(SYMBOLS)))
def test_a_symbol_is_defined_on_its_line(path, name):
    line = (ROOT / path).read_text(encoding="utf-8").splitlines()[hooks.line_of(path, name) - 1]
    last = name.rpartition(".")[2]
    assert re.match(rf"\s*((async )?def|class) {last}\b|{last}\b[^=]*=", line), line


@pytest.mark.parametrize("name", ["Nothing", "SelfAttention.nothing", "keras", "Nothing.call"])
def test_what_a_file_does_not_define_is_refused(name):
    with pytest.raises(LookupError, match="does not define"):
        hooks.line_of("bert_tf/modeling/layers.py", name)


def test_links_to_other_files_of_the_repository():
    def link(text: str, folder: str = "docs") -> str:
        return hooks.link_of_site(hooks.LINK.fullmatch(text), ROOT / folder)

    assert link("[a](results.md#served)") == "[a](results.md#served)"
    assert (
        link("[a](../examples/serving/README.md#threads)") == "[a](tensorflow_serving.md#threads)"
    )
    assert link("[a](docs/results.md)", ".") == "[a](results.md)"
    assert link("[constraints.txt](constraints.txt)", ".") == "constraints.txt"
    assert link("[the pins](constraints.txt)", ".") == "the pins (`constraints.txt`)"
    assert link("![a](curve.png)") == "![a](curve.png)"
    assert link("[a](https://b.org/c)") == "[a](https://b.org/c)"


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r": (\w+\.md)$", read("mkdocs.yml"), re.M)
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert sorted(listed) == sorted(pages | {"errors.md"} | set(hooks.ELSEWHERE.values()))


def test_the_page_of_errors():
    page = hooks.page_of_errors(MESSAGES)
    calls = 0
    for folder in ("bert_tf", "data_gen", "."):
        paths = pathlib.Path(ROOT, folder).glob("*.py" if folder == "." else "**/*.py")
        calls += sum(
            len(re.findall("(raise|return) InputError\\(", path.read_text("utf-8")))
            for path in paths
        )
    assert len(MESSAGES) > 0.95 * calls > 100  # a few pass on what another function says
    rows = page.count("\n| ") - page.count("\n## ")  # a heading for each table
    assert 0.65 * len(MESSAGES) < rows < len(MESSAGES)  # without those of hardly a fixed word
    assert "| … outside any flag | flags only, as in" in page  # names of the function
    assert "| …, which already exists | a new folder | choose another path, or remove it |" in page


def test_a_message_in_a_cell_is_shown_as_it_is():
    assert hooks.in_cell("a|b  <c> --d_e *") == r"a\|b &lt;c&gt; --d\_e \*"


def test_messages_of_troubleshooting_are_raised():
    raised = "\n".join(" ".join(row[1:]) for row in MESSAGES) + read("bert_tf/errors.py")
    cells = re.findall(
        r"^\| (`.*?`.*?) \|", read("docs/troubleshooting.md").partition("\n## Messages")[2], re.M
    )
    fragments = re.findall(r"`([^`]+)`", " ".join(cells))
    assert len(fragments) >= 7
    assert [fragment for fragment in fragments if fragment not in raised] == []


def test_the_api_has_every_public_name_with_its_first_line():
    """Each under its own name on one page, from the module of `__init__.pyi`."""
    pages = "".join(read(f"docs/{path.name}") for path in (ROOT / "docs").glob("api_*.md"))
    public = hooks.public_names()
    assert sorted([*public, "heads", "layers"]) == sorted(bert_tf.__all__)
    for name, home in public.items():
        assert len(re.findall(rf"^## {name}$(?s:.*?)^::: {home}.{name}$", pages, re.M)) == 1, name
    table = hooks.table_of_names()
    assert table.count("\n| [") == pages.count("\n::: ")
    assert table.index("[`load`](api_models.md#load) | A model and its tokenizer") < 200
    with pytest.raises(LookupError, match="no nothing"):
        hooks.first_line("bert_tf.heads.nothing")
