"""Labels of words, each with its place in the text."""

from exported_answers import WORDS, near, strings
from served_models import TAGS


def test_labels_of_words(answers, references):
    found = answers["token_labels"][0]
    for row, text in enumerate(WORDS):
        words = text.split()
        assert found["num_words"][row] == len(words)
        assert strings(found["words"])[row][: len(words)] == words
        places = zip(found["starts"][row], found["ends"][row], strict=True)
        spans = list(places)[: len(words)]
        assert [text[start:end] for start, end in spans] == words
        if not words:
            continue
        wanted = references["token_labels"].words(words)
        near(found["probabilities"][row][: len(words)], wanted.max(axis=1))
        labels = strings(found["labels"])[row]
        assert labels[: len(words)] == [TAGS[i] for i in wanted.argmax(axis=1)]
        assert set(labels[len(words) :]) <= {""}
