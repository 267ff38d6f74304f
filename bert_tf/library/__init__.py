"""For programs that use Keras: a model with its tokenizer, data and optimizer for `fit`."""
