"""The recipes of the README, the first steps and the snippets, run as they stand on small data."""

import functools
import io
import json
import pathlib
import string
import sys
import types

import keras
import pytest
import reference
from documents import command_of, commands_of_blocks, read, snippets
from model_files import SPECIAL, weights_of
from served_models import write_folder
from walking import in_process

import bert_tf
from bert_tf.checkpoints.metadata import ModelMetadata

pytestmark = pytest.mark.walk
WORDS = (*string.ascii_lowercase, "the", "una", "snow", "team", ".", ",", "?")
ENDS = (*string.ascii_lowercase, "ffa", "ble")
PIECES = (*SPECIAL, *WORDS, *(f"##{end}" for end in ENDS))
CONFIG = bert_tf.BertConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=384,
    type_vocab_size=2,
)
CSV = read("docs/get_started.md").partition("```csv\n")[2].partition("```")[0]
TEXT = "The team lost.\nSnow, snow.\n\nThe cat is on the hill.\nIt left.\n"
QUESTIONS = [
    {"id": "1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}],
     "is_impossible": False},
    {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
]  # fmt: skip
LONG = {"demo", "playground"}  # tested elsewhere: test_runtime.py, test_predict.py
TRAIN = ("--train_batch_size=2", "--noxla", "--strategy=one")  # the tests have two devices
QUICKLY = {
    "data": ("--dupe_factor=1", "--num_workers=1"),
    "pretrain": ("--num_train_steps=2", "--num_warmup_steps=1", *TRAIN),
    "classify": ("--num_train_epochs=1", *TRAIN),
    "squad": ("--num_train_epochs=1", *TRAIN),
}


def write_inputs(folder: pathlib.Path) -> None:
    """What the documents take for granted, under the names that they use."""
    weights = weights_of(
        reference.random_weights(CONFIG, seed=3),
        config=CONFIG,
        pieces=PIECES,
        metadata=ModelMetadata(do_lower_case=True),
    )
    bert_tf.save_weights(folder / "all-MiniLM-L6-v2", weights, to_format="hugging_face")
    bert_tf.save_weights(folder / "uncased_L-12_H-768_A-12", weights, to_format="tf1")
    for path in (folder / "uncased_L-12_H-768_A-12").iterdir():
        (folder / path.name).symlink_to(path)  # vocab.txt, bert_config.json, bert_model.ckpt
    for name in ("corpus", "mine"):
        (folder / name).mkdir()
    (folder / "corpus/a.txt").write_text(TEXT)
    for name in ("train", "dev"):
        (folder / f"mine/{name}.csv").write_text(CSV)
        paragraph = {"context": "Ann left in May.", "qas": QUESTIONS}
        content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [paragraph]}]}
        (folder / f"{name}-v2.0.json").write_text(json.dumps(content))
    write_folder("pairs", folder / "serving/mrpc", pairs=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("documents")
    write_inputs(folder)
    return folder


def test_the_recipes_and_the_first_steps_run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    blocks = commands_of_blocks(read("README.md")) + commands_of_blocks(read("docs/get_started.md"))
    calls = [command_of(list(call)) for call in dict.fromkeys(map(tuple, blocks))]
    assert len(calls) >= 11
    for verb, words in calls:
        if verb not in LONG:
            line = types.SimpleNamespace(buffer=io.BytesIO(b"Sun and wind\n"), isatty=lambda: False)
            monkeypatch.setattr(sys, "stdin", line)
            with in_process(verb) as run:
                run(*words, *QUICKLY.get(verb, ()))
    assert (folder / "models/topics/eval_results.txt").exists()
    assert (folder / "serving/topics/1/saved_model.pb").exists()
    assert json.loads((folder / "models/squad/predictions.json").read_text()).keys() == {"1", "2"}
    assert (folder / "minilm/bert_model.ckpt.index").exists()
    assert (folder / "topics_for_transformers/model.safetensors").exists()


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
@pytest.mark.filterwarnings("ignore:.compile... was not called as part")  # as it is patched
@pytest.mark.parametrize("document", ["README.md", "docs/library.md", "docs/serve.md"])
def test_the_snippets_run(folder, document, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(  # these few steps take less time than XLA's compilation
        keras.Model, "compile", functools.partialmethod(keras.Model.compile, jit_compile=False)
    )
    program = snippets(read(document))
    exec(compile(program, document, "exec"), {"__name__": "snippets"})
