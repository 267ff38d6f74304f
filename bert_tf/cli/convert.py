"""Converts weights from one format to another, and proves that they compute the same.

    bert-tf convert --from=uncased_L-12_H-768_A-12 --to=bert-base-hf
    bert-tf convert inspect --from=bert-base-hf
    bert-tf convert strip --from=model/model.ckpt-1000 --to=small

Read: TF1 checkpoints and ours, TF2 checkpoints of tensorflow/models, .keras files of bert_tf's
models, and Hugging Face's folders. Written: TF1, ours and Hugging Face's.
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence

from absl import flags, logging

from bert_tf.checkpoints.metadata import DEFAULT_FORMAT, WRITTEN, Weights
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.cli import model_flags
from bert_tf.errors import InputError
from bert_tf.files import locked, new_path

FLAGS = flags.FLAGS
ROUNDING = 1e-4  # differences of outputs that are no sign of an error
VERBS = ("convert", "inspect", "strip")
REMOVED = {"average": "average in Python, as docs/checkpoints.md shows"}  # of before: what to do


class Convert:
    """The flags of this command.

    Attributes:
      from_: The weights to read, also hf:OWNER/NAME[@REVISION].
      to: The folder to make, not a file.
      format: tf1: what the original reads. bert_tf: the same with any configuration.
        hugging_face. Default: bert_tf for what comes from Hugging Face, else hugging_face; strip
        keeps the format.
      extra_tokens: Tokens to add after the last one, commas between.
      never_split: Pieces that the model's tokenizer keeps whole wherever a text has them, such as
        '<e1>', commas between. Default: as its files say; --never_split= for none.
      max_position_embeddings: Rows of the table of positions, more than before: the longest
        sequence in tokens. New rows are copies of the old ones, to be trained further.
      seed: Of the vectors of extra tokens.
    """

    _acts = """
        to: format extra_tokens never_split max_position_embeddings seed
        extra_tokens: seed"""
    from_ = shared_flags.Path(required=True)
    to = shared_flags.Path()
    format = shared_flags.Choice(None, WRITTEN)
    extra_tokens = ()
    never_split = ()
    max_position_embeddings = shared_flags.Count(None, most=shared_flags.LONGEST)
    seed = shared_flags.SEED


def define_flags() -> None:
    """The flags of this command, and those of a model's files."""
    shared_flags.define(Convert)
    shared_flags.define(model_flags.ModelFiles)
    for name in ("do_lower_case", "never_split"):
        FLAGS.set_default(name, None)  # as the model has it


def check_flags(words: Sequence[str]) -> None:
    """Raises `InputError` unless the words outside the flags are one verb or none."""
    verb = words[0] if words else "convert"
    if verb not in VERBS or len(words) > 1:
        received, expected = f"{' '.join(words)!r} outside any flag", f"one of {', '.join(VERBS)}"
        remedy = REMOVED.get(verb, "write --flag=value with an equals sign and no space")
        raise InputError(received, expected, remedy)
    if (verb == "inspect") == bool(FLAGS.to):
        received = f"{verb} with{'' if FLAGS.to else 'out'} --to"
        expected = "the folder to make, unless weights are inspected"
        remedy = "leave out --to" if FLAGS.to else "add --to=FOLDER"
        raise InputError(received, expected, remedy)
    if verb != "inspect":
        new_path(FLAGS.to)


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

from bert_tf.checkpoints import saving
from bert_tf.checkpoints.hugging_face import hugging_face_name
from bert_tf.checkpoints.loading import (
    config_of,
    open_weights,
    refuse_other_case,
    refuse_other_pieces,
    tokenizer_of,
)
from bert_tf.terminal import Progress
from bert_tf.tokenization.wordpiece import read_vocabulary


def main(argv: Sequence[str]) -> None:
    """Flags -> weights -> changed as the verb says -> saved -> compared."""
    verb = argv[1] if argv[1:] else "convert"
    with locked(FLAGS.to, parents=True) if verb != "inspect" else contextlib.nullcontext():
        convert(verb)


