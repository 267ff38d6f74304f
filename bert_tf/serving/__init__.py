"""Models as SavedModels that take raw text, for TF Serving and anything that loads one.

In the order in which a request meets them:

    rows             what a caller gives -> arrays of texts; arrays of answers -> plain values
    graph_text, graph_words
                     texts -> sequences of ids, words, windows
    inference        the model, in few operations
    graph_answers    windows and logits -> answers to questions
    signatures       what all tasks share: the functions of an export
    classification, multiple_choice, token_labels, embeddings, masked_lm, question_answering
                     texts -> model -> named answers, one file a task
    registry         which task belongs to a checkpoint
    export           a task -> EXPORT_DIR/1, with vocabulary, model card and warm-up requests
    portable         its ids signature as one file for LiteRT or ONNX Runtime
    loading, predictor
                     an export or a checkpoint -> answers in Python

Everything between a text and its answer is TensorFlow operations that TF Serving links.
"""
