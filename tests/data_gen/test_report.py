"""data_gen/report.py: shares computed by hand, warnings, and records as text."""

import doctest

from generation import SETTINGS

from data_gen import report
from data_gen.documents import Counts, Statistics
from data_gen.report import make_report


def test_the_drawn_examples():
    assert doctest.testmod(report).failed == 0


def test_shares_by_hand():
    counts = Counts(
        files=1,
        documents=4,
        documents_of_one_sentence=1,
        sentences=40,
        sentences_without_tokens=3,
        tokens=400,
        unknown_tokens=60,
        instances=10,
        instance_tokens=90,
        full_instances=4,
        random_next=6,
        masked=20,
        masked_as_mask=15,
        masked_as_itself=3,
    )
    statistics = Statistics(Counts(tokens=0), Counts({1: 4, 2: 1}))
    statistics.update(Statistics(counts, Counts({1: 1, 3: 2})))
    made = make_report(statistics, vars(SETTINGS), {"x": 10})
    assert made["unknown_share"] == 0.15
    assert made["repeated_sentence_share"] == 1 - 3 / 8
    assert made["dropped"] == {"sentences_without_tokens": 3}
    assert made["mean_length"] == 9
    assert made["full_length_share"] == 0.4
    assert made["random_next_share"] == 0.6
    assert made["mean_predictions"] == 2
    assert made["masked_share"] == 20 / 90
    assert (made["mask_share"], made["unchanged_share"]) == (0.75, 0.15)
    assert round(made["random_share"], 9) == 0.1
    assert made["settings"] == vars(SETTINGS)
    assert len(made["warnings"]) == 2
    assert "15% of the tokens are [UNK]" in made["warnings"][0]
    assert "About 62% of the sentences repeat" in made["warnings"][1]


def test_long_words_between_spaces_are_noticed():
    """Text that no segmenter has cut; without --words_from_spaces words are not counted."""
    counts = Counts(documents=2, sentences=4, tokens=30)  # and no instances to divide by
    made = make_report(Statistics(counts, Counts({1: 1})), vars(SETTINGS), {})
    assert "tokens_per_word" not in made
    assert (made["warnings"], made["mean_length"]) == ([], 0)
    for words, warned in ((10, False), (9, True)):
        statistics = Statistics(counts + Counts(words=words), Counts({1: 1}))
        made = make_report(statistics, vars(SETTINGS), {})
        assert made["tokens_per_word"] == 30 / words
        assert len(made["warnings"]) == warned
        assert all("have 3.3 tokens on average" in warning for warning in made["warnings"])


def test_a_record_in_a_line():
    pieces = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "he", "went", "home", "it", "was", "late"]
    values = {
        "input_ids": [1, 4, 5, 3, 2, 7, 8, 9, 2, 0, 0],
        "input_mask": [1] * 9 + [0] * 2,
        "masked_lm_positions": [3, 5, 0],
        "masked_lm_ids": [6, 7, 0],
        "next_sentence_labels": [0],
    }
    line = "[CLS] he went [MASK]{home} [SEP] it{it} was late [SEP]"
    assert report.in_a_line(values, pieces) == f"(next) {line}"
    assert report.in_a_line(values | {"next_sentence_labels": [1]}, pieces) == f"(random) {line}"


def test_the_report_as_sentences(caplog):
    counts = Counts(files=2, documents=3, sentences=50, tokens=800, unknown_tokens=6)
    counts += Counts(instances=8, instance_tokens=84, full_instances=2, random_next=5)
    counts += Counts(masked=20, masked_as_mask=15, masked_as_itself=3, blank_lines=7)
    statistics = Statistics(counts, Counts({1: 1}))
    made = make_report(statistics, vars(SETTINGS), {})
    with caplog.at_level("INFO", logger="absl"):
        report.log_report(made)
    assert [record.getMessage() for record in caplog.records] == [
        "3 documents, 50 sentences, 800 tokens (0.75 % [UNK]) in 2 files",
        "8 instances: 10.5 tokens on average, 25.0 % of full length, 62.5 % random next",
        "23.8 % of the tokens to predict: 75.0 % [MASK], 15.0 % unchanged, 10.0 % random",
        "dropped: 7 blank lines",
    ]
