"""The verbs that make data, besides data: vocab, beam-data.

Their functions import what loads TensorFlow or Beam: flags are parsed first.
"""

from collections.abc import Sequence

from absl import flags

from bert_tf.cli import data_flags
from bert_tf.cli import flags as shared_flags
from bert_tf.runtime import import_extra

FLAGS = flags.FLAGS


class Vocabulary:
    """The flags of vocab alone.

    Attributes:
      output_file: The vocabulary to write.
      vocab_size: Word pieces, special tokens included.
    """

    _most_used = "input_file output_file vocab_size do_lower_case num_workers"
    output_file = shared_flags.Path(required=True)
    vocab_size = 30522


@shared_flags.verb(Vocabulary, data_flags.Texts)
def vocab(_: Sequence[str]) -> None:
    """Text -> a WordPiece vocabulary for it.

        bert-tf vocab --input_file='wiki/*' --input_format=wikiextractor \\
            --output_file=vocab.txt --vocab_size=30522

    Same text and flags, same bytes. Where there is no bert_config.json beside it, BERT-Base's sizes
    are written there. It needs the extra `vocab`.
    """
    from data_gen.vocabulary import write_vocabulary
    from data_gen.workers import prepare_script

    prepare_script()
    names = "vocab_size do_lower_case input_format num_workers"
    values = {name: FLAGS[name].value for name in names.split()}
    write_vocabulary(FLAGS.input_file, FLAGS.output_file, **values)


# ---------------------------------------------------------------------------- beam-data


def define_beam_data() -> None:
    """The flags of create_pretraining_data.py, and what they mean here."""
    data_flags.define_pretraining_data()
    FLAGS["output_file"].help = "What the names of the TFRecord files begin with."
    FLAGS["temp_dir"].help = "A local folder of every machine, for the tokenized corpus."
    FLAGS["num_workers"].help = "Processes of this machine, where no runner is given; 0: all cores."
    FLAGS["num_shards"].help = "Files to write; 0: of about 64 MB each."


def check_beam_data(words: Sequence[str]) -> None:
    """Refuses words before Beam's own flags; asks for Beam."""
    if words and not words[0].startswith("-"):
        shared_flags.refuse_words(words)
    import_extra(
        "apache_beam",
        package="apache-beam",
        extra="beam",
        needed_by="bert-tf beam-data",
        otherwise="use bert-tf data, which makes the same records on one machine",
    )


@shared_flags.verb(define_beam_data, check=check_beam_data)
def beam_data(argv: Sequence[str]) -> None:
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
    from create_pretraining_data import job_from_flags
    from data_gen import beam  # loads Beam
    from data_gen.workers import prepare_script

    prepare_script()
    beam.create(job_from_flags(), beam_options=argv[1:])
