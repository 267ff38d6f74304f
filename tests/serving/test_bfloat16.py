"""Answers in bfloat16: exports, folders with weights, and what is written of them."""

import json
import pathlib

import numpy as np
import pytest
import served_models
from saved_models import batch_of, read_saved_model, run_in_c
from served_models import TOKENIZER, write_folder

from bert_tf import Predictor, processor
from bert_tf.errors import InputError
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.options import LITERT, ONNX, ServingOptions

KINDS = ("classification", "fill_mask", "question_answering", "token_labels", "embeddings")
CLOSE = 0.1  # of numbers up to some 3


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, tuple[pathlib.Path, pathlib.Path]]:
    """By kind: a folder with weights, and its export in bfloat16."""
    found = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        weights = write_folder(kind, folder / "model")
        options = ServingOptions(
            **served_models.KINDS[kind][-1],
            max_seq_length=served_models.LENGTH,
            precision="bfloat16",
        )
        arguments = weights, weights.config, TOKENIZER, str(folder / "export")
        found[kind] = folder / "model", pathlib.Path(export_checkpoint(*arguments, options=options))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_one_model_through_every_door(folders, kind, tmp_path):
    """In C without this package, by a Predictor of the export and one of the weights: the same."""
    folder, export = folders[kind]
    row = served_models.ROWS.get(kind, served_models.ROWS["classification"])
    options = served_models.KINDS[kind][-1] | {"max_seq_length": served_models.LENGTH}
    (in_c,) = run_in_c([(str(export), "serving_default", batch_of([row]))], tmp_path)
    text = row["text"] if "text" in row else tuple(row.values())
    (answer,) = Predictor(export).predict([text])
    (of_weights,) = Predictor(folder, **options, precision="bfloat16").predict([text])
    (exact,) = Predictor(folder, **options).predict([text])
    assert answer == of_weights
    assert answer.keys() == exact.keys()
    for name, value in answer.items():
        first = np.ravel(in_c[name])[: np.size(value)]
        if first.dtype.kind == "f" and np.ndim(value) <= 1:
            np.testing.assert_allclose(first, np.ravel(value), atol=1e-6)
            if np.shape(value) == np.shape(exact[name]):
                np.testing.assert_allclose(np.ravel(value), np.ravel(exact[name]), atol=CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_what_is_written_of_them(folders, kind):
    _, export = folders[kind]
    metadata = json.loads((export / "export.json").read_text())
    assert metadata["options"]["precision"] == "bfloat16"
    assert 0 < metadata["greatest_difference"] < CLOSE
    assert 0 <= metadata["other_whole_numbers"] <= 1
    card = " ".join((export / "README.md").read_text().split())
    assert f"differ by at most {metadata['greatest_difference']:.1e}, and" in card
    nodes = read_saved_model(str(export)).meta_graphs[0].object_graph_def.nodes
    kinds = {
        node.variable.dtype: len([n for n in nodes if n.variable.dtype == node.variable.dtype])
        for node in nodes
        if node.WhichOneof("kind") == "variable"
    }
    bfloat16, float32 = 14, 1  # in DataType
    # Of a block eight, and three tables; norms, and perhaps a head.
    assert kinds[bfloat16] == 8 * served_models.CONFIG.num_hidden_layers + 3
    assert kinds[float32] >= 2 + 4 * served_models.CONFIG.num_hidden_layers


@pytest.mark.parametrize("file_format", [LITERT, ONNX])
def test_only_a_saved_model_has_it(folders, file_format, tmp_path):
    folder, _ = folders["classification"]
    from bert_tf.checkpoints.loading import open_weights

    weights = open_weights(str(folder))
    options = ServingOptions(precision="bfloat16")
    arguments = weights, weights.config, TOKENIZER, str(tmp_path / "export")
    with pytest.raises(InputError, match=f"--precision=bfloat16 with --format={file_format}"):
        export_checkpoint(*arguments, options=options, file_format=file_format)
    assert not (tmp_path / "export").exists()


def test_it_says_where_it_is_slower(folders, monkeypatch, caplog):
    folder, export = folders["classification"]
    told = "a model in bfloat16 answers more slowly than one in float32."
    monkeypatch.setattr(processor, "bfloat16", lambda: "AVX512_BF16")
    Predictor(export)
    Predictor(folder, precision="bfloat16")
    assert told not in caplog.text
    monkeypatch.setattr(processor, "bfloat16", lambda: "")
    Predictor(folder)
    assert told not in caplog.text
    Predictor(export)
    Predictor(folder, precision="bfloat16")
    assert caplog.text.count(told) == 2


def test_what_an_export_was_made_with_is_not_chosen_again(folders):
    _, export = folders["classification"]
    with pytest.raises(InputError, match="precision for the export"):
        Predictor(export, precision="float32")
