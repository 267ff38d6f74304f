"""Readers of models: configurations, vocabularies, metadata, and weights of every format."""

import contextlib
import dataclasses
import functools
import json
import math
import pathlib
import shutil
import unittest.mock

import model_files
import numpy as np
import served_models
import small
import tensorflow as tf
from readers import Reader

from bert_tf import make_model
from bert_tf.checkpoints import hugging_face, tf1
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import ModelMetadata, Weights
from bert_tf.checkpoints.tf1 import changed_settings, check_finished_run, is_finished
from bert_tf.config import BertConfig
from bert_tf.serving import predictor, rows
from bert_tf.tasks import trials
from bert_tf.tokenization.wordpiece import FullTokenizer
from bert_tf.training import best

CONFIG = dataclasses.replace(small.CONFIG, num_hidden_layers=1)
VOCABULARY = "".join(f"{piece}\n" for piece in model_files.PIECES)
METADATA = ModelMetadata(
    never_split=("w3", "[MASK]"), added_words=("w4",), do_lower_case=True,
    architecture="BertForSequenceClassification",
    labels=("bad", "so so", "good: très"), null_score_diff_threshold=-1.5, task="classification",
    pairs=False, num_choices=3, max_seq_length=11, doc_stride=5, max_query_length=4,
    version_2_with_negative=True,
)  # fmt: skip


def bert_config(folder: pathlib.Path) -> Reader:
    """bert_config.json."""
    (folder / "bert_config.json").write_text(CONFIG.to_json_string())

    def read(folder: pathlib.Path) -> None:
        config = BertConfig.from_json_file(folder / "bert_config.json")
        for field in dataclasses.fields(config):
            assert isinstance(getattr(config, field.name), field.type | int), field.name
        assert config.hidden_size % config.num_attention_heads == 0
        assert BertConfig.from_dict(json.loads(config.to_json_string())) == config

    return Reader(folder, {"bert_config.json": "json"}, read)


def model_facts(folder: pathlib.Path) -> Reader:
    """model_facts.json."""
    path = folder / "model_facts.json"
    path.write_text(METADATA.to_json_string(), encoding="utf-8")

    def read(_: pathlib.Path) -> None:
        metadata = ModelMetadata.from_json_file(str(path))
        assert metadata.labels is None or all(isinstance(label, str) for label in metadata.labels)
        threshold = metadata.null_score_diff_threshold
        assert threshold is None or math.isfinite(threshold)
        assert ModelMetadata(**_as_declared(metadata.to_json_string())) == metadata

    return Reader(folder, {path.name: "json"}, read)


def _as_declared(text: str) -> dict:
    values = json.loads(text)
    return {n: tuple(value) if isinstance(value, list) else value for n, value in values.items()}


def vocabulary(folder: pathlib.Path) -> Reader:
    """vocab.txt."""
    (folder / "vocab.txt").write_text(VOCABULARY)

    def read(folder: pathlib.Path) -> None:
        tokenizer = FullTokenizer(folder / "vocab.txt")
        assert len(tokenizer.inv_vocab) == tokenizer.vocab_size
        assert max(tokenizer.vocab.values()) < tokenizer.vocab_size
        assert tokenizer.convert_ids_to_tokens(tokenizer.vocab.values()) == [*tokenizer.vocab]

    return Reader(folder, {"vocab.txt": "lines"}, read)


# ---------------------------------------------------------------------------- weights


def read_all(path: str) -> Weights:
    """Opens weights and reads every tensor."""
    weights = open_weights(path)
    for name, shape in weights.shapes.items():
        value = weights.read(name)
        assert tuple(np.shape(value)) == tuple(shape), name
    assert weights.config is None or isinstance(weights.config, BertConfig)
    assert weights.pieces is None or all(isinstance(piece, str) for piece in weights.pieces)
    return weights


def _hugging_face(damaged: dict[str, str], folder: pathlib.Path) -> Reader:
    """A folder of transformers; damaged: as in `Reader`."""
    tensors = model_files.state_dict(model_files.tensors_of("classifier"))
    files = {"vocab.txt": VOCABULARY, **model_files.HUGGING_FACE_FILES}
    model_files.write_hugging_face(folder, tensors, files=files)
    return Reader(folder, damaged, lambda folder: read_all(str(folder)))


HUGGING_FACE = {  # name of the reader: its `damaged`
    "hugging_face_config": {"config.json": "json", "sentence_bert_config.json": "json"},
    "tokenizers": {"tokenizer.json": "json", "tokenizer_config.json": "json",
                   "special_tokens_map.json": "json", "vocab.txt": "lines"},
    "safetensors": {"model.safetensors": "safetensors"},
}  # fmt: skip


