"""What the page is told: answers, attention, the model."""

import base64
import json
import random

import numpy as np
import pytest
import served_models
from served_models import (
    CONFIG,
    ROWS,
    TOKENIZER,
    WINDOWS,
    features_of,
    make_model,
    open_kind,
)

from bert_tf.checkpoints.tf1 import checkpoint_name
from bert_tf.errors import InputError
from bert_tf.playground import api
from bert_tf.playground.api import Playground
from bert_tf.serving import inference
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.predictor import Predictor
from bert_tf.squad.windows import doc_spans, max_context_window


@pytest.fixture(scope="module")
def exported(folders, tmp_path_factory) -> Playground:
    """The page of an export of a model for questions."""
    weights = folders("no_answer")
    folder = tmp_path_factory.mktemp("export")
    export_checkpoint(
        weights,
        weights.config,
        TOKENIZER,
        str(folder),
        options=served_models.options("no_answer"),
    )
    return Playground(Predictor(folder))


def test_the_window_of_the_answer_is_shown_first(exported):
    choose = random.Random(2)
    shown = set()
    for _ in range(8):
        words = choose.choices(["Ruprecht", "founded", "it", "in", "1386", "the", "café"], k=15)
        texts = {"question": "who", "context": " ".join(words)}
        told = exported.answer({"texts": texts})
        answer = told["answer"]
        ids, starts, _ = TOKENIZER.tokenize_with_offsets([texts["context"]])
        spans = doc_spans(len(ids[0]), room=WINDOWS.room(1), doc_stride=WINDOWS.doc_stride)
        assert len(told["parts"]) == len(spans)
        if not answer["has_answer"]:
            assert told["part"] == 0
            continue
        piece = int(np.searchsorted(starts[0], answer["start"], side="right")) - 1
        assert told["part"] == max_context_window(spans, len(ids[0]))[piece]
        shown.add(told["part"])
    assert len(shown) > 1


def test_an_export_shows_its_attention(exported, folders):
    texts = ROWS["question_answering"]
    told = exported.attention({"texts": texts, "part": 1, "layer": 0})
    size = len(told["ids"])
    assert told["pieces"] == [TOKENIZER.inv_vocab[i] for i in told["ids"]]
    found = np.frombuffer(base64.b64decode(told["attention"]), np.uint8)
    found = found.reshape(CONFIG.num_attention_heads, size, size) / 255
    np.testing.assert_allclose(found.sum(axis=2), 1, atol=size / 255)
    # The same of the checkpoint, whose variables are not read back from an export.
    model = make_model("no_answer")
    for variable in model.trainable_variables:
        name = checkpoint_name(variable)
        variable.assign(folders("no_answer").read(name))
    own = inference.InferenceModel(model, CONFIG, ("start_logits",))
    _, (wanted,) = inference.encode(own, CONFIG, features_of(told["ids"], told["segments"]))
    np.testing.assert_allclose(found, wanted[0], atol=0.5 / 255 + 1e-6)


def test_the_model_is_described(exported):
    told = exported.describe()
    assert told["task"] == "question_answering"
    assert [text["name"] for text in told["texts"]] == ["question", "context"]
    assert (told["layers"], told["heads"]) == (1, 2)
    assert json.loads(json.dumps(told)) == told


def test_an_answer_says_what_it_is(exported):
    told = exported.answer({"texts": ROWS["question_answering"]})
    assert {"answer", "has_answer", "nbest_answers"} <= set(told["answer"])
    assert told["milliseconds"] > 0
    assert len(told["parts"]) > 3
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": None}, "a request without texts"),
        ({"texts": {"question": "a"}}, "without context"),
        ({"texts": {"question": "a", "context": 5}}, "context: 5"),
        ({"texts": {"question": "a", "context": "b" * 200_001}}, "200,002 bytes"),
        ({"part": 99}, "part 99"),
        ({"part": None}, "part None"),
        ({"part": True}, "part True"),
        ({"layer": 1}, "layer 1"),
        ({"layer": -1}, "layer -1"),
        ({"layer": "0"}, "layer '0'"),
    ],
)
def test_what_is_no_request_is_refused(exported, changes, message):
    request = {"texts": ROWS["question_answering"], "part": 0, "layer": 0} | changes
    with pytest.raises(InputError, match=message):
        exported.attention(request)


def test_too_many_endings_are_refused(folders, monkeypatch):
    monkeypatch.setattr(api, "MOST_ENDINGS", 2)
    playground = Playground(Predictor(open_kind(folders("multiple_choice"), "multiple_choice")))
    with pytest.raises(InputError, match="3 endings"):
        playground.answer({"texts": ROWS["multiple_choice"]})
