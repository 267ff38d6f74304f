"""Vectors and scores of texts: against plain computations, and their files and commands."""

import dataclasses
import json
import math

import masked_by_place
import model_files
import numpy as np
import pytest
import reference
import small
import tensorflow as tf
from masked_by_place import SUM
from walking import in_process

from bert_tf import FullTokenizer, make_model
from bert_tf.checkpoints.tf1 import write_checkpoint
from bert_tf.errors import InputError
from bert_tf.serving import pretrained
from bert_tf.serving.pretrained import Extractor, Score, Scorer, Vectors, parse_layers, read_pairs

CONFIG = small.CONFIG
LENGTH = 11  # below the 13 positions of the model
LAYERS = (-1, 0, "embeddings", 1)
LOG_SUM = math.log(SUM)


@pytest.fixture(scope="module")
def pieces() -> FullTokenizer:
    return FullTokenizer("/memory/vocab.txt", pieces=model_files.PIECES)


@pytest.fixture(scope="module")
def weights():
    return model_files.weights_of(model_files.tensors_of())


def make(weights, tokenizer, *, layers=LAYERS, pooling="none", **sizes) -> Extractor:
    sizes = {"max_seq_length": LENGTH, "batch_size": 3} | sizes
    return Extractor(weights, CONFIG, tokenizer, layers=layers, pooling=pooling, **sizes)


def some_lines(count: int = 10) -> list[tuple[str, str | None]]:
    """Of all lengths, in no order: none, short, too long; alone and in pairs."""
    rng = np.random.default_rng(2)

    def words(most: int) -> str:
        return " ".join(f"w{i}" for i in rng.integers(0, 36, rng.integers(0, most)))

    lines = [(words(14), words(9) if i % 3 == 0 else None) for i in range(count - 2)]
    return [*lines, ("", None), (words(4), "")]


def expected_layers(weights, line, tokenizer) -> tuple[list[str], np.ndarray]:
    """Pieces and all layers [L, T, D] of one line alone, unpadded, in float64."""
    first, second = (tokenizer.tokenize(text or "") for text in line)
    if not second:
        del first[LENGTH - 2 :]
    while second and len(first) + len(second) > LENGTH - 3:  # the original's truncation
        (first if len(first) > len(second) else second).pop()
    pieces = ["[CLS]", *first, "[SEP]"]
    segments = [0] * len(pieces)
    if second:
        pieces += [*second, "[SEP]"]
        segments += [1] * (len(second) + 1)
    batch = {
        "input_ids": np.array([tokenizer.convert_tokens_to_ids(pieces)]),
        "input_mask": np.ones([1, len(pieces)]),
        "segment_ids": np.array([segments]),
        "masked_lm_positions": np.array([[0]]),
    }
    outputs = reference.pretraining_outputs(model_files.all_tensors(weights), CONFIG, batch)
    by_layer = {"embeddings": outputs["embedding_output"][0], 0: outputs["layer_0"][0]}
    by_layer[1] = by_layer[-1] = outputs["layer_1"][0]
    return pieces, np.stack([by_layer[layer] for layer in LAYERS])


@pytest.mark.parametrize("pooling", ["none", "cls", "mean"])
def test_vectors_are_those_of_each_line_alone(weights, pieces, pooling, monkeypatch, caplog):
    """Whatever the order, batches and padding; over windows, which hold no line longer.

    How many are cut is said once.
    """
    if pooling == "mean":
        monkeypatch.setattr(pretrained, "BYTES_OF_A_WINDOW", 1)  # one batch
    lines, taken = some_lines(), []
    extractor = make(weights, pieces, pooling=pooling)
    stream = extractor.extract(taken.append(line) or line for line in lines)
    found = [next(stream)]
    assert len(taken) == (3 if pooling == "mean" else len(lines))
    pools = {"none": lambda x: x, "cls": lambda x: x[:, 0], "mean": lambda x: x.mean(axis=1)}
    for line, vectors in zip(lines, [*found, *stream], strict=True):
        wanted, expected = expected_layers(weights, line, pieces)
        assert vectors.tokens == wanted
        expected = pools[pooling](expected)
        assert (vectors.layers.dtype, vectors.layers.shape) == (np.float32, expected.shape)
        np.testing.assert_allclose(vectors.layers, expected, atol=3e-5)
    lengths = [[len(pieces.tokenize(text or "")) for text in line] for line in lines]
    num_cut = sum(a + b > LENGTH - 3 + (not b) for a, b in lengths)
    assert num_cut
    told = f"Cut to {LENGTH} tokens (max_seq_length): {num_cut} of 10 texts."
    assert caplog.messages.count(told) == 1
    assert list(extractor.extract([])) == []


