"""What `mkdocs` does with the pages before it renders them.

Pages that lie elsewhere in the repository become pages of the site, links to other files become
text, `file.py:name` gets the line on which the name is defined; the public names of api.md and all
of errors.md come from the sources.
"""

import ast
import html
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
ELSEWHERE = {  # in the repository: as a page
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "serve/README.md": "tensorflow_serving.md",
}
SYMBOL = re.compile(r"`([\w/]+\.py):([A-Za-z_][\w.]*)`")
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that lie elsewhere, and the page of errors."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "errors.md", content=page_of_errors(messages())))
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its links and lines."""
    if page.file.src_uri == "errors.md":
        return markdown
    if page.file.src_uri == "api.md":
        return markdown + page_part_of_names()
    sources = {name: source for source, name in ELSEWHERE.items()}
    source = ROOT / sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return SYMBOL.sub(with_line, LINK.sub(lambda link: link_of_site(link, source.parent), markdown))


def link_of_site(link: re.Match, folder: pathlib.Path) -> str:
    """A link between files of the repository as one between pages of the site, or as text."""
    image, text, target, anchor = link.groups(default="")
    if "://" in target or image:
        return link[0]
    path = (folder / target).resolve().relative_to(ROOT)
    if path.parts[0] == "docs":
        return f"[{text}]({path.relative_to('docs').as_posix()}{anchor})"
    if page := ELSEWHERE.get(path.as_posix()):
        return f"[{text}]({page}{anchor})"
    return text if text.strip("`") == path.name else f"{text} (`{path.as_posix()}`)"


def with_line(symbol: re.Match) -> str:
    """`file.py:name` as `file.py:line` and the name."""
    path, name = symbol.groups()
    return f"`{path}:{line_of(path, name)}` `{name}`"


def line_of(path: str, name: str) -> int:
    """The line on which a file defines a class, function, method or constant.

    Raises:
      LookupError: it does not.
    """
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = [node for node in body if part in names_of(node)]
        if not found:
            raise LookupError(f"{path} does not define {name}")
        body = getattr(found[0], "body", [])
    return found[0].lineno


def names_of(node: ast.AST) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return [node.name]
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


# ---------------------------------------------------------------------------- the API


def public_names() -> dict[str, str]:
    """The names of `bert_tf`, each with its module."""
    body = ast.parse((ROOT / "bert_tf/__init__.pyi").read_text(encoding="utf-8")).body
    froms = (node for node in body if isinstance(node, ast.ImportFrom))
    found = {alias.name: node.module for node in froms for alias in node.names}
    return {name: home for name, home in found.items() if name not in ("heads", "layers")}


def page_part_of_names() -> str:
    """Markdown: the public names, by folder, for mkdocstrings."""
    parts, before = [], ""
    for name, home in sorted(public_names().items(), key=lambda item: (item[1], item[0])):
        folder = home.split(".")[1]
        parts += [f"## {folder}"] * (folder != before) + [f"::: {home}.{name}"]
        before = folder
    return "\n\n" + "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------------- errors


class Message(NamedTuple):
    """An `InputError` of the sources; what differs from case to case is "…"."""

    folder: str
    received: str
    expected: str
    remedy: str


def messages() -> Iterator[Message]:
    """Yields every `InputError` that the sources raise, in the order of files and lines."""
    folders = (ROOT / name for name in ("bert_tf", "data_gen"))
    paths = [*ROOT.glob("*.py"), *itertools.chain(*(folder.rglob("*.py") for folder in folders))]
    for path in sorted(paths):
        folder, named = path.parent.relative_to(ROOT).as_posix(), {}
        for node in in_order(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign):
                pairs = [(node.targets[0], node.value)]
                if all(isinstance(side, ast.Tuple) for side in pairs[0]):
                    pairs = zip(*(side.elts for side in pairs[0]), strict=False)
                named |= {getattr(n, "id", ""): text_of(value, named) for n, value in pairs}
            called = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError"
            if called and len(node.args) == len(Message._fields) - 1:
                yield Message(folder, *(text_of(part, named) for part in node.args))


def in_order(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all in it, in the order of the source: a part of a message may have a name."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from in_order(child)


def text_of(node: ast.AST, named: Mapping[str, str] = MappingProxyType({})) -> str:
    """The text of an expression, with "…" for what is known only when it runs."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part, named) for part in parts)
        case ast.BinOp(left=left, right=right):
            return text_of(left, named) + text_of(right, named)
        case ast.IfExp(body=body, orelse=orelse):
            return text_of(body, named) or text_of(orelse, named)
        case ast.Name(id=name) | ast.FormattedValue(value=ast.Name(id=name)):
            return named.get(name, "…")
    return "…"


def page_of_errors(messages: Iterable[Message]) -> str:
    """Markdown: a table of messages for each folder of the sources."""
    parts = ["# Every error", INTRODUCTION]
    by_folder = sorted(messages, key=lambda message: message.folder)
    for folder, rows in itertools.groupby(by_folder, lambda message: message.folder):
        parts += [
            f"## {folder if folder != '.' else 'The five scripts'}",
            "| received | expected | to do |\n|---|---|---|",
        ]
        parts[-1] += "".join(f"\n| {' | '.join(map(in_cell, row[1:]))} |" for row in rows)
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """Every message of `InputError`, read from the sources; … is what differs from case
to case. The commands end with exit code 1. The common ones, with their causes, are in
[Troubleshooting](troubleshooting.md)."""


def in_cell(text: str) -> str:
    """A text as it is, in a cell of a table."""
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", html.escape(" ".join(text.split()), quote=False))
