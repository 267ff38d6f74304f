"""report.html: a page about a model's answers, which loads nothing from the network.

Head      the usual scores; below them all scores by the names of eval_results.txt
Sections  tables as text; none for SQuAD
Cards     one for each answer, from JSON: see `bert_tf.squad.report`, `bert_tf.tasks.report`
"""

import html
import importlib.resources
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bert_tf.decoding import LONE_SURROGATE

TEMPLATE = "report.html"


def page(
    *,
    title: str,
    main: Mapping[str, str],
    scores: Mapping[str, float],
    data: Mapping[str, Any],
    notes: str,
    sections: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The HTML of the page.

    Args:
      title: the title of the page.
      main: the scores at the top, as they are shown.
      scores: all scores by their names in files; collapsed.
      data: the data of the cards.
      notes: a sentence below the cards.
      sections: titles and texts above the cards.
    """
    texts = {
        "title": html.escape(LONE_SURROGATE.sub("?", title)),
        "main": _score_list(main),
        "scores": _score_list({name: f"{round(value, 3):,}" for name, value in scores.items()}),
        "sections": "\n".join(_section(name, text) for name, text in sections.items()),
        "notes": html.escape(notes),
        "data": script_json(data),
    }
    template = importlib.resources.files(__package__).joinpath(TEMPLATE).read_text("utf-8")
    # All slots in one pass: a text with `{{name}}` in it stays as it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: texts[slot[1]], template)


def _score_list(scores: Mapping[str, str]) -> str:
    """The elements of a <dl> of scores."""
    lines = []
    for name, value in scores.items():
        lines.append(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>")
    return "\n".join(lines)


def _section(title: str, text: str) -> str:
    """A section of preformatted text."""
    return f"<section><h2>{html.escape(title)}</h2><pre>{html.escape(text)}</pre></section>"


def script_json(value: Any) -> str:
    """JSON for a script element in UTF-8: without `<` in it, nothing ends the element.

    >>> print(script_json("</script>"))
    "\\u003c/script>"
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c")
    return LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
