"""docs/options.md lists the options of all commands as they are declared."""

import importlib.util

from documents import ROOT, read

from bert_tf.options import Options, option

SPEC = importlib.util.spec_from_file_location("options_page", ROOT / "docs/options.py")
options_page = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(options_page)


class Own(Options):
    """Options of all kinds."""

    path: str = option("A | B, of [MASK].", path=True)
    stride: int | None = option("Tokens. If not given: as trained.", default=None, low=1)
    pairs: bool = option("Of pairs.", default=True, acts="stride")


def test_the_page_is_that_of_the_declarations():
    """Otherwise make it again: python docs/options.py > docs/options.md."""
    assert read("docs/options.md") == "\n\n".join(options_page.page()) + "\n"


def test_a_row():
    rows = [
        options_page.row(declared, Own)
        for declared in options_page.groups_of(Own)["Of this command"]
    ]
    assert rows == [
        r"| `--path` | required | A \| B, of \[MASK\]. |",
        "| `--stride` |  | Tokens. If not given: as trained. |",
        "| `--[no]pairs` | yes | Of pairs. With --stride. |",
    ]
