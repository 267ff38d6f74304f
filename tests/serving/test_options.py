"""bert_tf.serving.options: its tables are those of the modules that do the work."""

import dataclasses
import subprocess
import sys

import pytest

from bert_tf.serving import export, feature_extraction, options, registry


def test_every_task_has_a_class_and_the_other_way_round():
    assert set(options.TASKS) == set(registry.SERVING_TASKS)
    assert "pretraining" not in options.TASKS
    assert list(options.TASKS) == sorted(options.TASKS)


def test_every_format_has_a_file_or_a_writer():
    assert set(options.FORMATS) == set(export.MODEL_FILES)
    assert set(options.FEATURE_FORMATS) == set(feature_extraction.WRITERS)


def test_nothing_is_chosen_but_what_no_checkpoint_knows():
    chosen = {
        k: v for k, v in dataclasses.asdict(options.ServingOptions()).items() if v is not None
    }
    assert chosen == {"n_best_size": 20, "max_answer_length": 30, "top_k": 5}


def test_options_are_not_changed_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.ServingOptions().top_k = 3


def test_flags_can_be_made_of_it_without_tensorflow():
    code = "import sys, bert_tf.serving.options; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
