"""The layers of BERT, public: parts of models of one's own; heads are in `bert_tf.heads`.

    from bert_tf import layers
    x = layers.Embeddings(vocab_size=30522, hidden_size=768)(input_ids)    [B, S, D]

Importing this module loads Keras, and TensorFlow at the first use of `Tokenizer` alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bert_tf.modeling.layers import Embeddings, EncoderBlock, Pooler, SelfAttention
from bert_tf.modeling.lora import Dense
from bert_tf.modeling.memory import Dropout

if TYPE_CHECKING:  # for which a misspelt name is an error
    from bert_tf.tokenization.layer import Tokenizer
else:

    def __getattr__(name: str) -> Any:
        """`Tokenizer`, which needs TensorFlow."""
        if name == "Tokenizer":
            return importlib.import_module("bert_tf.tokenization.layer").Tokenizer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Dense", "Dropout", "Embeddings", "EncoderBlock", "Pooler", "SelfAttention", "Tokenizer"]
