"""docs/options.md lists the options of all commands as they are declared."""

from documents import docs_script, read

from bert_tf.options import Options, option

options_page = docs_script("options")


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
