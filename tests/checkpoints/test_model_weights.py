"""The weights of models that are not what `bert_tf.modeling` made: quantized, or with more."""

import keras
import model_files
import pytest
import small

from bert_tf import BertModel, FullTokenizer, make_model
from bert_tf.checkpoints.companions import tokenizer_of
from bert_tf.checkpoints.loading import load_checkpoint, open_weights, weights_of
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError


def token_model() -> keras.Model:
    return make_model("token_labels", small.CONFIG, num_classes=model_files.NUM_CLASSES)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_a_quantized_model_is_refused(tmp_path):
    model = token_model()
    model.quantize("int8")
    model.save(str(tmp_path / "model.keras"))
    count = f"{6 * small.CONFIG.num_hidden_layers + 1} layers are quantized"
    with pytest.raises(InputError, match=count):
        save_weights(f"{tmp_path}/a", model, to_format="bert_tf")
    with pytest.raises(InputError, match=count):
        open_weights(f"{tmp_path}/model.keras")
    tensors = model_files.tensors_of("classifier")
    with pytest.raises(InputError, match=count):
        load_checkpoint(model, model_files.weights_of(tensors))
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]


def test_a_model_with_its_tokenizer_and_labels(tmp_path):
    """Every format has them."""
    model = token_model()
    model.tokenizer = FullTokenizer("v", pieces=model_files.PIECES, never_split=["[MASK]", "w7"])
    model.labels = ["O", "B-PER", "I-PER"]
    model.save(str(tmp_path / "model.keras"))
    paths = [f"{tmp_path}/model.keras"]
    for name in ("tf1", "bert_tf", "hugging_face"):
        paths.append(save_weights(f"{tmp_path}/{name}", model, to_format=name))
    for path in paths:
        weights = open_weights(path)
        assert (weights.pieces, weights.config) == (model_files.PIECES, small.CONFIG)
        assert weights.metadata.never_split == ("[MASK]", "w7")
        assert weights.metadata.do_lower_case is True
        assert weights.metadata.architecture == "BertForTokenClassification"
        if "keras" not in path:
            assert weights.metadata.labels == ("O", "B-PER", "I-PER")
        tokenizer = tokenizer_of(weights, weights.config)
        assert tokenizer.tokenize("xw7[MASK]") == ["[UNK]", "w7", "[MASK]"]


def test_what_a_model_carries_comes_before_what_is_beside_it():
    """A tokenizer that keeps nothing whole, too; and without anything nothing is known."""
    model = token_model()
    model.labels, model.metadata = ("O", "B-PER", "I-PER"), {"task": "token_labels"}
    beside = ModelMetadata(labels=("x", "y", "z"), num_choices=2, never_split=("w7",))
    metadata = weights_of(model, metadata=beside).metadata
    assert metadata.labels == ("O", "B-PER", "I-PER")
    assert (metadata.task, metadata.num_choices) == ("token_labels", 2)
    assert metadata.never_split == ("w7",)
    model.tokenizer = FullTokenizer("v", pieces=model_files.PIECES)
    assert weights_of(model, metadata=beside).metadata.never_split is None
    weights = weights_of(BertModel(small.CONFIG))
    assert (weights.pieces, weights.vocab_file, weights.metadata.known()) == (None, None, {})


def test_a_model_of_others():
    inputs = keras.Input((3,))
    other = keras.Model(inputs, keras.layers.Dense(2, name="stranger")(inputs))
    with pytest.raises(InputError, match=r"a model of the layers .*stranger"):
        weights_of(other)
