"""`python -m bert_tf.squad_evaluate`: the same as `bert-tf evaluate-squad`."""

from bert_tf.__main__ import run_module

if __name__ == "__main__":
    import sys

    run_module("bert_tf.cli.evaluate_squad", ["python -m bert_tf.squad_evaluate", *sys.argv[1:]])
