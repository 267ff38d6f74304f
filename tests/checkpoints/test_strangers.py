"""Strangers' files: what they claim is compared with what they hold, and nothing is made for it."""

import dataclasses
import io
import json
import pathlib
import resource
import shutil
import struct
import sys
import types
import zipfile
from collections.abc import Callable

import h5py
import model_files
import numpy as np
import pytest
import small
import tensorflow as tf
import tf2_files

from bert_tf import BertConfig, BertModel, load, make_model
from bert_tf.checkpoints.claims import check_tensors, encoder_shapes
from bert_tf.checkpoints.loading import complete_model, config_of, open_weights
from bert_tf.checkpoints.options import ModelFiles
from bert_tf.checkpoints.saving import save_weights
from bert_tf.cli import convert
from bert_tf.errors import InputError
from bert_tf.modeling.names import checkpoint_name
from bert_tf.serving.predictor import Predictor
from bert_tf.tokenization.wordpiece import FullTokenizer

CONFIG = small.CONFIG
BILLION = 10**9
WORDS, BIAS = "bert/embeddings/word_embeddings", "bert/encoder/layer_1/output/dense/bias"
VOCABULARY = "".join(f"{piece}\n" for piece in model_files.PIECES)


@pytest.fixture(autouse=True)
def memory_stays():
    """A billion numbers would be 4 GB at least."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB


def refused(path, *says: str, use: Callable = open_weights) -> InputError:
    with pytest.raises(InputError) as caught:
        use(str(path))
    assert str(path) in caught.value.received
    assert "smaller batches" not in caught.value.remedy
    for text in says:
        assert text in str(caught.value)
    return caught.value


# ---------------------------------------------------------------------------- the files

Tensors = dict[str, np.ndarray]


def write_tf1(folder: pathlib.Path, tensors: Tensors) -> pathlib.Path:
    model_files.write_tf1(folder, tensors)
    return folder


def write_tf2(folder: pathlib.Path, tensors: Tensors) -> pathlib.Path:
    """As its encoder is named there; the graph itself is not read."""
    places = tf2_files.encoder_places("encoder")
    stored = {f"{p}/.ATTRIBUTES/VARIABLE_VALUE": tensors[n] for p, n in places.items()}
    model_files.write_tf1(folder, stored | {"_CHECKPOINTABLE_OBJECT_GRAPH": tf.constant("")})
    return folder


def write_hugging_face(folder: pathlib.Path, tensors: Tensors) -> pathlib.Path:
    theirs = model_files.state_dict(tensors)
    config = model_files.hugging_face_config(architectures=["BertForSequenceClassification"])
    files = {"vocab.txt": VOCABULARY}
    return model_files.write_hugging_face(folder, theirs, config=config, files=files)


def write_parts(folder: pathlib.Path, tensors: Tensors) -> pathlib.Path:
    write_hugging_face(folder, tensors)
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    index = {"weight_map": dict.fromkeys(model_files.state_dict(tensors), "a.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_keras(folder: pathlib.Path, tensors: Tensors) -> pathlib.Path:
    """With a tokenizer inside."""
    folder.mkdir()
    (folder / "vocab.txt").write_text(VOCABULARY)
    model = make_model("classification", CONFIG, num_classes=model_files.NUM_CLASSES)
    for variable in model.weights:
        variable.assign(tensors[checkpoint_name(variable)])
    model.tokenizer = FullTokenizer(str(folder / "vocab.txt"))
    path = folder / "model.keras"
    model.save(str(path))
    return path


WRITERS = {"tf1": write_tf1, "tf2": write_tf2, "hugging_face": write_hugging_face,
           "parts": write_parts, "keras": write_keras}  # fmt: skip


@pytest.fixture
def classifier():
    return model_files.tensors_of("classifier")


@pytest.fixture
def keras_file(tmp_path, classifier):
    return write_keras(tmp_path / "saved", classifier)


def edit(path: pathlib.Path, member: str, change: Callable[[bytes], bytes], packing: int) -> None:
    """Changes one member of a zip file, and packs all of them."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents[member] = change(contents.get(member, b""))
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def edit_weights(path: pathlib.Path, change: Callable[[h5py.File], None]) -> None:
    """Changes the HDF5 file in a .keras file."""

    def edited(content: bytes) -> bytes:
        memory = io.BytesIO(content)
        with h5py.File(memory, "r+") as file:
            change(file)
        return memory.getvalue()

    edit(path, "model.weights.h5", edited, zipfile.ZIP_STORED)


