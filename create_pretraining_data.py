"""Text -> TFRecords for masked-LM and next-sentence pre-training.

    python create_pretraining_data.py --input_file='wiki/*' --input_format=wikiextractor \\
        --output_file=data/train.tfrecord --vocab_file=vocab.txt --max_seq_length=128

The way of a sentence through this package:

    documents    text files -> documents of lines, in blocks of about a megabyte
    blocks       a block's text -> ids (corpus keeps them); its documents -> records
    pairs        document -> pairs of segments, next or random
    masking      ids -> masked ids, positions, labels
    instances    pair + masks -> the values of a record
    shuffling    all records -> one random order
    outputs      files that appear when they are complete

The memory needed does not grow with the corpus; the files depend on text, flags and seed alone. A
corpus of a single block stays in memory and gets exactly the records that the original makes.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from data_gen.documents import INPUT_FORMATS
from data_gen.instances import Settings
from data_gen.pipeline import Job, create
from data_gen.workers import prepare_script

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The original's flags with the original's defaults; then those that it does not have."""
    flags.DEFINE_string("input_file", None, "Text files: paths or globs, separated by commas.")
    flags.DEFINE_string("output_file", None, "TFRecord files to write, separated by commas.")
    shared_flags.define_vocabulary()
    flags.DEFINE_bool("do_whole_word_mask", False, "Mask all the pieces of a word or none of them.")
    flags.DEFINE_integer("max_seq_length", 128, "Tokens of a sequence, [CLS] and [SEP] included.")
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Most masked tokens of a sequence.")
    flags.DEFINE_integer("random_seed", 12345, "Seed of all that is random.")
    flags.DEFINE_integer("dupe_factor", 10, "Passes over the text, each with other masks.")
    flags.DEFINE_float("masked_lm_prob", 0.15, "Share of the tokens that is masked.")
    flags.DEFINE_float(
        "short_seq_prob", 0.1, "Share of the documents that are cut into shorter sequences."
    )
    flags.mark_flags_as_required(["input_file", "output_file"])
    flags.DEFINE_enum(
        "input_format",
        "text",
        list(INPUT_FORMATS),
        "text: a sentence a line, a blank line between documents. wikiextractor: as WikiExtractor "
        "writes Wikipedia; paragraphs are split into sentences.",
    )
    flags.DEFINE_string("language", "en", "Language of wikiextractor text (ISO 639 code).")
    flags.DEFINE_integer(
        "num_workers", 0, "Processes; 0: as many as there are cores and memory for."
    )
    flags.DEFINE_string(
        "temp_dir",
        None,
        "Local folder for the work, about as large as the output; default: there.",
    )


def job_from_flags() -> Job:
    """What the command line says; the fields of a job are named as the flags."""
    settings = Settings(**{f.name: FLAGS[f.name].value for f in dataclasses.fields(Settings)})
    names = {f.name for f in dataclasses.fields(Job)} - {"settings", "block_characters"}
    return Job(settings=settings, **{name: FLAGS[name].value for name in names})


def main(argv: Sequence[str]) -> None:
    """Makes what the flags say."""
    prepare_script()
    shared_flags.refuse_words(argv[1:])
    create(job_from_flags())


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