@pytest.mark.parametrize("text", ["", "2", "-3", "a", "1,", "1.0", "Embeddings", "１", "9" * 5000])
def test_layers(text):
    cases = {"-1": [-1], "1, -2 ,embeddings": [1, -2, "embeddings"], "0,0": [0, 0]}
    assert {text: parse_layers(text, CONFIG) for text in cases} == cases
    with pytest.raises(InputError, match="--layers") as caught:
        parse_layers(text, CONFIG)
    assert "-2 to 1 or embeddings" in caught.value.expected


@pytest.mark.parametrize("sizes", [{"max_seq_length": 14}, {"max_seq_length": 2},
                                   {"batch_size": 0}])  # fmt: skip
def test_refused_sizes(weights, pieces, sizes):
    with pytest.raises(InputError, match=str(*sizes.values())):
        make(weights, pieces, layers=[-1], **sizes)


def test_the_last_token_stands_for_a_line_of_a_causal_model(weights, pieces):
    config = dataclasses.replace(CONFIG, attention="causal")
    sizes = {"layers": LAYERS, "max_seq_length": LENGTH, "batch_size": 3}
    of_tokens, of_lines = (
        Extractor(dataclasses.replace(weights, config=config), config, pieces, pooling=pooling,
                  **sizes).extract(some_lines())
        for pooling in ("none", "cls")
    )  # fmt: skip
    for tokens, line in zip(of_tokens, of_lines, strict=True):
        small.close(line.layers, tokens.layers[:, -1], 1e-5)


@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
@pytest.mark.parametrize("pooling", ["none", "cls", "mean"])
def test_vectors_in_bfloat16_are_near(weights, pieces, pooling, attention):
    config = dataclasses.replace(CONFIG, attention=attention)
    weights = dataclasses.replace(weights, config=config)
    sizes = {"layers": LAYERS, "max_seq_length": LENGTH, "batch_size": 3, "pooling": pooling}
    exact, coarse = (
        Extractor(weights, config, pieces, precision=precision, **sizes).extract(some_lines())
        for precision in ("float32", "bfloat16")
    )
    for wanted, found in zip(exact, coarse, strict=True):
        assert found.tokens == wanted.tokens
        assert found.layers.dtype == np.float32
        assert 0 < np.abs(found.layers - wanted.layers).max() < 0.1 * np.abs(wanted.layers).max()


# ---------------------------------------------------------------------------- lines

LINES = {
    b"He came. ||| She left.\n": ("He came.", "She left."),
    b"a ||| b ||| c\n": ("a ||| b", "c"),  # the last one, as in the original
    b"a|||b\n": ("a|||b", None),
    b"a |||\n": ("a |||", None),
    b"\n": ("", None),
    b"a\rb ||| c\r\n": ("a\rb", "c"),
    "grün \u2028 日本".encode(): ("grün \u2028 日本", None),
}
JSON_LINES = {
    b'{"text": "a"}\n': ("a", None),
    b'{"text_a": "a ||| x", "text_b": null}\n': ("a ||| x", None),
    b'{"text_a": "", "text_b": "b", "id": 3}\n': ("", "b"),
    b'{"text": "\\ud800 \\u00e4"}': ("\ud800 ä", None),
}


def test_lines(tmp_path):
    """JSON with a byte order mark, and both without an end of the last line."""
    path = tmp_path / "a"
    path.write_bytes(b"".join(LINES))
    assert list(read_pairs(str(path))) == list(LINES.values())
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(JSON_LINES))
    assert list(read_pairs(str(path))) == list(JSON_LINES.values())


@pytest.mark.parametrize(
    ("bad", "jsonl"),
    [
        (b"Caf\xe9", False), (b"Caf\xe9", True), (b"", True), (b"[1]", True),
        (b'{"a": "b"}', True), (b'{"text": 3}', True), (b"[" * 100_000, True),
        (b'{"text_a": "a", "text_b": ["b"]}', True), (b'{"text": "a", "text": "b"}', True),
    ],
)  # fmt: skip
def test_bad_lines(tmp_path, bad, jsonl):
    (tmp_path / "a").write_bytes(b'{"text": "good"}\n' + bad + b"\n")
    with pytest.raises(InputError, match="a, line 2") as caught:
        list(read_pairs(f"{tmp_path}/a", input_format="jsonl" if jsonl else "text"))
    assert ("UTF-8" if b"\xe9" in bad else "JSON") in caught.value.expected
    assert len(caught.value.received) < 500


