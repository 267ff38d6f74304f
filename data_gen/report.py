"""The report on generated data: counts, shares, and warnings of what would spoil a training."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.data.records import untuned
from bert_tf.files import is_file, read_json, write_text
from bert_tf.terminal import number_of
from data_gen.documents import Statistics

# Above these shares something is wrong with the data, or with the vocabulary for them.
MOST_UNKNOWN = 0.1
MOST_REPEATED = 0.1
MOST_OF_ONE_SENTENCE = 0.5
MOST_SENTENCES_PER_DOCUMENT = 1000
MOST_TOKENS_PER_WORD = 3  # of words between spaces
EXAMPLES_SHOWN = 3

COPIED = ("files", "documents", "sentences", "tokens", "documents_of_one_sentence",
          "documents_cut", "instances")  # fmt: skip
DROPPED = ("blank_lines", "title_lines", "markup_lines", "markup_characters", "short_lines",
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
    statistics: Statistics,
    made_with: Mapping[str, Any],
    output_files: Mapping[str, int],
    pieces: Sequence[str],
) -> dict[str, Any]:
    """Writes the report as JSON and logs it, with the first records as text; returns it.

    Args:
      path: see `report_path`.
      statistics: of the whole corpus.
      made_with: what the descriptions of the files have in common.
      output_files: the number of records of each.
      pieces: the vocabulary of the records.
    """
    report = make_report(statistics, made_with, output_files)
    write_text(path, json.dumps(report, indent=2) + "\n")
    log_examples(output_files, pieces)
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
    statistics: Statistics, made_with: Mapping[str, Any], output_files: Mapping[str, int]
) -> dict[str, Any]:
    """The report, with no times in it: same data, same report."""
    counts, sampled = statistics.counts, statistics.sampled
    report = {name: counts[name] for name in COPIED}
    report |= {name: counts[part] / max(1, counts[whole]) for name, (part, whole) in SHARES.items()}
    report |= {
        "random_share": 1 - report["mask_share"] - report["unchanged_share"],
        "repeated_sentence_share": 1 - len(sampled) / max(1, sampled.total()),
        "dropped": {name: counts[name] for name in DROPPED if counts[name]},
        "settings": dict(made_with),
        "output_files": dict(output_files),
    }
    if counts["words"]:  # with --words_from_spaces
        report["tokens_per_word"] = counts["tokens"] / counts["words"]
    return report | {"warnings": [*find_warnings(report)]}


def find_warnings(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields warnings: about the text, and about meaningless next-sentence labels."""
    documents, sentences = report["documents"], report["sentences"]
    blank_line = "Is there a blank line between any two documents?"
    if (share := report["unknown_share"]) > MOST_UNKNOWN:
        yield f"{share:.0%} of the tokens are [UNK]: do vocabulary and --do_lower_case fit?"
    if (share := report["repeated_sentence_share"]) > MOST_REPEATED:
        yield (
            f"About {share:.0%} of the sentences repeat another one. A model memorizes repeated "
            "text: remove the copies."
        )
    if (tokens_per_word := report.get("tokens_per_word", 0)) > MOST_TOKENS_PER_WORD:
        yield (
            f"The words have {tokens_per_word:.1f} tokens on average. Has the text been cut into "
            "words with spaces, as --words_from_spaces expects?"
        )
    if documents == 1:
        yield (
            "The corpus is a single document, so even the 'random' next segments come from it and "
            "their labels are wrong. Put a blank line between documents."
        )
    elif sentences > MOST_SENTENCES_PER_DOCUMENT * documents:
        yield f"Documents have {sentences / documents:.0f} sentences on average. {blank_line}"
    if times := report["documents_cut"]:
        yield f"Documents that were too long were cut, {times} times. {blank_line}"
    if (alone := report["documents_of_one_sentence"]) > MOST_OF_ONE_SENTENCE * documents:
        yield (
            f"{alone} of {documents} documents are one sentence, so all their pairs are random. "
            "Put the sentences of a document on consecutive lines, without blank lines."
        )


def log_examples(paths: Iterable[str], pieces: Sequence[str]) -> None:
    """Logs the first records of some files."""
    for record in untuned(tf.data.TFRecordDataset(list(paths)).take(EXAMPLES_SHOWN)):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        values = {name: list(feature.int64_list.value) for name, feature in features.items()}
        logging.info("example: %s", in_a_line(values, pieces))


def in_a_line(values: Mapping[str, Sequence[int]], pieces: Sequence[str]) -> str:
    """A record in a line: each masked position shows its token and, in braces, its label.

    (next) [CLS] he went [MASK]{home} [SEP] it{it} was late [SEP]
    """
    length = sum(values["input_mask"])
    tokens = [pieces[number] for number in values["input_ids"][:length]]
    for position, label in zip(values["masked_lm_positions"], values["masked_lm_ids"], strict=True):
        if position:  # padding is 0, the position of [CLS], which is never masked
            tokens[position] += f"{{{pieces[label]}}}"
    kind = "random" if values["next_sentence_labels"][0] else "next"
    return f"({kind}) {' '.join(tokens)}"


def log_report(report: Mapping[str, Any]) -> None:
    """Logs the report as sentences."""
    percent = {name: 100 * report[name] for name in report if name.endswith("_share")}
    for line in (
        "%(documents)d documents, %(sentences)d sentences, %(tokens)d tokens "
        "(%(unknown_share).2f %% [UNK]) in %(files)d files",
        "%(instances)d instances: %(mean_length).1f tokens on average, "
        "%(full_length_share).1f %% of full length, %(random_next_share).1f %% random next",
        "%(masked_share).1f %% of the tokens to predict: %(mask_share).1f %% [MASK], "
        "%(unchanged_share).1f %% unchanged, %(random_share).1f %% random",
    ):
        logging.info(line, {**report, **percent})
    dropped = [f"{number} {name.replace('_', ' ')}" for name, number in report["dropped"].items()]
    logging.info("dropped: %s", ", ".join(dropped) or "nothing")
    for warning in report["warnings"]:
        logging.warning(warning)
