"""bert_tf.serving.options: its tables are those of the modules that do the work."""

from bert_tf.serving import export, feature_extraction, options


def test_every_format_has_a_file_or_a_writer():
    assert set(options.FORMATS) == set(export.MODEL_FILES)
    assert set(options.FEATURE_FORMATS) == set(feature_extraction.WRITERS)
