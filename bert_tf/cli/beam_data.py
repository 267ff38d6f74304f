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

from bert_tf.errors import InputError
from bert_tf.options import option
from bert_tf.runtime import import_extra
from data_gen.options import MOST_SHARDS, MOST_WORKERS, USED_MOST, PretrainingData


class BeamData(PretrainingData, most_used=USED_MOST):
    """The options of `bert-tf data`, what some of them mean here, and Beam's own."""

    output_file: str = option(
        "What the names of the TFRecord files begin with.", path=True, original=True
    )
    temp_dir: str | None = option(
        "A local folder of every machine, for the tokenized corpus.", default=None, path=True
    )
    num_workers: int = option(
        "Processes of this machine, where no runner is given; 0: all cores.",
        default=0,
        low=0,
        high=MOST_WORKERS,
    )
    num_shards: int = option(
        "Files to write; 0: of about 64 MB each.", default=0, low=0, high=MOST_SHARDS
    )
    beam_options: tuple[str, ...] = option(
        "Beam's own, such as --runner=FlinkRunner.", default=(), words="BEAM_OPTIONS"
    )

    def check(self) -> None:
        """Raises `InputError` for words before Beam's options, or where Beam is not installed."""
        if self.beam_options and not self.beam_options[0].startswith("-"):
            received = f"{self.beam_options[0]!r} outside any flag"
            expected = "flags, and after a lone -- those of Beam, as in -- --runner=FlinkRunner"
            remedy = "write --flag=value without a space, and put quotes around patterns of files"
            raise InputError(received, expected, remedy)
        import_extra(
            "apache_beam",
            package="apache-beam",
            extra="beam",
            needed_by="bert-tf beam-data",
            otherwise="use bert-tf data, which makes the same records on one machine",
        )


def main(options: BeamData) -> None:
    """Text -> Beam's pipeline -> files of records."""
    from data_gen import beam
    from data_gen.pipeline import job_of
    from data_gen.workers import prepare_script

    prepare_script()
    beam.create(job_of(options), beam_options=options.beam_options)
