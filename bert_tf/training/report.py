"""report.html: one page about the answers of a model, which loads nothing from elsewhere.

Head      the scores that people know; below them all scores by the names of eval_results.txt
Sections  pictures and tables, as HTML; none for SQuAD
Cards     one for each answer, of JSON: see `bert_tf.squad.report`, `bert_tf.tasks.report`
"""

import base64
import html
import importlib.resources
import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from bert_tf.files import LONE_SURROGATE

TEMPLATE = "report.html"


def page(
    *,
    title: str,
    main: Mapping[str, str],
    scores: Mapping[str, float],
    data: Mapping[str, Any],
    notes: str,
    sections: str = "",
) -> str:
    """The page.

    Args:
      title: of the page.
      main: the scores at the top, as they are shown.
      scores: all of them by their names in files; folded up.
      data: of the cards.
      notes: a sentence below the cards.
      sections: HTML above the cards.
    """
    texts = {
        "title": html.escape(LONE_SURROGATE.sub("?", title)),
        "main": _figures(main),
        "scores": _figures({name: f"{round(value, 3):,}" for name, value in scores.items()}),
        "sections": sections,
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


def picture(draw: Callable[[Any], None], size: tuple[float, float], shows: str) -> str:
    """What `draw` draws on matplotlib's axes, inside the page; empty without the extra `plot`.

    Args:
      draw: takes the axes.
      size: in inches.
      shows: a sentence for those who do not see it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    figure, file = Figure(figsize=size, layout="constrained"), io.BytesIO()
    draw(figure.add_subplot())
    figure.savefig(file, format="png", dpi=120)
    source = base64.b64encode(file.getvalue()).decode()
    width = round(72 * size[0])  # letters are as large as those of the page
    return f'<img alt="{html.escape(shows)}" width="{width}" src="data:image/png;base64,{source}">'
