"""extract_features: vectors against a plain computation, line by line, and the files of them."""

import json

import hypothesis
import hypothesis.strategies as st
import model_files
import numpy as np
import pytest
import reference
import small
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.serving import feature_extraction
from bert_tf.serving.feature_extraction import (
    Extractor,
    Line,
    make_examples,
    parse_layers,
    read_lines,
)
from bert_tf.tokenization.wordpiece import FullTokenizer

CONFIG = small.CONFIG
LENGTH = 11  # below the 13 positions of the model
LAYERS = (-1, 0, "embeddings", 1)


@pytest.fixture(scope="module")
def tokenizer() -> FullTokenizer:
    return FullTokenizer("/memory/vocab.txt", pieces=model_files.PIECES)


@pytest.fixture(scope="module")
def weights():
    return model_files.weights_of(model_files.tensors_of())


def make(weights, tokenizer, *, layers=LAYERS, pooling="none", batch_size=3) -> Extractor:
    return Extractor(
        weights, CONFIG, tokenizer, layers=layers, pooling=pooling, max_seq_length=LENGTH,
        batch_size=batch_size,
    )  # fmt: skip


def some_lines(count: int = 10) -> list[Line]:
    """Of all lengths, in no order: none, short, too long; alone and in pairs."""
    rng = np.random.default_rng(2)

    def words(most: int) -> str:
        return " ".join(f"w{i}" for i in rng.integers(0, 36, rng.integers(0, most)))

    lines = [Line(words(14), words(9) if i % 3 == 0 else None) for i in range(count - 2)]
    return [*lines, Line(""), Line(words(4), "")]


def expected_layers(weights, line: Line, tokenizer) -> tuple[list[str], np.ndarray]:
    """Pieces and all layers [L, T, D] of one line alone, unpadded, in float64."""
    first = tokenizer.tokenize(line.text_a)
    second = tokenizer.tokenize(line.text_b or "")
    if second:
        originals_truncation(first, second, LENGTH - 3)
    else:
        del first[LENGTH - 2 :]
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


def originals_truncation(first: list, second: list, most: int) -> None:
    """One piece at a time from the end of the longer, of the second if they are alike."""
    while len(first) + len(second) > most:
        (first if len(first) > len(second) else second).pop()


# ---------------------------------------------------------------------------- vectors


@pytest.mark.parametrize("pooling", ["none", "cls", "mean"])
def test_against_each_line_alone(weights, tokenizer, pooling):
    """Neither order, nor batches, nor padding have any influence."""
    lines = some_lines()
    found = list(make(weights, tokenizer, pooling=pooling).extract(iter(lines)))
    assert len(found) == len(lines)
    for line, vectors in zip(lines, found, strict=True):
        pieces, expected = expected_layers(weights, line, tokenizer)
        assert vectors.tokens == pieces
        pools = {"none": lambda x: x, "cls": lambda x: x[:, 0], "mean": lambda x: x.mean(axis=1)}
        expected = pools[pooling](expected)
        assert (vectors.layers.dtype, vectors.layers.shape) == (np.float32, expected.shape)
        np.testing.assert_allclose(vectors.layers, expected, atol=3e-5)


def test_windows_of_few_lines(weights, tokenizer, monkeypatch):
    """The order holds over windows too, the last of which is not full; none is held longer."""
    monkeypatch.setattr(feature_extraction, "BYTES_OF_A_WINDOW", 1)
    extractor = make(weights, tokenizer, layers=[-1], pooling="mean")
    lines, taken = some_lines(), []
    found = extractor.extract(taken.append(line) or line for line in lines)
    vectors = [next(found)]
    assert len(taken) == 3  # one batch
    for line, vector in zip(lines, [*vectors, *found], strict=True):
        _, expected = expected_layers(weights, line, tokenizer)
        np.testing.assert_allclose(vector.layers[0], expected[0].mean(axis=0), atol=3e-5)


def test_a_window_is_no_larger_than_its_vectors_may_be(weights, tokenizer):
    extractor = make(weights, tokenizer, layers=[-1] * 9, batch_size=7)
    assert extractor._window_size == 64 * 7
    size = feature_extraction.BYTES_OF_A_WINDOW // (4 * 9 * LENGTH * CONFIG.hidden_size)
    assert make(weights, tokenizer, layers=[-1] * 9, batch_size=size)._window_size == size


def test_no_lines(weights, tokenizer):
    assert list(make(weights, tokenizer).extract([])) == []


def test_layers():
    cases = {"-1": [-1], "1, -2 ,embeddings": [1, -2, "embeddings"], "0,0": [0, 0]}
    assert {text: parse_layers(text, CONFIG) for text in cases} == cases


