"""A run's files: records, a description and an index beside each, a working folder, a report.

The report has counts, shares, and warnings of what would spoil a training.
"""

import contextlib
import itertools
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.data import enough_predictions
from bert_tf.data.records import (
    FRAME_BYTES,
    PACKED,
    BlockIndex,
    DataDescription,
    IndexBuilder,
    description_path,
    index_path,
)
from bert_tf.declarations import typed
from bert_tf.errors import InputError
from bert_tf.files import gfile, is_file, is_remote, locked, outputs, read_json
from bert_tf.terminal import number_of
from bert_tf.tokenization.whole_pieces import KEPT_WHOLE
from data_gen.documents import Counts

# What runs keep in a working folder. The corpus' file says that the folders are complete.
CORPUS_FOLDER, CORPUS_FILE, ROWS_FOLDER = "corpus", "corpus.json", "rows"
# All of these, and those of beam.py; anything else in the place of a working folder stays.
KEPT = (CORPUS_FILE, CORPUS_FOLDER, ROWS_FOLDER, "text", "blocks", "counts", "shards", "machine")


def shard_path(output_file: str, shard: int, num_shards: int) -> str:
    """The name of a shard, which counts from 0.

    >>> shard_path("data/train", 2, 64)
    'data/train-00002-of-00064'
    """
    return f"{output_file}-{shard:05d}-of-{num_shards:05d}"


def output_paths(output_file: str, num_shards: int) -> list[str]:
    """The files to write: the shards of one name, or for 0 the names between commas."""
    if not num_shards:
        return output_file.split(",")
    return [shard_path(output_file, shard, num_shards) for shard in range(num_shards)]


def check_paths(input_files: Sequence[str], output_files: Sequence[str]) -> None:
    """Makes the folders of the outputs.

    Args:
      input_files: all that are read, the vocabulary too.
      output_files: those of records; the files beside them are checked, too.

    Raises:
      InputError: a folder cannot be made; an output has no name, is there twice, or is an input.
    """
    expected = "names of files, separated by commas, each once"
    there: set[str] = set()
    written = [report_path(output_files[0])]
    for path in output_files:
        real_path = path if is_remote(path) else os.path.realpath(path)
        if not path or real_path in there:
            raise InputError(f"--output_file with {path!r}", expected, f"correct {path!r}")
        there.add(real_path)
        written += [path, description_path(path), index_path(path)]
    outputs(written, input_files)
    for folder in dict.fromkeys(os.path.dirname(path) or "." for path in output_files):
        files.make_folder(folder)


def describe(made_with: Mapping[str, Any], **numbers: int) -> DataDescription:
    """The description of a file.

    Args:
      made_with: what all files of the run have in common, as JSON values.
      **numbers: shard (from 1), num_shards, num_records and num_bytes.
    """
    pieces = {name: tuple(made_with.get(name, ())) for name in KEPT_WHOLE}
    return DataDescription(**{**made_with, **numbers, **pieces})


def write_in_turn(paths: Sequence[str], records: Iterable[bytes]) -> list[BlockIndex]:
    """Writes serialized records to files in turn, as the original does; returns their indexes."""
    indexes = [IndexBuilder() for _ in paths]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(tf.io.TFRecordWriter(path)) for path in paths]
        in_turn = itertools.cycle(zip(writers, indexes, strict=True))
        for record, (writer, index) in zip(records, in_turn, strict=False):
            writer.write(record)
            index.add(len(record))
    return [index.finish() for index in indexes]


def write_beside(
    path: str, index: BlockIndex, made_with: Mapping[str, Any], shard: int, num_shards: int
) -> None:
    """Writes the index and the description of a file, before it gets its name; see `describe`."""
    numbers = {"num_records": index.num_records, "num_bytes": index.num_bytes}
    data = describe(made_with, shard=shard, num_shards=num_shards, **numbers)
    files.write_text(description_path(path), data.to_json_string())
    files.write_text(index_path(path), index.to_json_string())


# ------------------------------------------------------------------------- earlier runs


