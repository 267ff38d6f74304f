"""A table as people have it: any separator and encoding, bad rows, unequal labels, no dev file."""

import collections
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from walking import eagerly, in_process, read_results, untraced, write_encoder

import bert_tf
from bert_tf import heads
from bert_tf.errors import InputError
from bert_tf.heads import Labels, LabelSets, MultiLabel, Scores, Tags
from bert_tf.options import Reading
from bert_tf.tables import Columns, find_format
from bert_tf.tasks import examples
from bert_tf.tasks.examples import Example, TextColumns, WordsExample
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.results import by_confidence, calibration_error, fit_temperature
from bert_tf.tasks.task import Split
from bert_tf.tasks.text_run import TextData, class_weights
from bert_tf.tokenization.wordpiece import FullTokenizer

OWN = {"text_a_column": "Message", "label_column": "Class"}
ANY = Labels()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_any_separator_and_encoding(write, delimiter, encoding):
    rows = [["Nr", "Message", "Class"], ["1", f'"Größe{delimiter} bitte"', "A"], ["2", "é", "B"]]
    text = "\r\n".join(map(delimiter.join, rows)) + "\r\n"
    path = write(text.encode(encoding), "t.csv")
    said = encoding if encoding in ("utf-16-le", "cp1252") else ""
    found = get_task("csv", **OWN, reading=Reading(encoding=said)).layout.read(path, ANY)
    assert [(one.text_a, one.label) for one in found] == [
        (f"Größe{delimiter} bitte", "A"), ("é", "B")
    ]  # fmt: skip


def test_a_comma_is_what_parts_cells_where_it_can_be(write, caplog):
    """Whatever else the texts have in them; test data may lack the labels."""
    path = write("Message,Class\na;b;c,x;y\n", "t.csv")
    (one,) = get_task("csv", **OWN).layout.read(path, ANY)
    assert (one.text_a, one.label) == ("a;b;c", "x;y")
    layout = TextColumns(text_a=0, label=1, file_format="csv")
    for text in ("a;b,c\n", '"a,b";c\n', "a|b;c\n"):
        (one,) = layout.read(write(text, "t.csv"), ANY)
        assert (one.text_a, one.label) == (text[:-3].strip('"'), "c")
    first = TextColumns(text_a=0, file_format="csv")  # a column that any separator gives
    for text, is_doubtful in (
        ("a;b\nc\n", False),
        ('"a;b"\nc\n', False),
        ("a;b,x\nc,y\n", False),
        ("a;b\nc;\n", True),
        ("a;b\n", False),
    ):
        caplog.clear()
        found = first.read(write(text, "t.csv"), ANY, labelled=examples.NONE)
        assert [one.text_a for one in found] == ["a;b", *["c;" if is_doubtful else "c"]][
            : len(found)
        ]
        assert ("with ';' all rows have columns, too" in caplog.text) == is_doubtful


def test_a_wrong_column_is_named_beside_the_others(write):
    """In a header as Excel writes it, with whatever separator it has."""
    path = write('"Nr";"Text, kurz";"Art"\n"1";"a, b";"x"\n', "t.csv")
    with pytest.raises(InputError, match=r"'Nr \| Text, kurz \| Art'(.|\n)*one column 'Message'"):
        get_task("csv", **OWN).layout.read(path, ANY)
    (one,) = get_task("csv", **OWN).layout.read(
        write("Nr;Message\n1;a, b\n", "t.csv"), ANY, labelled=examples.OPTIONAL
    )
    assert (one.text_a, one.label) == ("a, b", None)


@pytest.mark.parametrize("encoding", ["ascii", "utf-32", "no such one", "rot13", "base64"])
def test_another_encoding_than_the_file_has(write, encoding):
    path = write("Message,Class\né,x\n".encode(), "t.csv")
    says = f"bytes that are not {encoding.upper()}|--encoding={encoding} |does not start with BOM"
    with pytest.raises(InputError, match=says):
        get_task("csv", **OWN, reading=Reading(encoding=encoding)).layout.read(path, ANY)


