"""Text -> words -> word pieces -> ids, as the original has them, as TensorFlow operations."""

SPECIAL_PIECES = 3  # of a pair of texts: [CLS], [SEP] and [SEP]
