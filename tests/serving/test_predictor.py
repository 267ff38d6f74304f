"""Exports and checkpoints, loaded and asked: versions, options, batches, order, memory, damage."""

import concurrent.futures
import functools
import itertools
import pathlib
import re
import shutil
import time
import unittest.mock

import masked_by_place
import pytest
import served_models
import tensorflow as tf
from masked_by_place import PIECES, SUM
from saved_models import batch_of
from served_models import TOKENIZER, metadata_of, random_pairs

from bert_tf import runtime
from bert_tf.checkpoints.keras_files import weights_of
from bert_tf.errors import InputError
from bert_tf.serving import predictor as predictor_module
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.predictor import Predictor, ServedModel, of_weights
from bert_tf.tokenization.wordpiece import FullTokenizer

# ---------------------------------------------------------------------------- loading


def test_a_checkpoint_answers_as_its_export(pairs_folder, pairs_export):
    assert pairs_export.model.path == str(pairs_folder / "export/10")  # the greatest version
    assert (pairs_export.task, list(pairs_export.texts)) == ("classification", ["text_a", "text_b"])
    assert "probabilities" in pairs_export.outputs
    assert pairs_export.model.tokenizer.vocab == TOKENIZER.vocab
    assert pairs_export.model.config == served_models.CONFIG
    loaded = Predictor(pairs_folder / "model", pairs=True, max_seq_length=served_models.LENGTH)
    asked = random_pairs(9)
    for found, wanted in zip(loaded.predict(asked), pairs_export.predict(asked), strict=True):
        assert found["label"] == wanted["label"]
        assert found["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)
    assert loaded.model.metadata == pairs_export.model.metadata


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("export", {"version": 2}, r"(?s)version 2 of .*one of the versions 1, 10"),
        ("model", {"version": 1}, "the versions of an export"),
        ("export", {"pairs": True}, "pairs for the export"),
        ("model", {"do_lower_case": False}, "do_lower_case False"),
        ("export", {"batch_size": 0}, "a batch_size of 0"),
        ("model", {"task": "fill_mask"}, "lacks 5 of the model's weights, such as cls/predictions"),
        ("export/11", {}, "export/11"),
        ("nowhere", {}, "nowhere"),
        (ServedModel("m", {}, None, None, None), {"version": 9}, "options for the model m, which"),
    ],
)
def test_what_cannot_be_loaded_is_named(pairs_folder, path, arguments, message):
    with pytest.raises(InputError, match=message):
        Predictor(pairs_folder / path if isinstance(path, str) else path, **arguments)


def test_what_is_not_beside_weights_is_given(pairs_folder, pairs_export, tmp_path):
    for path in (pairs_folder / "model").glob("model.ckpt*"):
        shutil.copy(path, tmp_path)
    options = {"labels": served_models.LABELS, "pairs": True, "do_lower_case": True}
    options["max_seq_length"] = served_models.LENGTH
    for argument, name in (("bert_config_file", "bert_config.json"), ("vocab_file", "vocab.txt")):
        with pytest.raises(InputError, match=f"--{argument}"):
            Predictor(tmp_path, **options)
        options[argument] = str(pairs_folder / "model" / name)
    metadata = Predictor(tmp_path, **options).model.metadata
    for name in ("task", "texts", "options", "config", "do_lower_case"):
        assert metadata[name] == pairs_export.model.metadata[name]


