"""data_gen/documents.py, sentences.py, corpus.py: all formats, no text is lost, ids, words."""

import os

import numpy as np
import pytest
import reference_tokenizer
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen import documents
from data_gen.corpus import (
    CONTINUES_WORD,
    ID_BITS,
    TOKEN_TYPE,
    Corpus,
    iter_marked_batches,
    tokenize_block,
    write_corpus,
)
from data_gen.documents import NO_SENTENCE, Counts, DocumentReader
from data_gen.sentences import count_unsplit, sentence_splitter, splitter_warnings


def read(*paths, input_format="text"):
    reader = DocumentReader([str(path) for path in paths], input_format=input_format)
    return list(reader.documents()), reader.counts


def write(path, content: str | bytes):
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


# ------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("\n\n One. \nTwo.\t\n \u3000 \n\nThree.\n\n", [["One.", "Two."], ["Three."]]),
        # a byte-order mark at the beginning, and the ends of Windows' lines
        ("\ufeffOne.\r\nTwo\ufeff.\r\n\r\nThree.\r\n", [["One.", "Two\ufeff."], ["Three."]]),
        ("\ufeffOne.", [["One."]]),
        # only the line feed ends a line
        ("a\u2028b\x0bc\x0cd\x85e\n", [["a\u2028b\x0bc\x0cd\x85e"]]),
        # prose about documents
        ('A <doc id="1" url="" title="">\n<doc>\n</doc>',
         [['A <doc id="1" url="" title="">', "<doc>", "</doc>"]]),
    ],
)  # fmt: skip
def test_lines_of_documents(tmp_path, content, expected):
    found, counts = read(write(tmp_path / "a.txt", content))
    assert found == expected
    assert counts["lines"] == sum(map(len, expected))


def test_the_end_of_a_file_ends_a_document(tmp_path):
    """As a blank line there does. The original reads the files as one text without it."""
    first, second = write(tmp_path / "a", "One.\nTwo."), write(tmp_path / "b", "Three.\n\nFour.\n")
    assert read(first, second)[0] == [["One.", "Two."], ["Three."], ["Four."]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marks_of_encodings(tmp_path, encoding):
    """The bytes that are read are those of the file, as its size is compared with them."""
    path = write(tmp_path / "a", "One 鿿.\r\nTwo.\n\nThree.".encode(encoding))
    reader = DocumentReader([str(path)], input_format="text")
    assert list(reader.documents()) == [["One 鿿.", "Two."], ["Three."]]
    assert reader.bytes_read == reader.total_bytes == path.stat().st_size


@given(
    text=st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("\n\r ")
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_is_lost(tmp_path, text):
    path = write(tmp_path / "a.txt", text)
    expected = [line.strip() for line in text.removeprefix("\ufeff").split("\n")]
    assume(not any(map(NO_SENTENCE.match, expected)))  # which may be refused
    assume("\n" in text or "\r" not in text)  # likewise
    found, counts = read(path)
    assert [line for document in found for line in document] == [x for x in expected if x]
    assert all(found)
    assert counts["lines"] == sum(map(bool, expected))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("text", ["One.\rTwo.\r\rThree.\r", "One.\rTwo."])
def test_lines_of_an_old_macintosh_are_refused(tmp_path, encoding, text):
    path = write(tmp_path / "a.txt", text.encode(encoding))
    for input_format in documents.INPUT_FORMATS:
        with pytest.raises(InputError, match=r"a\.txt, .* end with a carriage return") as refused:
            read(path, input_format=input_format)
        assert "tr '\\r' '\\n'" in refused.value.remedy


@pytest.mark.parametrize(
    ("content", "number"),
    [
        ("One.\r\nTwo.\r\n\r\nThree.\r\n", 0),
        ("One.\r\r\nTwo.\r\r\n", 0),  # converted twice
        ("One.\r", 0),
        ("One.\rTwo.\rThree.\r\nFour.\n \rFive.\nSix.\rSeven.", 2),
    ],
)
def test_carriage_returns_inside_lines_are_counted(tmp_path, content, number):
    """To the original they are white space."""
    found, counts = read(write(tmp_path / "a.txt", content))
    assert counts["lines_with_carriage_returns"] == number
    lines = [line.strip() for line in content.split("\n")]
    assert [line for document in found for line in document] == [*filter(None, lines)]


def test_repeated_documents_are_counted(tmp_path):
    """Those of other files, too; another order of lines is another document."""
    first = write(tmp_path / "a", "One.\nTwo.\n\nTwo.\n\nOne. \n  Two.\n")
    second = write(tmp_path / "b", "Two.\nOne.\n\nTwo.\n\n\nTwo.\n\nOne.\nTwo")
    found, counts = read(first, second)
    assert (len(found), counts["repeated_documents"]) == (7, 3)
    assert read(second)[1]["repeated_documents"] == 1
    assert read(write(tmp_path / "c", ""))[1]["repeated_documents"] == 0


def test_blocks_hold_whole_documents_in_order(tmp_path):
    text = "\n\n".join(f"{number:04d} one\n{number:04d} two" for number in range(1000))
    path = write(tmp_path / "a.txt", text)
    reader = DocumentReader([str(path)], input_format="text")
    blocks = list(reader.blocks(160))
    # A document has 16 characters: ten reach 160.
    assert [*map(len, blocks)] == [10] * 100
    assert blocks[7][3] == ["0073 one", "0073 two"]
    assert reader.bytes_read == reader.total_bytes == len(text)
    other = DocumentReader([str(path)], input_format="text")
    assert [*map(len, other.blocks(145 * 16))] == [145] * 6 + [130]


def test_an_endless_document_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT_CHARACTERS", 10)
    found, counts = read(write(tmp_path / "a.txt", "12345\n" * 5))
    assert [len(document) for document in found] == [2, 2, 1]
    assert counts["documents_cut"] == 2
    full_but_ended, counts = read(write(tmp_path / "b.txt", "12345\n12345\n\n12345\n"))
    assert [len(document) for document in full_but_ended] == [2, 1]
    assert counts["documents_cut"] == 0


# ------------------------------------------------------------------------------------ errors


def test_a_pipe_is_refused_before_anybody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "text")
    with pytest.raises(InputError, match="text, which is a pipe"):
        DocumentReader([str(tmp_path / "text")], input_format="text")


@pytest.mark.parametrize("change", [b"One.\nTwo.\nThree.\n", b"One."])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, change):
    """It was longer, or shorter, when the work began."""
    path = write(tmp_path / "a.txt", "One.\nTwo.\n")
    reader = DocumentReader([str(path)], input_format="text")
    write(path, change)
    with pytest.raises(
        InputError, match=r"a\.txt, which changed while it was read \(10 bytes, then"
    ):
        list(reader.documents())


