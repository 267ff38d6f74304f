"""The declared tasks: their files as published, their labels, and tasks of a user's own."""

import dataclasses
import itertools
import pathlib
import re
import time
from collections.abc import Iterator

import pytest

from bert_tf.errors import InputError
from bert_tf.tasks.examples import OWN_FORMATS, Example
from bert_tf.tasks.registry import OwnFiles, describe_tasks, get_task, list_tasks
from bert_tf.tasks.task import Task

# Of each published file: its examples. swag/ holds CODAH in the layout of SWAG.
EXAMPLES = {
    ("cola", "glue/CoLA"): {"train": 8551, "dev": 1043, "test": 1063},
    ("sst-2", "glue/SST-2"): {"train": 67349, "dev": 872, "test": 1821},
    ("mrpc", "glue/MRPC"): {"train": 3668, "dev": 408, "test": 1725},
    ("sts-b", "glue/STS-B"): {"train": 5749, "dev": 1500, "test": 1379},
    ("mnli", "glue/MNLI"): {"dev": 9815},
    ("qnli", "glue/QNLI"): {"dev": 5463, "test": 5463},
    ("rte", "glue/RTE"): {"train": 2490, "dev": 277, "test": 3000},
    ("wnli", "glue/WNLI"): {"train": 635, "dev": 71, "test": 146},
    ("ax", "glue/AX"): {"test": 1104},
    ("swag", "swag"): {"train": 1665, "dev": 556},
}
LAST_LABEL_OF_DEV = {
    "cola": 721, "sst-2": 444, "mrpc": 279, "mnli": 3123, "qnli": 2761, "rte": 131, "wnli": 31,
}  # fmt: skip


@pytest.mark.parametrize(("name", "folder"), EXAMPLES)
def test_published_files(data_dir, name, folder):
    task, begin = get_task(name), time.process_time()
    found = {}
    for split in task.splits:
        if task.find_file(str(data_dir / folder), split):
            examples = task.read(str(data_dir / folder), split.name)
            found[split.name] = len(examples)
            assert len({example.guid for example in examples}) == len(examples)
            if split.name == "dev" and name in LAST_LABEL_OF_DEV:
                last = sum(e.label == task.labels.names[-1] for e in examples)
                assert last == LAST_LABEL_OF_DEV[name]
            if split.kind == "test":
                assert all(example.label is None for example in examples)
    assert found == EXAMPLES[name, folder]
    assert time.process_time() - begin < 10


XNLI = "language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2\n"
MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
)
MNLI_ROW = "\n{}\tp\tq\tg\ta\tb\tc\td\tA{}\tB"


def test_the_official_files_of_mnli(tmp_path):
    """Both halves, by the published names; the annotators' labels stand before the right one."""
    (tmp_path / "train.tsv").write_text(
        f"{MNLI}\tlabel1\tgold_label{MNLI_ROW.format(0, 0)}\tneutral\tentailment\n"
    )
    for number, half in enumerate(("matched", "mismatched")):
        labels = "".join(f"\tlabel{i}" for i in range(1, 6)) + "\tgold_label"
        row = MNLI_ROW.format(7, number) + "\tneutral" * 5 + "\tcontradiction\n"
        (tmp_path / f"dev_{half}.tsv").write_text(MNLI + labels + row)
        (tmp_path / f"test_{half}.tsv").write_text(MNLI + MNLI_ROW.format(9, number) + "\n")
    task, folder = get_task("mnli"), str(tmp_path)
    assert task.read(folder, "train") == [Example("0", "A0", "B", "entailment")]
    assert task.read(folder, "dev") == [Example("7", "A0", "B", "contradiction")]
    assert task.read(folder, "dev_mismatched") == [Example("7", "A1", "B", "contradiction")]
    assert task.read(folder, "test") == [Example("9", "A0", "B")]
    assert task.read(folder, "test_mismatched") == [Example("9", "A1", "B")]


@pytest.mark.parametrize(("own", "translated"), [("", ""), ("XNLI-1.0", "XNLI-MT-1.0")])
def test_xnli_in_any_language(tmp_path, own, translated):
    """In one folder, and as it is unpacked."""
    rows = "sw\tneutral\t-\t{0}\tF\nzh\tentailment\t-\t{0}\tH\nsw\tcontradiction\t-\tI\tJ\n"
    files = {f"{own}/xnli.{name}.tsv": XNLI + rows.format(name) for name in ("dev", "test")} | {
        f"{translated}/multinli/multinli.train.{language}.tsv": (
            f"premise\thypo\tlabel\n{language} A\tB\tcontradictory\nC\tD\tneutral\n"
        )
        for language in ("zh", "sw")
    }
    for name, content in files.items():
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert get_task("xnli").read(str(tmp_path), "dev") == [Example("0", "dev", "H", "entailment")]
    task = get_task("xnli", language="sw")
    assert task.read(str(tmp_path), "train")[0] == Example("0", "sw A", "B", "contradiction")
    found = [(e.text_a, e.label) for e in task.read(str(tmp_path), "test")]
    assert found == [("test", "neutral"), ("I", "contradiction")]
    with pytest.raises(InputError, match="no example with language 'xx'; there are sw, zh"):
        get_task("xnli", language="xx").read(str(tmp_path), "dev")


