"""One file, one answer: the same through every door, or refused by the same words.

`make test` takes a part of the files, another one with BERT_TF_MATRIX_SEED=2; `make matrix` all.
"""

import os
import re

import door_files
import pytest

from bert_tf.errors import InputError

pytestmark = pytest.mark.walk
SEED = int(os.environ.get("BERT_TF_MATRIX_SEED", "1"))
PARTS = 5  # of which one is taken
IS_WHOLE = "BERT_TF_MATRIX_ALL" in os.environ
CHOSEN = door_files.FILES if IS_WHOLE else door_files.FILES[SEED % PARTS :: PARTS]
KINDS = door_files.KINDS if IS_WHOLE else [*door_files.KINDS][SEED % 2 :: 2]
LINES = [file for file in CHOSEN if file.form in door_files.LINE_FORMS]
READ = [file for file in CHOSEN if not file.refused and file not in LINES]
TABLES = [file for file in READ if file.has_header and "json" not in file.form]
REFUSED = [file for file in CHOSEN if file.refused]
NAMES = ("a.csv", "a.tsv", "a.txt", "a.jsonl", "a.json", "a.conll", "a.data", "a")
CLOSE, EQUAL = 1e-3, 1e-5  # of another program's step, and of the same


@pytest.fixture(scope="module")
def of():
    """The helper, which starts TensorFlow, after devices are configured."""
    import doors

    return doors


@pytest.fixture(scope="module")
def doors(of, tmp_path_factory):
    return of.Doors(tmp_path_factory.mktemp("doors"))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_a_file(kind, of, doors):
    """Trained by `fit` or by a command, asked by `predict`, Predictor or the server."""
    trained = [*of.read_results(doors.trained(kind), kind).values()]
    assert not of.differences(trained, doors.of_fit(kind), CLOSE)
    assert not of.differences(doors.of_predictor(kind), trained, EQUAL)
    assert not of.differences(doors.of_server(kind), trained, EQUAL)


@pytest.mark.parametrize("file", READ, ids=str)
def test_a_file(file, of, doors, tmp_path):
    """Trains as any other file of these rows, and is answered so, by its path and on a pipe."""
    path = file.write(tmp_path)
    doors.train(file, path, tmp_path / "out")
    wanted = of.read_results(doors.trained(file.kind), file.kind)
    trained = of.read_results(tmp_path / "out", file.kind)
    if file.has_header or file.kind == "tags":
        assert trained.keys() == wanted.keys()
    wanted = [*wanted.values()]
    assert not of.differences([*trained.values()], wanted, EQUAL)
    answers = {
        "path": doors.of_path(tmp_path / "out", file, path),
        "pipe": doors.of_pipe(tmp_path / "out", file, path.read_bytes()),
    }
    for name in NAMES if IS_WHOLE else ():
        other = path.rename(tmp_path / name)
        answers[name] = doors.of_path(tmp_path / "out", file, other)
        path = other
    for door, found in answers.items():
        assert not of.differences(of.answers_of(found), wanted, EQUAL), door
        if "id_column" in of.predict_flags(file):
            assert [answer["id"] for answer in found] == [*trained], door


@pytest.mark.parametrize("file", REFUSED, ids=str)
def test_a_file_that_is_refused(file, of, doors, tmp_path):
    """By the same words, which begin as the file's declaration says; nothing is written."""
    path = file.write(tmp_path)
    model, out = doors.trained(file.kind), tmp_path / "out"
    calls = {
        "train": lambda: doors.train(file, path, out),
        "path": lambda: doors.of_path(model, file, path),
        "pipe": lambda: doors.of_pipe(model, file, path.read_bytes()),
    }
    for door, call in calls.items():
        with pytest.raises(InputError) as caught:
            call()
        received = re.sub(f"{re.escape(str(path))}|standard input", "FILE", caught.value.received)
        assert re.match(file.refused, received), (door, received)
        assert caught.value.expected
        assert caught.value.remedy
    assert [found.name for found in tmp_path.iterdir()] == [file.name]


