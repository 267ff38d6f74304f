"""`token_classifier` and `question_answerer`: what `fit` makes of words and questions."""

import keras
import model_files
import numpy as np
import pytest

import bert_tf
from bert_tf.errors import InputError

TAGS = ["O", "B-w", "I-w"]
SENTENCES = [["w1", "w2.w3", "w4"], ["w5"], ["w2.w3", "w1", "w1", "w1", "w2"]]
NAMES = [["O", "B-w", "I-w"], ["B-w"], ["O", "O", "O", "O", "I-w"]]


pytestmark = pytest.mark.usefixtures("_quickly")


def test_words_have_the_logits_of_their_first_pieces(encoder, tmp_path):
    model = bert_tf.token_classifier(encoder, labels=TAGS)
    logits = model.predict(SENTENCES, verbose=0)
    assert logits.shape == (3, 5, 3)
    inputs = {name: x for name, x in model.input.items() if name != "word_positions"}
    whole = bert_tf.BertModel(inputs, model.get_layer("classifier").output)
    tokenizer, most = model.tokenizer, 0
    for words, found in zip(SENTENCES, logits, strict=True):
        pieces = [tokenizer.tokenize(word) for word in words]
        of_text = whole(tokenizer([" ".join(words)]))[0].numpy()
        most = max(most, *map(len, pieces))
        firsts = np.cumsum([1, *map(len, pieces)])[:-1]
        np.testing.assert_allclose(found[: len(words)], of_text[firsts], atol=1e-5)
    assert most > 1
    model.save(tmp_path / "m.keras")
    found = bert_tf.Predictor(tmp_path / "m.keras").predict([" ".join(SENTENCES[0])])
    assert found[0]["words"] == SENTENCES[0]


def test_words_behind_a_sentence_count_for_nothing(encoder):
    """The loss is the mean over all words, whatever the batch pads."""
    model = bert_tf.token_classifier(encoder, labels=TAGS)
    loss, accuracy = model.evaluate(SENTENCES, NAMES, verbose=0)
    logits = model.predict(SENTENCES, verbose=0)
    each, right = [], []
    for row, names in enumerate(NAMES):
        for word, name in enumerate(names):
            p = keras.ops.convert_to_numpy(keras.ops.log_softmax(logits[row, word]))
            each.append(-p[TAGS.index(name)])
            right.append(p.argmax() == TAGS.index(name))
    assert (loss, accuracy) == pytest.approx((np.mean(each), np.mean(right)), abs=1e-5)


def test_words_are_learned(encoder):
    model = bert_tf.token_classifier(encoder, labels=TAGS)
    before = model.get_weights()
    checks = (SENTENCES, NAMES)
    history = model.fit(*checks, validation_data=checks, batch_size=2, epochs=2, verbose=0)
    assert {"loss", "val_loss", "accuracy", "val_accuracy"} == history.history.keys()
    assert any(np.abs(a - b).max() > 1e-6 for a, b in zip(before, model.get_weights(), strict=True))
    assert model.optimizer.schedule.num_train_steps == 4


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (["w1 w2"], [["O"]], "'w1 w2' as sentence 0"),
        ([["w1"], ["w1", 2]], None, "as sentence 1"),
        ([["w1"]], [["O", "O"]], r"tags \['O', 'O'\] of sentence 0"),
        ([["w1"]], [["o"]], r"tags \['o'\] of sentence 0"),
        ([["w1"], ["w1"] * 12], None, "sentence 1, counted from 0, of 14 word pieces"),
    ],
)
def test_what_is_no_sentence(encoder, x, y, says):
    model = bert_tf.token_classifier(encoder, labels=TAGS)
    with pytest.raises(InputError, match=says):
        model.fit(x, y, verbose=0) if y else model.predict(x, verbose=0)


# ---------------------------------------------------------------------------- questions

SIZES = {"max_seq_length": 13, "doc_stride": 3, "max_query_length": 4}
QUESTIONS = ["w1 w2", "w3", "w4"]
CONTEXTS = ["w5 w6 w7 w8 w9 w10 w11 w12 w13 w14", "w5 w6", "w7"]
ANSWERS = [{"text": ["w7 w8"], "answer_start": [6]}, {"text": "w6", "answer_start": 3}, None]