def test_valid_ones_are_read(tmp_path, classifier):
    for name, write in WRITERS.items():
        path = write(tmp_path / name, classifier)
        assert config_of(open_weights(path)).vocab_size == CONFIG.vocab_size
        assert load(path)[0].config.vocab_size == CONFIG.vocab_size


# ---------------------------------------------------------------------------- tensors


def with_header(path: pathlib.Path, name: str, shape: list[int]) -> None:
    """Claims a tensor of no bytes in a safetensors file, before all others."""
    content = path.read_bytes()
    (size,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + size])
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])


@pytest.mark.parametrize("kind", ["hugging_face", "parts"])
def test_a_tensor_of_no_numbers_in_safetensors(tmp_path, classifier, kind):
    """Its rows would be the classes: a billion labels, each with a name."""
    encoder = {n: x for n, x in classifier.items() if not n.startswith("output_")}
    folder = WRITERS[kind](tmp_path / "model", encoder)
    (part,) = folder.glob("*.safetensors")
    with_header(part, "classifier.weight", [BILLION, 0])
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = json.loads(index.read_text())["weight_map"] | {"classifier.weight": part.name}
        index.write_text(json.dumps({"weight_map": names}))
    refused(folder, part.name, "classifier.weight has the shape (1000000000, 0)", "1 or more")


@pytest.mark.parametrize("more", [{}, {"_CHECKPOINTABLE_OBJECT_GRAPH": ""}], ids=["tf1", "tf2"])
def test_a_tensor_of_no_numbers_in_a_checkpoint(tmp_path, more):
    tensors = {"output_weights": np.zeros((BILLION, 0), np.float32), **more}
    prefix = model_files.write_tf1(tmp_path, tensors)
    refused(prefix, "output_weights has the shape [1000000000, 0]")


def test_a_tensor_that_is_not_in_the_data(tmp_path):
    """A part of a table of a billion rows: its index has the shape of the whole."""
    prefix = model_files.write_tf1(tmp_path, {"x": np.zeros(3)})
    slices = {"prefix": prefix, "tensor_names": [WORDS], "tensors": [np.ones((4, 22), "f4")]}
    tf.raw_ops.SaveV2(shape_and_slices=[f"{BILLION} 22 0,4:-"], **slices)
    refused(prefix, f"{WORDS} has the shape [1000000000, 22] of float32 and 352 bytes")
    slices["tensors"] = [np.array([["a"]])]
    tf.raw_ops.SaveV2(shape_and_slices=[f"{BILLION} 1 0,1:-"], **slices)  # of texts
    refused(prefix, "[1000000000, 1] of string")


class Tensor:
    """What torch's loader gives, as far as it is looked at; zeros without an own storage."""

    def __init__(self, *shape: int):
        self.shape = shape

    def element_size(self) -> int:
        return 4


