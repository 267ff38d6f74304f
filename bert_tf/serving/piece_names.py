"""The pieces of a vocabulary as a model's output has them."""

from bert_tf.config import BertConfig
from bert_tf.tokenization.wordpiece import FullTokenizer


def piece_names(tokenizer: FullTokenizer, config: BertConfig) -> list[str]:
    """The piece of each row of the word table; rows beyond the vocabulary are #row."""
    return [tokenizer.inv_vocab.get(i, f"#{i}") for i in range(config.vocab_size)]