def shards_there(output_file: str) -> set[str]:
    """The names, without their folder, of all shards of an output, of whatever run."""
    folder, name = os.path.split(output_file)
    shard = re.compile(re.escape(name) + r"-\d{5}-of-\d{5}")
    return set(filter(shard.fullmatch, gfile().listdir(folder or ".")))


def finished_shards(
    output_file: str, num_shards: int, made_with: Mapping[str, Any]
) -> dict[str, int]:
    """The shards that an earlier run of the same command finished, with their numbers of records.

    Raises:
      InputError: a file there is no shard of this run: it has another number of shards, another
        description, or none; or it is a single file of that name; or another process writes it.
    """
    finished, paths = {}, output_paths(output_file, num_shards)
    remedy = "give the command that the others were made with, or another --output_file"
    there = shards_there(output_file)
    single = {os.path.basename(output_file)} if is_file(output_file) else set()
    if others := single | there - {*map(os.path.basename, paths)}:
        received = f"--num_shards={num_shards}, where {min(others)} is there"
        raise InputError(received, "shards of one run", remedy)
    for shard, path in enumerate(paths, start=1):
        if os.path.basename(path) not in there:
            continue
        with locked(path):  # removes what a run left that was killed after the shard had its name
            pass
        source = description_path(path)
        made = typed(DataDescription, read_json(source, remedy=remedy), source=source)
        numbers = {"num_records": made.num_records, "num_bytes": gfile().stat(path).length}
        ours = describe(made_with, shard=shard, num_shards=num_shards, **numbers)
        if name := next((n for n in vars(ours) if getattr(ours, n) != getattr(made, n)), None):
            received = f"{path}, a shard with the {name} {getattr(made, name)}"
            raise InputError(received, f"{getattr(ours, name)}, as of this command", remedy)
        finished[path] = made.num_records
    return finished


@contextlib.contextmanager
def working_folder(
    output_file: str, temp_dir: str | None, *, kept_with: str = ""
) -> Iterator[pathlib.Path]:
    """A local folder; removed at the end, or by the next run if this one is killed.

    Args:
      output_file: the output; one run at a time may make it.
      temp_dir: where to put the folder; by default beside the output file, or, if that is remote,
        in the system's folder for temporary files.
      kept_with: the name of a file. Once it is in the folder, the folder is kept when the run fails
        or is killed, and the next run continues with it.

    Raises:
      InputError: the folder cannot be made, or another run is using it.
    """
    folder = pathlib.Path(files.hidden_sibling(output_file, "working"))
    if temp_dir or is_remote(output_file):
        name = output_file.replace("://", "_").replace("/", "_") + ".working"
        folder = pathlib.Path(temp_dir or tempfile.gettempdir(), name)
    with locked(output_file, parents=True):
        try:
            with locked(str(folder), folder=True):
                if not (kept_with and (folder / kept_with).exists()):
                    clear(folder)
                try:
                    yield folder
                    kept_with = ""  # all is done: nothing is kept
                finally:
                    if not (kept_with and (folder / kept_with).exists()):
                        with contextlib.suppress(OSError):  # the next run removes the rest
                            clear(folder)
        finally:
            with contextlib.suppress(OSError):  # where something is kept, or of others
                folder.rmdir()


def clear(folder: pathlib.Path) -> None:
    """Removes what runs keep in a working folder; first the file that says that it is complete."""
    for path in [*(folder / name for name in KEPT), *folder.glob(f".*{files.INCOMPLETE}")]:
        files.remove(path)


# ------------------------------------------------------------------------- the report

# Above these shares something is wrong with the data, or with the vocabulary for them.
MOST_UNKNOWN = 0.1
MOST_OF_ONE_SENTENCE = 0.5
MOST_RANDOM = 0.65  # of next sentences; half are meant to be
MOST_SENTENCES_PER_DOCUMENT = 1000
MOST_TOKENS_PER_WORD = 3  # of words between spaces
MOST_CUT_OFF = 0.25
LEAST_MASKED = 0.9  # of masked_lm_prob
EXAMPLES_SHOWN = 3

COPIED = ("files", "documents", "sentences", "tokens", "documents_of_one_sentence",
          "documents_cut", "repeated_documents", "lines_with_special_tokens",
          "lines_with_carriage_returns", "unsplit_paragraphs", "instances")  # fmt: skip
