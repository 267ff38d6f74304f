"""Models as SavedModels that take raw text, for TF Serving and anything that loads one.

In the order in which a request meets them:

    rows                what a caller gives -> texts; arrays of answers -> plain values
    graph_text          texts -> sequences of ids
    inference           the model, in few operations
    signatures          a checkpoint -> the functions of an export; texts or pairs -> named answers
    tasks, token_labels, question_answering
                        the same of heads that make something else of texts
    export              a task -> EXPORT_DIR/1, with vocabulary, model card and checksums
    portable            its ids signature as one file for LiteRT or ONNX Runtime
    onnx_names          the names in an ONNX file
    predictor           an export or a checkpoint -> answers in Python
    pretrained          vectors of layers, and how likely a text is, without an export

Everything between a text and its answer is TensorFlow operations that TF Serving links.
"""
