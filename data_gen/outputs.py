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

# The names in a working folder.
CORPUS_FOLDER = "corpus"
CORPUS_FILE = "corpus.json"  # written when the corpus is complete
ROWS_FOLDER = "rows"
OF_BEAM = ("text", "blocks", "counts", "shards", "machine")  # see beam.py
# Only these are removed: anything else that stands in a working folder is not ours.
OF_RUNS = (CORPUS_FILE, CORPUS_FOLDER, ROWS_FOLDER, *OF_BEAM)


def shard_path(output_file: str, shard: int, num_shards: int) -> str:
    """The name of a shard, which counts from 0.

    >>> shard_path("data/train", 2, 64)
    'data/train-00002-of-00064'
    """
    return f"{output_file}-{shard:05d}-of-{num_shards:05d}"


def output_paths(output_file: str, num_shards: int) -> list[str]:
    """The files to write: the shards of one name; with 0 shards the names between commas."""
    if not num_shards:
        return output_file.split(",")
    return [shard_path(output_file, shard, num_shards) for shard in range(num_shards)]


def check_paths(input_files: Sequence[str], output_files: Sequence[str]) -> None:
    """Checks the paths of a run, and makes the folders of the outputs.

    Args:
      input_files: all files that are read, the vocabulary too.
      output_files: the files of records. The files beside them are checked, too.

    Raises:
      InputError: a folder cannot be made; an output has no name, is given twice, or is an input.
    """
    expected = "names of files, separated by commas, each once"
    real_paths: set[str] = set()
    written = [report_path(output_files[0])]
    for path in output_files:
        real_path = path if is_remote(path) else os.path.realpath(path)
        if not path or real_path in real_paths:
            raise InputError(f"--output_file with {path!r}", expected, f"correct {path!r}")
        real_paths.add(real_path)
        written += [path, description_path(path), index_path(path)]
    outputs(written, input_files)
    for folder in dict.fromkeys(os.path.dirname(path) or "." for path in output_files):
        files.make_folder(folder)


def describe(made_with: Mapping[str, Any], **numbers: int) -> DataDescription:
    """The description of a file.

    Args:
      made_with: the part that all files of the run have in common, as JSON values.
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
    """The names, without their folder, of all shards of an output, of any run."""
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
    finished = {}
    paths = output_paths(output_file, num_shards)
    remedy = "give the command that the others were made with, or another --output_file"
    there = shards_there(output_file)
    single = {os.path.basename(output_file)} if is_file(output_file) else set()
    foreign = single | there - {*map(os.path.basename, paths)}
    if foreign:
        received = f"--num_shards={num_shards}, where {min(foreign)} is there"
        raise InputError(received, "shards of one run", remedy)
    for shard, path in enumerate(paths, start=1):
        if os.path.basename(path) not in there:
            continue
        with locked(path):  # removes what a killed run has left beside the finished shard
            pass
        source = description_path(path)
        made = typed(DataDescription, read_json(source, remedy=remedy), source=source)
        numbers = {"num_records": made.num_records, "num_bytes": gfile().stat(path).length}
        ours = describe(made_with, shard=shard, num_shards=num_shards, **numbers)
        for name, value in vars(ours).items():
            if getattr(made, name) != value:
                received = f"{path}, a shard with the {name} {getattr(made, name)}"
                raise InputError(received, f"{value}, as of this command", remedy)
        finished[path] = made.num_records
    return finished


@contextlib.contextmanager
def working_folder(
    output_file: str, temp_dir: str | None, *, kept_with: str = ""
) -> Iterator[pathlib.Path]:
    """A local folder; removed at the end, or by the next run if this one is killed.

    Args:
      output_file: the output. One run at a time may make it.
      temp_dir: where to put the folder. Default: beside the output file or, if that is remote, in
        the system's folder for temporary files.
      kept_with: the name of a file. Once it is in the folder, a run that fails or is killed leaves
        the folder, and the next run continues with it.

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
                    kept_with = ""  # the run is complete: nothing is kept
                finally:
                    if not (kept_with and (folder / kept_with).exists()):
                        with contextlib.suppress(OSError):  # the next run removes the rest
                            clear(folder)
        finally:
            with contextlib.suppress(OSError):  # something is kept, or not ours
                folder.rmdir()


def clear(folder: pathlib.Path) -> None:
    """Removes the files of runs in a working folder; first the one that says it is complete."""
    for name in OF_RUNS:
        files.remove(folder / name)
    for path in [*folder.glob(f".*{files.INCOMPLETE}")]:
        files.remove(path)


# ------------------------------------------------------------------------- the report

# The report warns above these, and below LEAST_MASKED.
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
      counts: counts of the whole corpus.
      made_with: the part that the descriptions of the files have in common.
      output_files: the number of records of each file.
      pieces: the vocabulary of the records.
      warnings: warnings about the text; those of `find_warnings` follow.
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
    """The report of an earlier run that made the same files; None without one.

    Args:
      path: see `report_path`.
      made_with: as for `write_report`.
      numbers: the number of records of each file; None for a file that is missing.
    """
    report = read_json(path) if is_file(path) else {}
    if report.get("settings") != made_with:
        return None
    if [*report["output_files"].values()] != [*numbers]:
        return None
    return report