DROPPED = ("title_lines", "markup_lines", "markup_characters", "short_lines",
           "short_characters", "lines_outside_documents", "sentences_without_tokens",
           "documents_without_tokens")  # fmt: skip
SHARES = {  # in the report: two counts
    "unknown_share": ("unknown_tokens", "tokens"),
    "mean_length": ("instance_tokens", "instances"),
    "full_length_share": ("full_instances", "instances"),
    "random_next_share": ("random_next", "instances"),
    "mean_predictions": ("masked", "instances"),
    "masked_share": ("masked", "instance_tokens"),
    "mask_share": ("masked_as_mask", "masked"),
    "unchanged_share": ("masked_as_itself", "masked"),
}


def report_path(output_file: str) -> str:
    """Where the report is written, given the first output file.

    >>> report_path("data/train.tfrecord")
    'data/report_train.tfrecord.json'
    """
    folder, name = os.path.split(output_file)
    return os.path.join(folder, f"report_{name}.json")


def write_report(
    path: str,
    counts: Counts,
    made_with: Mapping[str, Any],
    output_files: Mapping[str, int],
    pieces: Sequence[str],
    warnings: Iterable[str] = (),
) -> dict[str, Any]:
    """Writes the report as JSON and logs it, with the first records as text; returns it.

    Args:
      path: see `report_path`.
      counts: of the whole corpus.
      made_with: what the descriptions of the files have in common.
      output_files: the number of records of each.
      pieces: the vocabulary of the records.
      warnings: of how the text was read, before those of the numbers.
    """
    report = make_report(counts, made_with, output_files, warnings)
    files.write_text(path, json.dumps(report, indent=2) + "\n")
    records = itertools.chain.from_iterable(map(_records_of, output_files))
    for record in itertools.islice(records, EXAMPLES_SHOWN):
        logging.info("example: %s", in_a_line(record, pieces))
    log_report(report)
    logging.info("wrote %s of records and %s", number_of(len(output_files), "files"), path)
    return report


def read_report(
    path: str, made_with: Mapping[str, Any], numbers: Sequence[int | None]
) -> dict[str, Any] | None:
    """The report of an earlier run on these very files; None if there is none.

    Args:
      path: see `report_path`.
      made_with: as for `write_report`.
      numbers: of records of each file; None for a file that is not there.
    """
    report = read_json(path) if is_file(path) else {}
    is_same = report.get("settings") == made_with
    return report if is_same and [*report["output_files"].values()] == [*numbers] else None


def make_report(
    counts: Counts,
    made_with: Mapping[str, Any],
    output_files: Mapping[str, int],
    warnings: Iterable[str] = (),
) -> dict[str, Any]:
    """The report, with no times in it: same data, same report."""
    passes = made_with["dupe_factor"]
    report = {name: counts[name] for name in COPIED}
    report |= {name: counts[part] / max(1, counts[whole]) for name, (part, whole) in SHARES.items()}
    records = max(1, sum(output_files.values()))
    report |= {
        "instances_per_record": counts["instances"] / records,
        "real_share": counts["instance_tokens"] / (records * made_with["max_seq_length"]),
        "random_share": 1 - report["mask_share"] - report["unchanged_share"],
        "cut_off_share": 1 - counts["kept_tokens"] / max(1, passes * counts["tokens"]),
        "dropped": {name: counts[name] for name in DROPPED if counts[name]},
        "settings": dict(made_with),
        "output_files": dict(output_files),
    }
    if counts["words"]:  # with --words_from_spaces
        report["tokens_per_word"] = counts["tokens"] / counts["words"]
    return report | {"warnings": [*warnings, *find_warnings(report)]}


