"""bert_tf.squad.alignment: from pieces back to the text of the context, in both ways."""

import re

import pytest
import reference_squad as reference
import small_squad as small
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.squad import alignment, windows
from bert_tf.squad.windows import WindowSizes


@settings(max_examples=60, deadline=None)
@given(small.long_texts, st.booleans())
def test_words_in_normal_form_as_in_the_reference(tokenizers, context, lower):
    document = windows.tokenize_contexts([context], tokenizers[lower])[context]
    (ours,) = alignment.normalized_words([document], do_lower_case=lower)
    plain = reference.Tokenizer({}, do_lower_case=lower)
    expected = [plain.basic(word) for word in document.words.words]
    assert ours == [re.sub("[\ud800-\udfff]", "\U0010ffff", word) for word in expected]


def find(tokenizer, context: str, predicted: str):
    """The window of a context, and first and last index of some pieces in it."""
    (window,) = windows.prediction_windows(
        [small.example(context, "")], tokenizer, WindowSizes(60, 9, 2)
    )
    tokens = tokenizer.convert_ids_to_tokens(window.input_ids.tolist())
    wanted = predicted.split()
    (start,) = (i for i in range(len(tokens)) if tokens[i : i + len(wanted)] == wanted)
    return window, start, start + len(wanted) - 1


@pytest.mark.parametrize(
    ("context", "predicted", "by_offsets", "legacy"),
    [
        ("by Ruprecht's  cafe.", "ru ##pre ##cht", "Ruprecht", "Ruprecht"),
        ("in (1386-1412).", "138 ##6", "1386", "1386"),
        ("in (1386-1412).", "138 ##6 - 141 ##2", "1386-1412", "1386-1412"),
        ("The Café, by", "cafe", "Café", "Café"),
        ("The Cafe\u0301, by", "cafe", "Cafe\u0301", "Cafe\u0301,"),
        ("by\n\n the", "by the", "by\n\n the", "by the"),
        ("a\u200bb,c", "c", "c", "a\u200bb,c"),
        ("who,xx,it", "[UNK]", "xx", "who,xx,it"),
        ("in 中b", "中", "中", "中"),
    ],
)
def test_alignment(tokenizers, context, predicted, by_offsets, legacy):
    window, start, end = find(tokenizers[True], context, predicted)
    texts = [
        alignment.make_alignment([window], tokenizers[True], legacy_alignment=way)(
            window, start, end
        )
        for way in (False, True)
    ]
    assert texts == [by_offsets, legacy]


@pytest.mark.parametrize(
    ("pred_text", "orig_text", "tok_text", "expected"),
    [
        ("steve smith", "Steve Smith's", "steve smith ' s", "Steve Smith"),
        ("s", "Steve Smith's", "steve smith ' s", "S"),  # the first place where it occurs
        ("[UNK] 5", "Straße 5", "straße 5", None),
        ("c", "a\u200bb c", "ab c", None),
        ("", "Steve", "steve", None),
    ],
)
def test_find_final_text(pred_text, orig_text, tok_text, expected):
    assert alignment.find_final_text(pred_text, orig_text, tok_text) == expected
