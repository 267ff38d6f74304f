"""Pseudo-perplexity: by hand on a model set by hand, against plain NumPy, and the command."""

import json
import math

import masked_by_place
import numpy as np
import pytest
import reference
import small
from masked_by_place import SUM
from walking import in_process

from bert_tf import FullTokenizer, make_model
from bert_tf.checkpoints.tf1 import write_checkpoint
from bert_tf.errors import InputError
from bert_tf.serving.scoring import Score, Scorer

LOG_SUM = math.log(SUM)
LENGTH = 11


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> FullTokenizer:
    return masked_by_place.make_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def model():
    return masked_by_place.make_model()


def test_three_tokens_by_hand(model, tokenizer):
    """Logits of bread at 1, water at 2, wine at 3: -log 16, log 4, log 16."""
    found = Scorer(model, tokenizer, max_seq_length=LENGTH).score("bread water wine")
    assert found.tokens == 3
    assert found.score == pytest.approx(math.log(4) - 3 * LOG_SUM, rel=1e-6)
    assert found.perplexity == pytest.approx(SUM / 4 ** (1 / 3), rel=1e-6)


@pytest.mark.parametrize("batch_size", [1, 2, 5, 64])
def test_the_batch_changes_nothing(model, tokenizer, batch_size):
    """water ##s , bread wine at 1 to 5: -log 4, -log 4, 0, log 16, log 16."""
    scorer = Scorer(model, tokenizer, max_seq_length=LENGTH, batch_size=batch_size)
    assert scorer.score("Waters, bread wine") == Score(
        pytest.approx(math.log(16) - 5 * LOG_SUM, rel=1e-6), 5
    )


@pytest.mark.parametrize(
    ("length", "places"),
    [
        (15, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),  # all are seen at once
        (11, [1, 2, 3, 4, 5, 5, 5, 5, 6, 7, 8, 9]),  # nine are seen
        (8, [1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 5, 6]),  # six
        (3, [1] * 12),
    ],
)
def test_windows_around_each_token(tokenizer, length, places):
    """12 times bread: log 16 at even places of a window, - log 16 at odd ones."""
    model = masked_by_place.make_model(longest=15)
    found = Scorer(model, tokenizer, max_seq_length=length, batch_size=5).score("bread " * 12)
    signs = sum(1 if place % 2 == 0 else -1 for place in places)
    assert found.score == pytest.approx(signs * math.log(16) - 12 * LOG_SUM, rel=1e-6)
    assert found.tokens == 12


def test_no_tokens(model, tokenizer):
    found = Scorer(model, tokenizer, max_seq_length=LENGTH).score(" \t")
    assert (found, found.perplexity) == (Score(0, 0), None)


def test_sums_of_texts():
    both = Score(-6.0, 3) + Score(-2.0, 1)
    assert (both, both.perplexity) == (Score(-8.0, 4), math.exp(2))
    assert Score(-9999.0, 3).perplexity is None  # beyond all numbers


def scored_in_numpy(weights, config, ids: list[int], special: tuple[int, int, int]) -> float:
    """With each token masked in turn."""
    cls, sep, mask = special
    total = 0.0
    for place in range(len(ids)):
        copy = [cls, *ids[:place], mask, *ids[place + 1 :], sep]
        inputs = {
            "input_ids": np.array([copy]),
            "input_mask": np.ones([1, len(copy)], int),
            "segment_ids": np.zeros([1, len(copy)], int),
            "masked_lm_positions": np.array([[place + 1]]),
        }
        logits = reference.pretraining_outputs(weights, config, inputs)["masked_lm_logits"]
        total += reference.log_softmax(logits[0, 0])[ids[place]]
    return total


def test_against_plain_numpy():
    """Random weights, whose every guess depends on all other tokens."""
    pieces = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(37))]
    tokenizer = FullTokenizer("v", pieces=pieces)
    weights = reference.random_weights(small.CONFIG, seed=4)
    model = make_model("pretraining", small.CONFIG)
    reference.put_weights(model, weights)
    ids = [9, 30, 4, 9, 17, 22]
    text = " ".join(pieces[i] for i in ids)
    found = Scorer(model, tokenizer, max_seq_length=13, batch_size=4).score(text)
    expected = scored_in_numpy(weights, small.CONFIG, ids, (1, 2, 3))
    assert found.score == pytest.approx(expected, rel=1e-5)
    assert found.tokens == 6


def test_what_cannot_be_scored(model, tokenizer):
    with pytest.raises(InputError, match="max_seq_length 2"):
        Scorer(model, tokenizer, max_seq_length=2)
    pieces = [piece for piece in masked_by_place.PIECES if piece != "[MASK]"]
    with pytest.raises(InputError, match=r"without \[MASK\]"):
        Scorer(model, FullTokenizer("v", pieces=pieces), max_seq_length=LENGTH)
    damaged = masked_by_place.make_model()
    damaged.get_layer("predictions").output_bias.assign([np.nan] * len(masked_by_place.PIECES))
    with pytest.raises(InputError, match="NaN or infinite"):
        Scorer(damaged, tokenizer, max_seq_length=LENGTH).score("bread")


# ---------------------------------------------------------------------------- the command


def test_the_command(model, tmp_path, capsys):
    """The model by hand as the folder of a run."""
    masked_by_place.make_tokenizer(tmp_path)
    config = model.get_layer("embeddings").config
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    tensors, path = reference.take_weights(model), str(tmp_path / "bert_model.ckpt")
    write_checkpoint(path, tensors, temporary=str(tmp_path / "new"))
    lines = tmp_path / "lines.txt"
    lines.write_text("bread water wine\n\nwater\r\n" + "bread " * 12 + "\n", encoding="utf-8")
    given = f"--init_checkpoint={tmp_path}"
    with in_process("score") as main:
        main(given, f"--input_file={lines}", f"--output_file={tmp_path}/scores.jsonl")
        main(given, "bread water wine", "water")
        with pytest.raises(InputError, match="with the text 'bread'"):
            main(given, "--input_file=x", "bread")
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [row["tokens"] for row in rows] == [3, 0, 1, 12]
    scores = [math.log(4) - 3 * LOG_SUM, 0, -math.log(4) - LOG_SUM]
    assert [row["score"] for row in rows[:3]] == pytest.approx(scores, rel=1e-6)
    assert rows[0]["perplexity"] == pytest.approx(SUM / 4 ** (1 / 3), rel=1e-6)
    assert rows[1]["perplexity"] is None
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [rows[0], rows[2]]
