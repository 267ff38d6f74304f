"""Layers and the encoder on other backends of Keras: TensorFlow's numbers, without loading it."""

import os
import subprocess
import sys

import numpy as np
import pytest
import small

PROGRAM = """
import sys
import numpy as np
import bert_tf
import keras
from bert_tf import heads

config = bert_tf.BertConfig.from_json_file("config.json")
encoder = bert_tf.BertModel(config)
positions = keras.Input((None,), dtype="int32", name="masked_lm_positions")
head = heads.MaskedLmHead.from_bert_config(config, embeddings=encoder.embeddings)
words = head(encoder.output["sequence_output"], positions)
is_next = heads.NextSentenceHead.from_bert_config(config)(encoder.output["pooled_output"])
inputs = encoder.input | {"masked_lm_positions": positions}
model = bert_tf.BertModel(inputs, encoder.output | {"words": words, "is_next": is_next})
arrays = np.load("weights.npz") if len(sys.argv) > 1 else None
if arrays:
    model.set_weights([arrays[name] for name in arrays.files])
else:
    np.savez("weights.npz", *model.get_weights())
outputs = model(dict(np.load("inputs.npz")))
values = {name: keras.ops.convert_to_numpy(value) for name, value in outputs.items()}
np.savez(f"{keras.backend.backend()}.npz", **values)
assert keras.backend.backend() == "tensorflow" or "tensorflow" not in sys.modules
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_numbers_are_those_of_tensorflow(backend, tmp_path):
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    (tmp_path / "config.json").write_text(small.CONFIG.to_json_string())
    np.savez(tmp_path / "inputs.npz", **small.model_inputs(small.examples()))
    for name, words in (("tensorflow", []), (backend, ["again"])):
        environment = os.environ | {"KERAS_BACKEND": name}
        command = [sys.executable, "-c", PROGRAM, *words]
        ended = subprocess.run(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE)
        assert ended.returncode == 0, ended.stderr.decode()
    ours, theirs = (np.load(tmp_path / f"{name}.npz") for name in (backend, "tensorflow"))
    for name in theirs.files:
        small.close(ours[name], theirs[name], 1e-5)