@pytest.mark.parametrize(
    ("content", "is_refused"),
    [
        ('<doc id="12" url="http://en.wikipedia.org/wiki?curid=12" title="A &amp; B">\nA', True),
        ('<doc id="12" revid="3" url="?curid=12" title="">\nA', True),
        ('\n<doc id="12" url="?curid=12" title="A">\nA\n</doc>', True),
        ('One.\n\n<doc id="12" url="?curid=12" title="A">\nA\n</doc>', True),
        ('\n{"text": "One."}', True),
        ('{"id": 1, "text": "One.\\nTwo."}\n{"id": 2, "text": "Three."}\n', True),
        ('{"text":"One."}', True),
        ('\ufeff{ "text" : "One."}', True),
        ('[{"text": "One."}, {"text": "Two."}]', True),
        ('[\n  {"text": "One."}\n]', True),
        ('{\n  "data": ["One."]\n}', True),
        ("[1] One.\n{Two}.", False),
        ('["One", he said.]\n{"text": "Two."}', False),
        ("{{cite}} One.", False),
    ],
)
def test_json_and_articles_are_no_text(tmp_path, content, is_refused):
    path = write(tmp_path / "a.jsonl", content)
    if is_refused:
        with pytest.raises(InputError, match=r"a\.jsonl, line \d, which begins with [<{\[]"):
            read(path)
    else:
        assert read(path)[0] == [content.split("\n")]


# ----------------------------------------------------------------------------- JSON lines


