"""examples/notebooks/ from top to bottom, with small models of random weights."""

import json
import pathlib
import re
import shutil

import matplotlib
import matplotlib.pyplot as plt
import model_files
import numpy as np
import pytest

from bert_tf import BertConfig

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path: pathlib.Path) -> list[tuple[str, str]]:
    """Kind and source of each cell."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return [(cell["cell_type"], "".join(cell["source"])) for cell in content["cells"]]


def pieces() -> tuple[str, ...]:
    """A vocabulary of the words of the notebooks and of their data."""
    texts = [source for path in NOTEBOOKS for _, source in cells(path)]
    texts += [(FOLDER / "topics.csv").read_text(encoding="utf-8")]
    texts += [(ROOT / "data_gen/sample_text/nature.txt").read_text(encoding="utf-8")[:4000]]
    words = {word for text in texts for word in re.findall(r"[a-z]+|[.,?]", text.lower())}
    return (*model_files.SPECIAL, *sorted(words - {"marigolds"}), "mari", "##gold", "##s")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    """A pre-trained model and a small one for questions, by the variables that name them."""
    vocabulary = pieces()
    root = tmp_path_factory.mktemp("models")
    for kind, layers in (("pretraining", 3), ("span", 1)):
        config = BertConfig(
            vocab_size=len(vocabulary), hidden_size=22, num_hidden_layers=layers,
            num_attention_heads=2, intermediate_size=37, max_position_embeddings=80,
            type_vocab_size=2,
        )  # fmt: skip
        tensors = model_files.tensors_of(kind, config)
        model_files.write_tf1(root / kind, tensors, config=config, pieces=vocabulary)
    pretrained = str(root / "pretraining")
    return {
        "BERT_TF_MODEL": pretrained,
        "BERT_TF_FILL_MASK_MODEL": pretrained,
        "BERT_TF_SQUAD_MODEL": str(root / "span"),
    }


@pytest.fixture
def execute(models, tmp_path, monkeypatch):
    """Runs a notebook's cells in a copy of its folder; returns what they have defined."""
    shutil.copytree(FOLDER, tmp_path / "examples/notebooks")
    shutil.copytree(ROOT / "data_gen/sample_text", tmp_path / "data_gen/sample_text")
    monkeypatch.chdir(tmp_path / "examples/notebooks")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    for name, path in models.items():
        monkeypatch.setenv(name, path)

    def run(name: str) -> dict:
        defined: dict = {}
        with matplotlib.rc_context({"backend": "agg"}):
            for number, (kind, source) in enumerate(cells(FOLDER / f"{name}.ipynb")):
                if kind == "code":
                    exec(compile(source, f"{name}, cell {number}", "exec"), defined)
        return defined

    return run


def test_look_inside_bert(execute, capsys):
    found = execute("look_inside_bert")
    assert "3 layers of 2 heads" in capsys.readouterr().out
    assert found["pieces"][4:8] == ["the", "mari", "##gold", "##s"]
    words = [sentence.lower().rstrip(".").split() for sentence in found["sentences"]]
    assert found["places"].tolist() == [1 + row.index("light") for row in words]
    assert found["cosines"].shape == (6, 6)
    np.testing.assert_allclose(np.diagonal(found["cosines"]), 1, rtol=1e-5)
    size = len(found["pieces"])
    assert found["attention"].shape == (3, 2, size, size)
    np.testing.assert_allclose(found["attention"].sum(axis=-1), 1, rtol=1e-5)
    square = found["attention"][found["layer"], found["head"]]
    mean = sum(square[i, i - 1] for i in range(1, size)) / (size - 1)
    assert found["before"].max() == pytest.approx(mean)
    assert [len(guess["pieces"]) for guess in found["guesses"]] == [1, 1, 1]


def test_fine_tune_on_your_csv(execute, models, monkeypatch, capsys):
    monkeypatch.setenv("BERT_TF_MODEL", models["BERT_TF_SQUAD_MODEL"])  # any encoder will do
    found = execute("fine_tune_on_your_csv")
    shown = capsys.readouterr().out
    assert "41 rows to train on, 13 held out; labels: cooking, sport, weather" in shown
    loss = found["history"]["loss"]
    assert len(loss) == len(found["history"]["val_loss"]) == found["EPOCHS"]
    assert np.isfinite(loss).all()
    assert found["confusion"].sum() == 13
    share = np.trace(found["confusion"]) / 13
    assert found["history"]["val_accuracy"][-1] == pytest.approx(share)
    again = found["again"]
    assert again.labels == ("cooking", "sport", "weather")
    logits = again.predict(again.tokenizer(found["sentences"]), verbose=0)
    np.testing.assert_allclose(logits, found["logits"], atol=1e-5)


def test_ask_your_document(execute, capsys):
    found = execute("ask_your_document")
    shown = capsys.readouterr().out
    for answer in found["answers"]:
        place = slice(answer["start"], answer["end"])
        assert found["document"][place] == answer["answer"] != ""
        assert f"»{answer['answer']}«".split()[0] in shown
    for side in ("starts", "ends"):
        assert found[side].shape == (len(found["pieces"]),)
        assert found[side].sum() == pytest.approx(1)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_is_explained_and_has_run(path):
    kinds = [kind for kind, _ in cells(path)]
    codes = [number for number, kind in enumerate(kinds) if kind == "code"]
    assert all(kinds[number - 1] == "markdown" for number in codes)
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(?:work|tmp|root|home|Users)/", text)
    run = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in run] == list(range(1, len(run) + 1))
    outputs = [output for cell in run for output in cell["outputs"]]
    assert "error" not in {output["output_type"] for output in outputs}
    links = re.findall(
        r"\]\(([^)]+)\)", "".join(s for kind, s in cells(path) if kind == "markdown")
    )
    assert all((FOLDER / link).is_file() for link in links)
