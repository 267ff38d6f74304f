"""`python -m bert_tf.playground`: the same as `bert-tf playground`."""

from bert_tf.__main__ import run_module

if __name__ == "__main__":
    import sys

    run_module("bert_tf.cli.playground", ["python -m bert_tf.playground", *sys.argv[1:]])
