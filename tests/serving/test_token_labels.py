"""Windows of the words of raw texts, in the graph."""

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.serving.token_labels import word_windows
from bert_tf.tasks.features import word_windows as windows_in_python

ROOM = 7


@tf.function(
    input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
)
def windows_of(sizes, counts):
    return word_windows(sizes, counts, room=ROOM)


@settings(max_examples=150)
@given(st.lists(st.lists(st.integers(1, ROOM), max_size=30), max_size=4))
def test_windows_are_those_of_training(texts):
    longest = max(map(len, texts), default=0)
    padded = [sizes + [0] * (longest - len(sizes)) for sizes in texts]
    table = tf.reshape(tf.constant(padded, tf.int32), [len(texts), longest])
    made = windows_of(table, tf.constant([len(sizes) for sizes in texts], tf.int32))
    rows = list(zip(*(field.numpy().tolist() for field in made), strict=True))
    wanted = [
        (number, window.start, window.stop, window.first, window.last)
        for number, sizes in enumerate(texts)
        for window in windows_in_python(sizes, room=ROOM)
    ]
    assert rows == wanted
