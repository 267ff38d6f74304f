"""The tokenizer of Hugging Face's folders, read, written and refused."""

import json

import model_files
import pytest

from bert_tf import load
from bert_tf.checkpoints.companions import length_of, tokenizer_of
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError

VOCAB_TEXT = "".join(f"{piece}\n" for piece in model_files.PIECES)


def write(folder, tensors, **given):
    return model_files.write_hugging_face(folder, model_files.state_dict(tensors), **given)


def fast_tokenizer(pieces=model_files.PIECES, added=(), model=None, **normalizer) -> dict:
    """The values of a tokenizer.json."""
    vocab = {piece: i for i, piece in enumerate(pieces)}
    return {
        "normalizer": {"type": "BertNormalizer", "lowercase": True} | normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "vocab": vocab} | (model or {}),
        "added_tokens": [{"id": i, "content": piece} for i, piece in added],
    }


@pytest.mark.parametrize(
    ("files", "lower"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"do_lower_case": False}}, False),
        ({"tokenizer_config.json": {"do_lower_case": True, "strip_accents": True}}, True),
        ({"tokenizer_config.json": {"tokenize_chinese_chars": True}}, None),
        ({"tokenizer.json": fast_tokenizer(lowercase=False, strip_accents=None)}, False),
        ({"tokenizer_config.json": {}, "tokenizer.json": fast_tokenizer(lowercase=True)}, True),
    ],
)
def test_case(tmp_path, tensors, files, lower):
    assert open_weights(write(tmp_path, tensors, files=files)).metadata.do_lower_case is lower


def test_a_generic_class_takes_its_case_from_tokenizer_json(tmp_path, tensors):
    """BERT's own classes take it from tokenizer_config.json, as transformers does it."""
    files = {"tokenizer.json": fast_tokenizer(lowercase=False)}
    classes = {"PreTrainedTokenizerFast": False}
    classes |= dict.fromkeys(("BertTokenizerFast", "DistilBertTokenizer", "ElectraTokenizer"), True)
    for name, lower in classes.items():
        files[CONFIG_FILE] = {"tokenizer_class": name, "do_lower_case": True}
        found = open_weights(write(tmp_path / name, tensors, files=files)).metadata
        assert found.do_lower_case is lower


CONFIG_FILE = "tokenizer_config.json"
MODEL = fast_tokenizer()["model"]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({CONFIG_FILE: {"do_lower_case": True, "strip_accents": False}}, "strip_accents False"),
        ({CONFIG_FILE: {"do_lower_case": False, "strip_accents": True}}, "strip_accents True"),
        ({CONFIG_FILE: {"tokenize_chinese_chars": False}}, "tokenize_chinese_chars false"),
        ({"tokenizer.json": fast_tokenizer(handle_chinese_chars=False)}, "chinese"),
        ({"tokenizer.json": fast_tokenizer(strip_accents=False)}, "strip_accents False"),
        ({"tokenizer.json": fast_tokenizer(type="NFKC")}, "normalizer of the type NFKC"),
        (
            {"tokenizer.json": fast_tokenizer() | {"pre_tokenizer": {"type": "Whitespace"}}},
            "pre_tokenizer of the type Whitespace",
        ),
        ({"tokenizer.json": fast_tokenizer() | {"model": {"type": "BPE"}}}, "the type BPE"),
        (
            {"tokenizer.json": fast_tokenizer() | {"normalizer": None}},
            "normalizer of the type None",
        ),
        (
            {"tokenizer.json": fast_tokenizer() | {"pre_tokenizer": None}},
            "pre_tokenizer of the type",
        ),
        ({"tokenizer.json": fast_tokenizer(clean_text=False)}, "clean_text false"),
        (
            {"tokenizer.json": fast_tokenizer(model={"continuing_subword_prefix": "@@"})},
            "prefix @@",
        ),
        ({"tokenizer.json": fast_tokenizer(model={"unk_token": "<unk>"})}, "unk_token <unk>"),
        ({"tokenizer.json": fast_tokenizer(model={"max_input_chars_per_word": 20})}, "per_word 20"),
        ({CONFIG_FILE: {"tokenizer_class": "BertJapaneseTokenizer"}}, "'BertJapaneseTokenizer'"),
        (
            {CONFIG_FILE: {"tokenizer_class": "PreTrainedTokenizerFast"}},
            "'PreTrainedTokenizerFast'",
        ),
        ({CONFIG_FILE: {"do_basic_tokenize": False}}, "do_basic_tokenize false"),
        ({CONFIG_FILE: {"never_split": ["[UNK]", "e1"]}}, r"never_split \['e1'\]"),
        ({CONFIG_FILE: {"do_lower_case": "false"}}, "do_lower_case 'false'"),
        ({CONFIG_FILE: {"strip_accents": 0}}, "strip_accents 0"),
        ({CONFIG_FILE: {"cls_token": "<s>"}}, "cls_token '<s>'"),
        ({"special_tokens_map.json": {"mask_token": {"content": "<mask>"}}}, "mask_token"),
    ],
)
def test_tokenizers_that_are_not_berts(tmp_path, tensors, files, says):
    with pytest.raises(InputError, match=says) as caught:
        open_weights(write(tmp_path, tensors, files=files))
    assert f"{tmp_path}/{next(iter(files))}" in caught.value.received


