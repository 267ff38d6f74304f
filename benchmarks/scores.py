"""The scores that a run leaves; needs neither bert_tf nor TensorFlow, as some Pythons have none."""

import pathlib


def scores_in(path: pathlib.Path) -> dict[str, float]:
    """The numbers of an eval_results.txt; none without the file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else ()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}
