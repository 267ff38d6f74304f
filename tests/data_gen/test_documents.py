"""data_gen/documents.py: both formats, damaged files, and that no text is lost."""

import doctest
import os
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bert_tf import files
from bert_tf.errors import InputError
from data_gen import documents
from data_gen.documents import Counts, DocumentReader, Splitter


def read(*paths, input_format="text"):
    reader = DocumentReader([str(path) for path in paths], input_format=input_format)
    return list(reader.documents()), reader.counts


def write(path, content: str | bytes):
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def test_the_drawn_examples():
    assert doctest.testmod(documents).failed == 0


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


def test_blank_lines_are_counted_and_the_end_of_a_file_ends_a_document(tmp_path):
    first = write(tmp_path / "a.txt", "\n\nOne.\n \u3000 \n\nTwo.")
    second = write(tmp_path / "b.txt", "Three.\nFour.")
    found, counts = read(first, second)
    assert found == [["One."], ["Two."], ["Three.", "Four."]]
    assert counts == Counts(files=2, lines=4, blank_lines=4)


@pytest.mark.parametrize("read_bytes", [1, 2, 3, 7])
def test_lines_do_not_depend_on_how_the_file_is_read(tmp_path, monkeypatch, read_bytes):
    monkeypatch.setattr(files, "READ_BYTES", read_bytes)
    text = "Ein Satz über €.\n😀 zwei\n\n\ndrei\nvier"
    assert read(write(tmp_path / "a.txt", text))[0] == [
        ["Ein Satz über €.", "😀 zwei"],
        ["drei", "vier"],
    ]


@given(text=st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r ")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_is_lost(tmp_path, text):
    path = write(tmp_path / "a.txt", text)
    expected = [line.strip() for line in text.removeprefix("\ufeff").split("\n")]
    found, counts = read(path)
    assert [line for document in found for line in document] == [x for x in expected if x]
    assert all(found)
    assert counts["lines"] == sum(map(bool, expected))


def test_blocks_hold_whole_documents_in_order(tmp_path):
    text = "\n\n".join(f"{number:04d} one\n{number:04d} two" for number in range(1000))
    path = write(tmp_path / "a.txt", text)
    reader = DocumentReader([str(path)], input_format="text")
    blocks = list(reader.blocks(160))
    # A document has 16 characters: ten reach 160.
    assert [len(block.documents) for block in blocks] == [10] * 100
    assert [block.index for block in blocks] == list(range(100))
    assert blocks[7].documents[3] == ["0073 one", "0073 two"]
    assert reader.bytes_read == reader.total_bytes == len(text)
    other = DocumentReader([str(path)], input_format="text")
    assert [len(block.documents) for block in other.blocks(145 * 16)] == [145] * 6 + [130]


def test_an_endless_document_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_DOCUMENT_CHARACTERS", 10)
    found, counts = read(write(tmp_path / "a.txt", "12345\n" * 5))
    assert [len(document) for document in found] == [2, 2, 1]
    assert counts["documents_cut"] == 2
    full_but_ended, counts = read(write(tmp_path / "b.txt", "12345\n12345\n\n12345\n"))
    assert [len(document) for document in full_but_ended] == [2, 1]
    assert counts["documents_cut"] == 0


# ------------------------------------------------------------------------------------ errors


def assert_refused(pattern: str, *paths, **options):
    with pytest.raises(InputError, match=pattern) as error:
        read(*paths, **options)
    message = str(error.value)
    assert re.search(r"Received: .*\nExpected: .*\nTo do: ", message)
    assert str(paths[-1]) in message


@pytest.mark.parametrize("read_bytes", [5, 1 << 20])
@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (b"good\ngood\nbad \xe9 here\ngood\n", 3, "e9"),
        (b"\xff\xfeO\x00n\x00e\x00", 1, "ff"),
        (b"good\n\n\ncut off \xe2\x82", 4, "e2"),
    ],
)
def test_what_is_not_utf8_is_named_with_its_line(
    tmp_path, monkeypatch, content, line, byte, read_bytes
):
    monkeypatch.setattr(files, "READ_BYTES", read_bytes)
    path = write(tmp_path / "a.txt", content)
    assert_refused(rf"line {line}: bytes that are not UTF-8 \(b.\\x{byte}", path)


def test_a_pipe_is_refused_before_anybody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "text")
    with pytest.raises(InputError, match="text, which is a pipe"):
        DocumentReader([str(tmp_path / "text")], input_format="text")


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "READ_BYTES", 100)
    path = write(tmp_path / "a.txt", b"one\n" + b"x" * (files.LONGEST_LINE + 1))
    assert_refused(f"a.txt, line 2, which is longer than {files.LONGEST_LINE} bytes", path)


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
    "line",
    [
        '<doc id="12" url="http://en.wikipedia.org/wiki?curid=12" title="A &amp; B">',
        '<doc id="12" revid="3" url="?curid=12" title="">',
    ],
)
def test_articles_of_wikiextractor_are_no_text(tmp_path, line):
    path = write(tmp_path / "a.txt", f"\n{line}\nA & B\n\nOne. Two.\n</doc>\n")
    assert_refused(f"a.txt, line 2: {re.escape(line[:40])}", path)


def test_wikiextractor_without_documents_is_refused(tmp_path):
    path = write(tmp_path / "a.txt", "One sentence.\n")
    assert_refused("without a line that starts with <doc", path, input_format="wikiextractor")


# ----------------------------------------------------------------------------- wikiextractor

PROSE = "It was built between 1900 and 1914, and it was opened in 1926."  # 62 columns

ARTICLES = f"""<doc id="1" url="http://en.wikipedia.org/wiki?curid=1" title="Tom &amp; Jerry">
Tom & Jerry

{PROSE}<br>{PROSE}
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


def test_real_articles_keep_nearly_all_of_their_text(data_dir):
    path = data_dir / "wiki" / "extracted" / "AA_wiki_07"
    found, counts = read(path, input_format="wikiextractor")
    kept = sum(len(line) for document in found for line in document)
    assert kept / len(path.read_text(encoding="utf-8")) > 0.95
    assert counts["title_lines"] == path.read_text(encoding="utf-8").count("<doc id=")
    assert not any("<doc" in line or "</doc" in line for document in found for line in document)


# --------------------------------------------------------------------------------- sentences


def test_paragraphs_are_split():
    assert Splitter("text", "en")("One. Two.") == ["One. Two."]
    split = Splitter("wikiextractor", "en")
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


@given(text=st.text() | st.text("ab.。 "))
def test_splitting_loses_nothing_but_space(text):
    sentences = Splitter("wikiextractor", "en")(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


def test_a_missing_splitter_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sentencex", None)
    with pytest.raises(InputError, match=r"bert-tf\[wiki\]"):
        Splitter("wikiextractor", "en")