def convert(verb: str) -> None:
    """Does what a verb says, and prints what it did."""
    source = complete(open_weights(FLAGS["from"].value))
    if verb == "inspect":
        print(description(source))
        return
    source = saving.without_slots(source) if verb == "strip" else source
    written_format = FLAGS.format or default_format(verb, source)
    rows = len(source.pieces) if FLAGS.extra_tokens else None  # those behind them are new
    longest = FLAGS.max_position_embeddings  # where it is given, all old positions are compared
    inputs = saving.random_inputs(
        config_of(source), rows=rows, length=longest or saving.COMPARED_LENGTH
    )
    with Progress("compute with what was read"):
        before = saving.outputs_of(source, inputs)  # refuses what does not fit
    changed = edited(source)
    differences: dict[str, float] = {}

    def prove(folder: str) -> None:
        with Progress("compute with what was written"):
            after = saving.outputs_of(open_weights(folder), inputs)
        differences.update(saving.difference_of_outputs(before, after, rows=rows))
        refuse_difference(differences)

    with Progress(f"write {FLAGS.to}"):
        saving.write_weights(changed, FLAGS.to, written_format, prove=prove)
    print(f"Wrote {FLAGS.to} in the format {written_format}: {len(changed.names)} weights")
    if written_format == "hugging_face":  # which has no place for the rest
        for name in filter(lambda name: not hugging_face_name(name), changed.names):
            print(f"  left out: {name}")
        if slots := changed.slots:
            print(f"  left out: {len(slots)} slots of the optimizer, such as {slots[0]}")
    for name, difference in differences.items():
        print(f"  {name}: greatest difference {difference:.3g}")


def complete(source: Weights) -> Weights:
    """The weights with configuration, vocabulary and case as the flags say."""
    if FLAGS.bert_config_file:
        config = config_of(source, FLAGS.bert_config_file)
        source = dataclasses.replace(source, config=config)
    if FLAGS.vocab_file:
        pieces = tuple(read_vocabulary(FLAGS.vocab_file))
        refuse_other_pieces(source, pieces, FLAGS.vocab_file)
        source = dataclasses.replace(source, pieces=pieces, vocab_file=FLAGS.vocab_file)
    if FLAGS["do_lower_case"].present:
        refuse_other_case(source, FLAGS.do_lower_case)
        metadata = dataclasses.replace(source.metadata, do_lower_case=FLAGS.do_lower_case)
        source = dataclasses.replace(source, metadata=metadata)
    if source.config and source.pieces:
        tokenizer_of(source, source.config)  # refuses what does not belong together
    return source


def edited(source: Weights) -> Weights:
    """The weights with the tables and the tokenizer that the flags ask for."""
    changed = source
    if FLAGS.never_split is not None:
        never_split = tuple(sorted({*FLAGS.never_split})) or None  # in whatever order given
        metadata = dataclasses.replace(source.metadata, never_split=never_split)
        changed = dataclasses.replace(changed, metadata=metadata)
    if FLAGS.extra_tokens:
        changed = saving.add_pieces(changed, FLAGS.extra_tokens, seed=FLAGS.seed)
    if FLAGS.max_position_embeddings:
        changed = saving.extend_positions(changed, FLAGS.max_position_embeddings)
    if changed.config and changed.pieces:
        tokenizer = tokenizer_of(changed, changed.config)  # refuses what is not in the vocabulary
        for piece in FLAGS.extra_tokens:
            found = tokenizer.tokenize(piece)  # text is split at punctuation and lower-cased
            if not piece.startswith("##") and found != [piece]:
                logging.warning(
                    "The tokenizer cuts %r into %s, so text never gives this token: its vector is "
                    "for ids from elsewhere. --never_split keeps it whole.",
                    *(piece, " ".join(found)),
                )
    return changed


def default_format(verb: str, source: Weights) -> str:
    """The format to write where --format does not say."""
    is_default = (source.format == DEFAULT_FORMAT) != (verb == "convert")
    return DEFAULT_FORMAT if is_default else "bert_tf"


def description(source: Weights) -> str:
    """What a checkpoint holds, for people."""
    parameters = sum(math.prod(source.shapes[name]) for name in source.names)
    vocabulary = f"{source.vocab_file}, {len(source.pieces)} tokens" if source.pieces else "none"
    lines = [
        f"{source.path}: {source.format}",
        *(f"  {name} {list(source.shapes[name])}" for name in source.names),
        f"  {len(source.names)} weights, {parameters:,} parameters",
        f"  {len(source.slots)} slots of an optimizer, counters and settings",
        *(f"  copy or constant, not read: {name}" for name in source.ignored),
        f"  configuration: {listed(source.config and source.config.to_dict())}",
        f"  vocabulary: {vocabulary}",
        f"  known of its training: {listed(source.metadata.known())}",
    ]
    return "\n".join(lines)


def listed(values: Mapping[str, object] | None) -> str:
    """Names and values, with commas between."""
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items()) or "none"


def refuse_difference(differences: Mapping[str, float]) -> None:
    """Raises `InputError` if an output of what was written differs by more than rounding explains.

    Args:
      differences: the greatest of each output.
    """
    wrong = {name: value for name, value in differences.items() if not value <= ROUNDING}
    if wrong:
        outputs = ", ".join(f"{name} by {value:.3g}" for name, value in wrong.items())
        received = f"a written model whose outputs differ: {outputs}"
        remedy = "report this, with both formats; nothing was left"
        raise InputError(received, f"differences up to {ROUNDING}", remedy)


if __name__ == "__main__":
    cli.run(main)
