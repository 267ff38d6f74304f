"""What accompanies an export: its card, its metadata, the requests that TF Serving begins with."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from served_models import THRESHOLD, TOKENIZER

from bert_tf.serving import model_card
from bert_tf.serving.model_card import WARM_UP_FILE


def test_what_belongs_to_a_model_is_beside_it(exports):
    folder = pathlib.Path(exports["no_answer"])
    pieces = (folder / "assets/vocab.txt").read_text().splitlines()
    assert pieces == list(TOKENIZER.inv_vocab.values())
    assert [path.name for path in folder.parent.iterdir()] == ["1"]
    metadata = json.loads((folder / "export.json").read_text())
    assert metadata["task"] == "question_answering"
    assert metadata["options"]["null_score_diff_threshold"] == THRESHOLD
    assert metadata["signatures"]["ids"]["input_ids"] == {"dtype": "int32", "shape": [None, None]}
    metrics = {"null_score_diff_threshold": "0.0"}
    assert "decides by" in model_card.model_card(metadata | {"metrics": metrics}, "")
    every = metadata["options"] | {"version_2_with_negative": False}
    assert "decides by" not in model_card.model_card(
        metadata | {"metrics": metrics, "options": every}, ""
    )
    card = (folder / "README.md").read_text()
    for part in ("python train.py", "null_odds", f"{THRESHOLD}", "tensorflow 2.21"):
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
    prediction_log_pb2 = pytest.importorskip(
        "tensorflow_serving.apis.prediction_log_pb2",
        reason="tensorflow-serving-api is not installed",
    )
    for path in exports.values():
        metadata = json.loads(pathlib.Path(path, "export.json").read_text())
        names = metadata["signatures"]["serving_default"]
        records = list(
            tf.data.TFRecordDataset(f"{path}/assets.extra/{WARM_UP_FILE}").as_numpy_iterator()
        )
        assert len(records) > 3
        for record in records:
            log = prediction_log_pb2.PredictionLog.FromString(record)
            assert log.WhichOneof("log_type") == "predict_log"
            request = log.predict_log.request
            assert request.model_spec.name == "export"
            assert request.model_spec.signature_name == "serving_default"
            values = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
            assert {name: value.dtype for name, value in values.items()} == dict.fromkeys(
                names, np.dtype(object)
            )
