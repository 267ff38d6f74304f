"""The companions of a model, compared with those of a folder's; in pre-training with the data's.

A companion belongs to weights and is stored beside them: sizes, vocabulary, case, pieces that are
kept whole. Data made with another companion would train another model without an error, so they are
refused.

    config_and_vocabulary  what is given, else what the initial weights have
    of_data                what record files, flags and the folder of a run say, compared
    first_weights          what a run begins or goes on with
    refuse_other_model     a folder whose checkpoints are of another model
    check_companions       all of it, against weights
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.checkpoints import loading, tf1
from bert_tf.checkpoints.metadata import (
    METADATA_FILE,
    ModelMetadata,
    Weights,
    read_model_files,
    write_model_files,
)
from bert_tf.checkpoints.options import ModelFiles
from bert_tf.config import BertConfig
from bert_tf.data.records import DataDescription, description_path
from bert_tf.data.shards import common_description
from bert_tf.declarations import names_with
from bert_tf.errors import InputError
from bert_tf.files import is_file, paths_in
from bert_tf.tokenization.whole_pieces import KEPT_WHOLE, kept_whole, without_kept_whole
from bert_tf.tokenization.wordpiece import (
    FullTokenizer,
    read_vocabulary,
    refuted_case,
    strips_accents,
    vocabulary_sha256,
)

OF_TRAINING = names_with(BertConfig, "of_training")
# Weights in a run's folder that the run has not written and does not begin with.
_OTHER_MODEL = r"^(?!model\.ckpt-\d+\.index).*\.(index|keras|h5|safetensors|bin)$"


class Companions(NamedTuple):
    """What belongs to the weights that a pre-training makes."""

    config: BertConfig
    facts: ModelMetadata
    tokenizer: FullTokenizer | None
    data: DataDescription | None  # None if no file beside the records describes them

    def with_facts(self, **facts: Any) -> "Companions":
        """The same, with more that is known of the model."""
        return self._replace(facts=dataclasses.replace(self.facts, **facts))

    def write(self, folder: str) -> None:
        """Writes what belongs beside checkpoints; with a vocabulary the folder is a whole model."""
        write_model_files(folder, self.config, self.tokenizer, self.facts)


def of_data(
    paths: Sequence[str],
    config: BertConfig,
    *,
    vocab_file: str | None,
    do_lower_case: bool | None,
    output_dir: str,
    is_exported: bool,
) -> Companions:
    """The companions of the model that data will train, as far as they are known.

    Args:
      paths: the paths of the record files.
      config: the configuration of the model.
      vocab_file: the vocabulary that is given, if any.
      do_lower_case: the case that is given, if any.
      output_dir: the folder of the run, which may be resumed.
      is_exported: whether a text will be tokenized at the end of the run.

    Raises:
      InputError: data, vocabulary, case and configuration do not belong together.
    """
    data, undescribed = common_description(paths)
    if data is not None:
        _check_description(data, undescribed, config, vocab_file)
    recorded = f"{output_dir}/{METADATA_FILE}"  # a run that began without a case may be resumed
    is_needed = is_exported or (vocab_file is not None and not is_file(recorded))
    case = _case_of_data(data, undescribed, do_lower_case, recorded, is_needed)
    strip_accents = data and data.strip_accents
    facts = ModelMetadata(do_lower_case=case, strip_accents=strip_accents, **kept_whole(data))
    tokenizer = _tokenizer_of_data(vocab_file, config, facts) if vocab_file else None
    return Companions(config, facts, tokenizer, data)


def config_and_vocabulary(
    given: ModelFiles, init_checkpoint: str | None
) -> tuple[BertConfig, str | None]:
    """The configuration and the vocabulary that are given, else those of the initial weights.

    Raises:
      InputError: there is no configuration.
    """
    if given.bert_config_file:
        return BertConfig.from_json_file(given.bert_config_file), given.vocab_file
    if not init_checkpoint:
        remedy = "add --bert_config_file, or --init_checkpoint with a model that has such a file"
        raise InputError("no --bert_config_file", "the sizes of the model", remedy)
    weights = loading.open_weights(init_checkpoint)
    return loading.config_of(weights), given.vocab_file or weights.vocab_file


def _check_description(
    data: DataDescription, undescribed: str | None, config: BertConfig, vocab_file: str | None
) -> None:
    """Raises `InputError` if data are of another vocabulary, or keep pieces that other data cut."""
    if undescribed and (pieces_of_data := kept_whole(data)):
        made = f"data made with {_flags_of(pieces_of_data)}"
        received = f"{undescribed}, without {description_path(undescribed)}, beside {made}"
        remedy = "copy that file too, or leave out the data without it"
        raise InputError(received, "files that were all made with the same pieces", remedy)
    config.check_vocabulary_size(data.vocab_size, vocab_file=f"data of {data.vocab_file}")
    if vocab_file and vocabulary_sha256(pieces := read_vocabulary(vocab_file)) != data.vocab_sha256:
        made = f"made with another vocabulary: {data.vocab_file} with {data.vocab_size}"
        received = f"{vocab_file} with {len(pieces)} word pieces, for data {made}"
        expected = f"the vocabulary with SHA-256 {data.vocab_sha256}"
        remedy = "give the data's --vocab_file, or make the data again"
        raise InputError(received, expected, remedy)


def _case_of_data(
    data: DataDescription | None,
    undescribed: str | None,
    given: bool | None,
    recorded_file: str,
    is_needed: bool,
) -> bool | None:
    """The do_lower_case of the data; None if it is unknown and the model gets no text.

    The vocabulary proves nothing: data of either case may be made with any.

    Args:
      data: describes the files that have a description.
      undescribed: a file that has none.
      given: the case that the flags say.
      recorded_file: the file of the model's facts; it need not be there.
      is_needed: whether it must be known: a text is tokenized, or a model begun with a vocabulary.

    Raises:
      InputError: sources differ, or none says it where it must be known.
    """
    sources = {
        "the flags": given,
        recorded_file: ModelMetadata.from_json_file(recorded_file).do_lower_case,
        "info_*.json of the data": data and data.do_lower_case,
    }
    known = {source: case for source, case in sources.items() if case is not None}
    if len(set(known.values())) == 2:
        received = ", ".join(f"{case} in {source}" for source, case in known.items())
        remedy = "leave out or correct the flag; for data of another case use another --output_dir"
        raise InputError(f"do_lower_case {received}", "the case of the data's text", remedy)
    if known and (undescribed is None or next(iter(known)) != "info_*.json of the data"):
        return next(iter(known.values()))
    if is_needed:
        received = f"{undescribed}, without {description_path(str(undescribed))}"
        remedy = "copy it too, or add --do_lower_case or --nodo_lower_case, as the data were made"
        raise InputError(received, "that file, which says whether text was lower-cased", remedy)
    reason = f"no info_*.json says whether the text of {undescribed} was lower-cased"
    logging.warning("The model will not record do_lower_case, as %s: add the flag.", reason)
    return None


def _tokenizer_of_data(vocab_file: str, config: BertConfig, facts: ModelMetadata) -> FullTokenizer:
    """The tokenizer of a vocabulary, which must fit the model.

    Raises:
      InputError: a special token is missing, or the vocabulary is not of the table's size.
    """
    # If the case is unknown no text is tokenized: only the vocabulary is used.
    lower = facts.do_lower_case is not False
    tokenizer = FullTokenizer(
        vocab_file, lower, strip_accents=facts.strip_accents, **kept_whole(facts)
    )
    tokenizer.require_special_tokens("[CLS]", "[SEP]", "[MASK]")
    of_case = without_kept_whole(tokenizer.vocab, tokenizer)
    if reason := refuted_case(vocab_file, of_case, facts.do_lower_case):
        logging.warning("The data were made with do_lower_case %s, but with %s.", lower, reason)
    config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=vocab_file)
    loading.check_spare_rows(tokenizer, config)
    return tokenizer


def first_weights(
    folder: tf1.CheckpointFolder, init_checkpoint: str | None, *, is_trained: bool
) -> Weights | None:
    """The latest checkpoint of a run, else the initial weights given; None: training begins fresh.

    Raises:
      InputError: without training there is neither; or the folder has another model, whose files
        training would overwrite.
    """
    latest = folder.latest()
    if latest and not is_trained and init_checkpoint not in (None, latest, folder.path):
        text = "Evaluating %s, not --init_checkpoint=%s; for that one give another --output_dir."
        logging.warning(text, latest, init_checkpoint)
    if path := latest or init_checkpoint:
        return loading.open_weights(path)
    if not is_trained:
        received = f"--do_eval alone, with no checkpoint in {folder.path}"
        remedy = "add --do_train, or name a checkpoint with --init_checkpoint"
        raise InputError(received, "a trained model to evaluate", remedy)
    if models := paths_in(folder.path, _OTHER_MODEL):
        raise tf1.no_run(folder.path, models[0].removesuffix(tf1.INDEX))
    return None


def refuse_other_model(
    folder: tf1.CheckpointFolder,
    config: BertConfig,
    pieces: Sequence[str] | None,
    metadata: ModelMetadata,
) -> None:
    """Refuses a folder whose checkpoints are of another model than a run's, in every command.

    Args:
      folder: the folder of the run; one without checkpoints is right for any. Nothing is written.
      config: the configuration of the run's model.
      pieces: the word pieces of its vocabulary, if it is known.
      metadata: the metadata of the model that it will write.

    Raises:
      InputError: configuration (but what training alone depends on), vocabulary, case, head,
        labels or task are others.
    """
    if folder.latest() is None:
        return
    saved = read_model_files(folder.path)

    def known(config: BertConfig | None, pieces: Sequence[str] | None, of: ModelMetadata) -> dict:
        names = ("do_lower_case", "strip_accents", "architecture", "labels", "task")
        # Where the case is unknown, so is what else the tokenizer does.
        is_known = of.do_lower_case is not None
        whole = {name: {*(getattr(of, name) or ())} if is_known else None for name in KEPT_WHOLE}
        sizes = None
        if config is not None:
            sizes = {name: x for name, x in config.to_dict().items() if name not in OF_TRAINING}
        files = {"configuration": sizes, "vocabulary": pieces}
        return files | whole | {name: getattr(of, name) for name in names}

    old = known(saved["config"], saved["pieces"], saved["metadata"])
    new = known(config, pieces, metadata)
    other = [name for name in old if None not in (old[name], new[name]) and old[name] != new[name]]
    for name in KEPT_WHOLE:
        if name in other and old[name] < new[name]:
            other.remove(name)  # further pieces are learned
    if "configuration" in other:
        ours = new["configuration"]
        theirs = old["configuration"]
        differ = sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))
        other[other.index("configuration")] = f"configuration ({', '.join(differ)})"
    if other:
        received = f"{folder.path}, where a model with another {' and '.join(other)} was trained"
        remedy = "choose another --output_dir, or remove the folder to start again"
        raise InputError(received, "the folder of this run, or an empty one", remedy)


def check_companions(weights: Weights, given: Companions, bert_config_file: str | None) -> None:
    """Raises `InputError` if weights have other companions than a pre-training with these data.

    Args:
      weights: that the training begins with or goes on from.
      given: the companions of the training; `of_data` has compared vocabulary and data.
      bert_config_file: the file of its configuration.
    """
    _, facts, tokenizer, data = given
    loading.config_of(weights, bert_config_file)
    loading.refuse_other_case(weights, facts.do_lower_case)
    check_kept_pieces(weights, facts)
    known = weights.metadata
    if data and known.do_lower_case is not None and strips_accents(data) != strips_accents(known):
        received = f"data made with strip_accents {strips_accents(data)}, for {weights.path}"
        expected = f"strip_accents {strips_accents(known)}, as the model has it"
        remedy = "make the data again with the --vocab_file in the model's folder"
        raise InputError(received, expected, remedy)
    if tokenizer:
        loading.refuse_other_pieces(weights, tokenizer.pieces, tokenizer.vocab_file)
    elif data and weights.pieces and vocabulary_sha256(weights.pieces) != data.vocab_sha256:
        received = f"data of {data.vocab_file}, another vocabulary than that of {weights.path}"
        remedy = "make them with it; if only pieces [unusedN] were replaced, add --vocab_file"
        raise InputError(received, f"data made with {weights.vocab_file}", remedy)


def check_kept_pieces(weights: Weights, facts: ModelMetadata) -> None:
    """Raises `InputError` if a piece that the model keeps whole is not kept whole in its data.

    Data may keep more pieces whole than the model did before: those are learned.

    Args:
      weights: the weights of the model.
      facts: the facts of the data's tokenizer.
    """
    for name in KEPT_WHOLE:
        of_model = getattr(weights.metadata, name) or ()
        of_data = getattr(facts, name) or ()
        if {*of_model} <= {*of_data}:
            continue
        made = f"with {_flags_of({name: of_data})}" if of_data else f"without --{name}"
        received = f"data made {made}, for {weights.path} with {name} {', '.join(of_model)}"
        needed = {name: sorted({*of_model, *of_data})}
        remedy = f"make the data again with {_flags_of(needed)}"
        raise InputError(received, "data in which the model's pieces are whole", remedy)


def _flags_of(pieces: Mapping[str, Iterable[str]]) -> str:
    """Lists of pieces, by name, as flags of `bert-tf data`."""
    return " ".join(f"--{name}={','.join(values)}" for name, values in pieces.items())