# ---------------------------------------------------------------------------- files


def some_vectors(*, pooled: bool) -> list[Vectors]:
    rng, vectors = np.random.default_rng(8), []
    for length in (2, 5, 3):
        values = rng.standard_normal((2, 4) if pooled else (2, length, 4)).astype("f4")
        vectors.append(Vectors([f"t{i}" for i in range(length)], values))
    return vectors


def test_json_as_the_original_writes_it(tmp_path):
    """Spelling, order of the keys, six decimals; read from the original's code, written by hand."""
    values = np.float32([[[0.5, -1 / 3], [1e-7, 12345.678]], [[0, -2], [2 / 3, 1]]])  # [L, T, D]
    path, layers = tmp_path / "a.jsonl", [-1, "embeddings"]
    assert pretrained.write_jsonl(str(path), [Vectors(["[CLS]", '"é'], values)] * 2, layers) == 2
    line = (
        '{"linex_index": %d, "features": ['
        '{"token": "[CLS]", "layers": [{"index": -1, "values": [0.5, -0.333333]}, '
        '{"index": "embeddings", "values": [0.0, -2.0]}]}, '
        '{"token": "\\"\\u00e9", "layers": [{"index": -1, "values": [0.0, 12345.677734]}, '
        '{"index": "embeddings", "values": [0.666667, 1.0]}]}]}\n'
    )
    assert path.read_text() == line % 0 + line % 1
    pretrained.write_jsonl(str(path), [Vectors(["[CLS]"], values[:, 0])], layers)
    assert json.loads(path.read_text()) == {"linex_index": 0, "layers": [
        {"index": -1, "values": [0.5, -0.333333]}, {"index": "embeddings", "values": [0.0, -2.0]},
    ]}  # fmt: skip


@pytest.mark.parametrize("pooled", [True, False])
def test_npz_and_tfrecord(tmp_path, pooled):
    vectors, path = some_vectors(pooled=pooled), f"{tmp_path}/a"
    assert pretrained.write_npz(path, vectors, [-1, "embeddings"]) == 3
    with np.load(path) as found:
        assert found.files == ["embeddings"] + ["tokens", "row_splits"] * (not pooled)
        wanted = [np.concatenate([*v.layers], axis=-1).reshape(-1, 8) for v in vectors]
        np.testing.assert_array_equal(found["embeddings"], np.concatenate(wanted))
        if not pooled:
            assert found["row_splits"].tolist() == [0, 2, 7, 10]
            assert found["tokens"].tolist() == [t for v in vectors for t in v.tokens]
    assert pretrained.write_tfrecord(path, vectors, [-1, "embeddings"]) == 3
    records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    for number, (raw, vector) in enumerate(zip(records, vectors, strict=True)):
        found = tf.train.Example.FromString(raw).features.feature
        assert [*found["linex_index"].int64_list.value] == [number]
        assert [one.decode() for one in found["tokens"].bytes_list.value] == vector.tokens
        assert [*found["layers"].bytes_list.value] == [b"-1", b"embeddings"]
        assert [*found["shape"].int64_list.value] == [*vector.layers.shape]
        values = np.float32(found["embeddings"].float_list.value)
        np.testing.assert_array_equal(values, vector.layers.ravel())


@pytest.mark.parametrize("kind", pretrained.WRITERS)
def test_files_are_whole_or_as_before(tmp_path, kind):
    write, path = pretrained.WRITERS[kind], f"{tmp_path}/a"
    assert write(path, [], [-1]) == 0
    (tmp_path / "a").write_text("earlier")

    def failing():
        yield from some_vectors(pooled=True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, failing(), [-1, 0])
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "earlier"


# ---------------------------------------------------------------------------- scores


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> FullTokenizer:
    return masked_by_place.make_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def model():
    return masked_by_place.make_model()


@pytest.mark.parametrize("batch_size", [2, 64])
def test_scores_by_hand(model, tokenizer, batch_size):
    """water ##s , bread wine at 1 to 5: -log 4, -log 4, 0, log 16, log 16."""
    scorer = Scorer(model, tokenizer, max_seq_length=LENGTH, batch_size=batch_size)
    found = scorer.score("Waters, bread wine")
    assert found == Score(pytest.approx(math.log(16) - 5 * LOG_SUM, rel=1e-6), 5)
    assert found.perplexity == pytest.approx(SUM / 16 ** (1 / 5), rel=1e-6)
    found = scorer.score(" \t")
    assert (found, found.perplexity) == (Score(0, 0), None)
    assert Score(-6.0, 3) + Score(-2.0, 1) == Score(-8.0, 4)
    assert Score(-9999.0, 3).perplexity is None  # beyond all numbers


