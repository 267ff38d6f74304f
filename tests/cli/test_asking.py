"""The options of the verbs that ask a model: what they refuse, and what they hand on."""

import doctest

import pytest
from walking import in_process, parsed

from bert_tf.checkpoints.metadata import model_files
from bert_tf.cli import fill_mask, serve
from bert_tf.errors import InputError
from bert_tf.serving.options import ServingOptions


@pytest.mark.parametrize("module", [fill_mask, serve])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module) == (0, 1)


GIVEN = {
    "bert_config_file": "c.json", "vocab_file": "v.txt", "do_lower_case": False,
    "task": "regression", "labels": ("a", "b,c"), "pairs": True, "max_seq_length": 17,
    "precision": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("verb", ["predict", "serve"])
def test_what_a_folder_does_not_say_is_handed_on(verb):
    """By the names that a `Predictor` has; nothing is None."""
    words, flags = (["m"], {}) if verb == "serve" else ([], {"model": "m"})
    assert {*parsed(verb, *words, **flags).weights.arguments().values()} == {None}
    flags |= {name: GIVEN[name] for name in ("bert_config_file", "vocab_file", "task")}
    words += ["--nodo_lower_case", '--labels=a,"b,c"', "--pairs", "--max_seq_length=17"]
    words.append("--precision=bfloat16")
    assert parsed(verb, *words, **flags).weights.arguments() == GIVEN
    fields = {*ServingOptions.__dataclass_fields__, "bert_config_file", "vocab_file"}
    assert fields | {"do_lower_case"} >= GIVEN.keys()


def test_words_outside_flags():
    assert parsed("serve", "models/m", name="n").path == "models/m"
    for words in ((), ("a", "b"), ("",)):
        with pytest.raises(InputError, match=r"(no|as) PATH\n.*one PATH"):
            parsed("serve", *words)
    assert parsed("fill-mask", "a [MASK]", "b", init_checkpoint="m").texts == ("a [MASK]", "b")
    assert parsed("score", init_checkpoint="m").texts == ()
    assert parsed("score", "a", init_checkpoint="m").texts == ("a",)
    with pytest.raises(InputError, match=r"--input_file with the text 'a'\n.*one source"):
        parsed("score", "a", init_checkpoint="m", input_file="f")
    assert parsed("evaluate-squad", "d", "p").files == ("d", "p")
    for words, received in (((), "0 files"), (("d",), "1 file d"), (("d", "p", "x"), "3 files d")):
        with pytest.raises(InputError, match=f"Received: {received}"):
            parsed("evaluate-squad", *words)


@pytest.mark.parametrize(
    ("verb", "ending", "is_taken"),
    [("predict", "csv", True), ("predict", "TSV", True), ("predict", "parquet", False),
     ("predict", "npz", False), ("score", "jsonl", True), ("score", "csv", False)],
)  # fmt: skip
def test_the_format_of_the_output(verb, ending, is_taken):
    flags = {"predict": {"model": "m"}, "score": {"init_checkpoint": "m"}}[verb]
    flags["output_file"] = f"out.{ending}"
    if is_taken:
        assert parsed(verb, **flags).files.output_file == f"out.{ending}"
        return
    with pytest.raises(InputError, match=rf"--output_file=out\.{ending}"):
        parsed(verb, **flags)


def test_probabilities_need_a_table():
    for ending in ("csv", "TSV"):
        assert parsed("predict", "--probabilities", model="m", output_file=f"o.{ending}")
    for flags in ({}, {"output_file": "o.jsonl"}):
        with pytest.raises(InputError, match="--probabilities without --output_file="):
            parsed("predict", "--probabilities", model="m", **flags)


READERS = {
    "predict": {"model": "no/such"},
    "score": {"init_checkpoint": "no/such"},
    "features": {"init_checkpoint": "no/such"},
}


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("link", ["", "symbolic", "hard"])
def test_no_command_writes_what_it_reads(verb, link, tmp_path, monkeypatch):
    """By whatever name, and before a model is looked for."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "texts.jsonl"
    source.write_text("a text\n")
    written = tmp_path / "out"
    if link == "symbolic":
        written.symlink_to(source)
    elif link == "hard":
        written.hardlink_to(source)
    name = "out" if link else "./texts.jsonl"
    with in_process(verb) as call, pytest.raises(InputError, match=f"{name} as the output, which"):
        call(**READERS[verb], input_file=source, output_file=name)
    assert source.read_text() == "a text\n"
    assert {path.name for path in tmp_path.iterdir()} == {"texts.jsonl", *(["out"] if link else [])}


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("name", ["bert_config.json", "checkpoint"])
def test_no_command_writes_over_the_model_that_it_reads(verb, name, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / name).write_text("of the model")
    (tmp_path / "texts.jsonl").write_text("a text\n")
    flag = next(iter(READERS[verb]))
    given = {flag: tmp_path / "model", "input_file": tmp_path / "texts.jsonl"}
    with in_process(verb) as call, pytest.raises(InputError, match="as the output, which is the"):
        call(**given, output_file=tmp_path / "model" / name)
    assert (tmp_path / "model" / name).read_text() == "of the model"
    assert model_files(f"{tmp_path}/model") == [f"{tmp_path}/model/{name}"]
    assert model_files(f"{tmp_path}/texts.jsonl") == model_files("gs://bucket/model") == []


def test_the_files_of_a_model(tmp_path):
    """Of a folder those inside, of a prefix those beside; not what else lies there."""
    names = {"vocab.txt", "m.ckpt-3.index", "m.ckpt-3.data-00000-of-00001", "model.safetensors"}
    (tmp_path / "1/assets").mkdir(parents=True)
    for name in {*names, "texts.txt", "answers.jsonl", "run.json", "1/assets/vocab.txt"}:
        (tmp_path / name).write_text("")
    beside = {f"{tmp_path}/{name}" for name in names}
    assert {*model_files(f"{tmp_path}/m.ckpt-3")} == beside
    assert {*model_files(str(tmp_path))} == beside | {f"{tmp_path}/1/assets/vocab.txt"}
