"""run.json: what a command did, whatever the clock says."""

import json
import time

from walking import parsed

from bert_tf.cli.record import write_record


def test_a_clock_that_is_set_back_changes_no_duration_and_loses_no_score(tmp_path, monkeypatch):
    """There was `"seconds": -34819189.8, "scores": {}`."""
    options = parsed(
        "run_pretraining.py", "--do_eval", "--input_file=a", f"--output_dir={tmp_path}"
    )
    monkeypatch.setattr(time, "time", lambda: 0.0)
    scores = {"eval_results.txt": {"loss": 0.5, "f1": float("nan"), "global_step": 3}}
    write_record(str(tmp_path), options, scores)
    write_record(str(tmp_path), options, {})
    first, second = json.loads((tmp_path / "run.json").read_text())["commands"]
    assert first["scores"] == {"eval_results.txt": {"loss": 0.5, "f1": None, "global_step": 3.0}}
    assert second["scores"] == {}  # those of this command alone
    assert 0 <= first["seconds"] <= second["seconds"] < 3600
