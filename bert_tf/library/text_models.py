"""Models whose `fit`, `evaluate` and `predict` take texts, words or questions as they are.

    TextModel       texts, or pairs of them        labels of texts
    WordModel       lists of words                 a tag for each
    QuestionModel   questions and contexts         answers

`classifier`, `token_classifier` and `question_answerer` (fit_models.py) give them, and
`keras.models.load_model` gives them back. They are `BertModel`s of which the methods of Keras turn
what they are given into arrays first, and which compile themselves:

    texts    -> ids by the model's tokenizer
    labels   -> numbers by the model's names of labels
    weights  -> one for each label, those of classes among them

This module loads no TensorFlow, which the models need not have.
"""

import contextlib
import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf.errors import InputError
from bert_tf.modeling.inputs import check_inputs
from bert_tf.modeling.models import BertModel

Arrays = tuple[Any, Any, Any]  # x, y, sample_weight


@keras.saving.register_keras_serializable(package="bert_tf")
class TextModel(BertModel):
    """A model that `fit` trains on texts and names of labels: logits [B, C] of C labels.

    Unless somebody else has compiled it, `fit` compiles it for its own steps, with the optimizer
    and schedule of run_classifier.py, cross entropy and accuracy.
    """

    _compiled_by_itself: int | None = None  # the id of the optimizer that it made
    _has_trained = False

    # ------------------------------------------------------------------------ Keras's methods

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains on texts and labels as they are; all else is as of Keras's `fit`.

        Args:
          x: texts, a list of strings or a column of pandas or datasets; pairs, a list of tuples of
            two texts, or a tuple of two columns; or ids, as `model.tokenizer` gives them. Or a
            batched tf.data dataset of (x, y), of texts and labels or of ids and numbers.
            For models of words: lists of words. For models of questions: (questions, contexts).
          y: names of labels, or their numbers. For models of words: a list of names for each list
            of words. For models of questions: answers, {"text": ["1386"], "answer_start": [24]}.
          batch_size, epochs, verbose, callbacks, validation_split, shuffle: as of Keras.
          validation_data: (x, y), or (x, y, sample_weight), of the same kinds; or a dataset.
          class_weight: how often a label counts, by name or number; or "balanced", with which all
            labels count alike: rows / (labels * rows of the label).
          sample_weight: one for each text, or for each word.
          **kwargs: further arguments of Keras's `fit`.

        Returns:
          The history of losses and metrics.

        Raises:
          InputError: something is not of these kinds, or the model cannot be trained as it is.
        """
        x, y, sample_weight = self._arrays(x, y, sample_weight)
        if class_weight is not None:
            sample_weight = self._weights(class_weight, y, sample_weight)
        if validation_data is not None:
            validation_data = self._validation(validation_data)
        self._compile_for(x, epochs, batch_size, validation_split, kwargs.get("steps_per_epoch"))
        self._check_schedule()
        if self.train_function is None and verbose:
            print("The first step compiles, which may take a minute.", flush=True)
        self._has_trained = True
        return super().fit(
            x,
            y,
            batch_size=batch_size,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_split=validation_split,
            validation_data=validation_data,
            shuffle=shuffle,
            sample_weight=sample_weight,
            **kwargs,
        )

    def evaluate(
        self, x: Any = None, y: Any = None, *args: Any, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        """Loss and metrics of texts and labels; arguments as of `fit`, and of Keras's `evaluate`.

        A model that nobody has compiled compiles itself.

        Raises:
          InputError: as `fit`.
        """
        x, y, sample_weight = self._arrays(x, y, sample_weight)
        if not self.compiled:
            self._compile_itself(1)
        return super().evaluate(x, y, *args, sample_weight=sample_weight, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs for texts, or ids; arguments as of `fit`, and of Keras's `predict`.

        Raises:
          InputError: as `fit`.
        """
        return super().predict(self._arrays(x)[0], *args, **kwargs)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """A step on texts and labels; arguments as of `fit`, and of Keras's `train_on_batch`."""
        x, y, sample_weight = self._arrays(x, y, sample_weight)
        if class_weight is not None:
            sample_weight = self._weights(class_weight, y, sample_weight)
        return super().train_on_batch(x, y, sample_weight=sample_weight, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """Loss and metrics of a batch; arguments as of `fit`, and of Keras's `test_on_batch`."""
        x, y, sample_weight = self._arrays(x, y, sample_weight)
        return super().test_on_batch(x, y, sample_weight=sample_weight, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """The model's outputs for a batch of texts, or ids; arguments as of `fit`."""
        return super().predict_on_batch(self._arrays(x)[0])

    # ------------------------------------------------------------------------ texts and labels

    def read(self, x: Any, y: Any, sample_weight: Any) -> Arrays:
        """Texts as ids, names of labels as numbers; what is neither is given back as it is.

        Raises:
          InputError: some are texts and some are not, or a label is unknown.
        """
        if _has_texts(x):
            x = _arrays_module().ids_of_texts(self.tokenizer, x)
        return x, self._numbers(y), sample_weight

    def _arrays(self, x: Any, y: Any = None, sample_weight: Any = None) -> Arrays:
        """What a method of Keras is given, as arrays, checked as a call's; datasets likewise."""
        if hasattr(x, "element_spec"):
            return self._dataset(x), y, sample_weight
        if hasattr(x, "__next__") or isinstance(x, keras.utils.PyDataset):
            return x, y, sample_weight
        if _has_texts(x) or y is not None:
            x, y, sample_weight = self.read(x, y, sample_weight)
        if all(hasattr(part, "shape") for part in keras.tree.flatten(x)):
            check_inputs(self, x)
        self._check_labels(y)
        if isinstance(sample_weight, Sequence):
            sample_weight = np.asarray(sample_weight, np.float32)
        return x, y, sample_weight

    def _validation(self, data: Any) -> Any:
        """validation_data as arrays."""
        if hasattr(data, "element_spec"):
            return self._dataset(data)
        if not isinstance(data, tuple | list) or not 2 <= len(data) <= 3:
            return data
        x, y, sample_weight = self._arrays(*data)
        return (x, y) if sample_weight is None else (x, y, sample_weight)

    def _dataset(self, dataset: Any) -> Any:
        """A dataset of batches, its texts as ids and its names of labels as numbers."""
        tokenizer = self.tokenizer if hasattr(self, "tokenizer") else None
        return _arrays_module().dataset_of_ids(dataset, tokenizer, self.labels)

    def _numbers(self, y: Any) -> Any:
        """Labels by name as their numbers, and columns of numbers as arrays."""
        if isinstance(y, Mapping):
            return {name: self._numbers(values) for name, values in y.items()}
        labels = column_of(y)
        if labels is None:
            return y
        if any(isinstance(label, str | bytes) for label in labels):
            return np.array([self._number(label) for label in labels], np.int64)
        array = np.asarray(labels)
        return array if array.dtype.kind in "biuf" else y

    def _number(self, label: Any) -> int:
        """The number of a label.

        Raises:
          InputError: there is no such label.
        """
        names = self.labels or ()
        label = label.decode() if isinstance(label, bytes) else label
        if label in names:
            return names.index(label)
        if isinstance(label, int | np.integer) and 0 <= label < len(names):
            return int(label)
        wanted = f"one of {', '.join(names)}" if names else "numbers of the logits"
        remedy = "correct it" if names else "give numbers, or use bert_tf.classifier"
        raise InputError(f"the label {str(label)!r:.80}", wanted, remedy)

    def _check_labels(self, y: Any) -> None:
        """Refuses labels by number that are none, or a row of them for a text."""
        names = self.labels
        if not names or not isinstance(y, np.ndarray) or y.dtype.kind not in "iuf" or not y.size:
            return
        if y.ndim == len(self.output.shape) and y.shape[-1] == len(names):
            received = f"labels of shape {list(y.shape)}, a row of numbers each"
            remedy = "give np.argmax(labels, axis=-1); for several labels a text see library.md"
            raise InputError(received, "a number or a name each", remedy)
        wrong = y[(y < 0) | (y >= len(names)) | (y != np.floor(y))]
        if wrong.size:
            wanted = f"0 to {len(names) - 1}, the places of {', '.join(names)}"
            raise InputError(f"the label {wrong[0]}", wanted, "correct it, or give names")

    # ------------------------------------------------------------------------ weights

    def _weights(self, class_weight: Any, y: Any, sample_weight: Any) -> Any:
        """The weight of each label: that of its class, times its own; float32, as the labels."""
        if not isinstance(y, np.ndarray):
            received = "class_weight with labels that are no array"
            remedy = "give names or numbers of labels, or weights in the dataset"
            raise InputError(received, "labels that can be counted", remedy)
        given = 1.0 if sample_weight is None else np.asarray(sample_weight, np.float32)
        if np.ndim(given) and np.ndim(given) < y.ndim:  # of rows
            given = np.reshape(given, (-1,) + (1,) * (y.ndim - 1))
        given = np.broadcast_to(given, y.shape)
        of_classes = self._class_weights(class_weight, y[given > 0])
        return np.asarray(of_classes[y.astype(np.int64)] * given, np.float32)

    def _class_weights(self, class_weight: Any, y: np.ndarray) -> np.ndarray:
        """The weights of the classes in their order, of labels y [any] that count.

        Raises:
          InputError: they are neither by label nor "balanced".
        """
        classes = len(self.labels) if self.labels else int(y.max(initial=0)) + 1
        weights = np.ones(classes)
        if isinstance(class_weight, Mapping):
            for label, weight in class_weight.items():
                weights[self._number(label)] = weight
            return weights
        if not isinstance(class_weight, str) or class_weight != "balanced":
            received = f"class_weight={class_weight!r:.80}"
            raise InputError(received, 'a dict by label, or "balanced"', "correct class_weight")
        counts = np.bincount(y.astype(np.int64), minlength=classes)
        return len(y) / (classes * np.maximum(counts, 1))

    # ------------------------------------------------------------------------ compiling

    def compile_options(self) -> dict[str, Any]:
        """Loss and metrics, as arguments of `compile`."""
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"loss": loss, "metrics": ["accuracy"]}

    def _compile_for(
        self,
        x: Any,
        epochs: int,
        batch_size: int | None,
        validation_split: float,
        steps: int | None,
    ) -> None:
        """Compiles for the steps of a call of `fit`, unless somebody else has compiled."""
        if self.compiled and self._compiled_by_itself != id(self.optimizer):
            return
        if self._has_trained:
            logging.warning(
                "This call of fit has a warm-up and a decay of its own. For one schedule over "
                "several calls compile the model: model.compile(bert_tf.make_optimizer(all_steps), "
                "loss, ...)."
            )
        arrays = keras.tree.flatten(x)
        if steps is None and all(isinstance(array, np.ndarray) for array in arrays):
            rows = len(arrays[0]) * (1 - validation_split)
            steps = math.ceil(rows / (batch_size or 32))
        try:
            num_steps = int(len(x) if steps is None else steps) * epochs
        except TypeError:
            received, remedy = (
                "data of unknown length",
                "give steps_per_epoch, or compile the model",
            )
            raise InputError(received, "the number of steps, for the schedule", remedy) from None
        self._compile_itself(num_steps)

    def _compile_itself(self, num_steps: int) -> None:
        optimization = importlib.import_module("bert_tf.training.optimization")
        strategy = getattr(self, "distribute_strategy", None)  # of TensorFlow
        with strategy.scope() if strategy else contextlib.nullcontext():
            optimizer = optimization.make_optimizer(num_train_steps=num_steps)
            self.compile(optimizer, **self.compile_options())
        self._compiled_by_itself = id(self.optimizer)

    def _is_logits(self, name: str | None) -> bool:  # noqa: ARG002
        """Whether an output is one of logits: all are."""
        return True

    def _check_schedule(self) -> None:
        """Refuses an optimizer whose rate has come to its end."""
        schedule = getattr(self.optimizer, "schedule", None)
        end = getattr(schedule, "num_train_steps", None)
        if end is None or getattr(schedule, "end_learning_rate", 0):
            return
        if int(keras.ops.convert_to_numpy(self.optimizer.iterations)) >= end:
            received = f"an optimizer whose schedule of {end} steps is over"
            remedy = "compile with a new one: bert_tf.make_optimizer(num_train_steps)"
            raise InputError(received, "a learning rate above 0", remedy)

    def get_compile_config(self) -> dict[str, Any] | None:
        """As Keras's own; None of a model that compiles itself, as its copy will."""
        is_own = self.compiled and self._compiled_by_itself == id(self.optimizer)
        return None if is_own else super().get_compile_config()


@keras.saving.register_keras_serializable(package="bert_tf")
class WordModel(TextModel):
    """A model that `fit` trains on lists of words and of tags: logits [B, W, C] of each word."""

    def compile_options(self) -> dict[str, Any]:
        """Loss and metrics, as arguments of `compile`: means over words."""
        options = {"from_logits": True, "reduction": "mean_with_sample_weight"}
        loss = keras.losses.SparseCategoricalCrossentropy(**options)
        return {"loss": loss, "weighted_metrics": ["accuracy"]}

    def read(self, x: Any, y: Any, sample_weight: Any) -> Arrays:
        """Lists of words as ids [B, S] and word_positions [B, W], tags and weights [B, W].

        What is no list of lists is given back as it is.

        Raises:
          InputError: a sentence is no list of words or too long, or its tags or weights are not as
            many as its words.
        """
        sentences = column_of(x)
        if sentences is None or any(hasattr(item, "shape") for item in sentences):
            return x, y, sample_weight
        return _arrays_module().of_words(
            self.tokenizer, self._number, sentences, column_of(y), sample_weight
        )


@keras.saving.register_keras_serializable(package="bert_tf")
class QuestionModel(TextModel):
    """A model that `fit` trains on questions: start_logits and end_logits, [B, S] each.

    Attributes:
      sizes: max_seq_length, doc_stride and max_query_length of the windows of long contexts.
    """

    def __init__(self, *args: Any, sizes: Mapping[str, int], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.sizes = dict(sizes)

    def get_config(self) -> dict[str, Any]:
        """What the constructor makes the model of."""
        return {**super().get_config(), "sizes": dict(self.sizes)}

    def compile_options(self) -> dict[str, Any]:
        """Losses, as arguments of `compile`: half of that of starts and ends each."""
        names = ("start_logits", "end_logits")
        loss = keras.losses.SparseCategoricalCrossentropy
        losses = {name: loss(from_logits=True) for name in names}
        return {"loss": losses, "loss_weights": dict.fromkeys(names, 0.5)}

    def read(self, x: Any, y: Any, sample_weight: Any) -> Arrays:
        """Windows of (questions, contexts), and where their answers are; else as given.

        Raises:
          InputError: an answer is not as in SQuAD's files, or none is in its context.
        """
        if not _has_texts(x):
            return x, y, sample_weight
        return _arrays_module().of_questions(self.tokenizer, self.sizes, x, y, sample_weight)


# ---------------------------------------------------------------------------- what is given


def column_of(x: Any) -> list[Any] | None:
    """The items of a column: a list, an array of objects, a column of pandas or datasets.

    None for what is no column, such as ids and arrays of several axes.
    """
    if isinstance(x, str | bytes):
        return [x]
    if isinstance(x, Mapping) or not (hasattr(x, "__len__") and hasattr(x, "__getitem__")):
        return None
    kind = str(getattr(x, "dtype", ""))
    if len(getattr(x, "shape", (0,))) != 1 or any(n in kind for n in ("int", "float", "bool")):
        return None
    return list(x.numpy()) if hasattr(x, "numpy") else list(x)


def _has_texts(x: Any) -> bool:
    """Whether there are texts anywhere in a column, or in columns of columns."""
    items = column_of(x)
    if items is None:
        return False
    return any(isinstance(item, str | bytes) or _has_texts(item) for item in items)


def _arrays_module() -> Any:
    """What makes arrays of texts; it needs TensorFlow, which the models need not have."""
    return importlib.import_module("bert_tf.library.arrays")
