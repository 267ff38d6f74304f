"""--torch_python of a benchmark may name a Python without TensorFlow, bert_tf and their needs.

Each benchmark starts itself in that Python. Here PyTorch is missing too: whether it is what the
process asks for first shows that nothing else was.
"""

import re
import subprocess
import sys

import pytest
from documents import ROOT

MISSING = ("tensorflow", "keras", "absl", "bert_tf", "torch")
ASKED = re.compile(r"^ +torch_python=(None|sys.executable),", re.M)
PARTS = {  # the words by which a benchmark starts its part
    "bfloat16_steps.py": ["--contender=hf-autocast", "--sizes=2x128"],
    "sentence_tasks.py": ['--torch_part={"folder": "x"}'],
    "hugging_face.py": ["--part=encode", "--arguments=model,sentences.json,target"],
    "serving_latency.py": ["--contender=pytorch", "--folder=x"],
    "train_step.py": ["--contender=hf", "--sizes=2x128"],
}


def test_every_benchmark_with_such_a_python_is_tried():
    paths = (ROOT / "benchmarks").glob("*.py")
    assert PARTS.keys() == {path.name for path in paths if ASKED.search(path.read_text())}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_needs_pytorch_alone(name, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.modules |= dict.fromkeys({MISSING})  # they cannot be imported\n"
    )
    ended = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / name, *PARTS[name]],
        env={"PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    last = ended.stderr.splitlines()[-1]
    assert last == "ModuleNotFoundError: import of torch halted; None in sys.modules"