def test_a_class_that_only_the_model_names(tmp_path, tensors):
    """As in the first Japanese models, whose words a dictionary finds."""
    config = model_files.hugging_face_config(tokenizer_class="BertJapaneseTokenizer")
    files = {"vocab.txt": VOCAB_TEXT, CONFIG_FILE: {"word_tokenizer_type": "mecab"}}
    with pytest.raises(InputError, match="'BertJapaneseTokenizer'"):
        open_weights(write(tmp_path / "a", tensors, config=config, files=files))
    files[CONFIG_FILE]["tokenizer_class"] = "BertTokenizer"  # what transformers then uses
    open_weights(write(tmp_path / "b", tensors, config=config, files=files))


def test_a_cased_tokenizer_behind_lower_casing(tmp_path, tensors):
    files = {CONFIG_FILE: {"do_lower_case": False}}
    files["sentence_bert_config.json"] = {"max_seq_length": 9, "do_lower_case": True}
    with pytest.raises(InputError, match="do_lower_case true before a cased tokenizer"):
        open_weights(write(tmp_path / "a", tensors, files=files))
    files[CONFIG_FILE] = {"do_lower_case": True}
    assert open_weights(write(tmp_path / "b", tensors, files=files)).metadata.max_seq_length == 9
    files[CONFIG_FILE]["model_max_length"] = 7  # sentence-transformers ignores it, too
    assert open_weights(write(tmp_path / "c", tensors, files=files)).metadata.max_seq_length == 9


NONE = 1000000000000000019884624838656  # what transformers writes for no limit


@pytest.mark.parametrize(("written", "longest"), [(7, 7), (13, None), (512, None), (NONE, None)])
def test_the_longest_sequence(tmp_path, tensors, written, longest):
    """Below the positions of the model, of which there are 13, it is a bound; else it is none."""
    files = {"vocab.txt": VOCAB_TEXT, CONFIG_FILE: {"model_max_length": written}}
    folder = write(tmp_path / "a", tensors, files=files)
    weights = open_weights(folder)
    assert weights.metadata.max_seq_length == longest
    assert length_of(weights, weights.config) == (longest or 13)
    _, tokenizer = load(folder)
    assert tokenizer.max_length == (longest or 13)


@pytest.mark.parametrize("written", [0, -1, "512", True])
def test_a_longest_sequence_that_is_none(tmp_path, tensors, written):
    files = {"vocab.txt": VOCAB_TEXT, CONFIG_FILE: {"model_max_length": written}}
    with pytest.raises(InputError, match=r"tokenizer_config\.json with model_max_length"):
        open_weights(write(tmp_path / "a", tensors, files=files))


