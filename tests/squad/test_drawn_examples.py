"""The examples that are drawn in bert_tf.squad, executed: what a reader sees is what happens."""

import doctest
import importlib
import pkgutil

import small_squad as small

import bert_tf.squad
from bert_tf.squad import answers, data, windows
from bert_tf.squad.windows import WindowSizes


def test_the_drawn_examples():
    modules = pkgutil.iter_modules(bert_tf.squad.__path__, "bert_tf.squad.")
    found = [doctest.testmod(importlib.import_module(module.name)) for module in modules]
    assert sum(result.attempted for result in found) > 10
    assert not any(result.failed for result in found)


def test_what_the_original_cannot_cut_is_logged(caplog):
    tokenizer = small.make_tokenizer(do_lower_case=True)
    (window,) = windows.prediction_windows(
        [small.example("who,xx,it", "")], tokenizer, WindowSizes(40, 9, 2)
    )
    start = tokenizer.convert_ids_to_tokens(window.input_ids.tolist()).index("[UNK]")
    for verbose_logging in (False, True):
        config = answers.AnswerConfig(verbose_logging=verbose_logging)
        align = answers.make_alignment([window], tokenizer, config)
        with caplog.at_level("INFO", logger="absl"):
            assert align(window, start, start) == "who,xx,it"
        assert ("Unable to find text: '[UNK]' in 'who,xx,it'" in caplog.text) == verbose_logging


def test_the_originals_order_of_training():
    """What random.Random(12345).shuffle makes of ten in Python 3."""
    kept = [data.TrainingExample(small.example(str(i)), None, None) for i in range(10)]
    mixed = [int(one.example.context) for one in data.original_order(kept)]
    assert mixed == [8, 7, 3, 5, 1, 2, 9, 4, 0, 6]
    assert [int(one.example.context) for one in kept] == list(range(10))
