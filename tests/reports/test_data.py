"""Public reports on data for pre-training: few documents, many files."""

import json
import os
import resource

import pytest
from walking import SIZES, in_process, write_vocabulary

from bert_tf.data.records import description_path, pretraining_record
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError

SENTENCES = "w1 w2 w3\nw4 w5\nw6 w7 w8 w9\nw1 w3\n"
DOCUMENTS = {1: SENTENCES, 2: f"{SENTENCES}\nw11 w12\nw13 w14 w15\n"}


@pytest.fixture(scope="module")
def generate():
    with in_process("create_pretraining_data.py") as main:
        yield main


def flags(folder, text: str) -> dict:
    (folder / "a.txt").write_text(text)
    vocab_file = write_vocabulary(folder / "vocab")
    return SIZES | {
        "input_file": folder / "a.txt", "output_file": folder / "a.tfrecord",
        "vocab_file": vocab_file, "do_lower_case": False, "num_workers": 1,
    }  # fmt: skip


@pytest.mark.parametrize("count", DOCUMENTS)
def test_one_and_two_documents(generate, tmp_path, caplog, count):
    """transformers#762: "empty range for randrange()"; a next segment needs another document."""
    generate(**flags(tmp_path, DOCUMENTS[count]))
    path = str(tmp_path / "a.tfrecord")
    made = json.loads((tmp_path / description_path(path)).read_text())
    assert len(RecordFiles([path], pretraining_record(**SIZES))) == made["num_records"] > count
    assert ("The single document gives" in caplog.text) is (count == 1)


@pytest.mark.parametrize("text", ["", "\n \n\t\n\n", "\u00a0\n"], ids=ascii)
def test_no_document(generate, tmp_path, text):
    """Files of white space alone."""
    with pytest.raises(InputError, match="files without a sentence"):
        generate(**flags(tmp_path, text))
    assert not (tmp_path / "a.tfrecord").exists()


def test_more_files_than_a_process_may_open(generate, tmp_path):
    """ "Too many open files": 400 of them with some 90 descriptors."""
    for number in range(400):
        (tmp_path / f"{number:03}.txt").write_text(f"w{number % 90} w1\nw2 w{number % 80}\n")
    given = flags(tmp_path, SENTENCES) | {"input_file": tmp_path / "*.txt", "dupe_factor": 1}
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 90
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    try:
        generate(**given)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    path = str(tmp_path / "a.tfrecord")
    made = json.loads((tmp_path / description_path(path)).read_text())
    assert made["num_records"] >= 400
