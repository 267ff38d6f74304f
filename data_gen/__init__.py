"""Raw text -> the input of pre-training: a vocabulary, and TFRecords."""