def test_letters_that_become_control_characters(write):
    path = write("Message,Class\n3 €,x\n".encode("cp1252"), "t.csv")
    with pytest.raises(InputError, match=r"line 2: the control character '\\x80' in LATIN1\n"):
        get_task("csv", **OWN, reading=Reading(encoding="latin1")).layout.read(path, ANY)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('\n{"a": 1}\n', "jsonl"),
        ("a\tb\nc\td\n", "tsv"),
        ('"a"\tb\n', "tsv"),
        ("a;b\n", "csv"),
        ("", "csv"),
        ('a\tb\nc\t"d"\n'.encode("utf-16"), "tsv"),  # as Excel writes it
    ],
)
def test_the_format_is_what_the_content_shows(write, content, kind):
    columns = Columns({"text_a": "a"}, hint="")
    assert find_format(write(content, "t.txt"), columns).kind == kind


BAD = {
    "csv": 'Message,Class\na,x\n" ",x\nb\nc,\nd,y\nMessage,Class\n',
    "tsv": "Message\tClass\na\tx\n \tx\nb\nc\t\nd\ty\nMessage\tClass\n",
    "jsonl": '{"Message": "a", "Class": "x"}\n{"Message": " ", "Class": "x"}\n{"Message": "b"}\n'
    '{"Message": "c", "Class": ""}\n{"Message": "d", "Class": "y"}\n[]\n',
}


@pytest.mark.parametrize("kind", BAD)
def test_all_bad_rows_are_in_one_message(write, kind, caplog):
    path = write(BAD[kind], "t")
    with pytest.raises(InputError) as caught:
        get_task(kind, **OWN).layout.read(path, ANY)
    first, *lines = caught.value.received.splitlines()
    assert first == f"{path}, with 4 rows that cannot be used:"
    numbers = [int(line.removeprefix("line ").partition(":")[0]) for line in lines]
    assert numbers == ([2, 3, 4, 6] if kind == "jsonl" else [3, 4, 5, 7])
    assert "in the column 'Message'" in lines[0]
    assert all("; expected: " in line for line in lines)
    assert "--skip_bad_rows" in caught.value.remedy
    found = get_task(kind, **OWN, skip_bad_rows=True).layout.read(path, ANY)
    # Their numbers in the file, so that predictions can be found in it.
    assert [(one.guid, one.text_a, one.label) for one in found] == [
        ("0", "a", "x"), ("4", "d", "y")
    ]  # fmt: skip
    assert "4 rows that cannot be used are left out" in caplog.text


def test_of_many_bad_rows_twenty_are_shown(write):
    """However long they are, and the names of the labels."""
    path = write("Message,Class\n" + f"{'long ' * 40},\n" * 25 + "x\n" * 25, "t")
    labels, layout = Labels(names=tuple(f"label {n}" for n in range(20))), get_task("csv", **OWN)
    with pytest.raises(InputError) as caught:
        layout.layout.read(path, labels)
    lines = caught.value.received.splitlines()
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == "and 30 more"


def test_a_label_that_only_dev_has(write):
    labels, path = Labels(names=("Billing", "Other")), write("Message,Class\na,biling\n", "t")
    with pytest.raises(InputError) as caught:
        get_task("csv", **OWN).layout.read(path, labels)
    assert caught.value.expected.endswith("(did you mean 'Billing'?)")


# ---------------------------------------------------------------------------- unequal labels


def texts(**counts: int) -> list[Example]:
    labels = [label for label, count in counts.items() for _ in range(count)]
    order = np.random.default_rng(1).permutation(len(labels))
    return [Example(str(n), f"text {n}", label=labels[at]) for n, at in enumerate(order)]


def data(examples: list) -> TextData:
    return TextData(split=Split("train", "", ""), examples=examples)


