"""The page: whom the server answers, and what it says of answers, attention and the model."""

import base64
import functools
import json
import pathlib
import random
import re

import numpy as np
import pytest

from bert_tf.checkpoints.loading import open_weights
from bert_tf.errors import InputError
from bert_tf.http import page as page_module
from bert_tf.http.page import Page
from bert_tf.serving.export import arrays_of
from bert_tf.serving.inference import InferenceModel, encode
from bert_tf.serving.predictor import Predictor

PAGE = pathlib.Path(page_module.__file__).parent


@pytest.fixture(scope="module")
def models():
    """The helper, which starts TensorFlow, after devices are configured."""
    import served_models

    return served_models


@pytest.fixture(scope="module")
def shown(models, exported, tmp_path_factory):
    """Gives the page of a kind of model, and its weights; that of questions is of an export."""

    @functools.cache
    def get(kind: str):
        if kind == "no_answer":
            folder = exported(kind)
            return Page(Predictor(folder / "export").model), open_weights(folder / "model")
        weights = models.write_folder(kind, tmp_path_factory.mktemp(kind) / "model")
        return Page(models.open_kind(weights, kind)), weights

    return get


def answer(page: Page, texts: dict) -> dict:
    """What the page is told of texts."""
    row = page.row({"texts": texts})
    return page.answer(row, page._model.run(arrays_of([row])))


# ---------------------------------------------------------------------------- what is shown


def test_the_window_of_the_answer_is_shown_first(models, shown):
    from bert_tf.squad.windows import doc_spans, max_context_window

    choose, parts, (page, _) = random.Random(2), set(), shown("no_answer")
    for _ in range(8):
        words = choose.choices(["Ruprecht", "founded", "it", "in", "1386", "the", "café"], k=15)
        texts = {"question": "who", "context": " ".join(words)}
        told = answer(page, texts)
        ids, starts, _ = models.TOKENIZER.tokenize_with_offsets([texts["context"]])
        sizes = models.WINDOWS
        spans = doc_spans(len(ids[0]), room=sizes.room(1), doc_stride=sizes.doc_stride)
        assert told["parts"] == [f"window {number}" for number in range(1, len(spans) + 1)]
        if not told["answer"]["has_answer"]:
            assert told["part"] == 0
            continue
        piece = int(np.searchsorted(starts[0], told["answer"]["start"], side="right")) - 1
        assert told["part"] == max_context_window(spans, len(ids[0]))[piece]
        parts.add(told["part"])
    assert len(parts) > 1


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("classification", [""]),
        ("pairs", [""]),
        ("fill_mask", [""]),
        ("multiple_choice", ["ending 1", "ending 2", "ending 3"]),
        ("token_labels", ["window 1", "window 2", "window 3"]),
    ],
)
def test_the_sequences_of_every_task(models, shown, kind, parts):
    """Those that the model is given, without padding; of empty texts there is one."""
    page, _ = shown(kind)
    told = answer(page, models.ROWS[kind])
    assert told["parts"][: len(parts)] == parts
    assert told["part"] == told["answer"].get("choice", 0)
    assert (len(told["parts"]) > 1) == (len(parts) > 1)
    request = {"texts": models.ROWS[kind], "part": len(told["parts"]) - 1, "layer": 0}
    found = page.attention(request)
    assert (found["pieces"][0], found["pieces"][-1]) == ("[CLS]", "[SEP]")
    assert len(found["pieces"]) <= models.LENGTH
    texts = {name: [""] if name == "endings" else "" for name in models.ROWS[kind]}
    found = page.attention({"texts": texts, "part": 0, "layer": 0})
    assert found["pieces"] == ["[CLS]", "[SEP]"]


def test_an_export_shows_its_attention(models, shown):
    page, weights = shown("no_answer")
    texts = models.ROWS["question_answering"]
    told = page.attention({"texts": texts, "part": 1, "layer": 0})
    size = len(told["ids"])
    assert told["pieces"] == [models.TOKENIZER.inv_vocab[i] for i in told["ids"]]
    found = np.frombuffer(base64.b64decode(told["attention"]), np.uint8)
    found = found.reshape(models.CONFIG.num_attention_heads, size, size) / 255
    np.testing.assert_allclose(found.sum(axis=2), 1, atol=size / 255)
    # The same of the checkpoint, whose variables are not read back from an export.
    model = models.Reference("no_answer", weights).model
    own = InferenceModel(model, models.CONFIG, ("start_logits",))
    features = models.features_of(told["ids"], told["segments"])
    _, (wanted,) = encode(own, models.CONFIG, features)
    np.testing.assert_allclose(found, wanted[0], atol=0.5 / 255 + 1e-6)
    described = page.describe()
    assert described["task"] == "question_answering"
    assert [text["name"] for text in described["texts"]] == ["question", "context"]
    assert described["config"]["num_hidden_layers"] == 1
    answered = answer(page, texts)
    assert {"answer", "has_answer", "nbest_answers"} <= set(answered["answer"])
    assert json.loads(json.dumps([described, answered, told])) == [described, answered, told]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": None}, "a request without texts"),
        ({"texts": {"question": "a"}}, "without context"),
        ({"texts": {"question": "a", "context": "b" * 200_001}}, "200,002 bytes"),
        ({"part": 99}, "part 99"),
        ({"part": True}, "part True"),
        ({"layer": 1}, "layer 1"),
        ({"layer": "0"}, "layer '0'"),
    ],
)
def test_what_is_no_request_is_refused(models, shown, changes, message):
    request = {"texts": models.ROWS["question_answering"], "part": 0, "layer": 0} | changes
    with pytest.raises(InputError, match=message):
        shown("no_answer")[0].attention(request)


def test_too_many_endings_are_refused(models, shown, monkeypatch):
    monkeypatch.setattr(page_module, "MOST_ENDINGS", 2)
    with pytest.raises(InputError, match="3 endings"):
        shown("multiple_choice")[0].row({"texts": models.ROWS["multiple_choice"]})


# ---------------------------------------------------------------------------- its files


def test_the_page_asks_nobody_else():
    for name in ("page.html", "page.css", "page.js"):
        text = (PAGE / name).read_text()
        assert not re.search(r"https?://|@import|url\(", text), name
        assert "innerHTML" not in text
        assert not re.search(r"(local|session)Storage|indexedDB|cookie", text), name
    page = (PAGE / "page.html").read_text()
    assert set(re.findall(r'(?:src|href)="([^"]*)"', page)) == {"data:,", "/page.css", "/page.js"}
    assert not re.search(r"<script(?![^>]*src)|style=| on\w+=", page)  # the policy forbids them
    used = re.findall(r'\$\("([\w-]+)"\)', (PAGE / "page.js").read_text())
    assert set(used) <= set(re.findall(r'id="([\w-]+)"', page))


def test_every_kind_of_task_has_a_view(models):
    page = (PAGE / "page.js").read_text()
    views = page[page.index("const VIEWS") : page.index("const earlier")]
    titles = page[page.index("const TITLES") : page.index("const TOWER")]
    for kind in models.KINDS:
        name = {"pairs": "classification", "no_answer": "question_answering"}.get(kind, kind)
        assert f"  {name}(answer" in views
        assert f" {name}:" in titles
