"""The encoder without a head, for embeddings of texts."""

from bert_tf.heads.head import ENCODER, Head


class Embeddings(Head):
    """No head: the outputs are the encoder's vectors."""

    name = "embeddings"
    architecture = "BertModel"
    sizes = ()
    weights = ENCODER
    required = ENCODER
    outputs = ("sequence_output", "pooled_output")
    title = "Turns texts into vectors."
    serving = "bert_tf.serving.tasks:EmbeddingTask"

    def model(self, config, *, num_classes=0, num_choices=1):
        """`BertModel(config)`."""
        from bert_tf.modeling.models import BertModel

        return BertModel(config, name=self.name)
