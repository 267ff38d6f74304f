"""The whole line in minutes: raw text -> vocabulary -> TFRecords -> a BERT -> a classifier.

    bert-tf demo --output_dir=demo

Runs the commands as you would, on copies of the texts in data_gen/sample_text and the labelled
sentences in data_gen/sample_topics, and shows each command.
"""

import importlib.resources
import json
import operator
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

from absl import flags

from bert_tf import files
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli

SAMPLES = importlib.resources.files("data_gen")
FLAGS = flags.FLAGS

VOCAB_SIZE = 1500
MAX_SEQ_LENGTH = 24  # short ones, with many masks: most is learned in the least time
MASKED_LM_PROB = 0.3
MAX_PREDICTIONS_PER_SEQ = 7
QUESTIONS = {  # and the word that the texts have there
    "Bread is made from [MASK], water and salt.": "flour",
    "The sun rises in the [MASK] and sets in the west.": "east",
    "There are seven [MASK] in a week.": "days",
    "The [MASK] of Spain is Madrid.": "capital",
    "Water [MASK] at zero degrees.": "freezes",
}
NEW_SENTENCES = (  # neither in the texts nor among the labelled sentences
    "A cold wind brings snow from the mountains.",
    "The dog sleeps beside the horse.",
    "We took the night train to Rome.",
)


class Demo:
    """The flags of this command.

    Attributes:
      output_dir: Where everything is written.
      num_train_steps: Training steps; with more, the model predicts better.
    """

    output_dir = shared_flags.Path("demo")
    num_train_steps = 7500


def define_flags() -> None:
    """The flags of this command."""
    shared_flags.define(Demo)


def main(_: Sequence[str]) -> None:
    """Vocabulary -> records -> pre-trained model -> guesses -> classifier -> predictions."""
    start = time.monotonic()
    output_dir = pathlib.Path(FLAGS.output_dir)
    with files.locked(str(output_dir), folder=True):
        for name in ("sample_text", "sample_topics"):
            shutil.copytree(SAMPLES / name, output_dir / name, dirs_exist_ok=True)
        learn_vocabulary(output_dir)
        make_records(output_dir)
        train(output_dir)
        guess(output_dir)
        fine_tune(output_dir)
        predict(output_dir)
    say_what_next(output_dir, time.monotonic() - start)