def test_balanced_weights_make_labels_count_alike(tmp_path):
    given, labels = texts(a=6, b=3, c=1), Labels(names=("a", "b", "c"))
    found = class_weights("balanced", labels, data(given))
    assert found == pytest.approx((10 / 18, 10 / 9, 10 / 3))
    tags = [WordsExample("0", ("u", "v", "w"), label=("O", "O", "B"))]
    assert class_weights("balanced", Tags(names=("O", "B")), data(tags)) == (0.75, 1.5)
    (tmp_path / "w.json").write_text(json.dumps({"b": 1, "a": 2, "c": 0.5}))
    assert class_weights(str(tmp_path / "w.json"), labels, data(given)) == (2, 1, 0.5)
    assert class_weights(None, labels, data(given)) == ()
    assert class_weights("balanced", labels, None) == ()
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "text"]))
    long = [
        dataclasses.replace(one, text_a="text " * (9 if one.label == "c" else 4)) for one in given
    ]
    sizes = {"max_seq_length": 6, "doc_stride": 1}  # 6 windows of 9 words, 1 of 4
    windows = class_weights(
        "balanced", labels, data(long), FullTokenizer(tmp_path / "vocab.txt"), **sizes
    )
    assert windows == pytest.approx((15 / 18, 15 / 9, 15 / 18))
    for wrong in ({"a": 1}, {"a": 1, "b": 1, "c": 0}, {"a": 1, "b": 1, "c": 1, "d": 1}):
        (tmp_path / "w.json").write_text(json.dumps(wrong))
        with pytest.raises(InputError, match=r"w\.json with"):
            class_weights(str(tmp_path / "w.json"), labels, data(given))
    with pytest.raises(InputError, match="labels of regression"):
        class_weights("balanced", Scores(), data(given))


def test_balanced_weights_of_several_labels():
    """Of 5 rows 1 has a, 4 have b, and all or none the others."""
    labels = LabelSets(names=("a", "b", "all", "none"))
    rows = [("a", "b", "all"), *[("b", "all")] * 3, ("all",)]
    given = [Example(str(n), f"text {n}", label=label) for n, label in enumerate(rows)]
    assert class_weights("balanced", labels, data(given)) == (4.0, 0.25, 1.0, 1.0)


def test_the_loss_of_several_labels_by_their_weights():
    """PyTorch's pos_weight: -(w y log p + (1 - y) log(1 - p)), a mean over labels and rows."""
    head = MultiLabel().weighted((3.0, 0.5))
    logits, rows = np.array([[0.5, -1.0], [2.0, 0.25], [9.0, 9.0]], np.float32), [[1, 0], [0, 1]]
    batch = {
        "label_ids": np.array([*rows, [1, 1]], np.int32),
        "is_real_example": np.array([1, 1, 0], np.float32),  # the last one fills up
    }
    sums = head.loss_sums({"logits": logits}, batch)
    shares = 1 / (1 + np.exp(-logits[:2].astype(float)))
    wanted = [
        -3.0 * np.log(shares[0, 0]) - np.log(1 - shares[0, 1]),
        -np.log(1 - shares[1, 0]) - 0.5 * np.log(shares[1, 1]),
    ]
    assert float(head.loss(sums, head.denominators(batch))) == pytest.approx(np.sum(wanted) / 4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["classification", "token_labels"])
def test_the_loss_is_the_mean_by_the_weights(name, packed):
    """As scikit-learn's and PyTorch's are."""
    plain, weights = heads.head_named(name), np.array([0.5, 2.0, 7.0])
    assert plain.weighted(()) is plain
    head, rng = plain.weighted(weights.tolist()), np.random.default_rng(2)
    assert (head.class_weights, plain.class_weights) == (tuple(weights), ())
    labels = rng.integers(0, 3, (4, 5)).astype(np.int32)
    labels[:, -1] = -1 if name == "token_labels" else 0
    real = np.ones((4, 5), np.float32)
    real[1, 3:] = 0
    logits = rng.normal(size=(4, 5, 3)).astype(np.float32)
    batch = {"label_ids": labels, "is_real_example": real}
    counts = real * (labels >= 0)
    if name == "token_labels":
        batch["is_real_example"] = real[:, 0]
        counts = (labels >= 0) * real[:, :1]
        if packed:
            batch["input_mask"] = np.ones((4, 5), np.int32)
            batch["is_real_example"] = real[:, :1]
    elif packed:
        logits = logits.reshape(20, 3)
    else:
        batch = {key: value[:, 0] for key, value in batch.items()}
        labels, counts, logits = labels[:, 0], counts[:, 0], logits[:, 0]
    batch = {key: tf.constant(value) for key, value in batch.items()}
    sums = head.loss_sums({"logits": tf.constant(logits)}, batch)
    found = head.loss(sums, head.denominators(batch))
    each = logits.reshape(-1, 3) - np.log(np.exp(logits.reshape(-1, 3)).sum(1, keepdims=True))
    each = -np.take_along_axis(each, np.maximum(labels, 0).reshape(-1, 1), 1).ravel()
    of_class = weights[np.maximum(labels, 0)].ravel() * counts.ravel()
    assert float(found) == pytest.approx((each * of_class).sum() / of_class.sum(), rel=1e-5)


