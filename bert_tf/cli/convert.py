"""Weights from one format to another, with the proof that they compute the same.

    python convert_checkpoint.py --from=uncased_L-12_H-768_A-12 --to=bert-base-hf
    python convert_checkpoint.py inspect --from=bert-base-hf
    python convert_checkpoint.py strip --from=model/model.ckpt-1000 --to=small
    python convert_checkpoint.py average --from=a.ckpt,b.ckpt,c.ckpt --to=mean

Read: TF1 checkpoints and ours, TF2 checkpoints of tensorflow/models, .keras and .weights.h5 of
bert_tf's models, and Hugging Face's folders. Written: TF1, ours and Hugging Face's.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from absl import flags

from bert_tf.checkpoints import editing, saving
from bert_tf.checkpoints import loading as weights
from bert_tf.checkpoints.hugging_face import hugging_face_name
from bert_tf.checkpoints.metadata import FORMATS, Weights
from bert_tf.cli import main as cli
from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import read_vocabulary

FLAGS = flags.FLAGS
ROUNDING = 1e-4  # differences of outputs that are no sign of an error
VERBS = ("convert", "inspect", "strip", "average")


def define_flags() -> None:
    """The flags of this script."""
    flags.DEFINE_string("from", None, "The weights to read; several with commas for average.")
    flags.DEFINE_string("to", None, "The folder to make.")
    flags.DEFINE_enum(
        "to_format",
        None,
        FORMATS,
        "tf1: what the original reads. bert_tf: the same with any configuration. hugging_face. "
        "Default: bert_tf for what comes from Hugging Face, else hugging_face; strip and average "
        "keep the format.",
    )
    flags.DEFINE_string("bert_config_file", None, "Default: the configuration beside the weights.")
    flags.DEFINE_string("vocab_file", None, "Default: the vocabulary beside the weights.")
    flags.DEFINE_bool(
        "do_lower_case", None, "As the model was trained; default: what its files say, else true."
    )
    flags.DEFINE_integer("pad_vocab_to", 1, "Rows of the word table: up to a multiple of this.")
    flags.DEFINE_list("extra_tokens", [], "Pieces to add after the last one, commas between.")
    flags.DEFINE_integer("seed", 12345, "Of the vectors of extra tokens.")
    flags.mark_flag_as_required("from")


def main(argv: Sequence[str]) -> None:
    """Flags -> weights -> changed as the verb says -> saved -> compared."""
    verb = check_verb(argv[1:])
    sources = [complete(weights.open_weights(path)) for path in FLAGS["from"].value.split(",")]
    if verb == "inspect":
        for source in sources:
            print(description(source))
        return
    source = editing.average(sources) if verb == "average" else the_only(sources)
    if verb == "strip":
        source = editing.without_slots(source)
    changed = with_vocabulary(source)
    to_format = FLAGS.to_format or default_format(verb, source)
    rows = len(source.pieces) if FLAGS.extra_tokens else None  # those behind them are new
    inputs = editing.random_inputs(weights.config_of(source), rows=rows)
    before = editing.outputs_of(source, inputs)  # refuses what does not fit, before it writes
    saved = saving.save_weights(FLAGS.to, changed, to_format=to_format)
    print(f"Wrote {FLAGS.to} in the format {to_format}: {len(changed.names)} weights")
    report_left_out(changed, to_format)
    after = editing.outputs_of(weights.open_weights(saved), inputs)
    report_difference(editing.difference_of_outputs(before, after, rows=rows))


def check_verb(words: Sequence[str]) -> str:
    """The verb of the command line."""
    verb = words[0] if words else "convert"
    if verb not in VERBS or len(words) > 1:
        raise InputError(
            received=f"{' '.join(words)!r} outside any flag",
            expected=f"one of {', '.join(VERBS)}, and flags",
            remedy="write --flag=value with an equals sign and no space",
        )
    if verb != "inspect" and not FLAGS.to:
        raise InputError(
            received=f"{verb} without --to",
            expected="the folder to make",
            remedy="add --to=FOLDER",
        )
    return verb


def complete(source: Weights) -> Weights:
    """The weights with what the flags say about them."""
    if FLAGS.bert_config_file:
        config = weights.config_of(source, FLAGS.bert_config_file)
        source = dataclasses.replace(source, config=config)
    if FLAGS.vocab_file:
        pieces = tuple(read_vocabulary(FLAGS.vocab_file))
        source = dataclasses.replace(source, pieces=pieces, vocab_file=FLAGS.vocab_file)
    if FLAGS.do_lower_case is not None:
        metadata = dataclasses.replace(source.metadata, do_lower_case=FLAGS.do_lower_case)
        source = dataclasses.replace(source, metadata=metadata)
    if source.config and source.pieces:
        weights.tokenizer_of(source, source.config)  # refuses what does not belong together
    return source


def the_only(sources: Sequence[Weights]) -> Weights:
    """The one checkpoint that is given."""
    if len(sources) > 1:
        raise InputError(
            received=f"{len(sources)} checkpoints in --from",
            expected="one; average takes several",
            remedy="run the command for each of them",
        )
    return sources[0]


def with_vocabulary(source: Weights) -> Weights:
    """The weights with extra pieces and padding, as the flags say."""
    if FLAGS.extra_tokens:
        source = editing.add_pieces(source, FLAGS.extra_tokens, seed=FLAGS.seed)
    return editing.pad_vocabulary(source, FLAGS.pad_vocab_to)


def default_format(verb: str, source: Weights) -> str:
    """The format to write where --to_format does not say."""
    from_hugging_face = source.format == "hugging_face"
    if verb == "convert":
        from_hugging_face = not from_hugging_face
    return "hugging_face" if from_hugging_face else "bert_tf"


def description(source: Weights) -> str:
    """What a checkpoint holds, for people."""
    lines = [f"{source.path}: {source.format}"]
    lines += [f"  {name} {list(source.shapes[name])}" for name in source.names]
    parameters = sum(math.prod(source.shapes[name]) for name in source.names)
    lines.append(f"  {len(source.names)} weights, {parameters:,} parameters")
    lines.append(f"  {len(source.slots)} slots of an optimizer and notes")
    lines += [f"  copy or constant, not read: {name}" for name in source.ignored]
    lines.append(f"  configuration: {source.config or 'none beside it'}")
    vocabulary = f"{source.vocab_file}, {len(source.pieces)} pieces" if source.pieces else "none"
    lines.append(f"  vocabulary: {vocabulary}")
    lines.append(f"  {source.metadata}")
    return "\n".join(lines)


def report_left_out(changed: Weights, to_format: str) -> None:
    """Says what the format has no place for."""
    if to_format != "hugging_face":
        return
    left = [n for n in changed.names if not hugging_face_name(n)]
    for name in left:
        print(f"  left out: {name}")
    if changed.slots:
        print(
            f"  left out: {len(changed.slots)} slots of the optimizer, such as {changed.slots[0]}"
        )


def report_difference(differences: Mapping[str, float]) -> None:
    """Prints the greatest difference of each output between what was read and what was written.

    Raises:
      InputError: one is greater than rounding explains.
    """
    for name, difference in differences.items():
        print(f"  {name}: greatest difference {difference:.3g}")
    wrong = [name for name, difference in differences.items() if not difference <= ROUNDING]
    if wrong:
        raise InputError(
            received=f"{', '.join(wrong)} that differ after the conversion",
            expected=f"differences up to {ROUNDING}",
            remedy=f"do not use {FLAGS.to}, and report this",
        )


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