@pytest.fixture
def torch(monkeypatch):
    """A loader that is not installed everywhere; what it gives is set by the tests."""
    torch = types.SimpleNamespace(__version__="2.10.0", load=None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def test_a_pickle(tmp_path, torch):
    config = json.dumps(model_files.hugging_face_config())
    (tmp_path / "config.json").write_text(config)
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(bytes(1000))
    name = "bert.embeddings.word_embeddings.weight"
    for shape, says in (
        ((BILLION, 0), "has the shape (1000000000, 0)"),
        ((BILLION, 22), "need 88,000,000,000 bytes"),  # with strides of 0
    ):
        torch.load = lambda *_, shape=shape, **__: {name: Tensor(*shape)}
        refused(path, name, says)
    tied = "cls.predictions.decoder.weight"  # stored once, under two names
    torch.load = lambda *_, **__: {name: Tensor(40, 22), tied: Tensor(40, 22)}
    path.write_bytes(bytes(900))
    with pytest.raises(AttributeError, match="is_floating_point"):  # both are read, and compared
        open_weights(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(10**6))
    torch.load = None  # is not called
    refused(path, "member archive/data/0 unpacks to 1,000,000 bytes")


def test_nothing_in_a_file():
    check_tensors("empty", {}, stored=0)


# ---------------------------------------------------------------------------- configurations


def test_the_shapes_of_an_encoder():
    """Those of the model that is made."""
    made = {checkpoint_name(v): tuple(v.shape) for v in BertModel(CONFIG).weights}
    assert encoder_shapes(CONFIG) == {n: x for n, x in made.items() if "/pooler/" not in n}


SIZES = {  # of a configuration, and a weight that has another one
    "vocab_size": (BILLION, WORDS),
    "max_position_embeddings": (BILLION, "bert/embeddings/position_embeddings"),
    "type_vocab_size": (BILLION, "bert/embeddings/token_type_embeddings"),
    "hidden_size": (BILLION, "has the shape"),
    "intermediate_size": (BILLION, "intermediate/dense"),
    "num_hidden_layers": (10_000, "bert/encoder/layer_2/"),
}


def doors(folder: pathlib.Path) -> dict[str, Callable]:
    """What makes a model of weights."""
    to = folder.parent / "made"
    return {
        "config_of": lambda path: config_of(open_weights(path)),
        "complete_model": lambda path: complete_model(open_weights(path), ModelFiles()),
        "load": load,
        "Predictor": Predictor,
        "save_weights": lambda path: save_weights(open_weights(path), to),
        "convert": lambda path: convert.main(convert.Convert(from_=path, to=str(to))),
    }


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["tf1", "tf2", "hugging_face", "parts"])
def test_a_configuration_of_more_than_there_is(tmp_path, classifier, kind, size):
    value, name = SIZES[size]
    folder = WRITERS[kind](tmp_path / "model", classifier)
    for file in ("config.json", "bert_config.json"):
        if (folder / file).exists():
            values = json.loads((folder / file).read_text()) | {size: value}
            (folder / file).write_text(json.dumps(values))
    uses = doors(folder)
    if size == "num_hidden_layers":  # what makes no model does without the others
        del uses["save_weights"]
    for door, use in uses.items():
        is_by_vocabulary = (door, size) == ("convert", "vocab_size")  # compared before
        refused(folder, "vocab.txt with 41" if is_by_vocabulary else name, use=use)
    assert not (tmp_path / "made").exists()


def test_a_configuration_that_is_given(tmp_path, classifier):
    """Weights without one beside them; fewer layers than they have are the user's choice."""
    prefix = model_files.write_tf1(tmp_path, classifier, config=None)
    given = tmp_path / "given.json"
    for size, (value, name) in SIZES.items():
        config = CONFIG.to_dict() | {size: value}
        given.write_text(json.dumps(config))
        files = ModelFiles(bert_config_file=str(given))
        refused(prefix, name, use=lambda path, f=files: complete_model(open_weights(path), f))
    less = dataclasses.replace(CONFIG, num_hidden_layers=1)
    given.write_text(less.to_json_string())
    assert config_of(open_weights(prefix), str(given)) == less


