"""Draws docs/house.svg: the folders, what each imports, and the four ways through them.

    python docs/house.py > docs/house.svg

What each folder does, and the ways, are read from CONTRIBUTING.md; the imports from the code. A
folder may import only what stands below it: `tests/test_imports.py` holds the code to FLOORS.
"""

import ast
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).parents[1]
# From the ground up. Those of one floor do not know each other; the files of the ground do.
FLOORS = (
    ("errors", "terminal", "processor", "runtime", "decoding", "locks", "files", "declarations",
     "config", "options"),
    ("tokenization", "tables"),
    ("modeling", "data"),
    ("heads",),
    ("checkpoints",),
    ("training",),
    ("tasks",),
    ("squad",),
    ("library",),
    ("serving",),
    ("planning", "http"),
    ("cli",),
)  # fmt: skip
GROUND = "bert_tf/*.py"
SCRIPTS = "run_*.py, ..."
COLOURS = ("#b3411a", "#1f6f8b", "#5b7f1e", "#7a4f9a")  # of the ways

# Of the drawing, in pixels.
ROW = 44
HEAD = 64
NAMES = 20  # where the names begin
PURPOSES = 150  # where the purposes begin
WAYS = 500  # where the ways begin
STEP = 17  # from one step to the next
GAP = 26  # between two ways


class Way(NamedTuple):
    """One of the four ways: its title, and the folders that it passes."""

    title: str
    stops: list[tuple[int, str]]  # the step's number in CONTRIBUTING.md, its folder


def modules() -> dict[str, pathlib.Path]:
    """Every module of the package, of data generation, and the scripts, by its dotted name."""
    names = {}
    for pattern in ("*.py", "bert_tf/**/*.py", "data_gen/**/*.py"):
        for path in ROOT.glob(pattern):
            name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            names[name.removesuffix(".__init__")] = path
    return names


def tree_of(path: pathlib.Path) -> ast.Module:
    """A file's syntax."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: pathlib.Path) -> set[str]:
    """The modules that a file imports anywhere, also those named in strings to be imported late."""
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= {node.value} if node.value.startswith("bert_tf.") else set()
    return {name for name in names if name in MODULES and name not in PACKAGES}


MODULES = modules()
PACKAGES = {name.rpartition(".")[0] for name in MODULES}


def folder_of(module: str) -> str:
    """bert_tf.data.records -> data; bert_tf.files -> files."""
    return module.split(".")[1]


def row_of(module: str) -> str | None:
    """The row of the drawing in which a module stands; None: in none (setup.py, `__main__`)."""
    if module.startswith("data_gen"):
        return "data_gen"
    if module.startswith("bert_tf."):
        folder = folder_of(module)
        if folder in FLOORS[0]:
            return GROUND
        return folder if (ROOT / "bert_tf" / folder).is_dir() else None
    return SCRIPTS if "." not in module and module not in ("bert_tf", "setup") else None


def rows() -> list[str]:
    """The rows of the drawing, from the roof to the ground."""
    folders = [folder for floor in FLOORS[1:] for folder in floor]
    return [SCRIPTS, "cli", "data_gen", *(f for f in reversed(folders) if f != "cli"), GROUND]


def imports_of_rows() -> dict[str, list[str]]:
    """What each row imports from rows below it, without the ground, from the roof down."""
    order = rows()
    imports: dict[str, set[str]] = {row: set() for row in order}
    for module, path in MODULES.items():
        row = row_of(module)
        if row is not None:
            imports[row] |= {row_of(name) or row for name in imported(path)} - {row, GROUND}
    below = {row: order[number + 1 :] for number, row in enumerate(order)}
    return {row: [name for name in below[row] if name in imports[row]] for row in order}


def purposes(guide: str) -> dict[str, str]:
    """What each folder does, by the list of CONTRIBUTING.md."""
    lines = re.findall(
        r"^- `(?:bert_tf/)?(\w+)/\w+\.py`: (.+)$", guide.replace("`fit`", "fit"), re.M
    )
    return dict(lines) | {
        GROUND: "errors, files, options, devices",
        SCRIPTS: "the original's commands",
    }


def ways(guide: str) -> Iterator[Way]:
    """The four ways of CONTRIBUTING.md."""
    chapter = guide.partition("\n## Four paths\n")[2].partition("\n## ")[0]
    for section in chapter.split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        stops = []
        for number, item in re.findall(r"^(\d+)\. (.*(?:\n    .*)*)", text, re.M):
            folders = []
            for file in re.findall(r"`([\w/]+)\.py", item):
                folder = row_of(file.replace("/", "."))
                if folder and folder not in folders:
                    folders.append(folder)
            stops += [(int(number), folder) for folder in folders]
        yield Way(title, stops)


def text(x: float, y: float, words: str, style: str) -> str:
    """Words at a place."""
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def drawn_way(way: Way, left: float, colour: str, height: dict[str, float]) -> list[str]:
    """A way: a line from stop to stop, and the number of its step in each."""
    points = [(left + STEP * n, height[folder]) for n, (_, folder) in enumerate(way.stops)]
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    parts = [text(left - 8, 44, way.title, f'class="title" style="fill: {colour}"')]
    parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
    for (x, y), (number, _) in zip(points, way.stops, strict=True):
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="8" fill="{colour}"/>')
        parts.append(text(x, y + 3.5, str(number), 'class="stop"'))
    return parts


STYLE = """
text { font-family: Helvetica, Arial, sans-serif; fill: #222 }
.name { font-size: 15px; font-weight: bold }
.purpose { font-size: 12.5px }
.imports { font-size: 10px; fill: #666 }
.title { font-size: 15px; font-weight: bold }
.stop { font-size: 10px; fill: #fff; text-anchor: middle; font-weight: bold }
"""


def picture() -> str:
    """The drawing, as SVG."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    order = rows()
    purpose = purposes(guide)
    imports = imports_of_rows()
    height = {row: HEAD + ROW * (number + 0.5) for number, row in enumerate(order)}
    drawn_ways = []
    left = float(WAYS)
    for way, colour in zip(ways(guide), COLOURS, strict=True):
        drawn_ways += drawn_way(way, left, colour, height)
        left += STEP * len(way.stops) + GAP
    width = left
    bottom = HEAD + ROW * len(order)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {bottom + 16}">',
        f"<style>{STYLE}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        text(NAMES, 44, "imports only what stands below it", 'class="purpose"'),
    ]
    for number, row in enumerate(order):
        top = HEAD + ROW * number
        if number % 2 == 0:
            parts.append(f'<rect y="{top}" width="{width:g}" height="{ROW}" fill="#f4f4f1"/>')
        parts.append(text(NAMES, top + 19, row, 'class="name"'))
        parts.append(text(PURPOSES, top + 19, purpose[row], 'class="purpose"'))
        if imports[row]:
            names = ", ".join(imports[row])
            parts.append(text(NAMES, top + 35, f"imports {names}", 'class="imports"'))
    return "\n".join([*parts, *drawn_ways, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(picture())
