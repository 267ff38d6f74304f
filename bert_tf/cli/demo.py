"""The whole line in a few minutes: raw text -> vocabulary -> TFRecords -> a BERT -> its answers.

    bert-tf demo --output_dir=demo

Runs the commands as you would, on the texts in data_gen/sample_text, and shows each command.
"""

import importlib.resources
import json
import pathlib
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from absl import flags

from bert_tf import files
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli

SAMPLE_TEXT = importlib.resources.files("data_gen") / "sample_text"
FLAGS = flags.FLAGS

VOCAB_SIZE = 1500
MAX_SEQ_LENGTH = 48
MAX_PREDICTIONS_PER_SEQ = 8
SENTENCES = (
    "Bread is made from [MASK], water and salt.",
    "The sun rises in the [MASK] and sets in the west.",
    "There are seven [MASK] in a week.",
    "The [MASK] of Spain is Madrid.",
    "Water [MASK] at zero degrees.",
)


class Demo:
    """The flags of this command.

    Attributes:
      output_dir: Where everything is written.
      num_train_steps: Training steps; with more, the model predicts better.
    """

    output_dir = "demo"
    num_train_steps = 7500


def define_flags() -> None:
    """The flags of this command."""
    shared_flags.define(Demo)


def main(_: Sequence[str]) -> None:
    """Vocabulary -> records -> model -> guesses -> picture."""
    start = time.monotonic()
    output_dir = pathlib.Path(FLAGS.output_dir)
    with files.locked(str(output_dir), folder=True):
        learn_vocabulary(output_dir)
        make_records(output_dir)
        train(output_dir)
        guess(output_dir)
        draw(output_dir)
    say_what_next(output_dir, time.monotonic() - start)


def learn_vocabulary(output_dir: pathlib.Path) -> None:
    """Texts -> vocab.txt, and a configuration of that many pieces."""
    title("1. A WordPiece vocabulary, learned from the texts")
    run(
        "vocab",
        input_file=f"{SAMPLE_TEXT}/*.txt",
        output_file=f"{output_dir}/vocab.txt",
        vocab_size=VOCAB_SIZE,
    )
    num_pieces = len((output_dir / "vocab.txt").read_text(encoding="utf-8").splitlines())
    config = {
        "vocab_size": num_pieces,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        # Wide first weights: with BERT's 0.02 so short a training does not leave its first plateau.
        "initializer_range": 0.1,
        "intermediate_size": 512,
        "max_position_embeddings": MAX_SEQ_LENGTH,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.0,  # so few texts are learned by heart
        "attention_probs_dropout_prob": 0.0,
    }
    files.write_text(f"{output_dir}/bert_config.json", json.dumps(config, indent=2) + "\n")


def make_records(output_dir: pathlib.Path) -> None:
    """Texts -> records to train on, and others, with other masks, to evaluate on."""
    title("2. Pre-training records: sentence pairs with masked pieces")
    for name, seed, dupe_factor in (("train", 12345, 20), ("eval", 54321, 1)):
        run(
            "data",
            input_file=f"{SAMPLE_TEXT}/*.txt",
            output_file=f"{output_dir}/{name}.tfrecord",
            vocab_file=f"{output_dir}/vocab.txt",
            max_seq_length=MAX_SEQ_LENGTH,
            max_predictions_per_seq=MAX_PREDICTIONS_PER_SEQ,
            random_seed=seed,
            dupe_factor=dupe_factor,
        )


def train(output_dir: pathlib.Path) -> None:
    """Records -> checkpoints, with an evaluation now and then."""
    title("3. Pre-training: masked pieces and next sentences")
    run(
        "pretrain",
        input_file=f"{output_dir}/train.tfrecord",
        eval_input_file=f"{output_dir}/eval.tfrecord",
        output_dir=f"{output_dir}/model",
        bert_config_file=f"{output_dir}/bert_config.json",
        vocab_file=f"{output_dir}/vocab.txt",
        do_train=True,
        do_eval=True,
        max_seq_length=MAX_SEQ_LENGTH,
        max_predictions_per_seq=MAX_PREDICTIONS_PER_SEQ,
        num_train_steps=FLAGS.num_train_steps,
        num_warmup_steps=FLAGS.num_train_steps // 12,
        learning_rate=6e-4,
        train_batch_size=8,  # small batches: many updates, and so few texts are soon learned
        eval_batch_size=24,
        log_steps=FLAGS.num_train_steps // 25,
        eval_steps=FLAGS.num_train_steps // 5,
    )


def guess(output_dir: pathlib.Path) -> None:
    """What the model puts in the place of [MASK]."""
    title("4. Its guesses")
    run("fill-mask", *SENTENCES, init_checkpoint=f"{output_dir}/model")


def draw(output_dir: pathlib.Path) -> None:
    """The curves as a picture."""
    title("5. The curves of the training")
    run("plot", output_dir=f"{output_dir}/model", picture=f"{output_dir}/curves.png")


def say_what_next(output_dir: pathlib.Path, seconds: float) -> None:
    """What was made, and the same for real data."""
    title(f"Done in {seconds / 60:.1f} minutes")
    print(f"""  {output_dir}/vocab.txt            the vocabulary
  {output_dir}/train.tfrecord       what it was trained on
  {output_dir}/model/               checkpoints, configuration, vocabulary, eval_results.txt
  {output_dir}/curves.png           loss and accuracy

The texts are few and partly learned by heart. With your own (a sentence a line, a blank line
between documents) and a released vocabulary and configuration:

  bert-tf data --input_file='corpus/*.txt' --output_file=train.tfrecord \\
      --vocab_file=vocab.txt --dupe_factor=5
  bert-tf pretrain --input_file=train.tfrecord --output_dir=model --do_train --do_eval \\
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --learning_rate=1e-4""")


def title(text: str) -> None:
    """A heading between the steps."""
    print(f"\n=== {text}", flush=True)


def run(verb: str, *arguments: str, **values) -> None:
    """Shows a command and runs it; its failure is ours."""
    shown = [f"--{name}={value}" for name, value in values.items()] + list(arguments)
    print(f"$ bert-tf {verb} {shlex.join(shown)}\n", flush=True)
    code = subprocess.call([sys.executable, "-m", "bert_tf", verb, *shown])
    if code:
        sys.exit(code)


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words, needs_tensorflow=False)
    cli.run(main)