@pytest.mark.parametrize("left", [["output_weights", "output_bias"], [WORDS], []])
def test_weights_that_show_no_sizes(tmp_path, classifier, left):
    """Any configuration would fit them, and a model of it would be made before it is seen."""
    tensors = {name: classifier[name] for name in left} or {"x": np.zeros(1, np.float32)}
    huge = dataclasses.replace(CONFIG, max_position_embeddings=BILLION)
    model_files.write_tf1(tmp_path / "model", tensors, config=huge)
    uses = doors(tmp_path / "model")
    del uses["save_weights"]  # makes no model, and writes any part of one
    for use in uses.values():
        refused(tmp_path / "model", "lacks", "position_embeddings", use=use)


@pytest.mark.parametrize("shape", [(), (3,), (3, 1)])
def test_a_head_of_another_width(classifier, shape):
    weights = model_files.weights_of(classifier | {"output_weights": np.zeros(shape, np.float32)})
    with pytest.raises(InputError, match=r"output_weights has the shape"):
        config_of(weights)


def test_kernels_of_another_size():
    """One row each of tables a million wide: a block would have kernels of 10^12 numbers."""
    others = ("vocab_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
              "max_position_embeddings", "type_vocab_size")  # fmt: skip
    wide = BertConfig(hidden_size=10**6, **dict.fromkeys(others, 1))
    shapes = {n: x for n, x in encoder_shapes(wide).items() if len(x) == 1 or 1 in x}
    weights = model_files.weights_of({}, config=wide)
    with pytest.raises(InputError, match=r"lacks 4 of .*/self/query/kernel"):
        config_of(dataclasses.replace(weights, shapes=shapes))


# ---------------------------------------------------------------------------- .keras files


def test_a_keras_file_that_was_packed_again(keras_file):
    expected = model_files.all_tensors(open_weights(keras_file))
    edit(keras_file, "config.json", lambda content: content, zipfile.ZIP_DEFLATED)
    model_files.assert_same(model_files.all_tensors(open_weights(keras_file)), expected)


@pytest.mark.parametrize("member", ["assets/tokenizer.json", "more", "config.json"])
def test_a_member_that_unpacks_to_much(keras_file, member):
    edit(keras_file, member, lambda _: b" " * 10**8, zipfile.ZIP_DEFLATED)
    refused(keras_file, f"member {member} unpacks to 100,000,000 bytes", "4 times the file")


def test_a_keras_file_without_weights(keras_file):
    """Keras takes others, of NumPy."""
    content = zipfile.ZipFile(keras_file).read("config.json")
    with zipfile.ZipFile(keras_file, "w") as archive:
        archive.writestr("config.json", content)
        archive.writestr("model.weights.npz", b"")
    refused(keras_file, "without model.weights.h5")


PLACE = "layers/embeddings/vars/0"  # the word table
HUGE = (BILLION, 22)


def replaced(make: Callable[[h5py.File], None]) -> Callable[[h5py.File], None]:
    """Puts another dataset in the place of one."""

    def change(file: h5py.File) -> None:
        del file[PLACE]
        make(file)

    return change


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(HUGE, "f4")
    layout[:41] = h5py.VirtualSource("other.h5", "x", (41, 22))
    file.create_virtual_dataset(PLACE, layout)


def linked(link: object) -> Callable[[h5py.File], None]:
    return lambda file: file.__setitem__(PLACE, link)


