"""SECURITY.md, sentence by sentence: each is shown by a test, or is no promise."""

import re

import pytest
from documents import ROOT

ADVICE = ""  # what the reader is to do, or what the project does not do
CLIENT = "examples/test_client.py"
HUB = "checkpoints/test_hub.py"
INDEX = "checkpoints/test_tensor_index.py"
PICKLES = "checkpoints/test_hugging_face.py"
SERVER = "http/test_application.py"
STRANGERS = "checkpoints/test_strangers.py"
TF1 = "checkpoints/test_tf1.py"
# The beginning of a sentence or of a row: a file of tests/, and the test.
SHOWN_BY = {
    "Use the repository's private advisory": ADVICE,
    "Security → Report": ADVICE,
    "Please do not open": ADVICE,
    "Say what you gave": ADVICE,
    "The following files are programs": ADVICE,
    "Load only what comes": ADVICE,
    "SavedModels, `.tflite`": ADVICE,
    "TensorFlow runs the graph": ADVICE,
    "`SHA256SUMS` does not": ADVICE,
    "Keras files": "checkpoints/test_keras_files.py:test_a_foreign_model",
    "`.keras` files are read in": "checkpoints/test_keras_files.py:test_a_foreign_model",
    "We rely on Keras": ADVICE,
    "Keras's own layers": ADVICE,
    "tensorflow-datasets": ADVICE,
    "The other processes": ADVICE,
    "Use a private network": ADVICE,
    "The following input is read": "fuzz/test_readers.py:test_damaged_input_is_read_or_refused",
    "safetensors:": f"{STRANGERS}:test_a_tensor_of_no_numbers_in_safetensors",
    "`hf:OWNER/NAME`:": f"{HUB}:test_what_is_read_is_fetched_once_and_the_commit_recorded",
    "`pytorch_model.bin`:": f"{PICKLES}:test_a_pickle_runs_no_code",
    "`.keras`:": f"{STRANGERS}:test_a_member_that_unpacks_to_much",
    "TF1 and TF2": f"{INDEX}:test_entries_that_tensorflow_never_writes",
    "configurations, metadata": f"{STRANGERS}:test_a_configuration_of_more_than_there_is",
    "TFRecord files:": "data/test_records.py:test_the_range_of_a_feature",
    "tables, SQuAD files": "fuzz/test_readers.py:test_damaged_input_is_read_or_refused",
    "requests to `bert-tf serve`:": f"{SERVER}:test_bodies_that_are_refused",
    "replies to `examples/client.py`:": f"{CLIENT}:test_a_bad_reply_is_said_in_three_parts",
    "Pipes and devices": "test_files.py:test_what_cannot_be_read",
    "The `checkpoint` file": f"{TF1}:test_a_checkpoint_elsewhere_is_read_and_never_removed",
    "How this is tested": ADVICE,
    "`tests/fuzz` damages": "fuzz/test_readers.py:test_damaged_input_is_read_or_refused",
    "`python benchmarks/hostile_files.py`": ADVICE,
    "Large but valid work": ADVICE,
    "A valid model, corpus": ADVICE,
    "Run untrusted work": ADVICE,
    "Intent behind checksums": ADVICE,
    "Checksums of records": ADVICE,
    "Whoever can write a file": ADVICE,
    "Poisoned weights": ADVICE,
    "A well-formed model": ADVICE,
    "`bert-tf serve`": f"{SERVER}:test_on_loopback_only_its_own_names_may_be_asked",
    "Unless `--host` says": f"{SERVER}:test_on_loopback_only_its_own_names_may_be_asked",
    "Every user of the machine": f"{SERVER}:test_on_loopback_only_its_own_names_may_be_asked",
    "To use it from elsewhere": ADVICE,
    "Beyond loopback": f"{SERVER}:test_on_all_addresses_everybody_may_ask_unless_names_are_listed",
    "The number of connections": ADVICE,
    "TensorFlow Serving": ADVICE,
    "What outputs tell": ADVICE,
    "Checkpoints and logs": ADVICE,
    "Exports hold base names": "serving/test_export.py:test_what_accompanies_an_export",
    "Answers, reports": ADVICE,
    "`make audit`": ADVICE,
    "It fails on every": ADVICE,
    "These versions": ADVICE,
}


def sentences() -> list[str]:
    """The sentences of SECURITY.md without marks; a row of its table is one, with a colon."""
    found = []
    for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith(("#", "|---", "| input")):
            continue
        if line.startswith("|"):
            subject, what = (cell.strip() for cell in line.strip("|").split("|", 1))
            found.append(f"{subject}: {what}")
            continue
        text = line.removeprefix("- ").replace("**", "").replace("*", "")
        found += re.split(r"(?<=[.:])\s+(?=[A-Z`])", text)
    return [sentence.strip() for sentence in found]


def shown_by(sentence: str) -> str | None:
    """What shows a sentence; the longest beginning counts."""
    fitting = [begin for begin in SHOWN_BY if sentence.startswith(begin)]
    return SHOWN_BY[max(fitting, key=len)] if fitting else None


def test_every_sentence_is_shown_or_advice():
    assert [sentence for sentence in sentences() if shown_by(sentence) is None] == []


def test_there_is_no_more_than_the_sentences():
    unused = [begin for begin in SHOWN_BY if not any(s.startswith(begin) for s in sentences())]
    assert unused == []


@pytest.mark.parametrize("place", sorted({*SHOWN_BY.values()} - {ADVICE}))
def test_what_shows_a_sentence_is_there(place):
    path, _, name = place.partition(":")
    assert f"\ndef {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8")
