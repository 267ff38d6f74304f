"""The tokenizer of Hugging Face's folders, read, written and refused."""

import dataclasses
import json

import hypothesis
import model_files
import numpy as np
import pytest
from hypothesis import strategies as st

from bert_tf.checkpoints.loading import open_weights, tokenizer_of
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError
from bert_tf.library.models import length_of

VOCAB_TEXT = "".join(f"{piece}\n" for piece in model_files.PIECES)
SETTINGS, FAST = "tokenizer_config.json", "tokenizer.json"
MAP, ADDED = "special_tokens_map.json", "added_tokens.json"


@pytest.fixture
def opened(tmp_path):
    """Opens a folder with these files of a tokenizer, beside weights."""
    tensors = {"bert.pooler.dense.bias": np.ones(22, np.float32)}

    def opened(files, name: str = "a", **config):
        config = model_files.hugging_face_config(**config)
        folder = model_files.write_hugging_face(
            tmp_path / name, tensors, config=config, files=files
        )
        return open_weights(folder)

    return opened


def fast_tokenizer(pieces=model_files.PIECES, added=(), model=None, **normalizer) -> dict:
    """The values of a tokenizer.json."""
    vocab = {piece: i for i, piece in enumerate(pieces)}
    return {
        "normalizer": {"type": "BertNormalizer", "lowercase": True} | normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "vocab": vocab} | (model or {}),
        "added_tokens": [{"id": i, "content": piece} for i, piece in added],
    }


# ---------------------------------------------------------------------------- case


@pytest.mark.parametrize(
    ("files", "lower", "strip"),
    [
        ({}, None, None),
        ({SETTINGS: {"do_lower_case": False}}, False, None),
        ({SETTINGS: {"do_lower_case": True, "strip_accents": True}}, True, None),
        ({SETTINGS: {"do_lower_case": True, "strip_accents": False}}, True, False),
        ({SETTINGS: {"do_lower_case": False, "strip_accents": True}}, False, True),
        ({SETTINGS: {"do_lower_case": False, "strip_accents": False}}, False, None),
        ({SETTINGS: {"tokenize_chinese_chars": True}}, None, None),
        # BERT's classes lower-case by default, and remove accents, whatever the normalizer says.
        ({FAST: fast_tokenizer(lowercase=False, strip_accents=None)}, True, None),
        ({FAST: fast_tokenizer(lowercase=False, strip_accents=False),
          SETTINGS: {"tokenizer_class": "BertTokenizerFast"}}, True, None),
        ({SETTINGS: {}, FAST: fast_tokenizer(lowercase=True)}, True, None),
        # A generic class takes both from tokenizer.json, BERT's own take them from the settings.
        ({FAST: fast_tokenizer(lowercase=False),
          SETTINGS: {"tokenizer_class": "TokenizersBackend"}}, False, None),
        ({FAST: fast_tokenizer(strip_accents=False),
          SETTINGS: {"tokenizer_class": "PreTrainedTokenizerFast"}}, True, False),
        *(({FAST: fast_tokenizer(lowercase=False),
            SETTINGS: {"tokenizer_class": name, "do_lower_case": True}}, lower, None)
          for name, lower in (("PreTrainedTokenizerFast", False), ("ElectraTokenizer", True))),
    ],
)  # fmt: skip
def test_case_and_accents(opened, files, lower, strip):
    found = opened(files).metadata
    assert (found.do_lower_case, found.strip_accents) == (lower, strip)


def fast(**changes) -> dict:
    """A tokenizer.json with other parts."""
    return {FAST: fast_tokenizer() | changes}


