"""Models whose `fit`, `evaluate` and `predict` take texts, words or questions.

    TextModel       texts, or pairs of them        a label for each
    WordModel       lists of words                 a tag for each word
    QuestionModel   questions and contexts         an answer for each

`classifier`, `token_classifier` and `question_answerer` (fit_models.py) make them, and
`keras.models.load_model` loads them. They are `BertModel`s that compile themselves, and whose
methods convert their arguments to arrays first:

    texts    -> ids, by the model's tokenizer
    labels   -> numbers, by the model's names of labels
    weights  -> a weight for each label: its sample's times its class's

This module does not load TensorFlow: the models work with other backends of Keras.
"""

import contextlib
import importlib
import re
import reprlib
import types
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf.errors import InputError
from bert_tf.library.arguments import (
    FitArrays,
    is_of_ids,
    is_of_numbers,
    is_stream,
    items_of,
)
from bert_tf.modeling.inputs import check_inputs
from bert_tf.modeling.models import BertModel
from bert_tf.training.plan import steps_of_fit

OF_FIT = "_use_cached_eval_dataset"  # an argument that only Keras's `fit` gives to `evaluate`


@keras.saving.register_keras_serializable(package="bert_tf")
class TextModel(BertModel):
    """A model that `fit` trains on texts and names of labels: logits [B, C] of C labels.

    Unless you compile it, each `fit` compiles it with cross entropy, accuracy, and the optimizer
    and schedule of run_classifier.py for the steps of that call.
    """

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
        """Trains on texts and labels; all else is as in Keras's `fit`.

        Args:
          x: texts, a list of strings or a column of pandas or datasets; pairs, a list of tuples of
            two texts, or a tuple of two columns; or ids, as `model.tokenizer` gives them. Or a
            batched tf.data dataset of (x, y), of texts and labels or of ids and numbers.
            For models of words: lists of words. For models of questions: (questions, contexts).
          y: names of labels, or their numbers. For models of words: a list of names for each list
            of words. For models of questions: answers, {"text": ["1386"], "answer_start": [24]}.
          batch_size, epochs, verbose, callbacks, validation_split, shuffle: as in Keras.
          validation_data: (x, y), or (x, y, sample_weight), of the same kinds; or a dataset.
          class_weight: weights of labels, by name or number; the others have weight 1. Or
            "balanced": all labels count alike, rows / (labels * rows of the label), where rows with
            a sample_weight of 0 do not count; not for datasets.
          sample_weight: a weight for each text. For models of words a weight for each sentence, or
            for each word of each sentence.
          **kwargs: further arguments of Keras's `fit`.

        Returns:
          The history of losses and metrics.

        Raises:
          InputError: an argument is not of these kinds, or the optimizer's schedule is over.
        """
        x, y, sample_weight = self._arrays(x, y, sample_weight, class_weight)
        if validation_data is not None:
            validation_data = self._validation(validation_data)
        if not self.compiled or self._is_compiled_by_itself:
            num_rows, num_batches = _sizes(x)
            steps = steps_of_fit(
                num_rows,
                num_batches,
                batch_size=batch_size,
                validation_split=0.0 if validation_data is not None else validation_split,
                steps_per_epoch=kwargs.get("steps_per_epoch"),
                epochs=epochs,
                initial_epoch=kwargs.get("initial_epoch", 0),
            )
            self._compile_for(steps)
        self._check_schedule(callbacks)
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
        """Loss and metrics of texts and labels; arguments as in `fit`, and in Keras's `evaluate`.

        A model that is not compiled compiles itself.

        Raises:
          InputError: as `fit`.
        """
        if OF_FIT not in kwargs:  # `fit` has converted its validation data
            x, y, sample_weight = self._arrays(x, y, sample_weight)
        if not self.compiled:
            self._compile_itself(1)
        return super().evaluate(x, y, *args, sample_weight=sample_weight, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs for texts, or ids; arguments as in `fit`, and in Keras's `predict`.

        Raises:
          InputError: as `fit`.
        """
        return super().predict(self._checked_inputs(x), *args, **kwargs)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """A step on texts and labels; arguments as in `fit`, and in Keras's `train_on_batch`."""
        x, y, sample_weight = self._arrays(x, y, sample_weight, class_weight)
        return super().train_on_batch(x, y, sample_weight=sample_weight, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """Loss and metrics of a batch; arguments as in `fit`, and in Keras's `test_on_batch`."""
        x, y, sample_weight = self._arrays(x, y, sample_weight)
        return super().test_on_batch(x, y, sample_weight=sample_weight, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """The model's outputs for a batch of texts, or ids; arguments as in `fit`."""
        return super().predict_on_batch(self._checked_inputs(x))

    # ------------------------------------------------------------------------ texts and labels

    def read(self, x: Any, y: Any = None, sample_weight: Any = None) -> FitArrays:
        """Texts as ids, labels as numbers (without labels None), and the weights.

        Raises:
          InputError: an item is not a text, or a label is unknown.
        """
        ids = _arrays_module().ids_of_texts(self.tokenizer, x)
        numbers = None if y is None else self._numbers(y)
        return ids, numbers, sample_weight

    def _checked_inputs(self, x: Any) -> Any:
        """The argument of `predict` as arrays that the model takes, or as a dataset of them."""
        if hasattr(x, "element_spec"):
            return self._dataset(x)
        if is_stream(x):
            return x
        if not is_of_ids(x):
            x = self.read(x)[0]
        named = check_inputs(self, x)
        if not isinstance(x, Mapping):
            return x
        arrays = {}
        for name, value in named.items():
            arrays[name] = value if hasattr(value, "shape") else np.asarray(value)
        return arrays

    def _arrays(self, x: Any, y: Any, sample_weight: Any, class_weight: Any = None) -> FitArrays:
        """The arguments of `fit` as arrays: inputs, labels, and a weight for each label."""
        if hasattr(x, "element_spec"):
            return self._dataset(x, class_weight), y, sample_weight
        if is_stream(x):
            if class_weight is not None:
                received = f"class_weight with a {type(x).__name__}"
                remedy = "give a weight for each row in the batches, or a tf.data dataset"
                raise InputError(received, "texts, arrays or a tf.data dataset", remedy)
            return x, y, sample_weight
        if y is None and not (self.compiled and self.loss is None):
            raise InputError("y=None", "labels, or a dataset that has them", "give y")
        if is_of_ids(x):
            y = None if y is None else self._numbers(y)
        else:
            x, y, sample_weight = self.read(x, y, sample_weight)
        if sample_weight is not None and not isinstance(sample_weight, Mapping):
            sample_weight = _weights_of_rows(sample_weight)
        if class_weight is not None:
            sample_weight = self._weights(class_weight, y, sample_weight)
        return self._checked_inputs(x), y, sample_weight

    def _validation(self, data: Any) -> Any:
        """validation_data as arrays."""
        if hasattr(data, "element_spec"):
            return self._dataset(data)
        if is_stream(data):
            return data
        if not isinstance(data, tuple | list) or not 2 <= len(data) <= 3:
            received = f"validation_data={reprlib.repr(data)}"
            raise InputError(received, "(x, y) or (x, y, sample_weight)", "give a tuple")
        sample_weight = data[2] if len(data) == 3 else None
        x, y, sample_weight = self._arrays(data[0], data[1], sample_weight)
        return (x, y) if sample_weight is None else (x, y, sample_weight)

    def _dataset(self, dataset: Any, class_weight: Any = None) -> Any:
        """A dataset of batches, its texts as ids and its names of labels as numbers."""
        arrays = _arrays_module()
        spec_before = dataset.element_spec
        dataset = arrays.dataset_of_ids(dataset, getattr(self, "tokenizer", None), self.labels)
        spec = dataset.element_spec
        has_labels = isinstance(spec, tuple) and len(spec) > 1
        if self.labels and has_labels and hasattr(spec[1], "shape"):
            self._check_rank(spec[1].shape)
            were_numbers = spec_before[1] == spec[1]
            if were_numbers:
                dataset = self._checked_batches(arrays, dataset, spec[1])
        if class_weight is None:
            return dataset
        return arrays.weighted(dataset, self._class_weights(class_weight))

    def _checked_batches(self, arrays: Any, dataset: Any, spec: Any) -> Any:
        """A dataset that fails at a label that is not a place; labels that are floats pass.

        Raises:
          InputError: the name of a label is a number, and not that of its place.
        """
        if not spec.dtype.is_integer:
            return dataset
        names = self._names_of_other_places
        if names:
            received = f"a dataset with numbers as labels, and {names[0]!r} as the name of another"
            raise InputError(received, "names", "map them to names: tf.strings.as_string(y)")
        return arrays.checked(dataset, len(self.labels or ()))

    @property
    def _names_of_other_places(self) -> list[str]:
        """The names of labels that are whole numbers, and not those of their places."""
        names = []
        for place, name in enumerate(self.labels or ()):
            if re.fullmatch("-?[0-9]+", name) and name != str(place):
                names.append(name)
        return names

    def _numbers(self, y: Any) -> Any:
        """Labels by name or number as an array of numbers.

        Raises:
          InputError: they are not a column, or one is neither a name nor a number of a label.
        """
        if isinstance(y, Mapping) and isinstance(self.output, Mapping):
            return {name: self._numbers(values) for name, values in y.items()}
        if is_of_numbers(y):
            array = self._places(keras.ops.convert_to_numpy(y))
        else:
            array = self._array_of_labels(y)
        if self.labels:
            self._check_labels(array)
        return array

    def _places(self, array: np.ndarray) -> np.ndarray:
        """Numbers of any shape as places: those that are names of labels become their places."""
        if not self._names_of_other_places:
            return array
        is_whole = np.isfinite(array) & (array == np.floor(array))
        places = self._places_of({int(number) for number in np.unique(array[is_whole])})
        if not places:
            return array
        replaced = array.copy()
        for number, place in places.items():
            replaced[array == number] = place
        return replaced

    def _places_of(self, numbers: Collection[int]) -> dict[int, int]:
        """The places of numbers that are names of labels; {} if the numbers are places.

        Raises:
          InputError: the numbers could be names or places.
        """
        names = self.labels or ()
        by_name = {number: names.index(str(number)) for number in numbers if str(number) in names}
        if len(by_name) < len(numbers):  # some are not names: all are places, or wrong
            return {}
        are_places = all(0 <= number < len(names) for number in numbers)
        wrong = [number for number, place in by_name.items() if number != place]
        if are_places and wrong:
            received = f"the label {wrong[0]}, which is a name and the place of {names[wrong[0]]!r}"
            raise InputError(received, "one of the two", f"give names: {str(wrong[0])!r}")
        return by_name

    def _array_of_labels(self, y: Any) -> np.ndarray:
        """Labels in a list or a column, by name or number, as an array of numbers."""
        labels = items_of(y)
        if labels is None:
            received = f"labels of type {type(y).__name__}: {reprlib.repr(y)}"
            raise InputError(received, "a list, an array or a column", "give one label a row")
        with contextlib.suppress(ValueError):  # rows of unequal length
            array = np.asarray(labels)
            if array.dtype.kind in "biuf":
                return self._places(array)
        return np.array([self._number(label) for label in labels], np.int64)

    def _number(self, label: Any) -> int:
        """The number of a label, which is given by name or number.

        Raises:
          InputError: there is no such label.
        """
        names = self.labels or ()
        label = label.decode() if isinstance(label, bytes) else label
        if isinstance(label, str) and label in names:
            return names.index(label)
        if isinstance(label, int | np.integer):
            number = int(label)
            place = self._places_of([number]).get(number, number)
            if 0 <= place < self._num_labels:
                return place
        wanted = f"one of {', '.join(names)}" if names else f"0 to {self._num_labels - 1}"
        remedy = "correct it" if names else "give numbers, or use bert_tf.classifier"
        raise InputError(f"the label {reprlib.repr(label)}", wanted, remedy)

    @property
    def _num_labels(self) -> int:
        """The number of labels: the logits of a text, or of a word.

        Raises:
          InputError: the model has several outputs.
        """
        if isinstance(self.output, Mapping):
            received = f"{self.name}, a model with several outputs"
            expected = "one of logits, for names and class_weight"
            raise InputError(received, expected, "give sample_weight")
        return self.output.shape[-1]

    def _check_labels(self, y: np.ndarray) -> None:
        """Refuses numbers that no label has, and labels that are a row of numbers each."""
        self._check_rank(y.shape)
        num_labels = self._num_labels
        wrong = y[(y < 0) | (y >= num_labels) | (y != np.floor(y))]
        if wrong.size:
            expected = f"0 to {num_labels - 1}"
            if self.labels:
                expected += f", the places of {', '.join(self.labels)}"
            raise InputError(f"the label {wrong[0]}", expected, "correct it, or give names")

    def _check_rank(self, shape: Any) -> None:
        """Refuses the shape of labels that are a row of numbers each, such as one-hot labels."""
        if len(shape) == len(self.output.shape) and shape[-1] == self._num_labels > 1:
            received = f"labels of shape {list(shape)}, a row of numbers each"
            remedy = "give np.argmax(labels, axis=-1); for several labels a text see library.md"
            raise InputError(received, "a number or a name each", remedy)

    # ------------------------------------------------------------------------ weights

    def _weights(self, class_weight: Any, y: Any, sample_weight: np.ndarray | None) -> np.ndarray:
        """The weights of labels, the sample's times the class's: float32, of the labels' shape."""
        if not isinstance(y, np.ndarray):
            received = "class_weight without one label a row"
            raise InputError(received, "labels that have weights", "leave it out")
        self._check_labels(y)
        weights = np.ones(y.shape) if sample_weight is None else sample_weight
        if weights.shape != y.shape[: weights.ndim]:
            received = f"sample_weight of shape {list(weights.shape)}, labels of {list(y.shape)}"
            raise InputError(received, "a weight for each row or label", "correct sample_weight")
        weights = weights.reshape(weights.shape + (1,) * (y.ndim - weights.ndim))
        weights = np.broadcast_to(weights, y.shape)
        class_weights = self._class_weights(class_weight, y[weights > 0])  # [C]
        return np.asarray(class_weights[y.astype(np.int64)] * weights, np.float32)

    def _class_weights(self, class_weight: Any, y: np.ndarray | None = None) -> np.ndarray:
        """The weights of the C classes in their order, float64 [C].

        Args:
          class_weight: as in `fit`.
          y: the labels that count, of any shape; None if they cannot be counted.

        Raises:
          InputError: they are neither a dict by label nor "balanced".
        """
        num_labels = self._num_labels
        if isinstance(class_weight, Mapping):
            weights = np.ones(num_labels)
            numbers = [self._number(label) for label in class_weight]
            weights[numbers] = _weights_of_rows([*class_weight.values()], "class_weight")
            return weights
        if y is None or not isinstance(class_weight, str) or class_weight != "balanced":
            received = f"class_weight={reprlib.repr(class_weight)}"
            expected = "a dict by label" + ("" if y is None else ', or "balanced"')
            raise InputError(received, expected, "correct class_weight")
        counts = np.bincount(y.astype(np.int64), minlength=num_labels)
        return len(y) / (num_labels * np.maximum(counts, 1))

    # ------------------------------------------------------------------------ compiling

    def compile_options(self) -> dict[str, Any]:
        """Loss and metrics, as arguments of `compile`."""
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"loss": loss, "metrics": ["accuracy"]}

    @property
    def _is_compiled_by_itself(self) -> bool:
        return self.compiled and getattr(self.optimizer, "is_of_one_fit", False)

    def _compile_for(self, num_steps: int) -> None:
        """Compiles for the steps of a call of `fit`."""
        if self._has_trained:
            logging.warning(
                "This call of fit has a warm-up and a decay of its own. For one schedule over "
                "several calls compile the model: model.compile(bert_tf.make_optimizer(all_steps), "
                "loss, ...)."
            )
        self._compile_itself(num_steps)

    def _compile_itself(self, num_steps: int) -> None:
        optimization = importlib.import_module("bert_tf.training.optimization")
        strategy = getattr(self, "distribute_strategy", None)  # of TensorFlow
        with strategy.scope() if strategy else contextlib.nullcontext():
            optimizer = optimization.make_optimizer(num_train_steps=num_steps)
            self.compile(optimizer, **self.compile_options())
        self.optimizer.is_of_one_fit = True

    def _is_logits(self, name: str | None) -> bool:  # noqa: ARG002
        """Whether an output holds logits: all do."""
        return True

    def _check_schedule(self, callbacks: Any = None) -> None:
        """Refuses an optimizer whose schedule is over, and callbacks that cannot set its rate."""
        optimizer: Any = self.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of LossScaleOptimizer
        _refuse_setting_rates(callbacks, optimizer)
        schedule: Any = getattr(optimizer, "schedule", None)
        end = getattr(schedule, "num_train_steps", None)
        if end is None or getattr(schedule, "end_learning_rate", False):
            return
        if int(keras.ops.convert_to_numpy(optimizer.iterations)) >= end:
            received = f"an optimizer whose schedule of {end} steps is over"
            remedy = "compile with a new one: bert_tf.make_optimizer(num_train_steps)"
            raise InputError(received, "a learning rate above 0", remedy)

    def get_compile_config(self) -> dict[str, Any] | None:
        """As Keras's own; None for a model that compiles itself, as its copy will."""
        return None if self._is_compiled_by_itself else super().get_compile_config()

    def compile_from_config(self, config: dict[str, Any] | None) -> None:
        """As Keras's own; does nothing for a copy of a model that compiles itself."""
        if config is not None:
            super().compile_from_config(config)


@keras.saving.register_keras_serializable(package="bert_tf")
class WordModel(TextModel):
    """A model that `fit` trains on lists of words and of tags: logits [B, W, C] of each word."""

    def compile_options(self) -> dict[str, Any]:
        """Loss and metrics, as arguments of `compile`: averaged over words."""
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
        return {"loss": loss, "weighted_metrics": ["accuracy"]}

    def read(self, x: Any, y: Any = None, sample_weight: Any = None) -> FitArrays:
        """Lists of words as ids [B, S] and word_positions [B, W]; tags and weights as [B, W].

        Raises:
          InputError: a sentence is not a list of words or is too long, or the number of its tags
            or weights is not that of its words.
        """
        return _arrays_module().of_words(self.tokenizer, self._number, x, y, sample_weight)


@keras.saving.register_keras_serializable(package="bert_tf")
class QuestionModel(TextModel):
    """A model that `fit` trains on questions: start_logits and end_logits, [B, S] each.

    Attributes:
      sizes: max_seq_length, doc_stride and max_query_length of the windows of long contexts. Those
        that are missing, as in a clone, are the defaults of `WindowSizes`.
    """

    def __init__(
        self,
        inputs: Any = None,
        outputs: Any = None,
        name: str | None = None,
        *,
        sizes: Mapping[str, int] = types.MappingProxyType({}),
        **kwargs: Any,
    ):
        super().__init__(inputs, outputs, name, **kwargs)
        self.sizes = dict(sizes)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as Keras saves them."""
        return {**super().get_config(), "sizes": dict(self.sizes)}

    def compile_options(self) -> dict[str, Any]:
        """Losses, as arguments of `compile`: the mean of the losses of starts and ends."""
        losses = {}
        for name in ("start_logits", "end_logits"):
            losses[name] = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"loss": losses, "loss_weights": dict.fromkeys(losses, 0.5)}

    def read(self, x: Any, y: Any = None, sample_weight: Any = None) -> FitArrays:
        """Windows of (questions, contexts), and where their answers are.

        Raises:
          InputError: an answer is not as in SQuAD's files, or no answer is in its context.
        """
        return _arrays_module().of_questions(self.tokenizer, self.sizes, x, y, sample_weight)


def _refuse_setting_rates(callbacks: Any, optimizer: keras.Optimizer) -> None:
    """Refuses callbacks that set the learning rate where it has a schedule."""
    setting = keras.callbacks.ReduceLROnPlateau | keras.callbacks.LearningRateScheduler
    for callback in keras.tree.flatten(getattr(callbacks, "callbacks", callbacks)):
        if not isinstance(callback, setting):
            continue
        if isinstance(optimizer.get_config().get("learning_rate"), Mapping):  # of a schedule
            received = f"{type(callback).__name__} with a learning rate that has a schedule"
            fixed = "bert_tf.training.optimization.AdamWeightDecay(5e-5)"
            remedy = f"compile with {fixed}, or leave it out"
            raise InputError(received, "a rate that is a number", remedy)


def _sizes(x: Any) -> tuple[int | None, int | None]:
    """The number of rows of arrays, the number of batches of anything else; None: unknown."""
    parts = keras.tree.flatten(x)
    if all(hasattr(part, "shape") for part in parts):
        return parts[0].shape[0], None
    with contextlib.suppress(TypeError):
        return None, len(x)
    return None, None


def _weights_of_rows(weights: Any, name: str = "sample_weight") -> np.ndarray:
    """Weights as an array, float32.

    Raises:
      InputError: they are not numbers.
    """
    try:
        items = weights if hasattr(weights, "shape") else [*weights]
        return np.asarray(items, np.float32)
    except (TypeError, ValueError):
        received = f"{name} {reprlib.repr(weights)}"
        raise InputError(received, "a number each", f"correct {name}") from None


def _arrays_module() -> Any:
    """The module that makes arrays of texts. It needs TensorFlow, the models do not."""
    return importlib.import_module("bert_tf.library.arrays")
