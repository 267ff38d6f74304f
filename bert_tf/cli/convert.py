"""Converts weights from one format to another, and proves that they compute the same.

    bert-tf convert --from=uncased_L-12_H-768_A-12 --to=bert-base-hf
    bert-tf convert inspect --from=bert-base-hf
    bert-tf convert strip --from=model/model.ckpt-1000 --to=small

Read: TF1 checkpoints and ours, TF2 checkpoints of tensorflow/models, .keras files of bert_tf's
models, and Hugging Face's folders. Written: TF1, ours and Hugging Face's.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bert_tf.checkpoints.metadata import DEFAULT_FORMAT, WRITTEN
from bert_tf.checkpoints.options import ModelFiles
from bert_tf.errors import InputError
from bert_tf.files import locked, new_path
from bert_tf.options import LARGEST_SEED, LONGEST, Options, option

if TYPE_CHECKING:
    from bert_tf.checkpoints.metadata import Weights

ROUNDING = 1e-4  # the largest difference of outputs that rounding explains
VERBS = ("convert", "inspect", "strip")


class Convert(Options):
    """The options of this command."""

    verbs: tuple[str, ...] = option(
        "convert, the default; inspect or strip.", default=(), words="VERB"
    )
    from_: str = option("The weights to read, also hf:OWNER/NAME[@REVISION].", path=True)
    to: str | None = option("The folder to make, not a file.", default=None, path=True)
    format: str | None = option(
        "tf1: what the original reads. bert_tf: the same with any configuration. hugging_face. "
        "Default: bert_tf for what comes from Hugging Face, else hugging_face; strip keeps the "
        "format.",
        default=None,
        choices=WRITTEN,
        acts="to",
    )
    extra_tokens: tuple[str, ...] | None = option(
        "Tokens to add after the last one, commas between.", default=None, filled=True, acts="to"
    )
    never_split: tuple[str, ...] | None = option(
        "Pieces that the model's tokenizer keeps whole wherever a text has them, such as '<e1>', "
        "commas between. Default: as its files say; --never_split= for none.",
        default=None,
        acts="to",
    )
    added_words: tuple[str, ...] | None = option(
        "Pieces that it keeps whole wherever a text has them, for uncased models in any case and "
        "with any accents, such as 'Covid-19', commas between. Default: as its files say; "
        "--added_words= for none.",
        default=None,
        acts="to",
    )
    max_position_embeddings: int | None = option(
        "Rows of the table of positions, more than before: the longest sequence in tokens. New "
        "rows are copies of the old ones, to be trained further.",
        default=None,
        low=1,
        high=LONGEST,
        acts="to",
    )
    seed: int = option(
        "Of the vectors of extra tokens.",
        default=12345,
        low=0,
        high=LARGEST_SEED,
        acts="to and extra_tokens",
    )
    model: ModelFiles = ModelFiles()

    @property
    def verb(self) -> str:
        """The verb: convert, inspect or strip."""
        return self.verbs[0] if self.verbs else "convert"

    def check(self) -> None:
        """Raises `InputError` unless the words outside the flags are one verb or none."""
        if self.verb not in VERBS or len(self.verbs) > 1:
            received = f"{' '.join(self.verbs)!r} outside any flag"
            remedy = "write --flag=value with an equals sign and no space"
            raise InputError(received, f"one of {', '.join(VERBS)}", remedy)
        if (self.verb == "inspect") == bool(self.to):
            received = f"{self.verb} with{'' if self.to else 'out'} --to"
            expected = "the folder to make, unless weights are inspected"
            remedy = "leave out --to" if self.to else "add --to=FOLDER"
            raise InputError(received, expected, remedy)
        if self.to:
            new_path(self.to)


def main(options: Convert) -> None:
    """Weights -> changed as the verb says -> written, compared, published."""
    from bert_tf.checkpoints.loading import open_weights

    if options.verb == "inspect":
        print(description(complete(open_weights(options.from_), options.model)))
        return
    with locked(options.to, parents=True):
        source = complete(open_weights(options.from_), options.model)
        convert(source, options)


def convert(source: "Weights", options: Convert) -> None:
    """Writes weights as the options say, and prints what it did."""
    from bert_tf.checkpoints import saving
    from bert_tf.checkpoints.hugging_face import hugging_face_name
    from bert_tf.checkpoints.loading import config_of, open_weights
    from bert_tf.terminal import Progress

    if options.verb == "strip":
        source = saving.without_slots(source)
    written_format = options.format or default_format(options.verb, source)
    rows = len(source.pieces) if options.extra_tokens else None  # the rows after them are new
    # With new positions, all old ones are compared.
    length = options.max_position_embeddings or saving.COMPARED_LENGTH
    inputs = saving.random_inputs(config_of(source), rows=rows, length=length)
    with Progress("compute with what was read"):
        before = saving.outputs_of(source, inputs)  # refuses what does not fit
    changed = edited(source, options)
    differences: dict[str, float] = {}

    def prove(folder: str) -> None:
        with Progress("compute with what was written"):
            after = saving.outputs_of(open_weights(folder), inputs)
        differences.update(saving.difference_of_outputs(before, after, rows=rows))
        refuse_difference(differences)

    with Progress(f"write {options.to}"):
        saving.write_weights(changed, options.to, written_format, prove=prove)
    print(f"Wrote {options.to} in the format {written_format}: {len(changed.names)} weights")
    # Hugging Face's format has no place for weights that no layer of a BERT has.
    is_hugging_face = written_format == "hugging_face"
    for name in changed.names:
        if not hugging_face_name(name):
            done = "left out" if is_hugging_face else "kept, though of no layer here"
            print(f"  {done}: {name}")
    if is_hugging_face and (slots := changed.slots):
        print(f"  left out: {len(slots)} slots of the optimizer, such as {slots[0]}")
    for name, difference in differences.items():
        print(f"  {name}: greatest difference {difference:.3g}")


def complete(source: "Weights", given: ModelFiles) -> "Weights":
    """The weights with the configuration, the vocabulary and the case of the options."""
    from bert_tf.checkpoints import loading
    from bert_tf.tokenization.wordpiece import read_vocabulary

    if given.bert_config_file:
        config = loading.config_of(source, given.bert_config_file)
        source = dataclasses.replace(source, config=config)
    if given.vocab_file:
        pieces = tuple(read_vocabulary(given.vocab_file))
        loading.refuse_other_pieces(source, pieces, given.vocab_file)
        source = dataclasses.replace(source, pieces=pieces, vocab_file=given.vocab_file)
    if given.do_lower_case is not None:
        loading.refuse_other_case(source, given.do_lower_case)
        metadata = dataclasses.replace(source.metadata, do_lower_case=given.do_lower_case)
        source = dataclasses.replace(source, metadata=metadata)
    if source.config and source.pieces:
        loading.tokenizer_of(source, source.config)  # raises if they do not fit each other
    return source


def edited(source: "Weights", options: Convert) -> "Weights":
    """The weights with the tables and the tokenizer that the options ask for."""
    from absl import logging

    from bert_tf.checkpoints import saving
    from bert_tf.checkpoints.loading import tokenizer_of
    from bert_tf.tokenization.whole_pieces import KEPT_WHOLE

    changed = source
    for name in KEPT_WHOLE:
        pieces = getattr(options, name)
        if pieces is not None:
            sorted_pieces = tuple(sorted({*pieces})) or None  # their order has no effect
            metadata = dataclasses.replace(changed.metadata, **{name: sorted_pieces})
            changed = dataclasses.replace(changed, metadata=metadata)
    if options.extra_tokens:
        changed = saving.add_pieces(changed, options.extra_tokens, seed=options.seed)
    if options.max_position_embeddings:
        changed = saving.extend_positions(changed, options.max_position_embeddings)
    if changed.config and changed.pieces:
        # Raises if a piece of never_split is not in the vocabulary.
        tokenizer = tokenizer_of(changed, changed.config)
        for piece in options.extra_tokens or ():
            parts = tokenizer.tokenize(piece)  # text is split at punctuation and lower-cased
            if not piece.startswith("##") and parts != [piece]:
                logging.warning(
                    "The tokenizer cuts %r into %s, so text never gives this token: its vector is "
                    "for ids from elsewhere. --never_split or --added_words keeps it whole.",
                    piece,
                    " ".join(parts),
                )
    return changed


def default_format(verb: str, source: "Weights") -> str:
    """The format to write without --format."""
    is_default = (source.format == DEFAULT_FORMAT) != (verb == "convert")
    return DEFAULT_FORMAT if is_default else "bert_tf"


def description(source: "Weights") -> str:
    """What a checkpoint holds, for people."""
    parameters = sum(math.prod(source.shapes[name]) for name in source.names)
    vocabulary = f"{source.vocab_file}, {len(source.pieces)} tokens" if source.pieces else "none"
    lines = [f"{source.path}: {source.format}"]
    lines += [f"  {name} {list(source.shapes[name])}" for name in source.names]
    lines.append(f"  {len(source.names)} weights, {parameters:,} parameters")
    lines.append(f"  {len(source.slots)} slots of an optimizer, counters and settings")
    lines += [f"  copy or constant, not read: {name}" for name in source.ignored]
    lines.append(f"  configuration: {listed(source.config and source.config.to_dict())}")
    lines.append(f"  vocabulary: {vocabulary}")
    lines.append(f"  known of its training: {listed(source.metadata.known())}")
    return "\n".join(lines)


def listed(values: Mapping[str, object] | None) -> str:
    """Names and values, with commas between."""
    return ", ".join(f"{name} {value}" for name, value in (values or {}).items()) or "none"


def refuse_difference(differences: Mapping[str, float]) -> None:
    """Raises `InputError` if an output of the written model differs by more than `ROUNDING`.

    Args:
      differences: the greatest difference of each output.
    """
    wrong = {name: value for name, value in differences.items() if not value <= ROUNDING}
    if wrong:
        outputs = ", ".join(f"{name} by {value:.3g}" for name, value in wrong.items())
        received = f"a written model whose outputs differ: {outputs}"
        remedy = "report this, with both formats; nothing was left"
        raise InputError(received, f"differences up to {ROUNDING}", remedy)