NORMALIZERS = {  # of a tokenizer.json that are not BERT's
    "normalizer.handle_chinese_chars False": {"handle_chinese_chars": False},
    "normalizer.type 'NFKC'": {"type": "NFKC"},
    "normalizer.clean_text False": {"clean_text": False},
}
MODELS = (
    ("continuing_subword_prefix '@@'", {"continuing_subword_prefix": "@@"}),
    ("unk_token '<unk>'", {"unk_token": "<unk>"}),
    ("per_word 20", {"max_input_chars_per_word": 20}),
    ("model.vocab None", {"vocab": None}),
    *(("model.vocab.a ", {"vocab": {"[UNK]": 0, "a": number}}) for number in ("1", True)),
    ("the vocabulary {", {"vocab": {"[UNK]": 0, "a": 2}}),
    ("model.type 'Unigram'", {"type": "Unigram", "vocab": [["a", -1.5]]}),
)
SETTINGS_OF_OTHERS = {
    "tokenize_chinese_chars False": {"tokenize_chinese_chars": False},
    "'BertJapaneseTokenizer'": {"tokenizer_class": "BertJapaneseTokenizer"},
    "'PreTrainedTokenizerFast'": {"tokenizer_class": "PreTrainedTokenizerFast"},
    "do_basic_tokenize False": {"do_basic_tokenize": False},
    r"never_split \['e1'\]": {"never_split": ["[UNK]", "e1"]},
    "do_lower_case 'false'": {"do_lower_case": "false"},
    "cls_token '<s>'": {"cls_token": "<s>"},
    **{f"with model_max_length {n!r}": {"model_max_length": n} for n in (0, "512")},
}
OF_OTHERS = [
    *((says, {FAST: fast_tokenizer(**changes)}) for says, changes in NORMALIZERS.items()),
    *((says, {FAST: fast_tokenizer(model=changes)}) for says, changes in MODELS),
    *((says, {SETTINGS: values}) for says, values in SETTINGS_OF_OTHERS.items()),
    ("pre_tokenizer.type 'Whitespace'", fast(pre_tokenizer={"type": "Whitespace"})),
    ("normalizer None", fast(normalizer=None)),
    ("no model", {FAST: {}}),
    ("mask_token", {MAP: {"mask_token": {"content": "<mask>"}}}),
]


@pytest.mark.parametrize(("says", "files"), OF_OTHERS)
def test_tokenizers_that_are_not_berts(tmp_path, opened, files, says):
    with pytest.raises(InputError, match=says) as caught:
        opened(files)
    assert f"{tmp_path}/a/{next(iter(files))}" in caught.value.received


def test_a_cased_tokenizer_behind_lower_casing(opened):
    files = {SETTINGS: {"do_lower_case": False}}
    files["sentence_bert_config.json"] = {"max_seq_length": 9, "do_lower_case": True}
    with pytest.raises(InputError, match="do_lower_case true before a cased tokenizer"):
        opened(files)
    files[SETTINGS] = {"do_lower_case": True, "model_max_length": 7}  # smaller, and ignored there
    assert opened(files).metadata.max_seq_length == 9


NONE = 1000000000000000019884624838656  # what transformers writes for no limit


@pytest.mark.parametrize(("written", "longest"), [(7, 7), (13, None), (NONE, None)])
def test_the_longest_sequence(opened, written, longest):
    """Below the positions of the model, of which there are 13, it is a bound; else it is none."""
    weights = opened({"vocab.txt": VOCAB_TEXT, SETTINGS: {"model_max_length": written}})
    assert weights.metadata.max_seq_length == longest
    assert length_of(weights, weights.config) == (longest or 13)


# ---------------------------------------------------------------------------- vocabulary


def test_vocabulary_of_tokenizer_json_alone(tmp_path, opened):
    """In the order of the ids, whatever the order in the file."""
    pieces = model_files.PIECES[:4] + model_files.PIECES[5:]
    values = fast_tokenizer(pieces, added=[(40, "[MASK]"), (2, "[CLS]")])
    values["model"]["vocab"] = dict(reversed(values["model"]["vocab"].items()))
    weights = opened({FAST: values})
    assert weights.pieces == (*pieces, "[MASK]")
    assert weights.vocab_file == f"{tmp_path}/a/{FAST}"


