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

from bert_tf.errors import InputError
from bert_tf.serving.options import MASK
from bert_tf.serving.predictor import Predictor


def main(argv: Sequence[str]) -> None:
    """Flags -> model -> weights -> guesses."""
    predictor = Predictor(
        FLAGS.init_checkpoint,
        task="fill_mask",
        top_k=FLAGS.top_k,
        bert_config_file=FLAGS.bert_config_file,
        vocab_file=FLAGS.vocab_file,
        do_lower_case=shared_flags.given_case(),
    )
    for text in argv[1:] or filter(None, map(str.strip, sys.stdin)):
        print(text)
        (found,) = predictor.predict([text])
        if not found["num_masks"] == text.count(MASK) > 0:
            raise InputError(
                f"{text!r}, of whose {text.count(MASK)} {MASK} {found['num_masks']} fit",
                f"at least one {MASK} among the tokens that the model reads",
                f"write {MASK} in place of the word to guess, or shorten the text",
            )
        guesses = zip(found["pieces"], found["probabilities"], strict=True)
        for number, (pieces, shares) in enumerate(guesses, 1):
            listed = (f"{p} {percent(share)}" for p, share in zip(pieces, shares, strict=True))
            print(f"  [MASK] {number}: {'  '.join(listed)}")


def percent(probability: float) -> str:
    """With one decimal; small ones with two digits."""
    return f"{probability:.1%}" if probability >= 0.001 else f"{100 * probability:.2g}%"


if __name__ == "__main__":
    cli.run(main)