def test_rows_on_which_annotators_did_not_agree(tmp_path, caplog):
    """SNLI as published, under mnli: the label "-" is none. Rows to be predicted all stay."""
    header = "gold_label\tsentence1_parse\tsentence1\tsentence2\tpairID\n"
    labels = ("neutral", "-", "entailment", "-", "contradiction")
    rows = [f"{label}\t(x)\tA{n}\tB\t{n}\n" for n, label in enumerate(labels)]
    for name in ("train", "dev_matched", "test_matched"):
        (tmp_path / f"{name}.tsv").write_text(header + "".join(rows))
    for name in ("train", "dev"):
        found = get_task("mnli").read(str(tmp_path), name)
        assert [(e.text_a, e.label) for e in found] == [
            ("A0", "neutral"), ("A2", "entailment"), ("A4", "contradiction"),
        ]  # fmt: skip
    assert "2 rows without text or agreed label left out" in caplog.text
    assert "train.tsv, line 3" in caplog.text
    assert len(get_task("mnli").read(str(tmp_path), "test")) == 5
    (tmp_path / "train.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\tA\tB\t-\n")
    with pytest.raises(InputError, match="the label '-'"):
        get_task("rte").read(str(tmp_path), "train")


STS = 'main-news\tMSRpar\t2012test\t0{}\t{}\tA "cat.\tA dog.'


def test_the_sts_benchmark_as_it_is_published(tmp_path):
    """Without a header; some rows have one or two columns more, the sources of the texts."""
    rows = (
        STS.format(1, "4.000"),
        STS.format(2, "0.25") + "\thttp://a",
        STS.format(3, 5) + "\ta\tb",
    )
    for name in ("sts-train.csv", "sts-test.csv", "dev.tsv"):
        (tmp_path / name).write_text("\n".join(rows) + "\n")
    task, folder = get_task("sts-b"), str(tmp_path)
    for name, labels in (
        ("train", (4.0, 0.25, 5.0)),
        ("dev", (4.0, 0.25, 5.0)),
        ("test", (None,) * 3),
    ):
        found = task.read(folder, name)
        assert found == [
            Example(str(n), 'A "cat.', "A dog.", label) for n, label in enumerate(labels)
        ]
    for bad in (STS.format(4, 1) + "\ta\tb\tc", "main-news\tMSRpar\t2012test\t04\t1\tA"):
        (tmp_path / "sts-train.csv").write_text("\n".join([*rows, bad]))
        with pytest.raises(InputError, match=r"line 4: \d+ columns.*\n.*7 to 9 columns"):
            task.read(folder, "train")
    (tmp_path / "sts-train.csv").write_text(STS.format(1, 5.5))
    with pytest.raises(InputError, match=r"line 1: the label '5\.5'"):
        task.read(folder, "train")


@pytest.mark.parametrize("count", [2, 4, 5, 12])
def test_as_many_endings_as_the_header_has(tmp_path, count):
    header = ["", "sent1", "sent2", *(f"ending{n}" for n in range(count)), "label"]

    def write(name: str, header: list, label: int) -> None:
        row = ["7", "She left.", "He", *(f"e{n}" for n in range(len(header) - 4)), f"{label}"]
        (tmp_path / name).write_text(f"{','.join(header)}\n{','.join(row)}\n")

    write("train.csv", header, count - 1)
    task, folder = get_task("swag").with_choices_in(str(tmp_path)), str(tmp_path)
    (example,) = task.read(folder, "train")
    assert example.pairs == tuple(("She left.", f"He e{n}") for n in range(count))
    assert task.labels.ids(example.label) == [count - 1]
    if count != 4:  # nor are they ignored where nobody asked how many there are
        with pytest.raises(InputError, match="'ending"):
            get_task("swag").read(folder, "train")
    assert get_task("rte").with_choices_in(folder) == get_task("rte")
    assert (task.num_choices, len(task.labels.names)) == (count, count)
    write("val.csv", header, count)
    with pytest.raises(InputError, match=f"line 2: the label '{count}'"):
        task.read(folder, "dev")
    write("val.csv", [*header[:-1], f"ending{count}", "label"], 0)
    with pytest.raises(InputError, match=f"val.csv with the column 'ending{count}'"):
        task.read(folder, "dev")
    write("val.csv", [*header[: 2 + count], "label"], 0)
    with pytest.raises(InputError, match=f"'ending{count - 1}' .there is no such column"):
        task.read(folder, "dev")


