"""What accompanies an export: its card, its metadata, the requests that TF Serving begins with."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from served_models import LABELS, THRESHOLD, TOKENIZER

from bert_tf.serving import model_card
from bert_tf.serving.export import WARM_UP_FILE


def test_what_belongs_to_a_model_is_beside_it(exports):
    folder = pathlib.Path(exports["no_answer"])
    pieces = (folder / "assets/vocab.txt").read_text().splitlines()
    assert pieces == list(TOKENIZER.inv_vocab.values())
    assert [path.name for path in folder.parent.iterdir()] == ["1"]
    metadata = json.loads((folder / "export.json").read_text())
    assert metadata["task"] == "question_answering"
    assert metadata["options"]["null_score_diff_threshold"] == THRESHOLD
    assert metadata["signatures"]["ids"]["input_ids"] == {"dtype": "int32", "shape": [None, None]}
    card = (folder / "README.md").read_text()
    for part in ("python train.py", "null_odds", f"{THRESHOLD}", f"tensorflow {tf.__version__}"):
        assert part in card


def test_metrics_are_those_of_the_checkpoint(tmp_path):
    results = tmp_path / "eval_results.txt"
    results.write_text("eval_accuracy = 0.75\nglobal_step = 7\n")
    wanted = {"eval_accuracy": "0.75", "global_step": "7"}
    for name in ("best", "1"):
        (tmp_path / name).mkdir()
    for path, metrics in (
        ("model.ckpt-7", wanted),
        ("model.ckpt-8", {}),
        ("bert_model.ckpt", wanted),  # its step is not known
        ("best/model.ckpt-7", wanted),
        ("best/model.ckpt-5", {}),
        ("1/model.ckpt-7", {}),
    ):
        assert model_card.metrics_of(f"{tmp_path}/{path}") == metrics, path
    results.write_text("eval_accuracy = 0.75\n")
    assert model_card.metrics_of(f"{tmp_path}/model.ckpt-8") == {"eval_accuracy": "0.75"}


def test_warm_up_requests_are_those_that_tf_serving_reads(exports):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    for path in exports.values():
        metadata = json.loads(pathlib.Path(path, "export.json").read_text())
        records = list(tf.data.TFRecordDataset(f"{path}/{WARM_UP_FILE}").as_numpy_iterator())
        assert len(records) > 3
        for record in records:
            request = logs.PredictionLog.FromString(record).predict_log.request
            spec = request.model_spec
            assert (spec.name, spec.signature_name) == ("export", "serving_default")
            types = {name: tf.make_ndarray(proto).dtype for name, proto in request.inputs.items()}
            assert types == dict.fromkeys(metadata["texts"], np.dtype(object))


HOSTILE = (
    "<script>alert(1)</script>",
    "a\n\n# A heading\n\n<b>",
    "[here](javascript:alert(1)) | `code` ``",
    "---\ntitle: x\n---\x1b[31m\u202e",
)


def test_labels_and_scores_are_text_and_nothing_else(exports):
    """The card as HTML, by the rules of CommonMark."""
    markdown_it = pytest.importorskip("markdown_it", reason="needs markdown-it-py")
    path = pathlib.Path(exports["pairs"])
    metadata = json.loads((path / "export.json").read_text())
    metadata["metrics"] = {"<img src=x onerror=y>": "<i>[a](b)"}
    metadata["commands"] = ["python train.py '\n# heading\n<script>'"]
    for labels in (HOSTILE[:3], HOSTILE[1:], LABELS):
        metadata["options"]["labels"] = list(labels)
        card = model_card.model_card(metadata, "A title.")
        html = markdown_it.MarkdownIt("commonmark").enable("table").render(card)
        for tag in ("<script", "<b>", "<img", "<i>", "<a ", "<hr", "<table", "\x1b", "\u202e"):
            assert tag not in html
        headings = [line for line in card.splitlines() if line.startswith("#")]
        assert html.count("<h") == len(headings) == 8
        assert (html.count("&lt;script&gt;") == 2) == (HOSTILE[0] in labels)
    assert "labels: `bad`, `so so`, `good: très`" in card


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("/usr/bin/bert-tf export --init_checkpoint=/home/ann/mrpc/ --export_dir ../out/x",
         "bert-tf export --init_checkpoint=mrpc --export_dir x"),
        ("python run_squad.py --train_file=a/b.json,gs://ann/c.json --learning_rate=3e-5 --do_eval",
         "python run_squad.py --train_file=b.json,c.json --learning_rate=3e-5 --do_eval"),
        ("python run_classifier.py --freeze=bert/embeddings,bert/encoder/ --labels=a/b,c",
         "python run_classifier.py --freeze=bert/embeddings,bert/encoder/ --labels=a/b,c"),
        ("x --tpu=grpc://10.0.0.2:8470 --gcp_project secret --tpu_name=ann --nodo_lower_case",
         "x --nodo_lower_case"),
        ("x '--data_dir=/a b/it'\"'\"'s' --label_separator=/", "x '--data_dir=it'\"'\"'s' "
         "--label_separator=/"),
        ("x --data_dir='/home/ann", "x --data_dir=ann"),
    ],
)  # fmt: skip
def test_commands_name_no_places(typed, shown):
    assert model_card.without_places(typed) == shown


def test_an_export_does_not_say_where_it_was_made(exports):
    for path in map(pathlib.Path, exports.values()):
        for name in ("README.md", "export.json", "saved_model.pb"):
            content = (path / name).read_bytes()
            for secret in (str(path.parents[2]), os.uname().nodename):
                assert secret.encode() not in content, (name, secret)
        metadata = json.loads((path / "export.json").read_text())
        assert metadata["source"] == "model.ckpt"
        assert metadata["commands"] == ["python train.py --init_checkpoint=model"]
