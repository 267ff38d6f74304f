"""Raw text -> what pre-training reads: vocabulary and TFRecords."""

import bert_tf  # noqa: F401  (first: it sets what TensorFlow reads when it loads)