@pytest.mark.parametrize("text", ["", "2", "-3", "a", "1,", "1.0", "Embeddings", "１", "9" * 5000])
def test_layers_that_are_not_there(text):
    with pytest.raises(InputError, match="--layers") as caught:
        parse_layers(text, CONFIG)
    assert "-2 to 1 or embeddings" in caught.value.expected


@pytest.mark.parametrize("changes", [{"max_seq_length": 14}, {"max_seq_length": 2},
                                     {"batch_size": 0}])  # fmt: skip
def test_refused_sizes(weights, tokenizer, changes):
    given = {"max_seq_length": LENGTH, "batch_size": 3} | changes
    with pytest.raises(InputError, match=str(*changes.values())):
        Extractor(weights, CONFIG, tokenizer, layers=[-1], pooling="none", **given)


def test_examples(tokenizer):
    """Of 7 pieces at most: a pair is cut by turns, a text without pieces is none."""
    lines = [Line("w0 w1 w2 w3", "w4 w5 w6"), Line("w0 w1 w2 w3 w4 w5"), Line("w0", " "), Line("")]
    ids = [
        "[CLS] w0 w1 [SEP] w4 w5 [SEP]", "[CLS] w0 w1 w2 w3 w4 [SEP]", "[CLS] w0 [SEP]",
        "[CLS] [SEP]",
    ]  # fmt: skip
    segments = [[0, 0, 0, 0, 1, 1, 1], [0] * 7, [0] * 3, [0] * 2]
    for example, pieces, segment in zip(make_examples(lines, tokenizer, 7), ids, segments,
                                        strict=True):  # fmt: skip
        assert tokenizer.convert_ids_to_tokens(example.ids) == pieces.split()
        assert example.segments == segment


# ---------------------------------------------------------------------------- input

LINES = {
    b"He came. ||| She left.\n": Line("He came.", "She left."),
    b"a ||| b ||| c\n": Line("a ||| b", "c"),  # the last one, as in the original
    b"a|||b\n": Line("a|||b"),
    b"a |||\n": Line("a |||"),
    b"\n": Line(""),
    b" \ta\r\n": Line("a"),
    b"a\rb ||| c\r\n": Line("a\rb", "c"),
    "grün \u2028 日本".encode(): Line("grün \u2028 日本"),
}
JSON_LINES = {
    b'{"text": "a"}\n': Line("a"),
    b'{"text_a": "a ||| x", "text_b": null}\n': Line("a ||| x"),
    b'{"text_a": "", "text_b": "b", "id": 3}\n': Line("", "b"),
    b'{"text": "\\ud800 \\u00e4"}': Line("\ud800 ä"),
}


def test_lines(tmp_path):
    """JSON with a byte order mark, and both without an end of the last line."""
    path = str(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"".join(LINES))
    assert list(read_lines(path, jsonl=False)) == list(LINES.values())
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + b"".join(JSON_LINES))
    assert list(read_lines(path, jsonl=True)) == list(JSON_LINES.values())


