"""Dev data: equal texts on one side, the share of each label, whose file dev.jsonl is."""

import collections
import itertools
import json

import numpy as np
import pytest
from walking import eagerly, in_process, write_encoder

from bert_tf.errors import InputError
from bert_tf.tasks.equal_texts import say_copies, say_equal_texts, split_by_label
from bert_tf.tasks.examples import ChoiceExample, Example, WordsExample
from bert_tf.tasks.registry import get_task


def texts(**counts: int) -> list[Example]:
    """So many different texts of each label, in a random order."""
    labels = [label for label, count in counts.items() for _ in range(count)]
    order = np.random.default_rng(1).permutation(len(labels))
    return [Example(str(n), f"text {n}", label=labels[at]) for n, at in enumerate(order)]


def copies(*groups: str) -> list[Example]:
    """A text for each group, with a row for each letter, its label; all texts' first rows first."""
    rows = [row for group in itertools.zip_longest(*groups) for row in enumerate(group) if row[1]]
    return [Example(str(n), f"text {text}", label=one) for n, (text, one) in enumerate(rows)]


def in_dev(examples: list, share: float, seed: int = 1) -> list:
    """The dev rows, after both sides were compared with the whole."""
    train, dev = split_by_label(examples, share, seed)
    for part in (train, dev):
        assert [int(one.guid) for one in part] == sorted(int(one.guid) for one in part)
    assert sorted([*train, *dev], key=lambda one: int(one.guid)) == examples
    assert {one.pairs for one in train}.isdisjoint(one.pairs for one in dev)
    return dev


# ---------------------------------------------------------------------------- shares of labels


def test_of_every_label_a_share_is_for_dev():
    given = texts(a=40, b=21, c=5, d=2, e=1)
    dev = in_dev(given, 0.2, seed=3)
    assert collections.Counter(one.label for one in dev) == {"a": 8, "b": 4, "c": 1, "d": 1}
    assert split_by_label(given, 0.2, seed=3)[1] == dev
    assert split_by_label(given, 0.2, seed=4)[1] != dev


def test_the_rows_of_a_seed_are_always_the_same():
    """Else no stopped run could be resumed."""
    rows = "2 4 18 28 33 35 37 45 51 52 53 55 56 68"
    assert " ".join(one.guid for one in in_dev(texts(a=40, b=21, c=5, d=2, e=1), 0.2, 3)) == rows
    scored = [Example(str(n), f"text {n}", label=n / 2) for n in range(23)]
    assert " ".join(one.guid for one in in_dev(scored, 0.2, 7)) == "3 4 14 15 18"


@pytest.mark.parametrize("label", [1.5, ("O",), None])
def test_scores_and_tags_are_one_group(label):
    if label == ("O",):
        given = [WordsExample(str(n), (f"w{n}",), label=label) for n in range(30)]
    else:
        given = [Example(str(n), f"w{n}", label=label) for n in range(30)]
    assert [*map(len, split_by_label(given, 0.1, 1))] == [27, 3]


def label_sets(*groups: tuple[int, str]) -> list[Example]:
    """So many texts with these labels, a letter each, in a random order."""
    labels = [tuple(names) for count, names in groups for _ in range(count)]
    order = np.random.default_rng(5).permutation(len(labels))
    return [Example(str(n), f"text {n}", label=labels[at]) for n, at in enumerate(order)]


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_of_several_labels_each_has_its_share(seed):
    """Also of rows without any; a label that one row has stays in training."""
    given = label_sets(
        (50, "a"), (27, "ab"), (20, "bc"), (13, "ac"), (9, "abc"), (31, ""), (1, "d")
    )
    dev = in_dev(given, 0.1, seed)
    found = collections.Counter(itertools.chain(*(one.label for one in dev)))
    assert found == {"a": 10, "b": 6, "c": 4}  # of 99, 56 and 42
    assert sum(one.label == () for one in dev) == 3  # of 31


def test_many_labels_of_all_frequencies():
    random = np.random.default_rng(2)
    shares = 0.4 / np.arange(1, 24)
    drawn = random.random((731, 23)) < shares
    given = [
        Example(str(n), f"text {n}", label=tuple(f"l{k}" for k in np.flatnonzero(row)))
        for n, row in enumerate(drawn)
    ]
    dev = in_dev(given, 0.1)
    sizes = collections.Counter(itertools.chain(*(one.label for one in given)))
    found = collections.Counter(itertools.chain(*(one.label for one in dev)))
    assert min(sizes.values()) > 5
    assert {name: abs(found[name] - max(round(size / 10), 1)) for name, size in sizes.items()} == (
        dict.fromkeys(sizes, 0)
    )


