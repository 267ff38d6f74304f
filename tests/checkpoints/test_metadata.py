"""bert_tf.checkpoints.metadata: what lies beside the weights."""

import functools
import json
import math

import model_files
import pytest
import small

import bert_tf
from bert_tf.checkpoints import metadata
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError


@pytest.mark.parametrize("piece", [" ", "a b\n", "a\nb", "\u3000c"])
def test_pieces_that_cannot_stand_on_a_line(tmp_path, tensors, piece):
    """Only tokenizer.json can hold them; vocab.txt would be another vocabulary."""
    weights = model_files.weights_of(tensors, pieces=[*model_files.PIECES[:-1], piece])
    for file_format in ("hugging_face", "bert_tf"):
        with pytest.raises(InputError, match="whose piece 40 is"):
            save_weights(weights, f"{tmp_path}/a", format=file_format)
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
    assert ("the program that registers it" in caught.value.remedy) == ("task" in wrong)
    with pytest.raises(InputError):
        ModelMetadata(**wrong)


def test_metadata_at_the_ends_of_their_ranges(tmp_path):
    path = tmp_path / "model_facts.json"
    values = {"labels": ["b", "a"], "max_query_length": 0, "max_seq_length": 1,
              "doc_stride": 2**31 - 1, "null_score_diff_threshold": -3}  # fmt: skip
    path.write_text(json.dumps(values | {"task": None}))
    metadata = ModelMetadata.from_json_file(str(path))
    assert metadata.known() == values | {"labels": ("b", "a")}


def test_a_vocabulary_of_ones_own_is_not_written_over(tmp_path):
    """Where a run begins; its own of before, with checkpoints, is compared by another rule."""
    ours = bert_tf.FullTokenizer("v", pieces=[*model_files.PIECES])
    write = functools.partial(metadata.write_model_files, str(tmp_path), small.CONFIG)
    write(ours, metadata.ModelMetadata())
    write(ours, metadata.ModelMetadata())  # a run that was killed, and is begun again
    (path := tmp_path / "vocab.txt").write_text("mine\n")
    with pytest.raises(InputError, match=r"vocab\.txt, another vocabulary than the model's"):
        write(ours, metadata.ModelMetadata())
    assert path.read_text() == "mine\n"
