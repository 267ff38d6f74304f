"""report.html: one page about the answers of a model, which loads nothing from elsewhere.

Head      the scores that people know; below them all scores by the names of eval_results.txt
Sections  tables as text; none for SQuAD
Cards     one for each answer, of JSON: see `bert_tf.squad.report`, `bert_tf.tasks.report`
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
    """The page.

    Args:
      title: of the page.
      main: the scores at the top, as they are shown.
      scores: all of them by their names in files; folded up.
      data: of the cards.
      notes: a sentence below the cards.
      sections: titles and texts above the cards.
    """
    texts = {
        "title": html.escape(LONE_SURROGATE.sub("?", title)),
        "main": _figures(main),
        "scores": _figures({name: f"{round(value, 3):,}" for name, value in scores.items()}),
        "sections": "\n".join(
            f"<section><h2>{html.escape(name)}</h2><pre>{html.escape(text)}</pre></section>"
            for name, text in sections.items()
        ),
        "notes": html.escape(notes),
        "data": script_json(data),
    }
    template = importlib.resources.files(__package__).joinpath(TEMPLATE).read_text("utf-8")
    # In one go, so that what looks like a slot in a text stays a text.
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: texts[slot[1]], template)


def _figures(shown: Mapping[str, str]) -> str:
    pairs = ((html.escape(name), html.escape(value)) for name, value in shown.items())
    return "\n".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in pairs)


def script_json(value: Any) -> str:
    """JSON for a script element in UTF-8: without `<` nothing in it ends the element.

    >>> print(script_json("</script>"))
    "\\u003c/script>"
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c")
    return LONE_SURROGATE.sub(lambda one: f"\\u{ord(one[0]):04x}", text)
