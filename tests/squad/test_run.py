"""Windows -> logits: in order, with or without padding, and only numbers."""

import dataclasses
import functools
import json

import keras
import model_files
import numpy as np
import pytest
import small
import small_squad
import tensorflow as tf

from bert_tf.checkpoints.loading import PretrainedModel
from bert_tf.data.packing import BatchingConfig
from bert_tf.errors import InputError
from bert_tf.heads import QuestionAnswering
from bert_tf.modeling.names import checkpoint_name
from bert_tf.squad.answers import AnswerConfig
from bert_tf.squad.run import QuestionData, SquadRun, questions_to_answer, training_questions
from bert_tf.squad.windows import WindowSizes, training_windows
from bert_tf.training.options import StepConfig

LENGTH = 16
CONFIG = dataclasses.replace(
    small.CONFIG,
    num_hidden_layers=1,
    max_position_embeddings=17,
    vocab_size=len(small_squad.PIECES),
)


@functools.cache
def tensors_of() -> dict[str, np.ndarray]:
    keras.utils.set_random_seed(7)
    variables = QuestionAnswering().model(CONFIG).trainable_variables
    return {checkpoint_name(variable): variable.numpy() for variable in variables}


def make_run(folder, tensors, *, bucket_by_length: bool = True) -> SquadRun:
    tokenizer = small_squad.make_tokenizer(do_lower_case=True)
    return SquadRun(
        sizes=WindowSizes(LENGTH, 5, 2),
        config=AnswerConfig(version_2_with_negative=True),
        model=PretrainedModel(model_files.weights_of(tensors), CONFIG, tokenizer),
        strategy=tf.distribute.get_strategy(),
        batching=BatchingConfig(max_seq_length=LENGTH, bucket_by_length=bucket_by_length),
        output_dir=str(folder),
        step_config=StepConfig(xla=False),
    )


def questions_of(*contexts: str) -> QuestionData:
    examples = [small_squad.example(context, "who") for context in contexts]
    file = small_squad.squad_file(*examples, version_2=True)
    return QuestionData(name="eval", questions=file, batch_size=3)


# Windows of many lengths, not sorted.
CONTEXTS = ["who founded it in 1895 by the cafe " * n + "in 1895" for n in (2, 0, 1, 3, 0)]


def test_logits_of_each_window_in_order(tmp_path):
    run = make_run(tmp_path, tensors_of())
    run.restore()
    data = questions_of(*CONTEXTS)
    buckets = run.window_logits(data)
    plain = make_run(tmp_path, tensors_of(), bucket_by_length=False)
    plain.trainer = run.trainer
    for column, whole in zip(buckets, plain.window_logits(data), strict=True):
        assert [len(row) for row in column] == [len(window.input_ids) for window in data.windows]
        assert {len(row) for row in whole} == {LENGTH}
        for row, padded_row in zip(column, whole, strict=True):
            np.testing.assert_allclose(row, padded_row[: len(row)], atol=1e-5)
    for number, window in enumerate(data.windows):  # each by itself
        ids, segment_ids = (tf.constant(x[None]) for x in (window.input_ids, window.segment_ids))
        alone = run.trainer.model({"input_ids": ids, "input_mask": tf.ones_like(ids),
                                   "segment_ids": segment_ids}, training=False)  # fmt: skip
        for column, name in zip(buckets, ("start_logits", "end_logits"), strict=True):
            np.testing.assert_allclose(column[number], alone[name][0], atol=1e-5)


def test_what_is_recorded_of_the_questions(tmp_path):
    """Golds, windows and how they are answered; without a window there are no records."""
    run = make_run(tmp_path, tensors_of())
    digests = {run.prepare(questions_of(*texts)).digest for texts in (CONTEXTS, CONTEXTS[1:])}
    run.config = dataclasses.replace(run.config, n_best_size=3)
    digests.add(run.prepare(questions_of(*CONTEXTS)).digest)
    assert len(digests) == 3
    empty = run.prepare(questions_of(""))
    assert (empty.files, len(run.predict(empty)[0].nbest)) == (None, 1)


def test_answers_that_are_none_are_so_in_training_and_in_prediction(tmp_path):
    """One window a question: [CLS] who [SEP] in 1895 [SEP]."""
    golds = [("1895", 3)], [("", 0)], [("who", -1)]
    qas = [
        {
            "id": f"q{number}",
            "question": "who",
            "answers": [{"text": text, "answer_start": start} for text, start in answers],
            "is_impossible": False,
        }
        for number, answers in enumerate(golds)
    ]
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "in 1895", "qas": qas}]}]}))
    tokenizer = small_squad.make_tokenizer(do_lower_case=True)
    places = {}
    for version_2 in (False, True):
        train = training_questions(str(path), None, version_2_with_negative=version_2)
        windows = training_windows(train.examples, tokenizer, WindowSizes(LENGTH, 5, 2))
        labels = [(one.answer, one.is_impossible) for one in windows]
        ids = [one.example.qas_id for one in train.examples]
        places[version_2] = dict(zip(ids, labels, strict=True))
    answered, none = ((4, 4), False), ((0, 0), True)
    assert places == {False: {"q0": answered}, True: {"q0": answered, "q1": none, "q2": none}}
    asked = questions_to_answer(str(path), None, have_answers=True, batch_size=3)
    assert [len(one.answers) for one in asked.examples] == [1, 0, 0]


def test_a_model_that_gives_no_numbers_or_has_no_head_is_refused(tmp_path):
    tensors = {name: value for name, value in tensors_of().items() if "/pooler/" not in name}
    run = make_run(tmp_path, tensors | {"cls/squad/output_bias": np.array([np.nan, 0.0])})
    run.restore()  # no pooler is needed
    with pytest.raises(InputError, match="start_logits are NaN or infinite for"):
        run.predict(questions_of(*CONTEXTS))
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    with pytest.raises(InputError, match="lacks 2 of the model"):
        make_run(tmp_path, encoder).restore()
