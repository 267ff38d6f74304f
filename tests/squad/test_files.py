"""bert_tf.squad.files: predictions, n-best lists and null odds, written and read again."""

import json

import pytest
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.squad import files
from bert_tf.squad.answers import NbestEntry, Prediction


def test_files_appear_whole_or_not_at_all(tmp_path, monkeypatch):
    prediction = Prediction("q1", [NbestEntry("Süd", 1.0, 2.0, 3.0, (0, 3))], -1.0)
    paths = files.write_prediction_files(str(tmp_path), [prediction], version_2_with_negative=True)
    assert paths == [str(tmp_path / name) for name in
                     ("predictions.json", "nbest_predictions.json", "null_odds.json")]  # fmt: skip
    before = (tmp_path / "predictions.json").read_text()
    assert before == '{\n    "q1": "S\\u00fcd"\n}\n'
    assert json.loads((tmp_path / "nbest_predictions.json").read_text()) == {
        "q1": [{"text": "Süd", "probability": 1.0, "start_logit": 2.0, "end_logit": 3.0}]
    }

    class FullDisk(tf.io.gfile.GFile):
        def write(self, text):
            super().write(text[:1])
            if text:  # whole_file first makes an empty file
                raise tf.errors.ResourceExhaustedError(None, None, "no space left on device")

    monkeypatch.setattr(tf.io.gfile, "GFile", FullDisk)
    with pytest.raises(InputError, match="no space left on device"):
        files.write_prediction_files(str(tmp_path), [], version_2_with_negative=False)
    assert (tmp_path / "predictions.json").read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ("predictions.json", "nbest_predictions.json", "null_odds.json")
    )


ENTRY = {"text": "1386", "probability": 0.5, "start_logit": 1.0, "end_logit": 2}
NO_NBEST = [
    *({"q1": "1386"}, {"q1": ["1386"]}, {"q1": [{"text": "1386"}]}, [], {"q1": [None]}),
    *({"q1": [ENTRY, ENTRY | {"text": 1386}]}, {"q1": [ENTRY | {"probability": "0.5"}]}),
    *({"q1": [ENTRY | {"end_logit": True}]}, {"q1": [ENTRY | {"start_logit": 10**400}]}),
]


@pytest.mark.parametrize("content", NO_NBEST)
def test_nbest_lists_that_are_none(tmp_path, content):
    path = tmp_path / "nbest_predictions.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"nbest_predictions\.json"):
        files.read_nbest(str(path))


@pytest.mark.parametrize("odds", [None, "1", True, float("nan"), 10**400, [1.0], float("inf")])
def test_null_odds_that_are_none(tmp_path, odds):
    """True is no number, and NaN would decide by chance."""
    path = tmp_path / "null_odds.json"
    path.write_text(json.dumps({"q1": -1.0, "q2": odds}))
    with pytest.raises(InputError, match=r"null_odds\.json"):
        files.read_na_probs(str(path))


def test_nbest_lists_come_back_as_they_were_written(tmp_path):
    entries = [NbestEntry("Süd", 0.75, 2.0, 3.5, (0, 3)), NbestEntry("", 0.25, 1.0, 1.0)]
    predictions = [Prediction("q1", entries, -1.0)]
    paths = files.write_prediction_files(str(tmp_path), predictions, version_2_with_negative=True)
    found = [read(path) for read, path in zip(
        (files.read_predictions, files.read_nbest, files.read_na_probs), paths, strict=True
    )]  # fmt: skip
    assert found == [
        {"q1": "Süd"}, {"q1": [entry._replace(characters=None) for entry in entries]}, {"q1": -1.0}
    ]  # fmt: skip
