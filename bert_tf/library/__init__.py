"""For programs that use Keras: a model with its tokenizer, data and optimizer for `fit`.

Importing it registers the classes that .keras files name, for `keras.models.load_model`.
"""

from bert_tf.library import models, optimizers  # noqa: F401