def test_json_lines_are_documents(tmp_path):
    """Each line of a text is a paragraph; other keys, and texts without a line, have no effect."""
    lines = [
        r'{"id": 3, "text": "One. Two.\n\n Three. \r\nFour.\rFive."}', "", r'{"text": " \n"}',
        r'{"text": "caf\u00e9 \ud83d\ude00 \ud800."}', '{"text": "海。", "title": null}\r',
    ]  # fmt: skip
    found, counts = read(write(tmp_path / "a", "\n".join(lines)), input_format="jsonl")
    assert found == [
        ["One. Two.", "Three.", "Four.", "Five."],
        ["café 😀 \U0010ffff."],  # the tokenizer's stand-in for half a character
        ["海。"],
    ]
    assert counts["lines"] == 6
    split = sentence_splitter("jsonl", "en")
    assert [*map(split, found[0][:2])] == [["One.", "Two."], ["Three."]]


@pytest.mark.parametrize(
    "line",
    ["One.", '{"text": "One."', '{"texts": "One."}', '{"text": ["One."]}', '["One."]', '"One."',
     '{"text": null}', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_line_of_json_with_a_text(tmp_path, line):
    path = write(tmp_path / "a", f'{{"text": "Two."}}\n\n{line}\n')
    with pytest.raises(InputError, match=r"a, line 3, which begins with") as refused:
        read(path, input_format="jsonl")
    assert line[:40] in refused.value.received


# ----------------------------------------------------------------------------- wikiextractor

PROSE = "It was built between 1900 and 1914, and it was opened in 1926."  # 62 columns

ARTICLES = f"""<doc id="1" url="http://en.wikipedia.org/wiki?curid=1" title="Tom &amp; Jerry">
Tom & Jerry

{PROSE}<br>{PROSE}&lt;/onlyinclude&gt;
Etymology and terminology.
 |Edition =
{{{{#if: {PROSE}
It cost 3 &lt; 4 &amp; more, as the old books of the town have it.<ref name="a"/>
The index a <b and b> c are no tags, as each of us can see here.
</dl>
</doc>
a line between
<doc id="2" url="u" title="Short">
Short

Short
</doc>
<doc id="3" url="u">
No title, but a paragraph that is long enough to be kept as text.
</doc>
"""


def test_the_language_of_the_text():
    text = "Das Werk wurde am 3. Oktober in Berlin gegossen. Danach wurde es gezeigt."
    for language, number in {"de": 2, "DE": 2, "de-AT": 2, "en": 3}.items():
        assert len(sentence_splitter("wikiextractor", language)(text)) == number
    with pytest.raises(InputError, match="--language=german"):
        sentence_splitter("wikiextractor", "german")


def test_articles(tmp_path):
    found, counts = read(write(tmp_path / "a", ARTICLES), input_format="wikiextractor")
    assert found == [
        [
            f"{PROSE} {PROSE}",
            "It cost 3 < 4 & more, as the old books of the town have it.",
            "The index a <b and b> c are no tags, as each of us can see here.",
        ],
        ["No title, but a paragraph that is long enough to be kept as text."],
    ]
    assert counts == Counts(
        files=1,
        lines=4,
        title_lines=2,
        short_lines=2,  # the heading, and the second "Short"
        short_characters=len("Etymology and terminology.") + len("Short"),
        markup_lines=3,
        markup_characters=len("|Edition =") + len("{{#if: ") + len(PROSE) + len("</dl>"),
        lines_outside_documents=1,
    )


# --------------------------------------------------------------------------------- sentences


def test_paragraphs_are_split():
    assert sentence_splitter("text", "en")("One. Two.") == ["One. Two."]
    split = sentence_splitter("wikiextractor", "en")
    text = 'Dr. Smith of the U.S. Army came at 5 p.m. on Monday. He asked "Why? When?" and left.'
    assert split(text) == [
        "Dr. Smith of the U.S. Army came at 5 p.m. on Monday.",
        'He asked "Why? When?" and left.',
    ]
    assert split("这是第一句。这是第二句。") == ["这是第一句。", "这是第二句。"]
    assert split("It runs on VB.NET and on .NET. It is old.:224 It is free. .") == [
        "It runs on VB.NET and on .NET.",
        "It is old.:224 It is free. .",
    ]


def test_paragraphs_of_plain_text(tmp_path):
    """A document ends at a blank line; what a sentence is, its language says."""
    text = "El Sr. Gómez llegó. ¿Cuándo?\nSe fue.\n\nOtro día. Otra vez.\n"
    found, _ = read(write(tmp_path / "a", text), input_format="paragraphs")
    assert found == [["El Sr. Gómez llegó. ¿Cuándo?", "Se fue."], ["Otro día. Otra vez."]]
    split = sentence_splitter("paragraphs", "es")
    assert split(found[0][0]) == ["El Sr. Gómez llegó.", "¿Cuándo?"]
    assert split(found[1][0]) == ["Otro día.", "Otra vez."]


@pytest.mark.parametrize("language", ["en", "zh", "ja"])
@pytest.mark.parametrize(
    "sentences",
    [
        ["他说好!", "然后走了。", "真的?", "是的.", "好"],
        ["これは?", "はい!", "そう。"],
        ['他说"好!"', "然后走了."],
        ["你喜欢BERT?", "喜欢!", "OK?", "好"],
        ["J.K.罗琳写的.", "我用Yahoo!奇摩.", "看例子.com吗?", "Yes"],
        ["1.介绍"],
    ],
)
def test_east_asian_sentences_end_at_marks_of_ascii(language, sentences):
    assert sentence_splitter("paragraphs", language)("".join(sentences)) == sentences


def test_other_fragments_stay_together():
    split = sentence_splitter("paragraphs", "en")
    for text in ("They use .NET and VB.NET", "Ok!Then go?Yes", "Great?😀 Then"):
        assert split(text) == [text]


@pytest.mark.parametrize(("language", "is_known"), [("en", 1), ("pt-BR", 1), ("ZH", 1), ("xx", 0),
                                                    ("sv", 0), ("th", 0)])  # fmt: skip
def test_a_language_without_rules_is_said(language, is_known):
    for input_format in set(documents.INPUT_FORMATS) - {"text"}:
        said = [*splitter_warnings(input_format, language, Counts())]
        assert len(said) == 1 - is_known
        assert all(f"no rules for --language={language}: " in warning for warning in said)
    assert [*splitter_warnings("text", language, Counts(unsplit_paragraphs=3))] == []


def test_rules_are_those_of_the_language():
    """A language without any takes those of English."""
    for language in ("de", "en", "sv"):
        sentences = sentence_splitter("paragraphs", language)("Das war am 3. Oktober.")
        assert len(sentences) == (1 if language == "de" else 2)


def test_paragraphs_of_scripts_without_marks_are_counted():
    split = sentence_splitter("paragraphs", "th")
    whole = ["สวัสดีครับ วันนี้อากาศดี", "ສະບາຍດີ ຂ້ອຍໄປ", "ខ្ញុំទៅ។ គាត់មក។", "ལྷ་ས། བོད།"]
    others = ["สวัสดีครับ! วันนี้อากาศดี", "One.", "Thai is ไทย", "第一句", "मैं।", "မြန်မာ။ စာ။"]
    assert count_unsplit([whole[:1], [*others, *whole[1:]]], split) == 4
    assert count_unsplit([others], split) == 0
    (said,) = splitter_warnings("jsonl", "en", Counts(lines=11, unsplit_paragraphs=4))
    assert "4 of 11 paragraphs in Thai, Lao, Khmer, Tibetan" in said


@given(text=st.text() | st.text("ab.。 ") | st.text("a文.!? "))
def test_splitting_loses_nothing_but_space(text):
    sentences = sentence_splitter("wikiextractor", "en")(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


# -------------------------------------------------------------------- in memory, on disk

sentences = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4)
blocks = st.lists(
    st.lists(st.lists(sentences, min_size=1, max_size=4), max_size=4), min_size=1, max_size=4
)


@given(blocks=blocks, data=st.data())
@settings(max_examples=60)
def test_files_and_memory_agree(tmp_path_factory, blocks, data):
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    blocks[0].append([[1]])  # a corpus is never empty
    numbers = [*write_corpus(folder, map(Corpus.of, blocks))]
    documents = [document for block in blocks for document in block]
    disk, memory = Corpus.open(folder), Corpus.of(documents)
    assert disk.num_documents == memory.num_documents == len(documents)
    assert disk.lists() == memory.lists() == documents
    for block, block_numbers in zip(blocks, numbers, strict=True):
        assert documents[block_numbers.start : block_numbers.stop] == block
    document = data.draw(st.integers(0, len(documents) - 1))
    sentences = disk.sentences(document)
    assert sentences == memory.sentences(document)
    assert len(sentences) == len(documents[document])
    start = data.draw(st.integers(0, len(sentences) - 1))
    for min_tokens in (-3, 0, 1, 2, 5, 999):
        expected = documents[document][start]
        for sentence in documents[document][start + 1 :]:
            expected = expected + sentence if len(expected) < min_tokens else expected
        for corpus in (disk, memory):
            found = corpus.tokens(*corpus.span(sentences[start:], min_tokens))
            assert np.frombuffer(found, TOKEN_TYPE).tolist() == expected


# -------------------------------------------------------------------- text -> ids


def test_tokenized_blocks_have_no_empty_part(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    block = [[], ["", "\x01", "a bc", ""], ["\x01"], ["c", "\x02", "b a"], ["bc"]]
    found, counts = tokenize_block(block, tokenizer, lambda line: [line], False)
    a, b, c, cc = tokenizer.convert_tokens_to_ids(["a", "b", "c", "##c"])
    assert found.lists() == [[[a, b, cc]], [[c], [b, a]], [[b, cc]]]
    assert (found.num_documents, counts["documents"], counts["documents_without_tokens"]) == (
        3,
        3,
        2,
    )
    assert counts["sentences_without_tokens"] == 5
    assert counts["documents_of_one_sentence"] == 2
    nothing, _ = tokenize_block([], tokenizer, lambda line: [line], False)
    assert nothing.lists() == []


def test_lines_with_special_tokens_are_counted(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    block = [["a [CLS] b [SEP]", "[MASK]"], ["[cls] a", "a[PAD]", "[UNKNOWN] [X]"], ["[ SEP ]"]]
    _, counts = tokenize_block(block, tokenizer, lambda line: [line], False)
    assert counts["lines_with_special_tokens"] == 3


# -------------------------------------------------------------------- words between spaces

CHARACTERS = "使用语言模型来预测下一个词很快"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS, "gp", "##t", "##2", "don",
          "t", "a", "##a", "e", "##e", *"'!，。2", "##使", "##語"]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizers() -> dict[bool, FullTokenizer]:
    """The tokenizer with and without lower-casing."""
    return {lower: FullTokenizer("vocab.txt", lower, pieces=PIECES) for lower in (True, False)}


def marked_words(tokenizer: FullTokenizer, text: str) -> list[str]:
    """The pieces of each word, joined by spaces."""
    ((tokens, splits),) = iter_marked_batches(tokenizer, [text])
    assert splits.tolist() == [0, len(tokens)]
    found: list[list[str]] = []
    for token in tokens.tolist():
        piece = tokenizer.inv_vocab[token & ID_BITS]
        if token & CONTINUES_WORD:
            found[-1].append(piece)
        else:
            found.append([piece])
    return [" ".join(pieces) for pieces in found]


def test_a_piece_that_is_never_split_is_a_word():
    tokenizer = FullTokenizer("vocab.txt", True, pieces=PIECES, never_split=["don", "gp"])
    found = marked_words(tokenizer, "使don用 adone gpdon e使don")
    assert found == ["使", "don", "用", "a", "don", "e", "gp", "don", "e 使", "don"]


def plain_words(text: str, tokenizer: FullTokenizer) -> list[str]:
    """The same by the original's steps: white space and punctuation first, then each part."""
    found = []
    for part in "".join(map(reference_tokenizer.clean, text)).split():
        marks = reference_tokenizer.is_punctuation
        for word in "".join(f" {c} " if marks(c) else c for c in part).split():
            pieces = reference_tokenizer.tokenize(
                word, tokenizer.vocab, do_lower_case=tokenizer.do_lower_case
            )
            found += [" ".join(pieces)] if pieces else []
    return found


@given(
    text=st.text(alphabet="使用语gpta2eé가鑫𠀀豈語 \u3000\n\u200b\0\u0301'!，—\U0001f600"),
    lower=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_words_are_those_of_the_plain_way_and_the_ids_the_same(tokenizers, text, lower):
    tokenizer = tokenizers[lower]
    assert marked_words(tokenizer, text) == plain_words(text, tokenizer)
    ((tokens, _),) = iter_marked_batches(tokenizer, [text])
    (ids,) = tokenizer.iter_ids([text])
    assert (tokens & ID_BITS).tolist() == ids