@pytest.mark.parametrize(
    ("length", "places"),
    [
        (15, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),  # all are seen at once
        (11, [1, 2, 3, 4, 5, 5, 5, 5, 6, 7, 8, 9]),  # nine are seen
        (3, [1] * 12),
    ],
)
def test_windows_around_each_token(tokenizer, length, places):
    """12 times bread: log 16 at even places of a window, - log 16 at odd ones."""
    model = masked_by_place.make_model(longest=15)
    found = Scorer(model, tokenizer, max_seq_length=length, batch_size=5).score("bread " * 12)
    signs = sum(1 if place % 2 == 0 else -1 for place in places)
    assert found.score == pytest.approx(signs * math.log(16) - 12 * LOG_SUM, rel=1e-6)
    assert found.tokens == 12


def test_scores_against_plain_numpy():
    """Random weights, whose every guess depends on all other tokens."""
    pieces = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(37))]
    weights = reference.random_weights(CONFIG, seed=4)
    model = make_model("pretraining", CONFIG)
    reference.put_weights(model, weights)
    ids, expected = [9, 30, 4, 9, 17, 22], 0.0
    for place, token in enumerate(ids):
        copy = [1, *ids[:place], 3, *ids[place + 1 :], 2]
        inputs = {
            "input_ids": np.array([copy]),
            "input_mask": np.ones([1, len(copy)], int),
            "segment_ids": np.zeros([1, len(copy)], int),
            "masked_lm_positions": np.array([[place + 1]]),
        }
        logits = reference.pretraining_outputs(weights, CONFIG, inputs)["masked_lm_logits"]
        expected += reference.log_softmax(logits[0, 0])[token]
    scorer = Scorer(model, FullTokenizer("v", pieces=pieces), max_seq_length=13, batch_size=4)
    found = scorer.score(" ".join(pieces[i] for i in ids))
    assert found == Score(pytest.approx(expected, rel=1e-5), 6)


def test_what_cannot_be_scored(model, tokenizer):
    with pytest.raises(InputError, match="max_seq_length 2"):
        Scorer(model, tokenizer, max_seq_length=2)
    pieces = [piece for piece in masked_by_place.PIECES if piece != "[MASK]"]
    with pytest.raises(InputError, match=r"without \[MASK\]"):
        Scorer(model, FullTokenizer("v", pieces=pieces), max_seq_length=LENGTH)
    for other in ("classification", make_model("classification", CONFIG)):  # a path, a model
        with pytest.raises(InputError, match=r"Received: '?classification"):
            Scorer(other, tokenizer, max_seq_length=LENGTH)
    damaged = masked_by_place.make_model()
    damaged.get_layer("predictions").output_bias.assign([np.nan] * len(masked_by_place.PIECES))
    with pytest.raises(InputError, match="NaN or infinite"):
        Scorer(damaged, tokenizer, max_seq_length=LENGTH).score("bread")


def test_the_commands(model, tmp_path, capsys):
    """score and fill-mask of the model by hand, as the folder of a run."""
    masked_by_place.make_tokenizer(tmp_path)
    config = model.config
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    tensors, path = reference.take_weights(model), str(tmp_path / "bert_model.ckpt")
    write_checkpoint(path, tensors, temporary=str(tmp_path / "new"))
    lines, given = tmp_path / "lines.txt", f"--init_checkpoint={tmp_path}"
    lines.write_text("bread water wine\n\nwater\r\n" + "bread " * 12 + "\n", encoding="utf-8")
    with in_process("score") as main:
        main(given, f"--input_file={lines}", f"--output_file={tmp_path}/scores.jsonl")
        main(given, "bread water wine", "water")
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [row["tokens"] for row in rows] == [3, 0, 1, 12]
    scores = [math.log(4) - 3 * LOG_SUM, 0, -math.log(4) - LOG_SUM]
    assert [row["score"] for row in rows[:3]] == pytest.approx(scores, rel=1e-6)
    assert rows[0]["perplexity"] == pytest.approx(SUM / 4 ** (1 / 3), rel=1e-6)
    assert rows[1]["perplexity"] is None
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [rows[0], rows[2]]
    with in_process("fill-mask") as main:
        main("bread [MASK]", given, top_k=2)
        assert capsys.readouterr().out == "bread [MASK]\n  [MASK] 1: bread 60.8%  water 15.2%\n"
        for text in ("water " * 9 + "[MASK]", "bread"):
            with pytest.raises(InputError, match=r"a text with \[MASK\] among"):
                main(text, given)
