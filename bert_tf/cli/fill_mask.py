"""Shows what a pre-trained BERT would put in the place of each [MASK].

    python fill_mask.py --init_checkpoint=/models/mine "Bread is made from [MASK] and water."

The folder of a run holds all that is needed; otherwise --bert_config_file and --vocab_file say.
"""

import sys
from collections.abc import Sequence

from absl import flags

import bert_tf  # first: it makes settings that TensorFlow reads when it loads
from bert_tf.checkpoints import loading as weights
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.modeling import models
from bert_tf.serving.fill_mask import fill_mask

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this script."""
    shared_flags.define_pretrained()
    flags.DEFINE_integer("top_k", 5, "Guesses for each [MASK].")


def main(argv: Sequence[str]) -> None:
    """Flags -> configuration -> tokenizer -> model -> weights -> guesses."""
    texts = argv[1:] or [line.strip() for line in sys.stdin if line.strip()]
    shared_flags.check_limits()
    source = weights.open_weights(FLAGS.init_checkpoint)
    config = weights.config_of(source, FLAGS.bert_config_file)
    tokenizer = weights.tokenizer_of(source, config, FLAGS.vocab_file, shared_flags.given_case())
    model = models.pretraining_model(config, next_sentence=False)
    bert_tf.load_checkpoint(model, source, required=f"{weights.ENCODER}|cls/predictions/")
    for text in texts:
        guesses = fill_mask(
            model,
            tokenizer,
            text,
            max_seq_length=config.max_position_embeddings,
            top_k=FLAGS.top_k,
        )
        print(text)
        for number, row in enumerate(guesses, 1):
            listed = "  ".join(f"{guess.piece} {guess.probability:.1%}" for guess in row)
            print(f"  [MASK] {number}: {listed}")


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