def test_questions_become_windows(encoder):
    """Of 13 positions, 3 of them for special pieces: one that fits, and overlapping ones."""
    model = bert_tf.question_answerer(encoder, **SIZES)
    x, y, weights = model.read((QUESTIONS, CONTEXTS), ANSWERS, None)
    text = [[*map(model.tokenizer.inv_vocab.__getitem__, row[row > 0])] for row in x["input_ids"]]
    assert text[0][:6] == ["[CLS]", "w1", "w2", "[SEP]", "w5", "w6"]
    assert weights is None
    found = [
        pieces[start : end + 1]
        for pieces, start, end in zip(text, y["start_logits"], y["end_logits"], strict=True)
    ]
    assert found[0] == ["w7", "w8"]
    assert found[-2:] == [["w6"], ["[CLS]"]]
    assert len(found) == 4
    assert [*x] == ["input_ids", "input_mask", "segment_ids"]


def test_answers_that_are_none_are_read_as_in_files(encoder, caplog):
    """All five fit one window each: [CLS] w3 [SEP] w5 w6 [SEP]; counted from 0, w6 is piece 4."""
    model = bert_tf.question_answerer(encoder, **SIZES)
    answers = [
        {"text": [""], "answer_start": [0]},
        {"text": "", "answer_start": -1},
        {"text": ["yes"], "answer_start": [-1]},
        {"text": ["", "w6"], "answer_start": [0, 3]},
        {"text": ["w6", "w5", "w6"], "answer_start": [3, 0, 3]},
    ]
    asked = ["w3"] * 5, ["w5 w6"] * 5
    _, y, _ = model.read(asked, answers)
    assert y["start_logits"].tolist() == y["end_logits"].tolist() == [0, 0, 0, 4, 4]
    assert "fit: 3 questions have an empty text, or one at answer_start -1" in caplog.text
    assert "fit: 1 answers at answer_start -1 have a text, such as 'yes'" in caplog.text
    assert "fit: 1 questions have several different answers; the first" in caplog.text
    assert "1 others are not" in caplog.text
    _, y, _ = model.read((["w3"], ["w5 w6"]), answers[:1])  # a batch without an answer
    assert y["start_logits"].tolist() == [0]
    with pytest.raises(InputError, match="as answer 1, counted from 0") as error:
        model.read((["w3"] * 2, ["w5 w6"] * 2), [None, {"text": ["w5", "w6"], "answer_start": [0]}])
    assert error.value.expected == "an answer_start for each text"


def test_questions_are_learned_and_answered(encoder, tmp_path):
    model = bert_tf.question_answerer(encoder, **SIZES)
    model.fit((QUESTIONS, CONTEXTS), ANSWERS, batch_size=2, epochs=1, verbose=0)
    assert model.optimizer.schedule.num_train_steps == 2
    model.save(tmp_path / "q.keras")
    asked = [{"question": q, "context": c} for q, c in zip(QUESTIONS, CONTEXTS, strict=True)]
    found = bert_tf.Predictor(tmp_path / "q.keras").predict(asked)
    assert all(one["answer"] in context for one, context in zip(found, CONTEXTS, strict=True))
    with pytest.raises(InputError, match=r"bert_tf\.Predictor"):
        model.predict((QUESTIONS, CONTEXTS))
    with pytest.raises(InputError, match="no answer is in its context"):
        model.fit((["w1"], ["w2"]), [{"text": ["w9"], "answer_start": [0]}], verbose=0)


def test_a_head_that_is_there_is_kept(tmp_path):
    tensors = model_files.tensors_of("span")
    model_files.write_tf1(tmp_path, tensors)
    weights = bert_tf.question_answerer(tmp_path).get_weights()
    assert any(np.array_equal(w, tensors["cls/squad/output_weights"]) for w in weights)


def test_clones_are_of_the_same_kind(encoder):
    """They compute the same; texts they take once they have a tokenizer."""
    models = (
        bert_tf.classifier(encoder, labels=TAGS),
        bert_tf.token_classifier(encoder, labels=TAGS),
        bert_tf.question_answerer(encoder, **SIZES),
    )
    for model in models:
        clone = keras.models.clone_model(model)
        clone.set_weights(model.get_weights())
        assert type(clone) is type(model)
        ids = model.tokenizer(["w1 w2", "w3"])
        for found, expected in zip(
            keras.tree.flatten(clone(ids)), keras.tree.flatten(model(ids)), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
