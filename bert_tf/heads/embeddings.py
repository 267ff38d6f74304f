"""The encoder alone, for vectors of texts and tokens: it has no loss."""

from bert_tf.heads import ENCODER
from bert_tf.heads.head import Head
from bert_tf.modeling.models import BertModel


class Embeddings(Head):
    """No head."""

    name = "embeddings"
    architecture = "BertModel"
    weights = ENCODER
    required = ENCODER
    outputs = ("sequence_output", "pooled_output")
    title = "Turns texts into vectors."
    serving = "bert_tf.serving.tasks:EmbeddingTask"

    def model(self, config, *, num_classes=0, num_choices=1):
        """`BertModel(config)`."""
        return BertModel(config, name=self.name)
