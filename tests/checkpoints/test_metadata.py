"""bert_tf.checkpoints.metadata: what lies beside the weights."""

import copy
import dataclasses
import json
import math

import model_files
import pytest
import small

from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError


def test_what_is_beside_the_weights(tmp_path, tensors):
    metadata = ModelMetadata(do_lower_case=False, architecture="BertForMaskedLM", labels=("a", "ä"))
    config = dataclasses.replace(small.CONFIG, hidden_act="gelu_erf", layer_norm_eps=1e-5)
    weights = model_files.weights_of(tensors, metadata=metadata, config=config)
    again = open_weights(save_weights(f"{tmp_path}/a/", weights, to_format="bert_tf"))
    assert (again.metadata, again.config, again.pieces) == (metadata, config, model_files.PIECES)
    (tmp_path / "a/model_facts.json").write_text('{"lower": true}')
    with pytest.raises(InputError, match="unknown keys lower"):
        open_weights(again.path)


@pytest.mark.parametrize("piece", [" ", "a b\n", "a\nb", "\u3000c"])
def test_pieces_that_cannot_stand_on_a_line(tmp_path, tensors, piece):
    """Only tokenizer.json can hold them; vocab.txt would be another vocabulary."""
    weights = model_files.weights_of(tensors, pieces=[*model_files.PIECES[:-1], piece])
    for to_format in ("hugging_face", "bert_tf"):
        with pytest.raises(InputError, match="whose piece 40 is"):
            save_weights(f"{tmp_path}/a", weights, to_format=to_format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong",
    [
        {"null_score_diff_threshold": math.nan}, {"null_score_diff_threshold": [1]},
        {"null_score_diff_threshold": True}, {"null_score_diff_threshold": -math.inf},
        {"labels": "ab"}, {"labels": 5}, {"labels": []}, {"labels": ["a", "b", "a"]},
        {"labels": ["a", ""]}, {"labels": ["a", 1]}, {"labels": {"a": 0}},
        {"do_lower_case": "false"}, {"do_lower_case": 0}, {"pairs": 1},
        {"version_2_with_negative": "no"}, {"architecture": 7}, {"architecture": ""},
        {"task": "classifier"}, {"num_choices": 0}, {"max_seq_length": "12"},
        {"max_seq_length": 12.5}, {"max_seq_length": 128.0}, {"doc_stride": "x"},
        {"doc_stride": 0}, {"doc_stride": 10**12}, {"max_query_length": -1},
    ],
)  # fmt: skip
def test_metadata_of_other_kinds_are_refused(tmp_path, wrong):
    """Each would decide answers, or end in a traceback, much later."""
    path = tmp_path / "model_facts.json"
    path.write_text(json.dumps(wrong))
    with pytest.raises(InputError) as caught:
        ModelMetadata.from_json_file(str(path))
    assert str(path) in caught.value.received
    with pytest.raises(InputError):
        ModelMetadata(**wrong)


def test_metadata_at_the_ends_of_their_ranges(tmp_path):
    path = tmp_path / "model_facts.json"
    values = {"labels": ["b", "a"], "max_query_length": 0, "max_seq_length": 1,
              "doc_stride": 2**31 - 1, "null_score_diff_threshold": -3}  # fmt: skip
    path.write_text(json.dumps(values | {"task": None}))
    metadata = ModelMetadata.from_json_file(str(path))
    assert metadata.known() == values | {"labels": ("b", "a")}


# ---------------------------------------------------------------------------- every field

OTHER_VALUES = [None, False, True, 0, -1, 7, 10**30, 0.5, "", "x", "0", "\ud800", [], [7], ["x"],
                [["x"]], [{"content": "x"}], {}, {"x": 1}, {"0": {}},
                {"content": ["x"]}]  # fmt: skip
OURS = {
    "bert_config.json": small.CONFIG.to_dict(),
    "model_facts.json": {
        "labels": ["a", "b"], "task": "classification", "do_lower_case": True, "doc_stride": 3,
        "null_score_diff_threshold": 0.5, "max_seq_length": 9, "pairs": True,
    },
}  # fmt: skip


def places(value, place=()):
    """Where something stands in nested lists and objects; the first twelve of each."""
    yield place
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in list(items)[:12]:
            yield from places(inner, (*place, key))


def changed(value, place, new):
    if not place:
        return new
    value = inner = copy.deepcopy(value)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = new
    if new == "gone":
        del inner[place[-1]]
    return value


def refusal(folder) -> InputError | None:
    try:
        weights = open_weights(folder)
    except InputError as error:
        return error
    assert ModelMetadata(**weights.metadata.known()) == weights.metadata
    assert all(isinstance(piece, str) for piece in weights.pieces)
    return None


FILES = {"hugging_face": model_files.HUGGING_FACE_FILES, "bert_tf": OURS}


@pytest.mark.parametrize(
    ("to_format", "name"), [(f, n) for f, names in FILES.items() for n in names]
)
def test_every_field_with_values_of_every_kind(tmp_path, tensors, to_format, name):
    """Taken, or refused with the name of the file; there is no other error."""
    folder, files = tmp_path / "model", FILES[to_format]
    save_weights(str(folder), model_files.weights_of(tensors), to_format=to_format)
    for other, content in files.items():
        (folder / other).write_text(json.dumps(content))
    open_weights(folder)
    refused = 0
    for place in places(files[name]):
        for new in [*OTHER_VALUES, *(["gone"] if place else [])]:
            (folder / name).write_text(json.dumps(changed(files[name], place, new)))
            error = refusal(folder)
            assert error is None or str(folder / name) in error.received, (place, new)
            refused += error is not None
    assert refused > 20