DATASETS = {
    "compressed": (
        lambda file: file.create_dataset(PLACE, data=np.zeros((10**6, 22), "f4"), compression=9),
        "88,000,000 bytes, ",
    ),
    "chunks": (
        lambda file: file.create_dataset(
            PLACE, (41, 22), "f4", chunks=(10**6, 22), maxshape=(None, 22), compression=9
        ),
        "in chunks",
    ),
    "not written": (lambda file: file.create_dataset(PLACE, HUGE, "f4"), "0 of them stored"),
    "no numbers": (lambda file: file.create_dataset(PLACE, (BILLION, 0), "f4"), "(1000000000, 0)"),
    "null": (lambda file: file.create_dataset(PLACE, data=h5py.Empty("f4")), "of its own"),
    "external": (
        lambda file: file.create_dataset(PLACE, HUGE, "f4", external="/dev/zero"),
        "of its own",
    ),
    "virtual": (virtual, "of its own"),
    "soft link": (linked(h5py.SoftLink("/layers/embeddings/vars/1")), "is a link"),
    "external link": (linked(h5py.ExternalLink("/etc/other", "x")), "is a link"),
    "second name": (lambda file: file.__setitem__(PLACE, file[PLACE[:-1] + "1"]), "is a link"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DATASETS)
def test_datasets_that_keras_does_not_write(keras_file, kind):
    make, says = DATASETS[kind]
    edit_weights(keras_file, replaced(make))
    refused(keras_file, "model.weights.h5", says, PLACE[:-1])


def test_groups_in_each_other(keras_file):
    """One that contains itself has no end; deep ones are no fault."""
    edit_weights(keras_file, lambda file: file.create_group("/".join("g" * 2000)))
    open_weights(keras_file)
    edit_weights(keras_file, lambda file: file["g"].__setitem__("again", file["g"]))
    refused(keras_file, "/g/again is a link")


@pytest.mark.parametrize(
    ("key", "value"),
    [("vocab_size", BILLION), ("max_positions", BILLION), ("intermediate_size", BILLION),
     ("num_classes", BILLION), ("hidden_size", 10**6), ("lora_rank", BILLION)],
)  # fmt: skip
def test_a_model_of_more_than_the_datasets(keras_file, key, value):
    """It is refused while Keras makes it, before the variable that is too much."""

    def change(content: bytes) -> bytes:
        config = json.loads(content)
        for layer in config["config"]["layers"]:
            if key in layer["config"]:
                layer["config"][key] = value
        if key == "lora_rank":
            dense = {"name": "more", "units": 3, "lora_rank": value}
            block = {"module": "keras.layers", "class_name": "Dense", "name": "more"}
            block |= {"config": dense, "registered_name": None}
            block |= {"build_config": {"input_shape": [None, 22]}, "inbound_nodes": []}
            config["config"]["layers"].append(block)
        return json.dumps(config).encode()

    edit(keras_file, "config.json", change, zipfile.ZIP_STORED)
    refused(keras_file, "whose config.json asks for", "by the datasets of its model.weights.h5")


# ---------------------------------------------------------------------------- NaN and infinity

NAMED = {  # the source's name for what is damaged
    "tf1": BIAS,
    "tf2": "encoder/layer_with_weights-5/_output_dense/bias/.ATTRIBUTES/VARIABLE_VALUE",
    "hugging_face": "bert.encoder.layer.1.output.dense.bias",
    "parts": "bert.encoder.layer.1.output.dense.bias",
    "keras": "layer_1/output/dense/bias",
}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_not_finite_is_not_written(tmp_path, classifier, kind, value):
    bad = classifier[BIAS].copy()
    bad[-1] = value
    path = WRITERS[kind](tmp_path / "model", classifier | {BIAS: bad})
    before = sorted(tmp_path.iterdir())
    for written in ("hugging_face", "bert_tf"):
        options = convert.Convert(from_=str(path), to=str(tmp_path / "made"), format=written)
        error = refused(path, use=lambda _, options=options: convert.main(options))
        assert f"whose {NAMED[kind]} has NaN or infinity" in error.received
        assert sorted(tmp_path.iterdir()) == before


def test_moments_that_are_not_finite(tmp_path, classifier):
    """They are written to checkpoints, and left out where `strip` or the format has no place."""
    moment = f"{BIAS}/adam_m"
    bad = {moment: np.full_like(classifier[BIAS], np.nan)}
    weights = model_files.weights_of(classifier | bad)
    with pytest.raises(InputError, match=f"whose {moment} has NaN"):
        save_weights(weights, tmp_path / "made", format="bert_tf")
    assert not (tmp_path / "made").exists()
    save_weights(weights, tmp_path / "made")
    shutil.rmtree(tmp_path / "made")
