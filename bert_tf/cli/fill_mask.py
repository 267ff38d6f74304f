"""Shows which tokens a pre-trained BERT expects in the place of each [MASK].

    bert-tf fill-mask --init_checkpoint=/models/mine "Bread is made from [MASK] and water."

The folder of a run holds all that is needed; otherwise give --bert_config_file and --vocab_file.
"""

import sys
from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    shared_flags.define_pretrained()
    shared_flags.define_count("top_k", 5, "Guesses for each [MASK].")


if __name__ == "__main__":
    cli.parse(define_flags)

from bert_tf.cli import from_flags
from bert_tf.serving.fill_mask import fill_mask


def main(argv: Sequence[str]) -> None:
    """Flags -> model -> weights -> guesses."""
    texts = argv[1:] or [line.strip() for line in sys.stdin if line.strip()]
    model, tokenizer, length = from_flags.open_masked_lm()
    for text in texts:
        print(text)
        guesses = fill_mask(model, tokenizer, text, max_seq_length=length, top_k=FLAGS.top_k)
        for number, row in enumerate(guesses, 1):
            listed = "  ".join(f"{guess.piece} {percent(guess.probability)}" for guess in row)
            print(f"  [MASK] {number}: {listed}")


def percent(probability: float) -> str:
    """With one decimal; small ones with two digits."""
    return f"{probability:.1%}" if probability >= 0.001 else f"{100 * probability:.2g}%"


if __name__ == "__main__":
    cli.run(main)