def test_vocabulary_of_tokenizer_json_alone(tmp_path, tensors):
    """In the order of the ids, whatever the order in the file."""
    pieces = model_files.PIECES[:4] + model_files.PIECES[5:]
    values = fast_tokenizer(pieces, added=[(40, "[MASK]"), (2, "[CLS]")])
    values["model"]["vocab"] = dict(reversed(values["model"]["vocab"].items()))
    weights = open_weights(write(tmp_path, tensors, files={"tokenizer.json": values}))
    assert weights.pieces == (*pieces, "[MASK]")
    assert weights.vocab_file == f"{tmp_path}/tokenizer.json"


def test_vocabularies_in_two_files(tmp_path, tensors):
    shorter = VOCAB_TEXT.removesuffix("w34\nw35\n")
    files = {"vocab.txt": shorter, "tokenizer.json": fast_tokenizer()}
    weights = open_weights(write(tmp_path / "longer", tensors, files=files))
    assert weights.pieces == model_files.PIECES
    files["vocab.txt"] = VOCAB_TEXT
    weights = open_weights(write(tmp_path / "same", tensors, files=files))
    assert weights.pieces == model_files.PIECES
    assert weights.vocab_file == f"{tmp_path}/same/vocab.txt"


@pytest.mark.parametrize(("number", "piece"), [(7, "other"), (40, None)])
def test_vocabularies_that_differ(tmp_path, tensors, number, piece):
    pieces = list(model_files.PIECES)
    pieces[number:] = [piece, *pieces[number + 1 :]] if piece else []
    files = {"vocab.txt": VOCAB_TEXT, "tokenizer.json": fast_tokenizer(pieces)}
    with pytest.raises(InputError, match=f"differ at id {number}"):
        open_weights(write(tmp_path, tensors, files=files))


ADDED = {  # the places where transformers looks for tokens that it finds before it cuts a text
    "added_tokens.json": lambda token, number: {token: number},
    "tokenizer.json": lambda token, number: fast_tokenizer(added=[(number, token)]),
    CONFIG_FILE: lambda token, number: {"added_tokens_decoder": {str(number): {"content": token}}},
}


@pytest.mark.parametrize("name", ADDED)
def test_added_tokens(tmp_path, tensors, name):
    """The word <e1> would be cut into pieces here, and be one token there."""

    def opened(token: str, number: int):
        files = {"vocab.txt": VOCAB_TEXT, name: ADDED[name](token, number)}
        return open_weights(write(tmp_path, tensors, files=files))

    assert opened("[CLS]", 2).pieces == model_files.PIECES
    with pytest.raises(InputError, match="the added token '<e1>'") as caught:
        opened("<e1>", 41)
    assert "special" in caught.value.expected
    assert str(tmp_path / name) in caught.value.received
    with pytest.raises(InputError, match="the added token 'w3'"):  # also of the vocabulary
        opened("w3", 8)
    with pytest.raises(InputError, match=r"the token \[CLS\] as number 7"):
        opened("[CLS]", 7)


@pytest.mark.parametrize("name", [CONFIG_FILE, "special_tokens_map.json"])
@pytest.mark.parametrize(
    "tokens",
    [["w3"], [{"content": "w3", "lstrip": False}], {"entity": "w3"}, ["[CLS]", "w3", "w3"]],
)
def test_other_special_tokens(tmp_path, tensors, name, tokens):
    """They are found anywhere, as they are: pieces that are never split."""
    for key in ("additional_special_tokens", "extra_special_tokens"):
        files = {"vocab.txt": VOCAB_TEXT, name: {key: tokens}}
        weights = open_weights(write(tmp_path, tensors, files=files))
        assert weights.metadata.never_split == ("w3",)
        tokenizer = tokenizer_of(weights, weights.config, None, True)
        assert tokenizer.tokenize("xw3 W3 [CLS]") == ["[UNK]", "w3", "w3", *["[UNK]"] * 3]
        files[name] = {key: ["[MASK]"]}
        weights = open_weights(write(tmp_path, tensors, files=files))
        assert weights.metadata.never_split is None


