"""Text -> TFRecords on many machines: `bert-tf data` as an Apache Beam pipeline.

    bert-tf beam-data --input_file='corpus/*.txt' \\
        --output_file=data/train.tfrecord --vocab_file=vocab.txt -- --runner=FlinkRunner ...

The flags are those of `bert-tf data`, with --num_shards; what comes after a lone -- is
Beam's. Without a runner it runs on this machine's cores, for which `bert-tf data` is the
better tool: the local runner keeps what it sorts in memory.

The same text, flags and seed give the same records. They lie in files
--output_file-00000-of-00007 and so on; one after the other these are what the local generator
writes to a single file.

Runners and what they need (this package with its extra `beam`, on all machines):

    Dataflow    -- --runner=DataflowRunner --project=P --region=R --temp_location=gs://B/tmp
                --setup_file=./setup.py --disk_size_gb=100
                the output on gs://
    Flink       -- --runner=FlinkRunner --flink_master=HOST:8081 --environment_type=EXTERNAL
                --environment_config=localhost:50000      (or a container that has bert-tf)
    Spark       -- --runner=SparkRunner --spark_master_url=spark://HOST:7077, likewise
                the output where all machines see it under one path

This machine reads the text and the vocabulary, and leaves the text in blocks beside the output.
Every machine keeps the tokenized corpus once, in --temp_dir: four bytes a token.
"""

from collections.abc import Sequence

from absl import flags

from bert_tf.cli import data_flags
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError
from bert_tf.runtime import import_extra

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of create_pretraining_data.py, and what they mean here."""
    data_flags.define_pretraining_data()
    FLAGS["output_file"].help = "What the names of the TFRecord files begin with."
    FLAGS["temp_dir"].help = "A local folder of every machine, for the tokenized corpus."
    FLAGS["num_workers"].help = "Processes of this machine, where no runner is given; 0: all cores."
    FLAGS["num_shards"].help = "Files to write; 0: of about 64 MB each."


def check_flags(words: Sequence[str]) -> None:
    """Refuses words before Beam's own flags, other settings, several outputs; asks for Beam."""
    if words and not words[0].startswith("-"):
        shared_flags.refuse_words(words)
    data_flags.settings_from_flags()
    if "," in FLAGS.output_file:
        raise InputError(
            f"--output_file={FLAGS.output_file}",
            "one name, which the names of all files begin with",
            "leave out what is behind the comma; --num_shards says how many files",
        )
    import_extra(
        "apache_beam",
        package="apache-beam",
        extra="beam",
        needed_by="bert-tf beam-data",
        otherwise="use bert-tf data, which makes the same records on one machine",
    )


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

from create_pretraining_data import job_from_flags
from data_gen.workers import prepare_script


def main(argv: Sequence[str]) -> None:
    """Flags -> job -> records, on Beam's runner."""
    from data_gen import beam  # loads Beam

    prepare_script()
    beam.create(job_from_flags(), beam_options=argv[1:])


if __name__ == "__main__":
    cli.run(main)