CONTENTS = (None, "other\tcolumns\nA\tB\n", "A B C D\nE\n", "text\tA\t\tlabel\n", '{"a": 1}\n')


def messages_of(task: Task, folder: pathlib.Path) -> Iterator[InputError]:
    """What a task says of files that are missing or of another task, and of unknown labels."""
    for content, split in itertools.product(CONTENTS, task.splits):
        path = folder / split.files.split("|")[0]
        path.parent.mkdir(exist_ok=True)
        path.write_text(content) if content else path.unlink(missing_ok=True)
        try:
            task.read(str(folder), split.name)
        except InputError as error:
            yield error
        else:
            assert task.name == "ner", content  # any two columns are words and their tags
    layout, labels = task.layout, dataclasses.replace(task.labels, names=("O", "B-X"))
    row = dict.fromkeys(layout._text_columns().values(), "A") | {layout.label: "no such"}
    row = {"tokens": ["A"], "ner": [7]} if task.name == "ner" else row
    with pytest.raises(InputError) as caught:
        layout.from_dicts("data", [row], labels, "required", ())
    yield caught.value


@pytest.mark.parametrize("name", list_tasks())
def test_remedies_name_no_flag_that_the_task_refuses(name, tmp_path):
    own = {f"--{field.name}" for field in dataclasses.fields(OwnFiles)}
    remedies = " ".join(one.remedy for one in messages_of(get_task(name), tmp_path))
    named = {*re.findall(r"--\w+", remedies)}
    assert "--data_dir" in named
    assert bool(named & own) is (name in OWN_FORMATS)


@pytest.mark.parametrize(
    ("kind", "labels", "cell"),
    [("regression", (), "much"), ("classes", ("x", "y"), "z"), ("multi_label", ("x", "y"), "z")],
)
def test_the_remedy_for_a_label_names_labels_where_there_are_names(tmp_path, kind, labels, cell):
    (tmp_path / "train.csv").write_text(f"text_a,label\nA,{cell}\n")
    task = get_task("csv", label_kind=kind, labels=labels)
    with pytest.raises(InputError, match=f"the label '{cell}'") as caught:
        task.read(str(tmp_path), "train")
    assert ("--labels" in caught.value.remedy) is (kind != "regression")
    assert "--label_column" in caught.value.remedy


def test_submissions():
    found = {s.submission for name in list_tasks() for s in get_task(name).splits_of("test")}
    expected = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX"
    assert found == {f"{name}.tsv" for name in expected.split()} | {None}


def test_names():
    assert get_task("SST2") is get_task("sst-2") is get_task("Sst_2")
    assert len(set(list_tasks())) == len(list_tasks()) == 16
    assert all(get_task(name).name == name for name in list_tasks())
    lines = describe_tasks().splitlines()
    assert [line.partition(":")[0] for line in lines[::2]] == list(list_tasks())
    assert lines[1::2][list_tasks().index("swag")].split()[1:] == [
        *("train.csv", "val.csv|dev.csv", "test.csv")
    ]


def test_an_unknown_task():
    with pytest.raises(InputError) as info:
        get_task("colla")
    assert "sst-2, mrpc" in info.value.expected


# ------------------------------------------------------------------------------ one's own


def test_own_tsv_without_header(tmp_path):
    (tmp_path / "x.tsv").write_text('1\t"A\tB\n0\tC\tD\n')
    columns = {"text_a_column": "1", "text_b_column": "2", "label_column": "0"}
    task = get_task("tsv", **columns, has_header=False, train_file="x.tsv")
    rows = [Example("0", '"A', "B", "1"), Example("1", "C", "D", "0")]
    assert task.read(str(tmp_path), "train") == rows


def test_metrics_of_several_labels():
    task = get_task("jsonl", label_kind="multi_label", labels=["x", "y"])
    assert task.metrics == ("micro_f1", "macro_f1", "accuracy")
    assert task.labels.names == ("x", "y")


@pytest.mark.parametrize(
    "options",
    [
        {"text_a_column": "x", "text_b_column": "x"},
        {"text_a_column": "0", "label_column": "one", "has_header": False},
        {"labels": ["a", "b", "a"]},
    ],
)
def test_flags_that_cannot_be(options):
    with pytest.raises(InputError):
        get_task("csv", **options)