# ---------------------------------------------------------------------------- the command


@pytest.mark.walk
def test_one_file_from_a_spreadsheet(tmp_path, caplog):
    """Balanced, by the best loss; then evaluated again on the same rows."""
    write_encoder(tmp_path, num_hidden_layers=1, scale=5)
    rng = np.random.default_rng(1)
    rows = ["Nr;Message;Class"]
    for number in range(60):
        label = ["Rare", "Often"][int(number % 6 > 0)]
        words = [f"w{n}" for n in rng.integers(3, 60, 6)] + ["w1"] * (label == "Rare") + ["Größe"]
        rows.append(f"{number};{' '.join(words)};{label}")
    (tmp_path / "t.csv").write_bytes("\r\n".join(rows).encode("utf-16"))
    out = tmp_path / "out"
    given = {
        "train_file": tmp_path / "t.csv", "text_a_column": "Message", "label_column": "Class",
        "id_column": "Nr", "dev_share": 0.25, "output_dir": out, "max_seq_length": 17,
        "do_eval": True,
    }  # fmt: skip
    training = {
        "do_train": True, "init_checkpoint": tmp_path, "class_weights": "balanced",
        "best_metric": "eval_loss", "eval_steps": 4, "train_batch_size": 9, "num_train_epochs": 3,
        "learning_rate": "2e-3", "xla": "false",
    }  # fmt: skip
    with in_process("classify") as classify, eagerly():
        classify(**given, **training)
        assert "% of the words lose letters or accents: Größe -> Große. A model" in caplog.text
        results = read_results(out)
        scores = json.loads((out / "best/evaluations.json").read_text())
        assert results["eval_loss"] == pytest.approx(min(scores.values()))
        rows_of_dev = (out / "dev.jsonl").read_text()
        dev = [*map(json.loads, rows_of_dev.splitlines())]
        assert collections.Counter(one["label"] for one in dev) == {"Often": 12, "Rare": 2}
        assert {one["id"] for one in dev} == {
            line.split("\t")[0] for line in (out / "dev_predictions.tsv").read_text().splitlines()
        } - {"id"}
        classify(**given)
        assert read_results(out)["eval_loss"] == pytest.approx(results["eval_loss"], abs=1e-6)
        classify(
            task_name="jsonl", dev_file=out / "dev.jsonl", id_column="id", output_dir=out,
            max_seq_length=17, do_eval=True,
        )  # fmt: skip
        assert read_results(out)["eval_loss"] == pytest.approx(results["eval_loss"], abs=1e-6)
        for wrong, says in (
            ({"dev_file": "x.csv"}, "--dev_share with --dev_file=x.csv"),
            ({"task_name": "mrpc", "train_file": None, "data_dir": tmp_path}, "--dev_share with"),
            ({"best_metric": "recall", "do_train": True}, "--best_metric=recall"),
            ({"train_file": None}, "no --task_name"),
            ({"train_file": None, "tfds_name": "glue/mrpc"}, "no --task_name"),
            ({"seed": 7}, "--dev_share=0.25 --seed=7 without --do_train"),
            ({"dev_share": 0.5}, "--dev_share=0.5 --seed=12345 without --do_train"),
            ({"output_dir": tmp_path, "init_checkpoint": out}, "without --do_train"),
            ({"best_metric": "entity_f1", "do_train": True}, "--best_metric=entity_f1"),
            ({"calibrate": True}, "--calibrate without --do_train"),
            (
                {
                    "task_name": "mrpc",
                    "train_file": None,
                    "data_dir": tmp_path,
                    "dev_share": None,
                    "encoding": "cp1252",
                },
                "--encoding=cp1252 with --task_name=mrpc",
            ),
            (training | {"class_weights": None}, "class_weights"),
            (training | {"seed": 7}, "seed 7"),
            (training | {"best_metric": "accuracy", "num_train_epochs": 5}, "best_metric accuracy"),
            (training | {"calibrate": True, "label_kind": "regression"}, "labels of regression"),
        ):
            with pytest.raises(InputError, match=says):
                classify(**given | wrong)
        assert (out / "dev.jsonl").read_text() == rows_of_dev


