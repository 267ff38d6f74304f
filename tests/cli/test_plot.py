"""What `bert-tf plot` draws: a panel for losses, one for scores, none that is empty."""

import numpy as np
import pytest
from walking import in_process

from bert_tf.cli.plot import panels_of
from bert_tf.errors import InputError
from bert_tf.training.log import TrainingLog, write_final_evaluation


def test_losses_and_scores():
    panels = panels_of(
        {
            "loss": {1: 3.0, 2: 2.0}, "learning_rate": {1: 0.1}, "eval/loss": {2: 2.5},
            "eval/eval_loss": {2: 2.5}, "eval/eval_loss_mismatched": {2: 2.5},
            "eval/eval_accuracy": {0: 0.5, 2: 0.75},
        }
    )  # fmt: skip
    assert {title: [line.label for line in lines] for title, lines in panels.items()} == {
        "Loss": ["training loss", "evaluation loss"],
        "Evaluation": ["eval_accuracy"],
    }
    assert panels["Evaluation"][0].curve == {0: 0.5, 2: 0.75}
    parts = {name: {1: 1.0} for name in ("loss", "masked_lm_loss", "eval/next_sentence_loss")}
    drawn = [(line.label, line.style, line.color) for line in panels_of(parts)["Loss"]]  # no sum
    evaluation = ("evaluation next_sentence_loss", "o--", "C1")
    assert drawn == [("training masked_lm_loss", "-", "C0"), evaluation]


def test_the_pictures(tmp_path):
    """A run without losses, with losses, and with scores in percent."""
    pytest.importorskip("matplotlib")
    with in_process("plot") as plot:
        run = tmp_path / "lr=[1e-4]"  # no pattern
        log = TrainingLog(str(run), 8, 100)
        log.write(1, learning_rate=0.5, timed=np.zeros(2))
        with pytest.raises(InputError, match="no summaries"):
            plot(output_dir=run, output_file=tmp_path / "none.png")
        widths = []
        for step, results in ((2, {}), (3, {"global_step": 3, "exact": 50.0, "f1": 62.5})):
            log.add({"loss": 2.0}, 1)
            log.write(step, learning_rate=0.5, timed=np.zeros(2))
            if results:
                write_final_evaluation(str(run), results)
            picture = tmp_path / f"{step}.png"
            plot(output_dir=run, output_file=picture)
            widths.append(int.from_bytes(picture.read_bytes()[16:20]))
    assert not (tmp_path / "none.png").exists()
    assert widths == [660, 1320]  # a panel has 5.5 inches of 120 dots