def test_rows_that_are_skipped(of, doors, tmp_path):
    """Left out in training; where each row is to have an answer, it is an empty one."""
    (file,) = (file for file in door_files.FILES if file.form == "broken")
    path, out = file.write(tmp_path), tmp_path / "out"
    doors.train(file, path, out, skip_bad_rows=True)
    wanted = [*of.read_results(doors.trained(file.kind), file.kind).values()]
    assert not of.differences([*of.read_results(out, file.kind).values()], wanted, EQUAL)
    for found in (
        doors.of_path(out, file, path, skip_bad_rows=True),
        doors.of_pipe(out, file, path.read_bytes(), skip_bad_rows=True),
    ):
        empty = [n for n, answer in enumerate(found) if answer["label"] is None]
        assert empty == [*door_files.BROKEN]
        answers = of.answers_of(answer for answer in found if answer["label"] is not None)
        assert not of.differences(answers, wanted, EQUAL)


@pytest.mark.parametrize("file", LINES, ids=str)
def test_texts_alone(file, of, doors, tmp_path):
    """Each line is answered, whatever marks are in it; no model is trained on them."""
    path, model = file.write(tmp_path), doors.trained(file.kind)
    with pytest.raises(InputError, match="line 1"):
        doors.train(file, path, tmp_path / "out")
    assert [found.name for found in tmp_path.iterdir()] == [file.name]
    wanted = [*of.read_results(model, file.kind).values()]
    answers = [doors.of_pipe(model, file, path.read_bytes())]
    for name in NAMES if IS_WHOLE else (file.name,):
        path = path.rename(tmp_path / name)
        answers.append(doors.of_path(model, file, path))
    for found in answers:
        assert not of.differences(of.answers_of(found), wanted, EQUAL)


@pytest.mark.parametrize("file", TABLES, ids=str)
def test_a_table_comes_back(file, of, doors, tmp_path):
    """With its separator, quotes, line ends and columns; the answers are behind them."""
    path, model = file.write(tmp_path), doors.trained(file.kind)
    given = path.read_bytes().decode(file.encoding).lstrip("\ufeff")
    out = path.with_name("out.tsv" if "\t" in given.split("\n")[0] else "out.csv")
    doors.write_answers(model, file, path, out)
    found = out.read_bytes().decode("utf-8-sig")
    line_end = file.line_end
    if file.form == "excel":  # neither Excel's line nor its empty rows
        given = "".join(line for line in given.splitlines(keepends=True) if line[0] not in "s;")
    assert found.count(line_end) == given.count(line_end)
    assert found.count("\n") == given.count("\n")
    for line, answered in zip(given.split(line_end), found.split(line_end), strict=True):
        assert answered.startswith(line), (line, answered)


@pytest.mark.parametrize("file", READ[:: 1 if IS_WHOLE else len(READ)], ids=str)
def test_a_pipe_of_a_new_process(file, of, doors, tmp_path):
    wanted = [*of.read_results(doors.trained(file.kind), file.kind).values()]
    model = doors.trained(file.kind)
    if not file.has_header:
        doors.train(file, file.write(tmp_path), model := tmp_path / "out")
    found = of.of_new_process(model, file, file.write(tmp_path))
    assert not of.differences(of.answers_of(found), wanted, EQUAL)


def test_the_files():
    """Each kind, form and encoding is in the declaration; the texts have what could mislead."""
    files = door_files.FILES
    assert {file.kind for file in files} == door_files.KINDS.keys()
    assert {file.form for file in files} == {
        *door_files.FORMS,
        *door_files.WORD_FORMS,
        *door_files.LINE_FORMS,
        *door_files.BINARY_FORMS,
    }
    assert len({*map(str, files)}) == len(files) >= 30
    for mark in ',;"\t|\n\ré':
        assert any(mark in text for text in door_files.TEXTS)