ANYWHERE = {"special": True, "normalized": False, "lstrip": False, "single_word": False}


@pytest.mark.parametrize("name", ["tokenizer.json", CONFIG_FILE])
def test_added_tokens_that_are_found_anywhere(tmp_path, tensors, name):
    """Of the vocabulary or behind it, where transformers writes them."""
    pieces = model_files.PIECES[:40]
    files = {"vocab.txt": "".join(f"{piece}\n" for piece in pieces)}
    both = {7: "w2", 40: "<e1>"}
    if name == CONFIG_FILE:
        tokens = {str(i): {"content": token} | ANYWHERE for i, token in both.items()}
        files[name] = {"added_tokens_decoder": tokens}
    else:
        tokens = [{"id": i, "content": token} | ANYWHERE for i, token in both.items()]
        files[name] = fast_tokenizer(pieces) | {"added_tokens": tokens}
    files["added_tokens.json"] = {"<e1>": 40}
    weights = open_weights(write(tmp_path, tensors, files=files))
    assert weights.pieces == (*pieces, "<e1>")
    assert weights.metadata.never_split == ("w2", "<e1>")


@pytest.mark.parametrize(
    "how",
    [{"normalized": True}, {"lstrip": True}, {"rstrip": True}, {"single_word": True},
     {"special": False, "normalized": None}],
)  # fmt: skip
def test_added_tokens_that_are_found_otherwise(tmp_path, tensors, how):
    values = {"content": "w3"} | ANYWHERE | how
    special = {"additional_special_tokens": ["w3"]}
    for settings in (
        {"added_tokens_decoder": {"8": values}} | special,
        {"additional_special_tokens": [values]},
    ):
        files = {"vocab.txt": VOCAB_TEXT, CONFIG_FILE: settings}
        with pytest.raises(InputError, match="the added token 'w3'"):
            open_weights(write(tmp_path, tensors, files=files))


@pytest.mark.parametrize("token", ["", "\ud83d", 5, None])
def test_added_tokens_that_are_no_text(tmp_path, tensors, token):
    files = {"vocab.txt": VOCAB_TEXT, CONFIG_FILE: {"additional_special_tokens": [token]}}
    with pytest.raises(InputError, match=r"added token|content") as caught:
        open_weights(write(tmp_path, tensors, files=files))
    assert f"{tmp_path}/{CONFIG_FILE}" in caught.value.received


def test_never_split_of_berts_own_tokens(tmp_path, tensors):
    """Those are text like any other, as in the original, unless the list names them."""
    files = {"vocab.txt": VOCAB_TEXT, CONFIG_FILE: {"never_split": ["[MASK]"]}}
    weights = open_weights(write(tmp_path, tensors, files=files))
    assert weights.metadata.never_split == ("[MASK]",)


def test_never_split_that_is_written(tmp_path, tensors):
    """For transformers as special tokens, which are all that it finds anywhere."""
    metadata = ModelMetadata(do_lower_case=True, never_split=("[MASK]", "w3"))
    weights = model_files.weights_of(tensors, metadata=metadata)
    folder = tmp_path / "made"
    again = open_weights(save_weights(str(folder), weights, to_format="hugging_face"))
    assert again.metadata.never_split == ("[MASK]", "w3")
    settings = json.loads((folder / CONFIG_FILE).read_text())
    assert settings["never_split"] == ["[MASK]", "w3"]
    for name in (CONFIG_FILE, "special_tokens_map.json"):
        values = json.loads((folder / name).read_text())
        assert values["additional_special_tokens"] == ["w3"]


def test_a_special_token_behind_the_vocabulary(tmp_path, tensors):
    pieces = tuple(piece for piece in model_files.PIECES if piece != "[MASK]")
    files = {
        "vocab.txt": "".join(f"{piece}\n" for piece in pieces),
        "added_tokens.json": {"[MASK]": 40},
    }
    weights = open_weights(write(tmp_path, tensors, files=files))
    assert weights.pieces == (*pieces, "[MASK]")


