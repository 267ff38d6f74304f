"""Vectors of texts and of their word pieces."""

from exported_answers import TEXTS, near, strings
from served_models import LENGTH, TOKENIZER


def test_vectors(answers, references):
    found = answers["embeddings"][0]
    for row, text in enumerate(TEXTS):
        cls, sep = TOKENIZER.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        pieces = TOKENIZER.convert_tokens_to_ids(TOKENIZER.tokenize(text))[: LENGTH - 2]
        ids = [cls, *pieces, sep]
        wanted = references["embeddings"].outputs(ids, [0] * len(ids))
        near(found["mean"][row], wanted["sequence_output"].mean(axis=0))
        near(found["pooled"][row], wanted["pooled_output"])


def test_vectors_of_pieces(results, references):
    (found,) = results["pieces"]
    assert strings(found["pieces"]) == [
        ["[CLS]", "it", "by", "it", "[SEP]"],
        ["[CLS]", "who", "[SEP]", "", ""],
    ]
    assert found["num_pieces"].tolist() == [5, 3]
    ids = TOKENIZER.convert_tokens_to_ids(["[CLS]", "who", "[SEP]"])
    wanted = references["embeddings"].outputs(ids, [0] * 3)["sequence_output"]
    near(found["vectors"][1, :3], wanted)
    assert not found["vectors"][1, 3:].any()
