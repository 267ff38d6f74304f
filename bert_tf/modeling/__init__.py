"""The model: layers, the encoder, heads.

Importing a part of it registers with Keras all classes of ours that files of models name, so that
`keras.models.load_model` and pickles find them.
"""

import keras

import bert_tf.library.text_models
import bert_tf.modeling.heads
import bert_tf.training.optimization

if keras.backend.backend() == "tensorflow":
    import bert_tf.tokenization.layer  # noqa: F401
