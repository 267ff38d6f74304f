"""For programs that use Keras: a model with its tokenizer and optimizer, and texts for `fit`."""