# ---------------------------------------------------------------------------- equal texts


def test_copies_of_a_text_are_on_one_side():
    """However their labels differ: of 60 texts with six rows each a tenth is six texts."""
    random = np.random.default_rng(3)
    given = copies(*("".join(random.choice(["x", "y"], 6)) for _ in range(60)))
    dev = in_dev(given, 0.1)
    sizes, found = (collections.Counter(one.label for one in rows) for rows in (given, dev))
    assert len(dev) == 36
    assert all(abs(found[name] - sizes[name] / 10) < 2 for name in "xy")


@pytest.mark.parametrize(
    ("groups", "share", "expected"),
    [
        (["aaa", "a", "a", *["b"] * 5], 0.4, {"a": 2, "b": 2}),  # what fits
        (["aaaa", "aaa", "aaa"], 0.2, {"a": 3}),  # 2 are wanted: the nearest
        (["aaaaa", "aaa"], 0.1, {"a": 3}),  # 1 is wanted: one text in any case
        (["aaaa", *["b"] * 10], 0.3, {"b": 3}),  # its one text is for training
        (["ab", "ab", "ab", "ab", "ab"], 0.4, {"a": 2, "b": 2}),
        (["ab", "a", "a", "bb", "b"], 0.34, {"a": 1, "b": 1}),
    ],
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_share_is_as_near_as_copies_allow(groups, share, expected, seed):
    dev = in_dev(copies(*groups), share, seed)
    assert collections.Counter(one.label for one in dev) == expected


@pytest.mark.parametrize(
    ("first", "second", "are_equal"),
    [
        (Example("0", "It  rains\n"), Example("1", "it RAINS"), True),
        (Example("0", "Straße"), Example("1", "\xa0STRASSE"), True),
        (Example("0", "a"), Example("1", "a."), False),
        (Example("0", "a", "b"), Example("1", "a", "c"), False),
        (Example("0", "a", "B"), Example("1", "A", "b "), True),
        (Example("0", "a", "b"), Example("1", "b", "a"), False),
        (ChoiceExample("0", (("a", "b"), ("a", "c"))),
         ChoiceExample("1", (("a", "B"), ("a", "C"))), True),
        (ChoiceExample("0", (("a", "b"), ("a", "c"))),
         ChoiceExample("1", (("a", "c"), ("a", "b"))), False),
        (WordsExample("0", ("In", "May"), 1), WordsExample("1", ("in", "MAY"), 2), True),
        (WordsExample("0", ("In", "May")), WordsExample("1", ("In", "June")), False),
    ],
)  # fmt: skip
def test_texts_are_equal_but_for_space_and_case(first, second, are_equal, caplog):
    caplog.set_level("INFO", logger="absl")
    say_copies([first, second])
    assert ("1 of the 2 examples repeat the text of another" in caplog.text) == are_equal


# ---------------------------------------------------------------------------- what is said


def test_a_text_with_two_labels_is_said(write, caplog):
    """With the number of such texts, and the places of three."""
    rows = "n,x\na b,x\nc,x\nA  b,x\na b,y\na b,z\nC,y\nd,x\nd,y\nm,x\nm,x\ne,x\ne,z\n"
    path = write("text_a,label\n" + rows, "t.csv")
    task = get_task("csv")
    say_equal_texts(task.layout.read(path, task.labels), {})
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.splitlines() == [
        "4 of the 6 texts of the training data have different labels (white space and case aside):",
        f"{path}, line 3: 'x'; line 6: 'y'",
        f"{path}, line 4: 'x'; line 8: 'y'",
        f"{path}, line 9: 'x'; line 10: 'y'",
        "and 1 more",
    ]


def test_labels_are_compared_by_what_they_mean(caplog):
    """Sets in any order; tags word by word."""
    sets = [("b", "a"), ("a", "b"), ("a",)]
    rows = [Example(str(n), "t", label=label, place=f"row {n}") for n, label in enumerate(sets)]
    say_equal_texts(rows[:2], {})
    assert not caplog.records
    say_equal_texts(rows, {})
    assert "row 0: ('b', 'a'); row 2: ('a',)" in caplog.text
    tags = [("O", "B-PER", "O"), ("O", "O", "B-LOC")]
    words = ("In", "May", "York")
    rows = [WordsExample(str(n), words, label=of, place=f"row {n}") for n, of in enumerate(tags)]
    say_equal_texts(rows, {})
    assert "row 0: 'May' 'B-PER'; row 1: 'May' 'O'" in caplog.text


def test_dev_data_that_repeat_training_data_are_said(caplog):
    train = [Example(str(n), f"text {n}", label="x") for n in range(7)]
    dev = [Example(str(n), f"TEXT {n} ", label="y") for n in range(4, 12)]
    say_equal_texts(train, {"dev": dev, "test": dev[5:]})
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "3 of the 8 examples (37.5 %) of the dev data repeat a text of the training data"
    )


