"""Text -> TFRecords on many machines: create_pretraining_data.py as an Apache Beam pipeline.

    python data_gen/beam_pretraining_data.py --input_file='corpus/*.txt' \\
        --output_file=data/train.tfrecord --vocab_file=vocab.txt -- --runner=FlinkRunner ...

The flags are those of create_pretraining_data.py, with --num_shards; what comes after a lone -- is
Beam's. Without a runner it runs on this machine's cores, for which create_pretraining_data.py is
the better tool: the local runner keeps what it sorts in memory.

The same text, flags and seed give the same records. They lie in files
--output_file-00000-of-00007 and so on; one after the other these are what the local generator
writes to a single file.

Runners and what they need (this package with its extra `beam`, on all machines):

    Dataflow    -- --runner=DataflowRunner --project=P --region=R --temp_location=gs://B/tmp
                --setup_file=./setup.py --disk_size_gb=100
                input, output and vocabulary on gs://
    Flink       -- --runner=FlinkRunner --flink_master=HOST:8081 --environment_type=EXTERNAL
                --environment_config=localhost:50000      (or a container that has bert-tf)
    Spark       -- --runner=SparkRunner --spark_master_url=spark://HOST:7077, likewise
                input, output and vocabulary where all machines see them under one path

Every machine keeps the tokenized corpus once, in --temp_dir: four bytes a token.
"""

from collections.abc import Sequence

from absl import flags

import create_pretraining_data
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError
from bert_tf.runtime import import_extra
from data_gen.checks import require_least
from data_gen.workers import prepare_script

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of create_pretraining_data.py, and what they mean here."""
    create_pretraining_data.define_flags()
    FLAGS["output_file"].help = "What the names of the TFRecord files begin with."
    FLAGS["temp_dir"].help = "A local folder of every machine, for the tokenized corpus."
    FLAGS["num_workers"].help = "Processes of this machine, where no runner is given; 0: all cores."
    flags.DEFINE_integer("num_shards", 0, "Files to write; 0: of about 64 MB each.")


def main(argv: Sequence[str]) -> None:
    """Makes what the flags say, on Beam's runner."""
    prepare_script()
    if argv[1:] and not argv[1].startswith("-"):
        shared_flags.refuse_words(argv[1:])
    require_least("num_shards", FLAGS.num_shards, 0)
    if "," in FLAGS.output_file:
        raise InputError(
            received=f"--output_file={FLAGS.output_file}",
            expected="one name, which the names of all files begin with",
            remedy="leave out what is behind the comma; --num_shards says how many files",
        )
    import_extra(
        "apache_beam",
        package="apache-beam",
        extra="beam",
        needed_by="beam_pretraining_data.py",
        otherwise="use create_pretraining_data.py, which makes the same records on one machine",
    )
    from data_gen.beam import pipeline

    job = create_pretraining_data.job_from_flags()
    pipeline.create(job, num_shards=FLAGS.num_shards, beam_options=argv[1:])


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
