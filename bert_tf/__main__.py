"""`bert-tf VERB`, also `python -m bert_tf VERB`: runs the command of that name.

Loads only the verb's module.
"""

import difflib
import importlib
import sys

import bert_tf

VERBS = {  # verb: its module; what it does
    "data": ("create_pretraining_data", "text -> TFRecords for pre-training"),
    "beam-data": ("bert_tf.cli.beam_data", "the same on many machines, with Apache Beam"),
    "vocab": ("bert_tf.cli.vocab", "text -> a WordPiece vocabulary"),
    "pretrain": ("run_pretraining", "pre-train: masked words and next sentences"),
    "classify": ("run_classifier", "fine-tune on GLUE, XNLI, SWAG, NER or your own files"),
    "squad": ("run_squad", "fine-tune on SQuAD v1.1 or v2.0, answer, score"),
    "evaluate-squad": ("bert_tf.cli.evaluate_squad", "the official scores of a predictions.json"),
    "features": ("extract_features", "text -> vectors"),
    "fill-mask": ("bert_tf.cli.fill_mask", "what belongs in the place of [MASK]"),
    "score": ("bert_tf.cli.score", "how likely a model finds each line of text"),
    "predict": ("bert_tf.cli.predict", "lines of text -> answers of a model"),
    "export": ("bert_tf.cli.export", "a model -> SavedModel, LiteRT or ONNX"),
    "convert": ("bert_tf.cli.convert", "checkpoints: convert, inspect, strip"),
    "check": ("bert_tf.cli.check", "does this machine compute what the original does?"),
    "plan": ("bert_tf.cli.plan", "memory of a training, and the largest batch that fits"),
    "plot": ("bert_tf.cli.plot", "the curves of a training as a picture"),
    "serve": ("bert_tf.cli.serve", "a model's page, and TensorFlow Serving's REST interface"),
}


def main() -> int:
    """Runs the command line; returns the exit code."""
    verb, *words = sys.argv[1:] or ["--help"]
    if verb == "help" and words:
        verb = words[0]
        words = ["--help"]
    if verb in ("--version", "help", "-h", "-help", "--help", "--helpfull"):
        from bert_tf.cli import main as cli

        cli.prepare()
        print(f"bert-tf {bert_tf.__version__}" if verb == "--version" else usage(), flush=True)
        return 0
    if verb not in VERBS:
        similar = difflib.get_close_matches(verb, VERBS, n=1, cutoff=0.7)
        remedy = f"did you mean bert-tf {similar[0]}?" if similar else "bert-tf --help lists them"
        print(f"bert-tf: unknown verb {verb!r}; {remedy}", file=sys.stderr)
        return 1
    from bert_tf.cli.main import run

    sys.argv = [f"bert-tf {verb}", *words]
    module, _ = VERBS[verb]
    run(importlib.import_module(module).main)
    return 0


def usage() -> str:
    """The text of --help: a line for each verb."""
    lines = (f"  {verb:<16}{summary}" for verb, (_, summary) in VERBS.items())
    hint = "`bert-tf VERB --help` lists a verb's flags."
    return "\n".join(["usage: bert-tf VERB --flag=value ...", "", *lines, "", hint])


if __name__ == "__main__":
    sys.exit(main())