def make_report(
    counts: Counts,
    made_with: Mapping[str, Any],
    output_files: Mapping[str, int],
    warnings: Iterable[str] = (),
) -> dict[str, Any]:
    """The report. It holds no times: same data, same report."""
    report: dict[str, Any] = {name: counts[name] for name in COPIED}
    for name, (part, whole) in SHARES.items():
        report[name] = counts[part] / max(1, counts[whole])
    num_records = max(1, sum(output_files.values()))
    num_tokens = max(1, made_with["dupe_factor"] * counts["tokens"])  # of all passes
    report |= {
        "instances_per_record": counts["instances"] / num_records,
        "real_share": counts["instance_tokens"] / (num_records * made_with["max_seq_length"]),
        "random_share": 1 - report["mask_share"] - report["unchanged_share"],
        "cut_off_share": 1 - counts["kept_tokens"] / num_tokens,
        "dropped": {name: counts[name] for name in DROPPED if counts[name]},
        "settings": dict(made_with),
        "output_files": dict(output_files),
    }
    if counts["words"]:  # with --words_from_spaces
        report["tokens_per_word"] = counts["tokens"] / counts["words"]
    return report | {"warnings": [*warnings, *find_warnings(report)]}


def find_warnings(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields warnings about the text, its cuts, and the shares of random and masked tokens."""
    yield from _warnings_of_text(report)
    yield from _warnings_of_documents(report)
    yield from _warnings_of_cuts(report)
    yield from _warnings_of_masks(report)


def _warnings_of_text(report: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about tokens and lines."""
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


def _warnings_of_documents(report: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about copies, and about documents that are not separated."""
    documents = report["documents"]
    sentences = report["sentences"]
    blank_line = "Is there a blank line between any two documents?"
    if number := report["repeated_documents"]:
        yield f"{number} of {documents} documents repeat another one: remove the copies."
    if documents == 1:
        yield f"The single document gives 'random' next segments of its own. {blank_line}"
    elif sentences > MOST_SENTENCES_PER_DOCUMENT * documents:
        yield f"Documents have {sentences / documents:.0f} sentences on average. {blank_line}"
    if times := report["documents_cut"]:
        yield f"Documents that were too long were cut, {times} times. {blank_line}"


def _warnings_of_cuts(report: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about text that is cut off, and about next sentences that are mostly random."""
    documents = report["documents"]
    alone = report["documents_of_one_sentence"]
    are_alone = alone > MOST_OF_ONE_SENTENCE * documents
    random_share = report["random_next_share"]
    if are_alone:
        yield f"{alone} of {documents} documents are one sentence: all their pairs are random."
    random_next = f"{random_share:.0%} of the next sentences are random"
    if (share := report["cut_off_share"]) > MOST_CUT_OFF:
        remedy = "a longer --max_seq_length keeps more; --input_format=paragraphs splits lines"
        yield f"{share:.0%} of the text is cut off, and {random_next}: {remedy}."
    elif not are_alone and random_share > MOST_RANDOM:
        remedy = "a shorter --max_seq_length, longer documents, or training with --task=fill_mask"
        yield f"{random_next}, not half of them: try {remedy}."


def _warnings_of_masks(report: Mapping[str, Any]) -> Iterator[str]:
    """A warning if `max_predictions_per_seq` leaves too few masked tokens."""
    settings = report["settings"]
    prob = settings["masked_lm_prob"]
    enough = enough_predictions(settings["max_seq_length"], prob)
    is_capped = settings["max_predictions_per_seq"] < enough
    if is_capped and (share := report["masked_share"]) < LEAST_MASKED * prob:
        remedy = f"--masked_lm_prob={prob:g}: use --max_predictions_per_seq={enough}."
        yield f"{share:.1%} of the tokens are masked, fewer than {remedy}"


def _records_of(path: str) -> Iterator[dict[str, list[int]]]:
    """Yields the features of a file's records, without starting TensorFlow's runtime."""
    with gfile().GFile(path, "rb") as file:
        while header := file.read(FRAME_BYTES - 4):  # a length and its checksum
            record = file.read(int.from_bytes(header[:8], "little"))
            file.read(4)  # its checksum
            features = tf.train.Example.FromString(record).features.feature
            yield {name: list(feature.int64_list.value) for name, feature in features.items()}


def in_a_line(values: Mapping[str, Sequence[int]], pieces: Sequence[str]) -> str:
    """A record in a line: each masked position shows its token and, in braces, its label.

        (next) [CLS] he went [MASK]{home} [SEP] it{it} was late [SEP]

    A packed record begins with the labels of all its sequences: (next, random).
    """
    sequence_numbers = values.get(PACKED) or values["input_mask"]  # 0 is padding
    num_tokens = sum(map(bool, sequence_numbers))
    tokens = [pieces[piece_id] for piece_id in values["input_ids"][:num_tokens]]
    for position, label in zip(values["masked_lm_positions"], values["masked_lm_ids"], strict=True):
        if position:  # padding is 0, the position of [CLS], which is never masked
            tokens[position] += f"{{{pieces[label]}}}"
    labels = values["next_sentence_labels"][: max(sequence_numbers)]
    kinds = ["random" if label else "next" for label in labels]
    return f"({', '.join(kinds)}) {' '.join(tokens)}"


def log_report(report: Mapping[str, Any]) -> None:
    """Logs the numbers of the report, and its warnings."""
    for name, value in (report | report["dropped"]).items():
        if isinstance(value, int | float):
            logging.info("%s: %.6g", name.replace("_", " "), value)
    for warning in report["warnings"]:
        logging.warning(warning)