def learn_vocabulary(output_dir: pathlib.Path) -> None:
    """Texts -> vocab.txt, and a configuration of that many pieces."""
    title("1. A WordPiece vocabulary, learned from the texts")
    run(
        "vocab",
        input_file=f"{output_dir}/sample_text/*.txt",
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
    say("At the end of a document the next one is random: three of four pairs of these texts.")
    # Many passes, each with its own masks: of few, the masks are learned and not the texts.
    for name, seed, dupe_factor in (("train", 12345, 150), ("eval", 54321, 1)):
        run(
            "data",
            input_file=f"{output_dir}/sample_text/*.txt",
            output_file=f"{output_dir}/{name}.tfrecord",
            vocab_file=f"{output_dir}/vocab.txt",
            max_seq_length=MAX_SEQ_LENGTH,
            max_predictions_per_seq=MAX_PREDICTIONS_PER_SEQ,
            masked_lm_prob=MASKED_LM_PROB,
            random_seed=seed,
            dupe_factor=dupe_factor,
        )


def train(output_dir: pathlib.Path) -> None:
    """Records -> checkpoints, with an evaluation now and then."""
    title("3. Pre-training: masked pieces and next sentences")
    say("Evaluated on the same texts with other masks: it shows what was learned by heart.")
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
        learning_rate=1e-3,
        train_batch_size=16,  # small batches: many updates, and so few texts are soon learned
        eval_batch_size=24,
        log_steps=max(1, FLAGS.num_train_steps // 25),
        eval_steps=FLAGS.num_train_steps // 5,
    )


def guess(output_dir: pathlib.Path) -> None:
    """What the model puts in the place of [MASK], and how often it is right."""
    title("4. Questions to the pre-trained model")
    say("The texts have these sentences, or ones like them: the answers are learned by heart.")
    guesses = run("fill-mask", *QUESTIONS, init_checkpoint=f"{output_dir}/model")
    firsts = re.findall(r"\[MASK\] 1: (\S+)", guesses)
    right = sum(map(operator.eq, firsts, QUESTIONS.values()))
    say(f"Its first guess is the word of the texts in {right} of {len(QUESTIONS)} questions.")
    run("plot", output_dir=f"{output_dir}/model", picture=f"{output_dir}/curves.png")


def fine_tune(output_dir: pathlib.Path) -> None:
    """Pre-trained model, labelled sentences -> classifier, scored on sentences it has not seen."""
    title("5. Fine-tuning: is a sentence about animals, food, travel or weather?")
    say("Trained on 240 sentences, evaluated on 80 that it has not seen. Chance would be 25 %.")
    run(
        "classify",
        task_name="csv",
        data_dir=f"{output_dir}/sample_topics",
        text_a_column="text",
        label_column="topic",
        do_train=True,
        do_eval=True,
        init_checkpoint=f"{output_dir}/model",
        output_dir=f"{output_dir}/topics",
        max_seq_length=MAX_SEQ_LENGTH,
        num_train_epochs=20,
        learning_rate=5e-4,
        train_batch_size=16,
    )


def predict(output_dir: pathlib.Path) -> None:
    """The topics of new sentences."""
    title("6. Predictions for new sentences")
    run("predict", lines=NEW_SENTENCES, model=f"{output_dir}/topics")


def say_what_next(output_dir: pathlib.Path, seconds: float) -> None:
    """What was made, how to try it, and the same for real data."""
    title(f"Done in {seconds / 60:.1f} minutes")
    print(f"""  {output_dir}/model/        the pre-trained model
  {output_dir}/curves.png    its loss and accuracy
  {output_dir}/topics/       the classifier, and its scores in eval_results.txt

Try both in the browser or the terminal (after `make demo` type `. .venv/bin/activate` first):

  bert-tf playground {output_dir}/model
  bert-tf playground {output_dir}/topics
  bert-tf predict --model={output_dir}/topics

A model that knows more needs more text. With yours (a sentence a line, a blank line between
documents) and a released vocabulary and configuration:

  bert-tf data --input_file='corpus/*.txt' --output_file=train.tfrecord \\
      --vocab_file=vocab.txt --dupe_factor=5
  bert-tf pretrain --input_file=train.tfrecord --output_dir=model --do_train --do_eval \\
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --learning_rate=1e-4""")


def title(text: str) -> None:
    """A heading between the steps."""
    print(f"=== {text}", flush=True)


def say(text: str) -> None:
    """What a step shows, and what it does not."""
    print(f"{text}\n", flush=True)


def run(verb: str, *arguments: str, lines: Sequence[str] = (), **values) -> str:
    """Shows a command and runs it; its failure is ours.

    Args:
      verb: Of `bert-tf`.
      arguments: What follows the flags.
      lines: Its standard input.
      values: Its flags.

    Returns:
      The answers of fill-mask and predict, which are printed too.
    """
    given = [f"--{name}" + f"={value}" * (value is not True) for name, value in values.items()]
    shown = [*given, *arguments]
    piped = f"printf '%s\\n' {shlex.join(lines)} | " if lines else ""
    print(f"$ {piped}bert-tf {verb} {shlex.join(shown)}\n", flush=True)
    ended = subprocess.run(
        [sys.executable, "-m", "bert_tf", verb, *shown],
        input="".join(f"{line}\n" for line in lines) or None,
        stdout=subprocess.PIPE if verb in ("fill-mask", "predict") else None,
        text=True,
        encoding="utf-8",
        check=False,
    )
    answers = ended.stdout or ""
    print(answers, flush=True)
    if ended.returncode:
        sys.exit(ended.returncode)
    return answers


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words, needs_tensorflow=False)
    cli.run(main)