def test_vocabularies_in_two_files(tmp_path, opened):
    weights = opened({"vocab.txt": VOCAB_TEXT, FAST: fast_tokenizer()})
    assert weights.pieces == model_files.PIECES
    assert weights.vocab_file == f"{tmp_path}/a/vocab.txt"
    other = [*model_files.PIECES[:7], "other", *model_files.PIECES[8:]]
    for pieces in (other, model_files.PIECES[:40]):
        with pytest.raises(InputError, match="json, which differ"):
            opened({"vocab.txt": VOCAB_TEXT, FAST: fast_tokenizer(pieces)})


PLACES = {  # where transformers looks for tokens that it finds before it cuts a text
    ADDED: lambda token, number: {token: number},
    FAST: lambda token, number: fast_tokenizer(added=[(number, token)]),
    SETTINGS: lambda token, number: {"added_tokens_decoder": {str(number): {"content": token}}},
}


@pytest.mark.parametrize("name", PLACES)
def test_added_tokens(tmp_path, opened, name):
    """Without another word they are found in normalized text."""

    def with_token(token: str, number: int):
        return opened({"vocab.txt": VOCAB_TEXT, name: PLACES[name](token, number)})

    for token, number, added_words in (
        ("[CLS]", 2, None),  # BERT's own are text
        ("w3", 8, ("w3",)),
        ("<E1>", 41, ("<E1>",)),
    ):
        weights = with_token(token, number)
        assert (weights.metadata.added_words, weights.metadata.never_split) == (added_words, None)
        assert weights.pieces == tuple(dict.fromkeys((*model_files.PIECES, token)))
    with pytest.raises(InputError, match=r"the token \[CLS\] as number 7") as caught:
        with_token("[CLS]", 7)
    assert f"{tmp_path}/a/{name}" in caught.value.received


@pytest.mark.parametrize(
    ("name", "tokens"),
    [(SETTINGS, [{"content": "w3", "lstrip": False}]), (SETTINGS, {"entity": "w3"}),
     (MAP, ["[CLS]", "w3", "w3"])],
)  # fmt: skip
def test_other_special_tokens(opened, name, tokens):
    """They are found anywhere, as they are: pieces that are never split."""
    for key in ("additional_special_tokens", "extra_special_tokens"):
        weights = opened({"vocab.txt": VOCAB_TEXT, name: {key: tokens}})
        assert weights.metadata.never_split == ("w3",)
        weights = opened({"vocab.txt": VOCAB_TEXT, name: {key: ["[MASK]"]}})
        assert weights.metadata.never_split is None


ANYWHERE = {"special": True, "normalized": False, "lstrip": False, "single_word": False}


@pytest.mark.parametrize("name", [FAST, SETTINGS])
def test_added_tokens_that_are_found_anywhere(opened, name):
    """Of the vocabulary or behind it, where transformers writes them."""
    pieces = model_files.PIECES[:40]
    files = {"vocab.txt": "".join(f"{piece}\n" for piece in pieces), ADDED: {"<e1>": 40}}
    tokens = {str(i): {"content": token} | ANYWHERE for i, token in ((7, "w2"), (40, "<e1>"))}
    if name == SETTINGS:
        files[name] = {"added_tokens_decoder": tokens}
    else:
        listed = [{"id": int(number)} | token for number, token in tokens.items()]
        files[name] = fast_tokenizer(pieces) | {"added_tokens": listed}
    weights = opened(files)
    assert weights.pieces == (*pieces, "<e1>")
    assert weights.metadata.never_split == ("w2", "<e1>")


