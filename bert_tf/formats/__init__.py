"""The formats that a BERT's weights come in; `bert_tf.weights` has the verbs.

base           what every format is read into
tensor_bundle  the original's checkpoints, which are ours too
object_graph   TF2 checkpoints of tensorflow/models
keras_file     .keras and .weights.h5 of our models
hugging_face   folders with config.json and model.safetensors or pytorch_model.bin, in three files:
               names and configuration, tokenizer, files of tensors
"""
