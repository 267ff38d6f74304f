"""Shows what a pre-trained BERT would put in the place of each [MASK].

    python fill_mask.py --init_checkpoint=/models/mine "Bread is made from [MASK] and water."

The folder of a run holds all that is needed; otherwise --bert_config_file and --vocab_file say.
"""

import sys
from collections.abc import Sequence

import bert_tf  # first: it makes settings that TensorFlow reads when it loads
from bert_tf import checkpoints, models
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.fill_mask import fill_mask

# isort: split
from absl import flags

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this script."""
    flags.DEFINE_string("init_checkpoint", None, "The checkpoint, or the folder of a run.")
    flags.DEFINE_string("bert_config_file", None, "Default: bert_config.json beside it.")
    flags.DEFINE_string("vocab_file", None, "Default: vocab.txt beside the checkpoint.")
    flags.DEFINE_bool("do_lower_case", True, "As the model was trained.")
    flags.DEFINE_integer("top_k", 5, "Guesses for each [MASK].")
    flags.mark_flag_as_required("init_checkpoint")


def main(argv: Sequence[str]) -> None:
    """Flags -> configuration -> tokenizer -> model -> weights -> guesses."""
    texts = argv[1:] or [line.strip() for line in sys.stdin if line.strip()]
    folder = checkpoints.find_checkpoint(FLAGS.init_checkpoint).rpartition("/")[0] or "."
    config_file = FLAGS.bert_config_file or f"{folder}/bert_config.json"
    config = bert_tf.BertConfig.from_json_file(config_file)
    tokenizer = make_tokenizer(config, FLAGS.vocab_file or f"{folder}/vocab.txt")
    model = models.pretraining_model(config)
    bert_tf.load_checkpoint(model, FLAGS.init_checkpoint, required="bert/|cls/predictions/")
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


def make_tokenizer(config: bert_tf.BertConfig, vocab_file: str) -> bert_tf.FullTokenizer:
    """The tokenizer, checked against the model."""
    try:
        tokenizer = bert_tf.FullTokenizer(vocab_file, do_lower_case=FLAGS.do_lower_case)
    except InputError as error:
        raise InputError(
            received=error.received,
            expected=error.expected,
            remedy="name the vocabulary of the model with --vocab_file",
        ) from None
    config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=vocab_file)
    return tokenizer


if __name__ == "__main__":
    define_flags()
    shared_flags.run(main)