def test_saved_models_of_others_are_refused(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"))
    with pytest.raises(InputError, match=re.escape("export.json")):
        Predictor(tmp_path)


# ---------------------------------------------------------------------------- damaged exports

DATA = "variables/variables.data-00000-of-00001"


@pytest.fixture
def copied(pairs_folder, tmp_path) -> pathlib.Path:
    """A copy of an export, to be damaged."""
    return pathlib.Path(shutil.copytree(pairs_folder / "export/1", tmp_path / "1"))


@pytest.mark.parametrize(
    ("name", "share", "says"),
    [
        (DATA, 0.5, "cannot be read (Read less bytes than requested)"),
        ("saved_model.pb", 0.5, "cannot be read (Cannot parse file"),
        ("fingerprint.pb", 0.5, "cannot be read (SavedModel Fingerprint Error"),
        ("export.json", 0.5, "export.json, which is not JSON"),
    ],
)
def test_a_cut_file_is_said_in_three_parts(copied, capfd, caplog, name, share, says):
    content = (copied / name).read_bytes()
    (copied / name).unlink()
    if share is not None:
        (copied / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        Predictor(copied)
    assert str(copied) in caught.value.received
    assert caught.value.remedy
    assert "Traceback" not in capfd.readouterr().err + caplog.text


# ---------------------------------------------------------------------------- batches, streams

SINGLE = metadata_of(text=[None])
CHOICE = metadata_of(context=[None], endings=[None, None])


class Counting:
    """A model that gives each text's length, and notes the batches it is asked."""

    def __init__(self, metadata: dict = SINGLE, *, batch_size: int = 3):
        self.batches = []
        model = ServedModel("none", metadata, None, lambda _: self._run, lambda: TOKENIZER)
        self.predictor = Predictor(model, batch_size=batch_size)

    def _run(self, **texts):
        lengths = sum(
            tf.reduce_sum(tf.reshape(tf.strings.length(t), [t.shape[0], -1]), 1)
            for t in texts.values()
        )
        self.batches.append(lengths.numpy().tolist())
        return {"length": lengths}


@pytest.mark.parametrize(
    ("metadata", "items", "lengths", "asked"),
    [
        (SINGLE, ["aaaaaaa", "a", "aaaaaaaa", "aa", "aaaaaa", "aaa"], [7, 1, 8, 2, 6, 3],
         [[1, 2, 3], [6, 7, 8]]),
        (CHOICE, [("a", ["b"]), ("aa", ["b", "bb"]), ("aaaa", ["bb"])], [2, 5, 6], [[2, 6], [5]]),
        (SINGLE, [], [], []),
    ],
)  # fmt: skip
def test_rows_alike_are_asked_together(metadata, items, lengths, asked):
    model = Counting(metadata)
    assert [one["length"] for one in model.predictor.predict(items)] == lengths
    assert model.batches == asked


@pytest.mark.parametrize("items", ["a text", b"a text", {"text": "a"}, None, 7])
def test_a_single_item_is_refused(items):
    with pytest.raises(InputError, match="a single item"):
        Counting().predictor.predict(items)


def test_a_pair_is_a_tuple(pairs_export):
    """Of a list of them, of an iterator, or a dict by the names; mixed with texts none is taken."""
    pairs = random_pairs(3)
    expected = pairs_export.predict([dict(zip(pairs_export.texts, p, strict=True)) for p in pairs])
    assert pairs_export.predict([(first, second) for first, second in pairs]) == expected
    assert pairs_export.predict((first, second) for first, second in pairs) == expected
    for wrong in ("a text", ("a", "b", "c"), ("a", None), (float("nan"), "b"), 7, None):
        with pytest.raises(InputError, match=r"Received: item 3.*(str|tuple|NoneType|float|int)"):
            pairs_export.predict([*pairs[:2], wrong])


def test_a_table_is_not_read_as_the_names_of_its_columns():
    class Table(list):
        columns = ("a", "b")

    with pytest.raises(InputError, match=r"a table \(Table\)"):
        Counting().predictor.predict(Table(["a", "b"]))


def test_a_fork_is_refused_at_once(pairs_export, monkeypatch):
    """tests/test_forks.py tries it with processes."""
    monkeypatch.setattr(runtime, "_forked", [True])
    calls = (
        lambda: Predictor("nowhere"),
        lambda: pairs_export.predict(random_pairs(2)),
        lambda: pairs_export.model.run({}),
    )
    for call in calls:
        with pytest.raises(InputError, match=r"(Predictor|model) in a process that was forked"):
            call()


def test_texts_that_are_cut_are_counted(caplog):
    """Those of two windows together; where a model reads long texts in windows, none is."""
    limit = {"options": {"max_seq_length": 8}}
    pair, single = metadata_of(a=[None], b=[None]), ["w1 " * 6, "w1 " * 7, "w1" + " " * 99] * 30
    with_second = [("w1 w2 w3", "w4 w5"), ("w1 w2 w3", "w4 w5 w6"), ("w1 w2 w3 w4 w5 w6", "  ")]
    choices = [("w1 w2 w3", ["w4", "w5 w6 w7", "w1 w2 w3 w4"]), ("w1 w2", ["w3"])]
    for metadata, items, told in (
        (SINGLE, single, "Cut to 8 tokens (max_seq_length): 30 of 90 texts."),
        (pair, with_second, "Cut to 8 tokens (max_seq_length): 1 of 3 texts."),
        (CHOICE, choices, "Cut to 8 tokens (max_seq_length): 1 of 2 texts."),
        (SINGLE | {"task": "token_labels"}, single, None),
    ):
        caplog.clear()
        Counting(metadata | limit).predictor.predict(items)
        assert caplog.messages == ([told] if told else [])


def test_a_stream_reads_no_further_than_a_window():
    """What it has read is answered before an item that cannot be used."""
    read = 0

    def items():
        nonlocal read
        for read in range(1, 97):
            yield "a" * (read % 7)
        yield 5

    answers = Counting().predictor.stream(items())
    for number in range(1, 97):
        assert next(answers)["length"] == number % 7
        assert number <= read < number + 3 * 16
    with pytest.raises(InputError, match="item 97: 5"):
        next(answers)
    with unittest.mock.patch.object(predictor_module, "BYTES_OF_A_WINDOW", 100):
        model = Counting()
        model.predictor.predict(["a" * 60] * 6)
    assert model.batches == [[60, 60]] * 3


def test_batches_and_threads_change_nothing(pairs_export):
    parts = [random_pairs(count) for count in (5, 9, 14, 2)]
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        found = [*itertools.chain(*pool.map(pairs_export.predict, parts))]
    assert len({one["label"] for one in found}) > 1
    for (text_a, text_b), one in zip(itertools.chain(*parts), found, strict=True):
        alone = pairs_export.model.run(batch_of([{"text_a": text_a, "text_b": text_b}]))
        assert one["label"] == alone["label"][0].decode()
        assert one["labels"] == list(served_models.LABELS)
        assert one["probabilities"] == pytest.approx(alone["probabilities"][0], abs=1e-5)
    odd, plain = pairs_export.predict([(b"who\xff founded", "it"), ("who founded", "it")])
    assert odd["probabilities"] == pytest.approx(plain["probabilities"], abs=1e-5)


def test_one_thread_traces_for_all():
    """The others wait: it takes seconds of every core."""
    traced = []

    @functools.cache
    def function(name):
        time.sleep(0.05)
        traced.append(name)
        return lambda: {"a": tf.constant(0.5)}

    model = ServedModel("m", {"signatures": {"serving_default": {}}}, None, function, lambda: None)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert [*pool.map(lambda _: model.run({}), range(4))] == [{"a": 0.5}] * 4
    assert traced == ["serving_default"]


def test_answers_come_in_the_order_of_names():
    """TensorFlow gives an export's in that of a set, another one in each process."""
    metadata, names = {"signatures": {"serving_default": {}}}, ("label", "b", "labels")
    answers = {name: tf.constant(0.5) for name in names}
    model = ServedModel("m", metadata, None, lambda _: lambda: answers, lambda: None)
    assert list(model.run({})) == ["b", "label", "labels"]


# ---------------------------------------------------------------------------- masked words


def fill(tokenizer: FullTokenizer, **options) -> Predictor:
    """Of a model whose weights are set by hand: every probability is known."""
    model = masked_by_place.make_model()
    config = model.config
    options = ServingOptions(task="fill_mask", **options)
    return Predictor(of_weights(weights_of(model), config, tokenizer, options))


@pytest.fixture(scope="module")
def guess():
    """Gives all guesses for a text."""
    return fill(FullTokenizer("v", pieces=PIECES), top_k=len(PIECES)).predict


def test_guesses_in_order(guess):
    """[CLS] [MASK] , water [MASK] wine [SEP]: the first is at 1, odd, the second at 4, even."""
    (found,) = guess(["[MASK], water [MASK] wine"])
    assert [row[:2] for row in found["pieces"]] == [["wine", "##s"], ["bread", "water"]]
    for row in found["probabilities"]:
        assert row[:2] == pytest.approx([16 / SUM, 4 / SUM], rel=1e-4)
        assert sum(row) == pytest.approx(1)
    ties = ["bread", "water", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", "##s", "wine"]
    assert found["pieces"][1] == ties  # to the lower id
    with pytest.raises(InputError, match=r"without \[MASK\]"):
        fill(FullTokenizer("v", pieces=[p for p in PIECES if p != "[MASK]"]))
    # A vocabulary that is shorter than the model's table, whose other rows have a name.
    (found,) = fill(FullTokenizer("v", pieces=PIECES[:-1])).predict(["[MASK]"])
    assert found["pieces"][0][0] == "#9"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("bread[MASK]wine", [2]),  # needs no spaces
        ("breads [MASK]", [3]),  # bread ##s
        ("Bread [mask] WATER [MASK]", [6]),  # of its own case only: [ [UNK] ] to a tokenizer
        ("[MASK]" + " water" * 9, [1]),  # longer than the model
        ("water " * 9 + "[MASK]", []),
        ("[ MASK ]", []),
    ],
)
def test_places_of_masks(guess, text, places):
    (found,) = guess([text])
    wanted = ["bread" if place % 2 == 0 else "wine" for place in places]
    assert [row[0] for row in found["pieces"]] == wanted