def find_warnings(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields warnings: about the text, its cuts, and meaningless next-sentence labels."""
    documents, sentences, made_with = report["documents"], report["sentences"], report["settings"]
    blank_line = "Is there a blank line between any two documents?"
    if (share := report["unknown_share"]) > MOST_UNKNOWN:
        yield f"{share:.0%} of the tokens are [UNK]: do vocabulary and --do_lower_case fit?"
    if (number := report.get("tokens_per_word", 0)) > MOST_TOKENS_PER_WORD:
        yield f"Words have {number:.1f} tokens on average: --words_from_spaces needs cut text."
    if number := report["lines_with_special_tokens"]:
        yield (
            f"{number_of(number, 'lines')} with [CLS], [SEP] or another special token as text, "
            "which is cut into pieces and learned: remove them from the text."
        )
    if number := report["lines_with_carriage_returns"]:
        yield (
            f"{number_of(number, 'lines')} with carriage returns inside, which end no line: "
            "are parts of the text from an old Macintosh? Write line feeds instead."
        )
    if number := report["repeated_documents"]:
        yield f"{number} of {documents} documents repeat another one: remove the copies."
    if documents == 1:
        yield f"The single document gives 'random' next segments of its own. {blank_line}"
    elif sentences > MOST_SENTENCES_PER_DOCUMENT * documents:
        yield f"Documents have {sentences / documents:.0f} sentences on average. {blank_line}"
    if times := report["documents_cut"]:
        yield f"Documents that were too long were cut, {times} times. {blank_line}"
    alone = report["documents_of_one_sentence"]
    if are_alone := alone > MOST_OF_ONE_SENTENCE * documents:
        yield f"{alone} of {documents} documents are one sentence: all their pairs are random."
    if (share := report["cut_off_share"]) > MOST_CUT_OFF:
        random_next = f"{report['random_next_share']:.0%} of the next sentences are random"
        longer = "a longer --max_seq_length keeps more; --input_format=paragraphs splits lines"
        yield f"{share:.0%} of the text is cut off, and {random_next}: {longer}."
    elif not are_alone and (share := report["random_next_share"]) > MOST_RANDOM:
        remedy = "a shorter --max_seq_length, longer documents, or training with --task=fill_mask"
        yield f"{share:.0%} of the next sentences are random, not half of them: try {remedy}."
    enough = enough_predictions(made_with["max_seq_length"], prob := made_with["masked_lm_prob"])
    is_capped = made_with["max_predictions_per_seq"] < enough
    if is_capped and (share := report["masked_share"]) < LEAST_MASKED * prob:
        asked = f"--masked_lm_prob={prob:g}: use --max_predictions_per_seq={enough}."
        yield f"{share:.1%} of the tokens are masked, fewer than {asked}"


def _records_of(path: str) -> Iterator[dict[str, list[int]]]:
    """The features of a file's records, read without starting TensorFlow's runtime."""
    with gfile().GFile(path, "rb") as file:
        while header := file.read(FRAME_BYTES - 4):  # a length and its checksum
            record = file.read(int.from_bytes(header[:8], "little"))
            file.read(4)  # its checksum
            features = tf.train.Example.FromString(record).features.feature
            yield {name: list(feature.int64_list.value) for name, feature in features.items()}


def in_a_line(values: Mapping[str, Sequence[int]], pieces: Sequence[str]) -> str:
    """A record in a line: each masked position shows its token and, in braces, its label.

    (next) [CLS] he went [MASK]{home} [SEP] it{it} was late [SEP]

    Of a packed record with `(next, random)` for its sequences.
    """
    numbers = values.get(PACKED) or values["input_mask"]
    tokens = [pieces[i] for i, number in zip(values["input_ids"], numbers, strict=True) if number]
    for position, label in zip(values["masked_lm_positions"], values["masked_lm_ids"], strict=True):
        if position:  # padding is 0, the position of [CLS], which is never masked
            tokens[position] += f"{{{pieces[label]}}}"
    kinds = ["random" if label else "next" for label in values["next_sentence_labels"]]
    return f"({', '.join(kinds[: max(numbers)])}) {' '.join(tokens)}"


def log_report(report: Mapping[str, Any]) -> None:
    """Logs the numbers of the report, and its warnings."""
    for name, value in (report | report["dropped"]).items():
        if isinstance(value, int | float):
            logging.info("%s: %.6g", name.replace("_", " "), value)
    for warning in report["warnings"]:
        logging.warning(warning)
