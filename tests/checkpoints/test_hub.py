"""Weights by name, by the real client from a server in this process that answers as the hub."""

import json
import sys

import model_files
import pytest
from hub_server import MAIN, OLDER, describe_repository, serving

from bert_tf.checkpoints.loading import open_weights, pinned
from bert_tf.errors import InputError

client = pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
CACHED = "cache/models--o--bert/snapshots"
READ = {"vocab.txt": "".join(f"{piece}\n" for piece in model_files.PIECES), "added_tokens.json": {}}
SAYS = {
    "o/bert@x": "RevisionNotFound", "o/gone": "RepositoryNotFound", "o/gated": "GatedRepo",
    "o/pickle": "has no model.safetensors", "o/gpt2": "/config.json with model_type",
    "//o/b": "HFValidation", f"o/bert@{OLDER}": "offline mode",
    "o/bert": "pip install 'bert-tf.hub.'",
}  # fmt: skip


@pytest.fixture
def root(tmp_path, monkeypatch, tensors):
    """The folder that is served; the client's cache is in it."""
    for name in ("bert", "gated", "pickle", "gpt2"):
        config = model_files.hugging_face_config(model_type="gpt2" if name == "gpt2" else "bert")
        folder, files = tmp_path / f"o/{name}/resolve/{MAIN}", READ | {"pytorch_model.bin": ""}
        named = model_files.state_dict(tensors)
        model_files.write_hugging_face(folder, named, config=config, files=files)
        files = [
            path for path in folder.iterdir() if f"{name}{path.suffix}" != "pickle.safetensors"
        ]
        describe_repository(tmp_path, name, files)
    (tmp_path / "o/gated").rename(tmp_path / "o/hidden")
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path) as url:
        monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", url)
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", f"{tmp_path}/cache")
        yield tmp_path


def test_what_is_read_is_fetched_once_and_the_commit_recorded(root, monkeypatch):
    theirs = model_files.all_tensors(open_weights(root / "o/bert/resolve" / MAIN))
    for path in ("hf:o/bert", f"hf:o/bert@{MAIN}"):  # the second time from the cache alone
        found = open_weights(path)
        assert found.path == found.metadata.origin == f"hf:o/bert@{MAIN}"
        model_files.assert_same(model_files.all_tensors(found), theirs)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    names = {path.name for path in (root / CACHED / MAIN).iterdir()}
    assert names == {"config.json", "model.safetensors", *READ}


def test_a_run_that_is_resumed_has_its_own_commit(root):
    (root / "model_facts.json").write_text(json.dumps({"origin": f"hf:o/bert@{OLDER}"}))
    assert pinned("hf:o/bert", str(root)) == pinned("hf:o/bert@older", "x") == f"hf:o/bert@{OLDER}"
    assert pinned("hf:o/bert@main", str(root)) == pinned("hf:o/bert", "x") == f"hf:o/bert@{MAIN}"


@pytest.mark.parametrize("path", SAYS)
def test_what_is_no_bert_that_can_be_fetched(root, monkeypatch, path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", OLDER in path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None if path == "o/bert" else client)
    with pytest.raises(InputError, match=SAYS[path]):
        open_weights(f"hf:{path}")
    assert not [*root.glob("cache/*/snapshots/*/model.safetensors")]