def test_a_folder_as_transformers_saves_it(tmp_path, tensors):
    """All files, with the settings that no text depends on."""
    special = {name: f"[{name[:-6].upper()}]" for name in ("pad_token", "cls_token", "mask_token")}
    five = {str(i): {"content": p, "special": True, "lstrip": False, "normalized": False}
            for i, p in enumerate(model_files.SPECIAL)}  # fmt: skip
    settings = {
        "added_tokens_decoder": five, "additional_special_tokens": [], "extra_special_tokens": {},
        "clean_up_tokenization_spaces": True, "do_basic_tokenize": True, "do_lower_case": True,
        "model_max_length": 512, "never_split": None, "strip_accents": None,
        "tokenize_chinese_chars": True, "tokenizer_class": "BertTokenizer", "unk_token": "[UNK]",
        "truncation_side": "right", "name_or_path": "a/b",
    }  # fmt: skip
    files = {
        "vocab.txt": VOCAB_TEXT,
        CONFIG_FILE: settings | special,
        "special_tokens_map.json": special | {"mask_token": {"content": "[MASK]", "lstrip": True}},
        "tokenizer.json": fast_tokenizer(
            added=enumerate(model_files.SPECIAL), clean_text=True, handle_chinese_chars=True,
            model={"unk_token": "[UNK]", "max_input_chars_per_word": 100},
        ) | {"truncation": None, "decoder": {"type": "WordPiece"}},
    }  # fmt: skip
    weights = open_weights(write(tmp_path, tensors, files=files))
    assert weights.pieces == model_files.PIECES
    assert weights.metadata.do_lower_case is True


def test_gaps_in_the_ids(tmp_path, tensors):
    values = fast_tokenizer()
    del values["model"]["vocab"]["w3"]
    with pytest.raises(InputError, match="ids are not 0 to 39"):
        open_weights(write(tmp_path, tensors, files={"tokenizer.json": values}))


def test_tokenizer_files_that_are_written(tmp_path, tensors):
    """With what only Hugging Face's tokenizer asks for, and read again alike."""
    weights = model_files.weights_of(tensors, metadata=ModelMetadata(do_lower_case=False))
    folder = tmp_path / "made"
    again = open_weights(save_weights(str(folder), weights, to_format="hugging_face"))
    assert again.metadata.do_lower_case is False
    assert again.pieces == model_files.PIECES
    assert (folder / "vocab.txt").read_text() == VOCAB_TEXT
    special = {f"{p[1:-1].lower()}_token": p for p in model_files.SPECIAL}
    assert json.loads((folder / "special_tokens_map.json").read_text()) == special
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings == special | {
        "do_lower_case": False,
        "model_max_length": 13,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
    }


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "no model"),
        (fast_tokenizer() | {"added_tokens": "abc"}, "added_tokens 'abc'"),
        (fast_tokenizer() | {"added_tokens": [{"id": 5}]}, r"no added_tokens\[0\].content"),
        (fast_tokenizer() | {"added_tokens": [{"id": "5", "content": "a"}]}, "id '5'"),
        (fast_tokenizer() | {"model": {"type": "WordPiece"}}, "the vocabulary None"),
        (fast_tokenizer() | {"model": {"type": "Unigram", "vocab": [["a", -1.5]]}}, "type Unigram"),
        (fast_tokenizer(model={"vocab": {"[UNK]": 0, "a": "1"}}), "ids are not 0 to 1"),
        (fast_tokenizer(model={"vocab": {"[UNK]": 0, "a": True}}), "ids are not 0 to 1"),
        (fast_tokenizer(model={"vocab": {"[UNK]": 0, "\ud83d": 1}}), "half a character"),
    ],
)
def test_a_malformed_tokenizer_json(tmp_path, tensors, values, says):
    with pytest.raises(InputError, match=says) as caught:
        open_weights(write(tmp_path, tensors, files={"tokenizer.json": values}))
    assert f"{tmp_path}/tokenizer.json" in caught.value.received
