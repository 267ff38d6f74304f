"""The verbs that make data hand what the flags say to what makes it."""

import sys
import types

from walking import in_process

import data_gen

PREDICTIONS = [  # flags, and how many tokens of a sequence are masked at most
    ("", 20),
    ("--max_seq_length=64", 20),
    ("--max_seq_length=134", 21),  # 20.1 of them
    ("--max_seq_length=512", 77),
    ("--max_seq_length=512 --masked_lm_prob=0.4", 205),
    ("--max_seq_length=512 --max_predictions_per_seq=20", 20),
]


def test_beam_data_gives_beam_the_job_and_its_own_flags(monkeypatch, tmp_path):
    """Beam need not be installed; its pipeline itself: data_gen/test_beam.py."""
    made = []
    beam = types.ModuleType("data_gen.beam")
    beam.create = lambda job, *, beam_options: made.append((job, beam_options))
    monkeypatch.setitem(sys.modules, "data_gen.beam", beam)
    monkeypatch.setattr(data_gen, "beam", beam, raising=False)
    monkeypatch.setattr("bert_tf.cli.data.import_extra", lambda *_, **__: None)
    with in_process("beam-data") as main:
        given = {"input_file": tmp_path / "text", "output_file": tmp_path / "out", "num_shards": 3}
        words = [f"--{name}={value}" for name, value in (given | {"vocab_file": "v.txt"}).items()]
        main(*words, "--", "--runner=DirectRunner")
        for flags, _ in PREDICTIONS:
            main(*words, *flags.split(), "--", "--runner=DirectRunner")
    (job, options), *others = made
    assert (job.output_file, job.num_shards) == (str(tmp_path / "out"), 3)
    assert options[-1:] == ["--runner=DirectRunner"]
    found = [other.settings.max_predictions_per_seq for other, _ in others]
    assert found == [expected for _, expected in PREDICTIONS]