# ---------------------------------------------------------------------------- the command

TABLE = "text_a,label\n" + "".join(f"w{n} w{n + 1},{'xy'[n % 2]}\n" for n in range(20))


@pytest.fixture
def given(tmp_path) -> dict:
    """Flags of a short training, whose files are in a folder beside that of the run."""
    write_encoder(tmp_path, num_hidden_layers=1)
    (tmp_path / "train.csv").write_text(TABLE)
    return {
        "train_file": tmp_path / "train.csv", "output_dir": tmp_path / "out", "do_train": True,
        "do_eval": True, "init_checkpoint": tmp_path, "max_seq_length": 9, "train_batch_size": 4,
        "num_train_epochs": 1, "xla": "false",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["train.csv", "link.csv", "hard.csv", "dev.csv", "./train.csv"])
def test_the_training_file_is_no_dev_file(given, tmp_path, name):
    """By whatever name; before anything is read."""
    train = tmp_path / "train.csv"
    train.write_bytes(b"\xff no text at all")
    (tmp_path / "link.csv").symlink_to(train)
    (tmp_path / "dev.csv").symlink_to(tmp_path / "link.csv")
    (tmp_path / "hard.csv").hardlink_to(train)
    by_folder = {"train_file": None, "task_name": "csv", "data_dir": tmp_path}
    with in_process("classify") as classify:
        for flags in (given, given | by_folder):
            with pytest.raises(InputError, match="which is the training file"):
                classify(**flags | {"dev_file": f"{tmp_path}/{name}"})
        if name == "dev.csv":
            with pytest.raises(InputError, match="which is the training file"):
                classify(**given | by_folder)
        with pytest.raises(InputError, match="UTF-8"):  # the file is read
            classify(**given | {"dev_file": tmp_path / name, "do_eval": False})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b'{"text_a": "mine", "label": "x"}\n', b"", b"\xff\x00"])
def test_a_dev_file_of_the_users_is_not_overwritten(given, tmp_path, content):
    """Whatever is in it; training does not begin."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "dev.jsonl").write_bytes(content)
    with in_process("classify") as classify, pytest.raises(InputError, match="no command has writ"):
        classify(**given, dev_share=0.2)
    assert [path.name for path in out.iterdir()] == ["dev.jsonl"]
    assert (out / "dev.jsonl").read_bytes() == content


def test_the_training_file_may_not_be_where_dev_rows_are_written(given, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "dev.jsonl").write_text('{"text_a": "a", "label": "x"}\n{"text_a": "b", "label": "y"}\n')
    (tmp_path / "train.jsonl").symlink_to(out / "dev.jsonl")
    with in_process("classify") as classify, pytest.raises(InputError, match="is the input"):
        classify(**given | {"train_file": tmp_path / "train.jsonl"}, dev_share=0.5)


@pytest.mark.walk
def test_dev_rows_of_a_run_are_known_again(given, tmp_path, caplog):
    """A finished training goes on beside its own dev.jsonl, not beside one that was changed."""
    (tmp_path / "train.csv").write_text(TABLE + TABLE.partition("\n")[2] + "W2  w3,y\n")
    caplog.set_level("INFO", logger="absl")
    dev, given = tmp_path / "out/dev.jsonl", given | {"dev_share": 0.2, "train_batch_size": 16}
    with in_process("classify") as classify, eagerly():
        classify(**given)
        assert caplog.text.count("21 of the 41 examples repeat the text of another") == 1
        assert " texts of the training data have different labels" in caplog.text
        first = dev.read_bytes()
        found = [json.loads(line)["text_a"] for line in first.splitlines()]
        assert sorted(collections.Counter(found).values()) == [2, 2, 2, 2]
        classify(**given | {"num_train_epochs": 2})
        assert dev.read_bytes() == first
        with pytest.raises(InputError, match="seed 7"):
            classify(**given, seed=7)
        dev.write_bytes(first + b"\n")
        with pytest.raises(InputError, match="no command has written"):
            classify(**given | {"num_train_epochs": 3})
        with pytest.raises(InputError, match="without --do_train"):
            classify(**given | {"do_train": False, "init_checkpoint": None})
        assert dev.read_bytes() == first + b"\n"
        dev.unlink()
        classify(**given | {"num_train_epochs": 3})
        assert dev.read_bytes() == first
