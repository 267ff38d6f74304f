"""The model: layers, the encoder, heads.

Importing any module of this folder registers our classes with Keras, so that
`keras.models.load_model` and pickles find those that a model's file names.
"""

import keras

import bert_tf.library.text_models
import bert_tf.modeling.heads
import bert_tf.training.optimization

if keras.backend.backend() == "tensorflow":
    import bert_tf.tokenization.layer  # noqa: F401
