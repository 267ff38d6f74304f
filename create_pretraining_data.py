"""Text -> TFRecords for masked-LM and next-sentence pre-training.

    python create_pretraining_data.py --input_file='wiki/*' --input_format=wikiextractor \\
        --output_file=data/train.tfrecord --vocab_file=vocab.txt --max_seq_length=128

The records depend on text, flags and seed alone, and the memory needed does not grow with the text.
Text of less than a million characters gets exactly the records that the original makes, if each
file but the last ends in a blank line: here the end of a file ends a document, too.

For a large corpus, --num_shards=64 writes data/train.tfrecord-00000-of-00064 and so on; one after
the other they hold the records of the single file. The same command continues a run that was
stopped or killed, and makes lost files again; it refuses shards of other text, flags or vocabulary.

Beside each file are info_<file>.json, what it was made with, and index_<file>.json, where blocks of
records begin, so that training opens it at once. report_<file>.json counts what was made. The
steps are those of data_gen/pipeline.py.
"""

from collections.abc import Sequence

from absl import flags

from bert_tf.cli import data_flags
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli

FLAGS = flags.FLAGS
define_flags = data_flags.define_pretraining_data


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

from bert_tf.data.records import DataSettings
from data_gen.pipeline import Job, create
from data_gen.workers import prepare_script


def main(_: Sequence[str]) -> None:
    """Flags -> job -> records."""
    prepare_script()
    create(job_from_flags())


def job_from_flags() -> Job:
    """The job of the command line; its fields are named as the flags."""
    most = data_flags.most_predictions()
    rest = max(0.0, round(1 - FLAGS.mask_share - FLAGS.random_share, 9))
    return shared_flags.of_flags(
        Job,
        settings=shared_flags.of_flags(
            DataSettings, max_predictions_per_seq=most, unchanged_share=rest
        ),
        do_lower_case=shared_flags.given_case(),
        never_split=tuple(sorted({*FLAGS.never_split})),  # in whatever order they are given
    )


if __name__ == "__main__":
    cli.run(main)
