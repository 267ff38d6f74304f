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

from bert_tf.cli.main import run
from data_gen.options import PretrainingData


def main(options: PretrainingData) -> None:
    """Text -> records in a random order -> files, with what they were made with."""
    from data_gen.pipeline import create, job_of
    from data_gen.workers import prepare_script

    prepare_script()
    create(job_of(options))


if __name__ == "__main__":
    run(main)
