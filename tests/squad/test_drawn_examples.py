"""The examples that are drawn in bert_tf.squad, executed: what a reader sees is what happens."""

import doctest
import importlib
import io

import numpy as np
import pytest
import small_squad as small

from bert_tf.squad import alignment, evaluation, thresholds, windows
from bert_tf.squad import data as reading
from bert_tf.squad.windows import WindowSizes

# The pure functions by file. Those drawn with pieces of a tokenizer have their tests below, and in
# test_squad_windows.py, test_squad_answers.py and test_squad_evaluation.py.
DRAWN = {
    "reading": ("ContextWords", "locate_answer"),
    "windows": (
        *("doc_spans", "max_context_window", "pieces_of_words", "improve_answer_span"),
        "positions_in_window",
    ),
    "alignment": ("join_pieces", "find_final_text"),
    "answers": ("best_indexes", "null_candidate", "best_non_null", "null_odds", "decide"),
    "evaluation": ("normalize_answer", "token_f1", "score_question"),
    "report": ("script_json",),
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in DRAWN.items() for name in names]
)
def test_drawn_example(module, name):
    found = importlib.import_module(f"bert_tf.squad.{module}")
    (example,) = doctest.DocTestFinder(recurse=False).find(
        getattr(found, name), name, globs=vars(found)
    )
    said = io.StringIO()
    result = doctest.DocTestRunner(verbose=False).run(example, out=said.write)
    assert result.attempted
    assert not result.failed, said.getvalue()


def test_no_example_is_forgotten():
    for module in [*DRAWN, "model", "tfds", "files", "thresholds", "window_records"]:
        found = importlib.import_module(f"bert_tf.squad.{module}")
        tests = doctest.DocTestFinder().find(found)
        with_examples = {test.name.split(".")[-1] for test in tests if test.examples}
        assert with_examples == set(DRAWN.get(module, ()))


def test_the_two_alignments():
    """The drawing on top of alignment.py."""
    tokenizer = small.make_tokenizer(do_lower_case=True)
    context = "It was by Ruprecht's  café."
    (window,) = windows.prediction_windows(
        [small.example(context, "")], tokenizer, WindowSizes(40, 9, 2)
    )
    tokens = tokenizer.convert_ids_to_tokens(window.input_ids.tolist())
    start, end = tokens.index("ru"), tokens.index("##cht")
    assert alignment.join_pieces(tokens[start : end + 1]) == "ruprecht"
    assert alignment.context_characters(window, start, end) == (10, 18)
    for legacy_alignment in (False, True):
        align = alignment.make_alignment([window], tokenizer, legacy_alignment=legacy_alignment)
        assert align(window, start, end) == "Ruprecht"
    (words,) = alignment.normalized_words([window.document], do_lower_case=True)
    assert words[3:] == ["ruprecht ' s", "cafe ."]


def test_what_the_original_cannot_cut_is_logged(caplog):
    tokenizer = small.make_tokenizer(do_lower_case=True)
    (window,) = windows.prediction_windows(
        [small.example("who,xx,it", "")], tokenizer, WindowSizes(40, 9, 2)
    )
    start = tokenizer.convert_ids_to_tokens(window.input_ids.tolist()).index("[UNK]")
    for verbose_logging in (False, True):
        align = alignment.make_alignment(
            [window], tokenizer, legacy_alignment=True, verbose_logging=verbose_logging
        )
        with caplog.at_level("INFO", logger="absl"):
            assert align(window, start, start) == "who,xx,it"
        assert ("Unable to find text: '[UNK]' in 'who,xx,it'" in caplog.text) == verbose_logging


def test_a_row_of_a_data_set():
    row = {
        "id": b"q1", "title": b"t", "context": b"Ruprecht founded it.", "question": b"Who?",
        "answers": {"text": [b"Ruprecht"], "answer_start": [0]},
    }  # fmt: skip
    answers = (reading.Answer("Ruprecht", 0),)
    assert reading.example_of_row(row) == reading.SquadExample(
        "q1", "Who?", "Ruprecht founded it.", answers, title="t"
    )


def test_the_originals_order_of_training():
    """What random.Random(12345).shuffle makes of ten in Python 3."""
    kept = [reading.TrainingExample(small.example(str(i)), None, None) for i in range(10)]
    mixed = [int(one.example.context) for one in reading.original_order(kept)]
    assert mixed == [8, 7, 3, 5, 1, 2, 9, 4, 0, 6]
    assert [int(one.example.context) for one in kept] == list(range(10))


def test_thresholds_know_what_the_search_gives():
    file = small.squad_file(small.example("a", "?"), version_2=True)
    assert set(evaluation.best_thresholds(file.examples, {}, {})) == {
        *("exact", "exact_thresh", "f1", "f1_thresh")
    }
    assert np.isclose(thresholds.search(file, [])["best_exact"], 100.0)
