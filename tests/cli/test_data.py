"""The verbs that make data hand their options to what makes it."""

import sys
import types

import pytest
from walking import in_process, parsed

import data_gen
from bert_tf.errors import InputError
from bert_tf.options import Reading, options_of
from data_gen import documents
from data_gen.options import Texts
from data_gen.pipeline import job_of

PREDICTIONS = [  # flags, and how many tokens of a sequence are masked at most
    ("", 20),
    ("--max_seq_length=64", 20),
    ("--max_seq_length=134", 21),  # 20.1 of them
    ("--max_seq_length=512", 77),
    ("--max_seq_length=512 --masked_lm_prob=0.4", 205),
    ("--max_seq_length=512 --max_predictions_per_seq=20", 20),
]


FILES = {"input_file": "text", "output_file": "out", "vocab_file": "v.txt"}
CHANGED = {  # fields of a job, and of its settings: a value that is not the default
    "never_split": "b,a,b",
    "added_words": "d,c,d",
    "input_format": "wikiextractor",
    "language": "de",
    "num_shards": 3,
    "num_workers": 2,
    "temp_dir": "t",
}
CHANGED_SETTINGS = {
    "max_seq_length": 61,
    "max_predictions_per_seq": 7,
    "masked_lm_prob": 0.25,
    "short_seq_prob": 0.3,
    "dupe_factor": 4,
    "random_seed": -5,
    "do_whole_word_mask": True,
    "words_from_spaces": True,
    "pack": True,
    "mask_share": 0.6,
    "random_share": 0.15,
}


@pytest.fixture
def with_beam(monkeypatch):
    """As if Beam were installed."""
    monkeypatch.setattr("bert_tf.cli.beam_data.import_extra", lambda *_, **__: None)


@pytest.mark.usefixtures("with_beam")
@pytest.mark.parametrize("verb", ["data", "beam-data"])
def test_every_option_is_in_the_job(verb):
    job = job_of(parsed(verb, **FILES, **CHANGED, **CHANGED_SETTINGS))
    found = {name: getattr(job, name) for name in (*FILES, *CHANGED)}
    assert found == FILES | CHANGED | {"never_split": ("a", "b"), "added_words": ("c", "d")}
    assert {name: getattr(job.settings, name) for name in CHANGED_SETTINGS} == CHANGED_SETTINGS
    assert job.settings.unchanged_share == 0.25


@pytest.mark.parametrize("lower", [None, False, True])
def test_the_case_is_what_is_given(lower):
    """None: `data_gen.pipeline.prepare` takes that of the vocabulary."""
    words = {None: [], False: ["--nodo_lower_case"], True: ["--do_lower_case"]}[lower]
    assert job_of(parsed("data", *words, **FILES)).do_lower_case is lower


@pytest.mark.parametrize(("words", "expected"), PREDICTIONS)
def test_the_most_predictions(words, expected):
    job = job_of(parsed("data", *words.split(), **FILES))
    assert job.settings.max_predictions_per_seq == expected


def test_formats_of_texts_are_those_that_are_read():
    (formats,) = (o.says("choices") for o in options_of(Texts) if o.name == "input_format")
    assert formats == (*documents.INPUT_FORMATS,)


@pytest.mark.parametrize(
    ("words", "lower"), [([], True), (["--nodo_lower_case"], False), (["--do_lower_case"], True)]
)
def test_vocab_gives_all_options_to_what_learns_it(monkeypatch, words, lower):
    given = []
    monkeypatch.setattr(
        "data_gen.vocabulary.write_vocabulary",
        lambda *files, **values: given.append((files, values)),
    )
    with in_process("vocab") as main:
        main(*words, input_file="a", output_file="b", input_format="paragraphs",
             num_workers=3, vocab_size=45)  # fmt: skip
        main("--nostrip_accents", *words, input_file="a", output_file="b", model_size="mini",
             encoding="cp1252")  # fmt: skip
    plain, other = Reading(), Reading(encoding="cp1252")
    values = {"input_format": "paragraphs", "num_workers": 3, "vocab_size": 45}
    defaults = {"input_format": "text", "num_workers": 0, "vocab_size": 30522}
    case = {"do_lower_case": lower}
    assert given == [
        (("a", "b"), values | case | {"strip_accents": None, "model_size": None, "reading": plain}),
        (
            ("a", "b"),
            defaults | case | {"strip_accents": False, "model_size": "mini", "reading": other},
        ),
    ]


@pytest.mark.usefixtures("with_beam")
def test_beam_data_gives_beam_the_job_and_its_own_options(monkeypatch):
    """Beam need not be installed; its pipeline itself: data_gen/test_beam.py."""
    made = []
    beam = types.ModuleType("data_gen.beam")
    beam.create = lambda job, *, beam_options: made.append((job, beam_options))
    monkeypatch.setitem(sys.modules, "data_gen.beam", beam)
    monkeypatch.setattr(data_gen, "beam", beam, raising=False)
    flags = [f"--{name}={value}" for name, value in (FILES | {"num_shards": 3}).items()]
    with in_process("beam-data") as main:
        main(*flags)
        main(*flags, "--", "--runner=SparkRunner", "--x", "1")
    (job, none), (same, options) = made
    assert (job.output_file, job.num_shards) == ("out", 3)
    assert job == same
    assert (none, options) == ((), ("--runner=SparkRunner", "--x", "1"))


@pytest.mark.usefixtures("with_beam")
@pytest.mark.parametrize("words", [["a"], ["--", "a"], ["a", "--", "--runner=SparkRunner"]])
def test_words_before_the_options_of_beam_are_refused(words):
    flags = [f"--{name}={value}" for name, value in FILES.items()]
    with pytest.raises(InputError, match="'a' outside any flag"):
        parsed("beam-data", *flags, *words)


def test_without_beam_another_verb_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)  # as if it were not installed
    with pytest.raises(InputError, match="apache-beam is not installed") as refused:
        parsed("beam-data", **FILES)
    assert "use bert-tf data" in refused.value.remedy
