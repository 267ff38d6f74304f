"""bert_tf.checkpoints.metadata: what lies beside the weights."""

import dataclasses

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
