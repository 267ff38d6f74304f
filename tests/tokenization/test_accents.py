"""strip_accents apart from do_lower_case, against tokenizers."""

import itertools
import pickle

import pytest
import reference_tokenizer as reference
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bert_tf.tokenization.wordpiece import FullTokenizer, accents_beside

CASES = [(True, False), (False, True)]  # do_lower_case, strip_accents
TEXTS = (
    "Ceci n'est pas une pipe, ÇA ÉTÉ créé à Noël",  # French
    "Größe ÄÖÜ, Straße",  # German
    "El NIÑO y el pingüino, ¿Qué?",  # Spanish
    "Coração AÇÃO, às três",  # Portuguese
    "Tiếng Việt ĐƯỜNG Nguyễn",  # Vietnamese
    "Český ŘÍP, žluťoučký kůň",  # Czech
    "Zażółć GĘŚLĄ jaźń, Łódź",  # Polish
    "İstanbul IĞDIR, çağrı ŞİŞLİ",  # Turkish
    "Мой ЁЖ, объём Йод",  # Russian
    "Ελλάδα ΌΧΙ, καλημέρα Ύψος",  # Greek
    "हिन्दी में बिल्ली",  # Hindi
    "がっこう ガギグ, 東京パパ",  # Japanese
    "안녕하세요 한국",  # Korean
    "العَرَبِيَّة",  # Arabic
    "e\u0301 E\u0323\u0301 a\u0308\u0304",
)
FORMS = "".join(form for text in TEXTS for form in (text, text.lower()))
CHARACTERS = sorted({*FORMS, *reference.strip_accents(FORMS)} - {" "})
PIECES = ["[UNK]", "[CLS]", "[SEP]", *CHARACTERS, *(f"##{c}" for c in CHARACTERS)]


def tokenizer_of(lower: bool, strip: bool | None) -> FullTokenizer:
    return FullTokenizer("v", lower, pieces=PIECES, strip_accents=strip)


@pytest.mark.parametrize(("lower", "strip"), [*CASES, (True, True), (False, False), (True, None)])
def test_texts_of_many_languages_as_tokenizers_reads_them(lower, strip):
    theirs = Tokenizer(models.WordPiece({p: i for i, p in enumerate(PIECES)}, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=strip)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ours = tokenizer_of(lower, strip)
    for text in TEXTS:
        assert ours.tokenize(text) == theirs.encode(text).tokens, text
    ids, starts, ends = ours.tokenize_with_offsets(TEXTS)
    for row in zip(TEXTS, starts.to_list(), ends.to_list(), strict=True):
        assert all(0 <= a < b <= len(row[0]) for a, b in zip(*row[1:], strict=True))
    assert ids.to_list() == [ours.convert_tokens_to_ids(ours.tokenize(text)) for text in TEXTS]


def test_a_copy_and_a_folder_keep_it(tmp_path):
    for lower, strip in itertools.product((True, False), repeat=2):
        tokenizer = tokenizer_of(lower, strip)
        assert tokenizer.case == {
            "do_lower_case": lower, "strip_accents": None if strip == lower else strip,
        }  # fmt: skip
        copy = pickle.loads(pickle.dumps(tokenizer)) if lower else tokenizer
        assert copy.case == tokenizer.case
        assert copy.tokenize("É é") == {
            (True, True): ["e", "e"], (True, False): ["é", "é"],
            (False, True): ["E", "e"], (False, False): ["É", "é"],
        }[lower, strip]  # fmt: skip
    file = str(tmp_path / "vocab.txt")
    assert accents_beside(file) is accents_beside("vocab.txt") is None
    (tmp_path / "tokenizer_config.json").write_text('{"strip_accents": false}')
    assert accents_beside(file) is False
    (tmp_path / "model_facts.json").write_text('{"strip_accents": true}')
    assert accents_beside(file) is True
