"""Models as SavedModels that take raw text, for TF Serving and anything that loads one.

In the order in which a request meets them:

    sequences        pieces of texts -> the batch that a model takes
    inference        the model, in few operations
    task             what a task is to be exported: its signatures, each a function of tensors
    classification, multiple_choice, token_labels, embeddings, masked_lm, question_answering
                     texts -> model -> named answers, one file a kind
    kinds            which of them belongs to a checkpoint
    export           a task -> EXPORT_DIR/1, with vocabulary, model card and warm-up requests
    portable         its ids signature as one file for LiteRT or ONNX Runtime

Everything between a text and its answer is TensorFlow operations that TF Serving links.
"""