@pytest.mark.parametrize(
    "how",
    [{"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"content": ""}, {"content": 5},
     {"content": None}],
)  # fmt: skip
def test_added_tokens_that_are_found_otherwise_or_no_text(tmp_path, opened, how):
    values = {"content": "w3"} | ANYWHERE | how
    special = {"additional_special_tokens": ["w3"]}
    for settings in (
        {"added_tokens_decoder": {"8": values}} | special,
        {"additional_special_tokens": [values]},
        *([{"additional_special_tokens": [how["content"]]}] if "content" in how else []),
    ):
        with pytest.raises(InputError, match=r", token .* with ") as caught:
            opened({"vocab.txt": VOCAB_TEXT, SETTINGS: settings})
        assert f"{tmp_path}/a/{SETTINGS}" in caught.value.received


def test_files_that_say_how_an_added_token_is_found(opened):
    """A name alone does not contradict an entry; two entries do."""
    entry = {"content": "w3"} | ANYWHERE | {"normalized": True}
    files = {"vocab.txt": VOCAB_TEXT, SETTINGS: {"added_tokens_decoder": {"8": entry}}}
    names = {MAP: {"additional_special_tokens": ["w3"]}, ADDED: {"w3": 8}}
    metadata = opened(files | names).metadata
    assert (metadata.added_words, metadata.never_split) == (("w3",), None)
    names[MAP] = {"additional_special_tokens": [{"content": "w3", "normalized": False}]}
    with pytest.raises(InputError, match="token 'w3' with normalized True"):
        opened(files | names, name="b")


# ---------------------------------------------------------------------------- words added later

WORDS = (
    *model_files.SPECIAL,
    "nano",
    "##nano",
    "covid",
    "##body",
    "body",
    "x",
    "##x",
    "19",
    "##19",
)
WORDS += ("-", "n", "##n", "a", "##a", "e", "##e", "[", "]", "<", "1", ">")
HOW = {"lstrip": False, "rstrip": False, "single_word": False, "special": False}


def added_later(file: str, words, *, normalized: bool = True, vocabulary=WORDS) -> dict:
    """Files of a tokenizer as `add_tokens` leaves them; added_tokens.json has ids alone."""
    ids = {word: len(vocabulary) + i for i, word in enumerate(words)}
    how = HOW | {"normalized": normalized}
    files: dict = {"vocab.txt": "".join(f"{word}\n" for word in vocabulary)}
    if file == ADDED:
        return files | {file: ids}
    if file == FAST:
        whole, vocab = model_files.HUGGING_FACE_FILES[FAST], enumerate(vocabulary)
        model = whole["model"] | {"vocab": {word: i for i, word in vocab}}
        entries = [{"id": number, "content": word} | how for word, number in ids.items()]
        return files | {file: whole | {"model": model, "added_tokens": entries}}
    decoder = {str(number): {"content": word} | how for word, number in ids.items()}
    return files | {file: {"added_tokens_decoder": decoder}}


@pytest.mark.parametrize("file", [ADDED, FAST, SETTINGS])
@pytest.mark.parametrize("word", ["<E1>", "nanobody", "β"])
def test_words_that_were_added_later(opened, file, word):
    weights = opened(added_later(file, [word, "Ab"]), vocab_size=28)
    assert (weights.metadata.added_words, weights.metadata.never_split) == ((word, "Ab"), None)
    assert weights.pieces == (*WORDS, word, "Ab")


@pytest.mark.parametrize("word", ["nanobody", "##nanobody", "β"])
@pytest.mark.parametrize("file", [ADDED, FAST, SETTINGS])
def test_words_that_would_be_found_as_pieces_too(tmp_path, opened, file, word):
    """Where the library does not find them: in another case, or as the end of a word."""
    special = {MAP: {"additional_special_tokens": [word]}} if file == ADDED else {}
    behind = added_later(file, [word], normalized=False) | special
    cased = behind | {SETTINGS: {"do_lower_case": False} | behind.get(SETTINGS, {})}
    stripped = cased | {SETTINGS: cased[SETTINGS] | {"strip_accents": True}}
    refused = {"lower-cased": behind, "stripped": stripped}
    if word.startswith("##"):
        refused |= {"cased": cased, "normalized": added_later(file, [word])}
    else:
        assert opened(cased, vocab_size=27).metadata.never_split == (word,)
    for name, files in refused.items():
        with pytest.raises(InputError, match="behind the vocabulary") as caught:
            opened(files, name=name, vocab_size=27)
        assert f"{tmp_path}/{name}/{file}" in caught.value.received
        assert "append it to vocab.txt" in caught.value.remedy
    as_told = added_later(file, [], vocabulary=(*WORDS, word))
    assert opened(as_told, name="b", vocab_size=27).pieces == (*WORDS, word)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Makes the library's tokenizer, and ours, of the files of a folder."""
    tokenizers = pytest.importorskip("tokenizers", reason="the library that wrote the files")

    def both(lower, words, *, normalized=False, vocabulary=WORDS):
        files = added_later(FAST, words, normalized=normalized, vocabulary=vocabulary)
        normalizer = files[FAST]["normalizer"] | {"lowercase": lower}
        files |= {
            SETTINGS: {"do_lower_case": lower},
            FAST: files[FAST] | {"normalizer": normalizer},
        }
        config = model_files.hugging_face_config(vocab_size=27 + len(words))
        folder = tmp_path_factory.mktemp("model")
        weights = open_weights(
            model_files.write_hugging_face(folder, {}, config=config, files=files)
        )
        library = tokenizers.Tokenizer.from_file(f"{folder}/{FAST}")
        return library, tokenizer_of(weights, weights.config)

    added = ["COVID-19", "Nan\u00f3", "nanob", "é", "漢", "X X", "19-"]
    return {
        "lower": both(True, ["<E1>", "COVID-19", "é"]),
        "cased": both(False, ["<E1>", "COVID-19", "é", "nanobody"]),
        "a piece": both(True, [], vocabulary=(*WORDS, "nanobody")),
        "lower, normalized": both(True, added, normalized=True),
        "cased, normalized": both(False, added, normalized=True),
    }


PARTS = (
    "<E1>",
    "<e1>",
    "COVID-19",
    "nanobody",
    "Nanobody",
    "NANOBODY",
    "covid-19",
    "Covid",
    "e\u0301",
)
PARTS += ("é", "É", "nan\u00f3body", "x", " ", "-", ".", "19", "[MASK", "]", "n\u0303", "\t", "漢")


@pytest.mark.parametrize(
    "kind", ["lower", "cased", "a piece", "lower, normalized", "cased, normalized"]
)
@hypothesis.given(text=st.lists(st.sampled_from(PARTS)).map("".join))
@hypothesis.settings(max_examples=300, deadline=None)
def test_added_words_as_the_library_finds_them(both, kind, text):
    """Special ones as they are written, others in normalized text, or as the messages tell."""
    library, ours = both[kind]
    assert [*ours.iter_ids([text])] == [library.encode(text, add_special_tokens=False).ids]


# ---------------------------------------------------------------------------- whole folders


@pytest.mark.parametrize(
    ("lower", "strip", "kept", "added"),
    [
        (False, None, None, None),
        (True, None, ("[MASK]", "w3"), None),
        (True, False, None, ("w4", "w9")),
        (False, True, ("w3",), ("w4",)),
    ],
)
def test_tokenizer_files_that_are_written(tmp_path, tensors, lower, strip, kept, added):
    """With what only Hugging Face's tokenizer asks for, and read again alike."""
    metadata = ModelMetadata(
        do_lower_case=lower, strip_accents=strip, never_split=kept, added_words=added
    )
    weights = model_files.weights_of(tensors, metadata=metadata)
    folder = tmp_path / "made"
    again = open_weights(save_weights(weights, str(folder), format="hugging_face"))
    assert dataclasses.replace(again.metadata, architecture=None) == metadata
    assert again.pieces == model_files.PIECES
    assert (folder / "vocab.txt").read_text() == VOCAB_TEXT
    special = {f"{p[1:-1].lower()}_token": p for p in model_files.SPECIAL}
    decoder = {
        str(model_files.PIECES.index(word)): {"content": word, "normalized": True} | HOW
        for word in added or ()
    }
    if kept:  # for transformers as special tokens, which it finds as they are written
        special["additional_special_tokens"] = ["w3"]
    assert json.loads((folder / MAP).read_text()) == special
    assert json.loads((folder / SETTINGS).read_text()) == special | {
        "do_lower_case": lower, "model_max_length": 13, "strip_accents": strip,
        "tokenize_chinese_chars": True, "tokenizer_class": "BertTokenizer",
        **({"never_split": list(kept)} if kept else {}),
        **({"added_tokens_decoder": decoder} if decoder else {}),
    }  # fmt: skip
