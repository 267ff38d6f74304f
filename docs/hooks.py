"""What `mkdocs` does with the pages before it renders them.

Pages that lie elsewhere in the repository become pages of the site, links to other files become
text, `file.py:name` gets the line on which the name is defined; the table of api.md, the names of
the pages beside it and all of errors.md come from the sources.
"""

import ast
import html
import itertools
import pathlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
ELSEWHERE = {  # in the repository: as a page
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/serving/README.md": "tensorflow_serving.md",
}
SYMBOL = re.compile(r"`([\w/]+\.py):([A-Za-z_][\w.]*)`")
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.M)
DECLARED = re.compile(r"(?:size|declared)\(([^,)]*)[^)]*\)")  # of a field: its default
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
    if page.file.src_uri.startswith(("api", "errors")):
        page.meta["search"] = {"boost": 0.2}  # behind the pages that explain
    if page.file.src_uri == "errors.md":
        return markdown
    if page.file.src_uri == "api.md":
        markdown += table_of_names()
    sources = {name: source for source, name in ELSEWHERE.items()}
    source = ROOT / sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    markdown = DIRECTIVE.sub(with_signature, markdown)
    return SYMBOL.sub(with_line, LINK.sub(lambda link: link_of_site(link, source.parent), markdown))


def link_of_site(link: re.Match, folder: pathlib.Path) -> str:
    """A link between files of the repository as one between pages of the site, or as text."""
    image, text, target, anchor = link.groups(default="")
    if "://" in target:
        return link[0]
    path = (folder / target).resolve().relative_to(ROOT)
    if path.parts[0] == "docs":
        return f"{image}[{text}]({path.relative_to('docs').as_posix()}{anchor})"
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


def table_of_names() -> str:
    """Markdown: every name of the API pages, with the first line of its docstring."""
    parts = []
    for name in re.findall(r": (api_\w+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M):
        text = (ROOT / "docs" / name).read_text("utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        rows = [f"## [{title}]({name})", "| name | |\n|---|---|"]
        for heading, path in re.findall(r"^## (\w+)$(?s:.*?)^::: ([\w.]+)$", text, re.M):
            rows[-1] += f"\n| [`{heading}`]({name}#{heading.lower()}) | {first_line(path)} |"
        parts += rows
    return "\n\n".join(["", *parts, ""])


def first_line(path: str) -> str:
    """The first line of the docstring of `package.module.name`, for a cell of a table.

    Raises:
      LookupError: there is no such name, or it has no docstring.
    """
    if not (text := ast.get_docstring(definition(path)[0])):
        raise LookupError(f"{path} has no docstring")
    return text.partition("\n")[0].replace("|", r"\|")


def definition(path: str) -> tuple[ast.AST, str]:
    """The definition of `package.module.name`, and the source of its file.

    Raises:
      LookupError: there is none.
    """
    module, _, name = path.rpartition(".")
    base = ROOT / module.replace(".", "/")
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    source = file.read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if name in names_of(node):
            return node, source
    raise LookupError(f"{module} has no {name}")


def with_signature(directive: re.Match) -> str:
    """A directive below its anchor and signature; for a dataclass, its fields and comments."""
    node, source = definition(directive[1])
    parts = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
    function = node if isinstance(node, ast.FunctionDef) else parts.get("__init__")
    head = itertools.takewhile(lambda n: not isinstance(n, ast.FunctionDef), node.body)
    fields = [part for part in head if isinstance(part, ast.AnnAssign)]
    if function:
        given = function.args
        given.args = given.args[function is not node :]  # without self
        for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if one:
                one.annotation = None
        lines = textwrap.wrap(f"{node.name}({ast.unparse(given)})", 88, subsequent_indent="    ")
    else:
        lines = [node.name]
        for field in fields:
            written = source.splitlines()[field.lineno - 1 : field.end_lineno]
            plain = [DECLARED.sub(r"\1", line).replace(" =   #", "  #") for line in written]
            lines += as_option(field) or plain
    block = "```python\n" + "\n".join(lines) + "\n```" if lines != [node.name] else ""
    return f"[](){{#{directive[1]}}}\n\n{block}\n\n{directive[0]}"


def as_option(field: ast.AnnAssign) -> list[str]:
    """The lines of an option: its text as a comment, its type and default; of others none."""
    call = field.value
    if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "option":
        return []
    comment = textwrap.wrap(text_of(call.args[0]), 80)
    default = [ast.unparse(word.value) for word in call.keywords if word.arg == "default"]
    declared = f"{ast.unparse(field.target)}: {ast.unparse(field.annotation)}"
    lines = [*(f"# {line}" for line in comment), " = ".join([declared, *default])]
    return [f"    {line}" for line in lines]


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
        folder, body = path.parent.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8"))
        named = constants = {}  # of the function, which begins with those of its file
        for node in in_order(body):
            if isinstance(node, ast.FunctionDef):
                named = dict(constants)
            if isinstance(node, ast.Assign):
                pairs = [(node.targets[0], node.value)]
                if all(isinstance(side, ast.Tuple) for side in pairs[0]):
                    pairs = zip(*(side.elts for side in pairs[0]), strict=False)
                texts = {getattr(n, "id", ""): text_of(value, named) for n, value in pairs}
                (constants if node in body.body else named).update(texts)
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
    """Markdown: for each folder of the sources a table of messages, if their words can be found."""
    parts = ["# Error messages", INTRODUCTION]
    shown = [one for one in messages if len(re.findall(r"\S*[A-Za-z]\S*", one.received)) > 2]
    by_folder = sorted(shown, key=lambda message: message.folder)
    for folder, rows in itertools.groupby(by_folder, lambda message: message.folder):
        parts += [
            f"## {folder if folder != '.' else 'The five scripts'}",
            "| received | expected | to do |\n|---|---|---|",
        ]
        parts[-1] += "".join(f"\n| {' | '.join(map(in_cell, row[1:]))} |" for row in rows)
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """The messages of `InputError`, read from the sources; … is what differs from case
to case, and messages that begin with hardly anything else are left out. The commands end with exit
code 1. [Troubleshooting](troubleshooting.md) has the causes of some."""


def in_cell(text: str) -> str:
    """A text as it is, in a cell of a table."""
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", html.escape(" ".join(text.split()), quote=False))
