"""Text -> TFRecords for masked-LM and next-sentence pre-training.

    python create_pretraining_data.py --input_file='wiki/*' --input_format=wikiextractor \\
        --output_file=data/train.tfrecord --vocab_file=vocab.txt --max_seq_length=128

The memory needed does not grow with the corpus; the files depend on text, flags and seed alone. A
corpus of a single block stays in memory and gets exactly the records that the original makes. The
steps are those of data_gen/pipeline.py.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The original's flags with the original's defaults; then those that it does not have."""
    flags.DEFINE_string("output_file", None, "TFRecord files to write, separated by commas.")
    shared_flags.define_texts()
    shared_flags.define_vocabulary()
    flags.DEFINE_bool("do_whole_word_mask", False, "Mask all tokens of a word or none of them.")
    flags.DEFINE_integer("max_seq_length", 128, "Tokens of a sequence, [CLS] and [SEP] included.")
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Most masked tokens of a sequence.")
    flags.DEFINE_integer("random_seed", 12345, "Seed of all that is random.")
    flags.DEFINE_integer("dupe_factor", 10, "Passes over the text, each with other masks.")
    flags.DEFINE_float("masked_lm_prob", 0.15, "Share of the tokens that is masked.")
    flags.DEFINE_float(
        "short_seq_prob", 0.1, "Share of the documents that are cut into shorter sequences."
    )
    flags.DEFINE_string("language", "en", "Language of wikiextractor text (ISO 639 code).")
    flags.DEFINE_string(
        "temp_dir",
        None,
        "Local folder for intermediate files, about as large as the output; default: beside it.",
    )


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

from data_gen.instances import Settings
from data_gen.pipeline import Job, create
from data_gen.workers import prepare_script


def main(_: Sequence[str]) -> None:
    """Flags -> job -> records."""
    prepare_script()
    create(job_from_flags())


def job_from_flags() -> Job:
    """The job of the command line; its fields are named as the flags."""
    settings = Settings(**{f.name: FLAGS[f.name].value for f in dataclasses.fields(Settings)})
    names = {f.name for f in dataclasses.fields(Job)} - {"settings", "block_characters"}
    return Job(settings=settings, **{name: FLAGS[name].value for name in names})


if __name__ == "__main__":
    cli.run(main)