def test_a_byte_order_mark_has_no_influence(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfw1 w2\nw1 w2\n")
    one, other = make_examples(
        list(read_lines(f"{tmp_path}/a.txt", jsonl=False)), tokenizer, LENGTH
    )
    assert one == other


@pytest.mark.parametrize(
    ("bad", "jsonl"),
    [
        (b"Caf\xe9", False), (b"Caf\xe9", True), (b"{", True), (b"", True), (b"[1]", True),
        (b'"text_a"', True), (b'{"a": "b"}', True), (b'{"text": 3}', True), (b"null", True),
        (b'{"text_a": "a", "text_b": ["b"]}', True), (b"[" * 100_000, True),
        (b'{"text": "a", "text": "b"}', True),
    ],
)  # fmt: skip
def test_bad_lines(tmp_path, bad, jsonl):
    (tmp_path / "a").write_bytes(b'{"text": "good"}\n' + bad + b"\n")
    lines = read_lines(f"{tmp_path}/a", jsonl=jsonl)
    next(lines)
    with pytest.raises(InputError, match="a, line 2") as caught:
        next(lines)
    assert ("JSON" if jsonl else "UTF-8") in caught.value.expected
    assert len(caught.value.received) < 500


def test_no_input_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        list(read_lines(f"{tmp_path}/nothing", jsonl=False))


# ---------------------------------------------------------------------------- files


def some_vectors(*, pooled: bool) -> list[feature_extraction.Vectors]:
    rng, vectors = np.random.default_rng(8), []
    for length in (2, 5, 3):
        values = rng.standard_normal((2, 4) if pooled else (2, length, 4)).astype("f4")
        vectors.append(feature_extraction.Vectors([f"t{i}" for i in range(length)], values))
    return vectors


def test_json_as_the_original_writes_it(tmp_path):
    """Spelling, order of the keys, six decimals; read from the original's code, written by hand."""
    values = np.float32([[[0.5, -1 / 3], [1e-7, 12345.678]], [[0, -2], [2 / 3, 1]]])  # [L, T, D]
    vectors = [feature_extraction.Vectors(["[CLS]", '"é'], values)] * 2
    path = tmp_path / "a.jsonl"
    assert feature_extraction.write_jsonl(str(path), vectors, [-1, "embeddings"]) == 2
    line = (
        '{"linex_index": %d, "features": ['
        '{"token": "[CLS]", "layers": [{"index": -1, "values": [0.5, -0.333333]}, '
        '{"index": "embeddings", "values": [0.0, -2.0]}]}, '
        '{"token": "\\"\\u00e9", "layers": [{"index": -1, "values": [0.0, 12345.677734]}, '
        '{"index": "embeddings", "values": [0.666667, 1.0]}]}]}\n'
    )
    assert path.read_text() == line % 0 + line % 1


@hypothesis.given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_decimals_are_those_of_the_originals_rounding(value):
    (rounded,) = feature_extraction.rounded(np.float32([value]))
    assert repr(rounded) == repr(round(value, 6))


def test_pooled_json(tmp_path):
    vectors = some_vectors(pooled=True)
    feature_extraction.write_jsonl(str(tmp_path / "a"), vectors, [-1, 0])
    rows = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    for number, (row, vector) in enumerate(zip(rows, vectors, strict=True)):
        values = [layer.pop("values") for layer in row["layers"]]
        assert row == {"linex_index": number, "layers": [{"index": -1}, {"index": 0}]}
        np.testing.assert_allclose(values, vector.layers, atol=5.1e-7)


def test_npz(tmp_path):
    pooled, every = some_vectors(pooled=True), some_vectors(pooled=False)
    assert feature_extraction.write_npz(f"{tmp_path}/p", pooled, [-1, 0]) == 3
    assert feature_extraction.write_npz(f"{tmp_path}/e", every, [-1, 0]) == 3
    with np.load(tmp_path / "p") as found:
        assert found.files == ["embeddings"]
        np.testing.assert_array_equal(found["embeddings"], [v.layers.ravel() for v in pooled])
    with np.load(tmp_path / "e") as found:
        assert found["row_splits"].tolist() == [0, 2, 7, 10]
        assert found["tokens"].tolist() == [t for v in every for t in v.tokens]
        wanted = np.concatenate([np.concatenate([*v.layers], axis=1) for v in every])
        np.testing.assert_array_equal(found["embeddings"], wanted)


@pytest.mark.parametrize("pooled", [True, False])
def test_tfrecord(tmp_path, pooled):
    vectors, path = some_vectors(pooled=pooled), f"{tmp_path}/a.tfrecord"
    assert feature_extraction.write_tfrecord(path, vectors, [-1, "embeddings"]) == 3
    records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    for number, (raw, vector) in enumerate(zip(records, vectors, strict=True)):
        found = tf.train.Example.FromString(raw).features.feature
        assert [*found["linex_index"].int64_list.value] == [number]
        assert [one.decode() for one in found["tokens"].bytes_list.value] == vector.tokens
        assert [*found["layers"].bytes_list.value] == [b"-1", b"embeddings"]
        assert [*found["shape"].int64_list.value] == [*vector.layers.shape]
        values = np.float32(found["embeddings"].float_list.value)
        np.testing.assert_array_equal(values, vector.layers.ravel())


@pytest.mark.parametrize("kind", feature_extraction.WRITERS)
def test_files_are_whole_or_as_before(tmp_path, kind):
    write, path = feature_extraction.WRITERS[kind], f"{tmp_path}/a"
    assert write(path, [], [-1]) == 0
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    (tmp_path / "a").write_text("earlier")

    def failing(error: BaseException):
        yield from some_vectors(pooled=True)
        raise error

    for error in (InputError(received="line 2", expected="b", remedy="c"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            write(path, failing(error), [-1, 0])
        assert [one.name for one in tmp_path.iterdir()] == ["a"]
        assert (tmp_path / "a").read_text() == "earlier"
    with pytest.raises(InputError, match="folder/a"):
        write(f"{tmp_path}/folder/a", some_vectors(pooled=True), [-1, 0])