# ---------------------------------------------------------------------------- calibration


def test_the_error_is_the_distance_of_probability_and_truth():
    shares = np.array([[0.95, 0.05], [0.05, 0.95], [0.92, 0.08], [0.6, 0.4]])
    found = by_confidence(shares, np.array([0, 1, 1, 0]))
    assert found == [(0.6, 1, 1.0), (pytest.approx(0.94), 3, pytest.approx(2 / 3))]
    expected = (0.4 + 3 * (0.94 - 2 / 3)) / 4
    assert calibration_error(shares, np.array([0, 1, 1, 0])) == pytest.approx(expected)


def test_the_temperature_that_made_the_logits_is_found():
    rng = np.random.default_rng(4)
    logits = rng.normal(size=(40_000, 3))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    gold = (rng.random((40_000, 1)) > shares.cumsum(axis=1)).sum(axis=1)
    assert fit_temperature(logits * 3, gold) == pytest.approx(3, rel=0.05)
    for size in (0.01, 1, 50):  # of logits that are all right: 50 loses nothing any more
        assert fit_temperature(logits * size, logits.argmax(axis=1)) == 1
    assert fit_temperature(logits / 2, gold) == pytest.approx(0.5, rel=0.05)


@pytest.mark.walk
def test_probabilities_are_calibrated_wherever_the_model_is_used(tmp_path):
    """Labels without a reason, learned by heart: so it is far too sure of the others."""
    write_encoder(tmp_path, num_hidden_layers=1, scale=5)
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 90, 9)) for _ in range(60)]
    rows = [f"{text},{'xy'[rng.integers(2)]}" for text in texts]
    (tmp_path / "train.csv").write_text("\n".join(["text_a,label", *rows]))
    out = tmp_path / "out"
    given = {
        "train_file": tmp_path / "train.csv", "dev_share": 0.4, "output_dir": out,
        "max_seq_length": 17, "do_eval": True,
    }  # fmt: skip
    training = {
        "do_train": True, "init_checkpoint": tmp_path, "train_batch_size": 12,
        "learning_rate": "5e-3", "num_train_epochs": 20, "xla": "false",
    }  # fmt: skip

    def facts() -> dict:
        return json.loads((out / "model_facts.json").read_text())

    with in_process("classify") as train:
        train(**given, **training)
    assert "temperature" not in facts()
    raw = read_results(out)["eval_loss"]
    with in_process("classify") as classify, untraced():
        classify(**given, **training, calibrate=True)  # which is finished
        first = facts()
        classify(**given, **training)  # as if it had never been calibrated
        assert "temperature" not in facts()
        assert read_results(out)["eval_loss"] == pytest.approx(raw, abs=1e-5)
        classify(**given, **training, calibrate=True)
        assert facts() == first
        results = read_results(out)
        assert results["eval_loss"] < raw
        assert results["eval_calibration_error"] < results["eval_calibration_error_before"]
        assert facts()["temperature"] > 1.5
        classify(**given)
        again = read_results(out)
        assert again["eval_loss"] == pytest.approx(results["eval_loss"], abs=1e-5)
        assert facts()["temperature"] > 1.5
        lines = (out / "dev_predictions.tsv").read_text().splitlines()[1:]
        predictor = bert_tf.Predictor(out)
        for line in lines:
            number, _, _, *shares = line.split("\t")
            (answer,) = predictor.predict([texts[int(number)]])
            assert answer["probabilities"] == pytest.approx([*map(float, shares)], abs=1e-5)
        classify(**given, **training | {"num_train_epochs": 21})
        assert "temperature" not in facts()
        commands = json.loads((out / "run.json").read_text())["commands"]
        calibrated = [record["flags"].get("calibrate") for record in commands]
        assert calibrated == [None, True, None, True, None, None]
        # A grid, whose best model is loaded anew, by the best of several evaluations.
        grid = training | {
            "learning_rate": "5e-3",
            "num_trials": 2,
            "num_train_epochs": 2,
            "eval_steps": 3,
        }
        grid |= {"output_dir": tmp_path / "grid", "calibrate": True}
        found = []
        for _ in range(2):
            classify(**given | grid)
            classify(**given | {"output_dir": tmp_path / "grid"})
            found.append(json.loads((tmp_path / "grid/model_facts.json").read_text()))
        assert found[0] == found[1]