def safetensors_index(folder: pathlib.Path) -> Reader:
    """model.safetensors.index.json and two parts."""
    _hugging_face({}, folder)
    tensors = hugging_face.open_hugging_face(str(folder))
    shutil.move(folder / "model.safetensors", folder / "a.safetensors")
    shutil.copy(folder / "a.safetensors", folder / "b.safetensors")
    names = [hugging_face.hugging_face_name(name) for name in tensors.shapes]
    parts = {name: ("a.safetensors", "b.safetensors")[i % 2] for i, name in enumerate(names)}
    index = {"metadata": {"total_size": 9}, "weight_map": parts}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return Reader(
        folder, {"model.safetensors.index.json": "json"}, lambda folder: read_all(str(folder))
    )


def keras_files(folder: pathlib.Path) -> Reader:
    """model.keras."""
    model = make_model("classification", CONFIG, num_classes=model_files.NUM_CLASSES)
    model.save(str(folder / "model.keras"))
    return Reader(
        folder, {"model.keras": "archive"}, lambda folder: read_all(str(folder / "model.keras"))
    )


def tf1_checkpoint(folder: pathlib.Path) -> Reader:
    """A TF1 checkpoint: its index and data, and the file "checkpoint"."""
    prefix = model_files.write_tf1(folder, model_files.tensors_of("classifier"), config=CONFIG)
    (folder / "checkpoint").write_text('model_checkpoint_path: "bert_model.ckpt"\n')
    assert prefix == str(folder / "bert_model.ckpt")
    damaged = {
        "bert_model.ckpt.index": "tensor_index",
        f"bert_model.ckpt{tf1.DATA}": "bytes",
        "checkpoint": "lines",
    }
    return Reader(folder, damaged, lambda folder: read_all(str(folder)))


RUN = {
    "task_name": "mrpc", "learning_rate": 5e-5, "seed": 12345, "num_train_steps": 90, "xla": True,
    "labels": ["bad", "good"], "init_checkpoint": "/models/uncased", "dev_data": None,
}  # fmt: skip


def run_settings(folder: pathlib.Path) -> Reader:
    """The settings of a run in its checkpoint, trial.json and evaluations.json."""
    (folder / "settings.json").write_text(json.dumps(RUN))
    trial = {"facts": RUN, "results": {"eval_accuracy": 0.75, "eval_loss": 0.5, "global_step": 90}}
    (folder / "trial.json").write_text(json.dumps(trial))
    (folder / "evaluations.json").write_text(json.dumps({"30": 0.5, "60": 0.75}))
    prefix = str(folder / "model.ckpt-90")

    def read(folder: pathlib.Path) -> None:
        settings = (folder / "settings.json").read_bytes()
        tensors = {tf1.RUN_SETTINGS: settings, tf1.GLOBAL_STEP: np.int64(90)}
        tf1.write_checkpoint(prefix, tensors, temporary=f"{prefix}.new")
        settings = tf1.CheckpointReader(prefix).run_settings()
        changed_settings(settings, RUN)
        is_finished(prefix)
        with contextlib.suppress(KeyError):  # a setting that the run did not have
            check_finished_run(prefix, RUN)
        trial = trials.read_trial(str(folder / "trial.json"))
        changed_settings(trial.facts, RUN)
        assert all(math.isfinite(value) for value in trial.results.values())
        for step, value in best.read_evaluations(str(folder / "evaluations.json")).items():
            assert isinstance(step, int)
            assert not math.isinf(value)  # null is NaN: an undefined score

    names = ("settings.json", "trial.json", "evaluations.json")
    return Reader(folder, dict.fromkeys(names, "json"), read)


# ---------------------------------------------------------------------------- exports


def export(folder: pathlib.Path) -> Reader:
    """export.json and the vocabulary of an export."""
    made = pathlib.Path(served_models.export("pairs", folder / "made"))
    load = functools.cache(tf.saved_model.load)  # once for all attempts: it takes long

    def read(_: pathlib.Path) -> None:
        with unittest.mock.patch.object(tf.saved_model, "load", load):
            model = predictor.open_export(str(made))
        assert list(rows.text_inputs(model.metadata)) == ["text_a", "text_b"]
        assert isinstance(model.config, BertConfig)

    return Reader(made, {"assets/vocab.txt": "lines", "export.json": "json"}, read)


MAKERS = {
    "bert_config": bert_config, "model_facts": model_facts, "vocabulary": vocabulary,
    **{name: functools.partial(_hugging_face, files) for name, files in HUGGING_FACE.items()},
    "safetensors_index": safetensors_index, "keras_files": keras_files,
    "tf1_checkpoint": tf1_checkpoint, "run_settings": run_settings, "export": export,
}  # fmt: skip
