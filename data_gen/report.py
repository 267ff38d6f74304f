"""What was made, counted; and what in it would make a training fail without a word."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from data_gen.documents import Counts
from data_gen.instances import Settings

# Above these shares something is wrong with the data, or with the vocabulary for them.
MOST_UNKNOWN = 0.1
MOST_REPEATED = 0.1
MOST_OF_ONE_SENTENCE = 0.5
MOST_SENTENCES_PER_DOCUMENT = 1000

DROPPED = (
    "blank_lines",
    "title_lines",
    "markup_lines",
    "markup_characters",
    "short_lines",
    "short_characters",
    "lines_outside_documents",
    "sentences_without_tokens",
    "documents_without_tokens",
)


def make_report(
    counts: Counts, *, sampled: Counts, settings: Settings, output_files: Mapping[str, int]
) -> dict[str, Any]:
    """The report, without any time in it: same data, same report.

    Args:
      counts: of reading, of tokenizing and of `InstanceMaker.count`, added up.
      sampled: `sample_sentences` of all blocks, added up.
      settings: what the instances were made with.
      output_files: number of records of each.
    """
    instances, masked = counts["instances"], max(1, counts["masked"])
    as_mask, as_itself = counts["masked_as_mask"] / masked, counts["masked_as_itself"] / masked
    report = {
        **{name: counts[name] for name in ("files", "documents", "sentences", "tokens")},
        "documents_of_one_sentence": counts["documents_of_one_sentence"],
        "documents_cut": counts["documents_cut"],
        "unknown_share": counts["unknown_tokens"] / max(1, counts["tokens"]),
        "repeated_sentence_share": 1 - len(sampled) / max(1, sampled.total()),
        "dropped": {name: counts[name] for name in DROPPED if counts[name]},
        "instances": instances,
        "mean_length": counts["instance_tokens"] / max(1, instances),
        "full_length_share": counts["full_instances"] / max(1, instances),
        "random_next_share": counts["random_next"] / max(1, instances),
        "mean_predictions": counts["masked"] / max(1, instances),
        "masked_share": counts["masked"] / max(1, counts["instance_tokens"]),
        "mask_share": as_mask,
        "unchanged_share": as_itself,
        "random_share": 1 - as_mask - as_itself,
        "settings": dataclasses.asdict(settings),
        "output_files": dict(output_files),
    }
    report["warnings"] = [*text_warnings(report), *pair_warnings(report)]
    return report


def text_warnings(report: Mapping[str, Any]) -> list[str]:
    """What is odd about the text itself."""
    warnings = []
    if report["unknown_share"] > MOST_UNKNOWN:
        warnings.append(
            f"{report['unknown_share']:.0%} of the pieces are [UNK]: is this the vocabulary (and "
            "--do_lower_case) for this language? The model cannot learn these words."
        )
    if report["repeated_sentence_share"] > MOST_REPEATED:
        warnings.append(
            f"About {report['repeated_sentence_share']:.0%} of the sentences repeat another one. "
            "A model learns repeated text by heart: remove the copies."
        )
    return warnings


def pair_warnings(report: Mapping[str, Any]) -> list[str]:
    """What makes the next-sentence labels meaningless."""
    documents, sentences = report["documents"], report["sentences"]
    warnings = []
    if documents == 1:
        warnings.append(
            "The corpus is a single document, so even the 'random' next segments come from it and "
            "their labels are wrong. Put a blank line between documents."
        )
    elif sentences > MOST_SENTENCES_PER_DOCUMENT * documents:
        warnings.append(
            f"The documents have {sentences / documents:.0f} sentences on average. Is there a "
            "blank line between any two documents?"
        )
    if report["documents_cut"]:
        warnings.append(
            f"Documents that were too long were cut, {report['documents_cut']} times. Is there a "
            "blank line between any two documents?"
        )
    if report["documents_of_one_sentence"] > MOST_OF_ONE_SENTENCE * documents:
        warnings.append(
            f"{report['documents_of_one_sentence']} of {documents} documents are a single "
            "sentence, which has no next one: their pairs are all random. Put the sentences of a "
            "document on lines that follow one another, without blank lines between them."
        )
    return warnings


def log_examples(records: Iterable[bytes], pieces: Sequence[str]) -> None:
    """Shows some records; `pieces` are those of the vocabulary, by id."""
    for record in records:
        features = tf.train.Example.FromString(record).features.feature
        values = {name: list(feature.int64_list.value) for name, feature in features.items()}
        logging.info("example: %s", describe(values, pieces))


def describe(values: Mapping[str, Sequence[int]], pieces: Sequence[str]) -> str:
    """A record in a line: each masked token as what is shown and, in braces, what it was.

    (next) [CLS] he went [MASK]{home} [SEP] it{it} was late [SEP]
    """
    length = sum(values["input_mask"])
    tokens = [pieces[number] for number in values["input_ids"][:length]]
    for position, label in zip(values["masked_lm_positions"], values["masked_lm_ids"], strict=True):
        if position:  # no token at position 0, [CLS], is ever masked: this is padding
            tokens[position] += f"{{{pieces[label]}}}"
    kind = "random" if values["next_sentence_labels"][0] else "next"
    return f"({kind}) {' '.join(tokens)}"


def log_report(report: Mapping[str, Any]) -> None:
    """The report for people."""
    logging.info(
        "%d documents, %d sentences, %d tokens (%.2f %% [UNK]) in %d files",
        *(report[name] for name in ("documents", "sentences", "tokens")),
        *(100 * report["unknown_share"], report["files"]),
    )
    logging.info(
        "%d instances: %.1f tokens on average, %.1f %% of full length, %.1f %% random next",
        *(report["instances"], report["mean_length"]),
        *(100 * report["full_length_share"], 100 * report["random_next_share"]),
    )
    logging.info(
        "%.1f %% of the tokens to predict: %.1f %% [MASK], %.1f %% unchanged, %.1f %% random",
        *(100 * report[name] for name in ("masked_share", "mask_share")),
        *(100 * report[name] for name in ("unchanged_share", "random_share")),
    )
    dropped = [f"{number} {name.replace('_', ' ')}" for name, number in report["dropped"].items()]
    logging.info("dropped: %s", ", ".join(dropped) or "nothing")
    for warning in report["warnings"]:
        logging.warning(warning)
