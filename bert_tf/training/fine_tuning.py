"""Fine-tuning in one folder: records -> initial weights -> training -> predictions -> scores.

    SplitData       the data of a split, and their file of records
    TrainingConfig  how a run is trained
    Run             the base of runs; `tasks.text_run.TextRun` and `squad.run.SquadRun` derive
                    from it

OUTPUT_DIR/train.tf_record, eval.tf_record, predict.tf_record    records
OUTPUT_DIR/model.ckpt-900, ...                                   checkpoints
OUTPUT_DIR/best/                                                 the best checkpoint: best.py
"""

import dataclasses
import gc
import inspect
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import runtime
from bert_tf.checkpoints import loading, tf1
from bert_tf.checkpoints.companions import refuse_other_model
from bert_tf.checkpoints.metadata import ModelMetadata, write_model_files
from bert_tf.data import SEQUENCES
from bert_tf.data.batches import Batches
from bert_tf.data.packing import BatchingConfig, in_order
from bert_tf.data.records import Record
from bert_tf.data.shards import RecordFiles
from bert_tf.declarations import names_with
from bert_tf.errors import InputError
from bert_tf.files import BEST, EVAL_RESULTS, digest_of, path_errors, published
from bert_tf.heads.head import Head
from bert_tf.options import Settings
from bert_tf.terminal import counted
from bert_tf.tokenization.whole_pieces import kept_whole
from bert_tf.training import optimization
from bert_tf.training.best import REMEDY, BestCheckpoint
from bert_tf.training.log import write_eval_results
from bert_tf.training.options import FineTuning, FineTuningSchedule, Intervals, StepConfig
from bert_tf.training.plan import RunPlan
from bert_tf.training.trainer import Trainer

# Suffixes of the names of weights whose values seed a new head: of an encoder, of a head.
_SEEDING_WEIGHTS = ("/layer_0/attention/self/query/kernel", "output_weights")


@dataclasses.dataclass(kw_only=True)
class SplitData:
    """The data of a split; each kind of task derives a class from it.

    Attributes:
      name: the name of the file of records: train, eval, predict_mismatched.
      examples: the examples in the order of their source.
      batch_size: records in a batch for prediction.
      files: the records, set by `Run.prepare`.
      digest: the digest of the data that a score depends on, set by `Run.prepare`.
    """

    name: str
    examples: Sequence[Any]
    batch_size: int = 8
    files: RecordFiles | None = None
    digest: str = ""

    @property
    def num_records(self) -> int:
        """The number of records, for the progress; an estimate if texts are cut into windows."""
        return len(self.examples)

    @property
    def num_counted(self) -> int:
        """The number of items of an epoch: the records of prepared data."""
        return len(self.files)


class TrainingConfig(FineTuning):
    """How a run is trained: the options of `FineTuning` and more.

    Attributes:
      schedule: batch size, epochs, learning rate, optimizer.
      intervals: steps between logging, saving and evaluation.
      run_settings: the options of the command that affect the trained weights, as recorded in
        checkpoints; `Run.settings_of` adds to them.
    """

    schedule: FineTuningSchedule
    intervals: Intervals
    run_settings: Settings


@dataclasses.dataclass(kw_only=True, eq=False)
class Run:
    """A model that is fine-tuned, evaluated and used for predictions in one folder.

    Attributes:
      model: the initial weights, their configuration and tokenizer.
      strategy: the devices.
      batching: how records become batches.
      output_dir: the folder of the run.
      step_config: how steps are computed, as for `Trainer`.
      head: the head of the model; set by the subclass.
      metric: the result of `evaluate` that selects the best model: the greatest, but of eval_loss
        the least; set by the subclass.
      trainer: with the model that predicts; None before `train` or `restore`.
      step: the step of that model.
      results: scores that were written, by the name of their file.
    """

    model: loading.PretrainedModel
    strategy: tf.distribute.Strategy
    batching: BatchingConfig
    output_dir: str
    step_config: StepConfig = dataclasses.field(default_factory=StepConfig)
    trainer: Trainer | None = dataclasses.field(default=None, init=False)
    step: int = dataclasses.field(default=0, init=False)
    results: dict[str, Mapping[str, float]] = dataclasses.field(default_factory=dict, init=False)
    head: ClassVar[Head]
    metric: ClassVar[str]
    num_classes: ClassVar[int] = 2  # of the model
    num_choices: ClassVar[int] = 1

    # ------------------------------------------------------------------------ for subclasses

    def record(self, data: SplitData) -> Record:
        """The features of the records of a split."""
        raise NotImplementedError

    def rows(self, data: SplitData) -> Iterable[Mapping[str, Sequence]]:
        """The values of each record of a split."""
        raise NotImplementedError

    def evaluate(self, data: SplitData) -> Mapping[str, float]:
        """The scores of the model as it is now."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """The fields of `ModelMetadata` that the task sets."""
        raise NotImplementedError

    def rank(self, score: float) -> float:
        """The score for comparisons: the greatest is best, and NaN (undefined) is below all."""
        if math.isnan(score):
            return -math.inf
        return -score if self.metric == "eval_loss" else score

    # ------------------------------------------------------------------------ data

    def prepare(self, data: SplitData) -> SplitData:
        """Writes the records of a split, unless it has done so before; returns `data`."""
        if data.files is None:
            path = f"{self.output_dir}/{data.name}.tf_record"
            record = self.record(data)
            count = write_records(path, record, self.rows(data), total=data.num_records)
            logging.info("%s: %d records of %d examples", path, count, len(data.examples))
            data.files = RecordFiles(path, record)
            data.digest = digest_of(path)
        return data

    def outputs(self, data: SplitData) -> dict[str, np.ndarray]:
        """The head's outputs for each record of a split, in the order of the records.

        Returns:
          Each output float32 [rows, ...]; outputs of each token are padded with 0 to the longest.

        Raises:
          InputError: outputs are NaN or infinite.
        """
        files = self.prepare(data).files
        batches = self.batching.once(
            files,
            batch_size=data.batch_size,
            parts=self.strategy.num_replicas_in_sync,
            one_shape=self._has_one_shape,
        )
        values: dict[str, list] = {name: [None] * len(files) for name in self.head.outputs}
        for number, outputs in enumerate(self.trainer.predict(batches, self.head.outputs)):
            rows = batches.batch_rows(number)
            if SEQUENCES in outputs:
                outputs = in_order(outputs)
            for name in self.head.outputs:
                for row, value in zip(rows, outputs[name][: len(rows)], strict=True):
                    values[name][row] = value
        for name in self.head.outputs:
            _check_finite(name, values[name])
        return {name: _padded(values[name]) for name in self.head.outputs}

    @property
    def _has_one_shape(self) -> bool:
        """Whether all batches need the same shape, as on TPUs."""
        return isinstance(self.strategy, tf.distribute.TPUStrategy)

    # ------------------------------------------------------------------------ the model

    def make_trainer(
        self, optimizer: optimization.AdamWeightDecay, *, seed: int, freeze: Sequence[str] = ()
    ) -> Trainer:
        """Makes the run's trainer, with a new head; no packing if the head cannot do it.

        The head is drawn by the seed and the initial weights. Drawn by the seed alone, it would
        equal the head with which an earlier run of the same seed trained these weights.
        """
        self.trainer = None  # so that there are never two models in memory
        gc.collect()
        model_arguments = {"num_classes": self.num_classes, "num_choices": self.num_choices}
        if self.batching.bucket_by_length:
            if "num_sequences" in inspect.signature(self.head.model).parameters:
                model_arguments["num_sequences"] = self.batching.num_sequences(self.num_choices)
            else:  # a user's head
                logging.info("The model of %s takes no num_sequences: no packing.", self.head.name)
                self.batching = dataclasses.replace(self.batching, bucket_by_length=False)

        def make_model() -> keras.Model:
            keras.utils.set_random_seed(self._head_seed(seed))
            return self.head.model(self.model.config, **model_arguments)

        self.trainer = Trainer(
            make_model,
            self.head,
            optimizer,
            strategy=self.strategy,
            seed=seed,
            freeze=freeze,
            step_config=self.step_config,
        )
        return self.trainer

    def _head_seed(self, seed: int) -> int:
        """The seed of a new head, from that of the run and the initial weights."""
        source = self.model.source
        seed %= 2**32
        for name in sorted(source.shapes):
            if name.endswith(_SEEDING_WEIGHTS):
                seed = zlib.crc32(source.read(name).tobytes(), seed)
        return seed

    def load_pretrained(self) -> None:
        """Loads the initial weights of training."""
        logging.info("%s", loading.load_weights(self.trainer.model, self.model.source))

    def restore(self) -> None:
        """Loads the model for evaluation and prediction, head included.

        Raises:
          InputError: it has no such head.
        """
        self._warn_of_other_facts()
        schedule = optimization.Schedule(learning_rate=1.0, num_train_steps=1)  # nothing is trained
        trainer = self.make_trainer(optimization.AdamWeightDecay(schedule), seed=0)
        source = self.model.source
        logging.info("%s", loading.load_weights(trainer.model, source, required=self.head.required))
        self.step = tf1.step_of(source.path)

    def _warn_of_other_facts(self) -> None:
        """Warns if sequences are made in another way than for the training of the model."""
        source = self.model.source
        facts = self.facts()
        trained = source.metadata.known()
        if "max_seq_length" not in trained:  # not a model of ours
            return
        for name in names_with(ModelMetadata, "of_sequences"):
            before = trained.get(name)  # None: a switch that was off
            if name in facts and before != facts[name]:
                logging.warning(
                    "%s was trained with %s = %s; here it is %s.",
                    source.path,
                    name,
                    before,
                    facts[name],
                )

    def metadata(self) -> ModelMetadata:
        """The metadata of the run's model, for model_facts.json."""
        tokenizer = self.model.tokenizer
        return ModelMetadata(
            **tokenizer.case,
            **kept_whole(tokenizer),
            architecture=self.head.architecture,
            origin=self.model.source.metadata.origin,
            **self.facts(),
        )

    def write_results(self, results: Mapping[str, float], name: str = EVAL_RESULTS) -> None:
        """Writes scores into the run's folder."""
        write_eval_results(self.output_dir, results, name)
        self.results[name] = results

    def write_model_files(self, folder: str) -> None:
        """Writes configuration, vocabulary and metadata into a folder of checkpoints."""
        write_model_files(folder, self.model.config, self.model.tokenizer, self.metadata())

    # ------------------------------------------------------------------------ training

    def check_folder(self, *, keeps_best: bool) -> None:
        """Refuses the folder of another model, before anything is written.

        Args:
          keeps_best: whether the run keeps a best checkpoint there.

        Raises:
          InputError: the folder has another model, or the best checkpoint of another run.
        """
        folder = tf1.CheckpointFolder(self.output_dir)
        pieces = self.model.tokenizer.pieces
        refuse_other_model(folder, self.model.config, pieces, self.metadata())
        best = f"{self.output_dir}/{BEST}"
        if not keeps_best and tf.io.gfile.exists(f"{best}/checkpoint"):
            # Later this run's predictions would load it.
            received = f"{best}, the best checkpoint of a single run with --eval_steps"
            raise InputError(received, "--eval_steps, or a folder without it", REMEDY)

    def plan(self, config: TrainingConfig, train: SplitData) -> RunPlan:
        """The steps of a training on prepared data.

        Raises:
          InputError: there are too few examples for a step.
        """
        return RunPlan.of_epochs(
            num_records=len(train.files),
            num_counted=train.num_counted,
            batch_size=config.schedule.train_batch_size,
            num_epochs=config.schedule.num_train_epochs,
            seed=config.seed,
            intervals=config.intervals,
        )

    def settings_of(
        self, config: TrainingConfig, train: SplitData, dev: SplitData | None
    ) -> Settings:
        """The settings that affect the trained weights: the command's, the data's, the task's.

        Args:
          config: the configuration of the training.
          train: the training data, prepared.
          dev: the data that select the best model; None if there are none.
        """
        plan = self.plan(config, train)
        values = self.facts() | config.run_settings | plan.settings()
        values |= {
            "init_checkpoint": self.model.source.path,
            "train_data": train.digest,
            "dev_data": self.prepare(dev).digest if dev else None,
            "num_train_steps": plan.num_train_steps,
            "learning_rate": config.schedule.learning_rate,
            "seed": config.seed,
        }
        return config.run_settings.with_values(**values)

    def train(
        self,
        config: TrainingConfig,
        train: SplitData,
        dev: SplitData | None = None,
        *,
        folder: str | None = None,
    ) -> None:
        """Trains; the run's model is then the best by `dev`, or the last one.

        Args:
          config: the configuration of the training.
          train: the training data.
          dev: evaluated during training if `config.intervals.eval_steps` is above 0.
          folder: the folder of a trial, if the run has several; None: the run's folder.

        Raises:
          InputError: the folder has a finished run with other settings, or as `Trainer.train`.
        """
        is_trial = folder is not None
        folder = folder or self.output_dir
        evaluates = dev is not None and config.intervals.eval_steps > 0
        if not is_trial:
            self.check_folder(keeps_best=config.intervals.eval_steps > 0)
        checkpoints = tf1.CheckpointFolder(folder, keep_max=config.keep_checkpoint_max)
        latest = checkpoints.latest()
        # Read before records are written: it refuses a checkpoint that no run has written.
        is_finished = latest is not None and tf1.is_finished(latest)
        selects = dev if evaluates or is_trial else None
        settings = self.settings_of(config, self.prepare(train), selects)
        plan = self.plan(config, train)
        if is_finished:  # it may be trained for longer
            may_change = {"num_train_steps", *settings.may_change}
            tf1.check_finished_run(latest, settings, besides=may_change)
        elif latest:
            plan.check_resumed(folder, tf1.CheckpointReader(latest).run_settings())
        trainer = self._begin(config, plan, is_resumed=latest is not None)
        best = None
        if evaluates:
            best = BestCheckpoint(self, dev, checkpoints, settings, config.early_stopping)
        if best and best.has_stopped:
            # It has, too, if a resumed run was given a smaller early_stopping.
            tf1.check_finished_run(latest, settings, besides=("early_stopping",))
            trainer.restore(checkpoints, settings)
        else:
            trainer.train(
                self._training_batches(train, plan),
                plan,
                folder=checkpoints,
                run_settings=settings,
                on_begin=None if is_trial else lambda: self.write_model_files(folder),
                evaluate=best,
            )
        last_step = tf1.step_of(checkpoints.latest())
        self.step = best.restore(last_step) if best else last_step

    def _begin(self, config: TrainingConfig, plan: RunPlan, *, is_resumed: bool) -> Trainer:
        """Makes the trainer of a run, with the initial weights unless it is resumed."""
        optimizer = optimizer_of(config.schedule, plan.num_train_steps)
        trainer = self.make_trainer(optimizer, seed=config.seed, freeze=config.freeze)
        if not is_resumed:
            self.load_pretrained()
        return trainer

    def _training_batches(self, train: SplitData, plan: RunPlan) -> Batches:
        parts = self.step_config.gradient_accumulation_steps
        return self.batching.training(
            train.files,
            batch_size=plan.batch_size,
            num_train_steps=plan.last_step,
            seed=plan.seed,
            parts=parts * self.strategy.num_replicas_in_sync,
            one_shape=self._has_one_shape,
        )


def _check_finite(name: str, values: list[np.ndarray]) -> None:
    """Refuses an output that is NaN or infinite for some records."""
    wrong = sum(not np.isfinite(value).all() for value in values)
    if wrong:
        raise InputError(
            f"a model whose {name} are NaN or infinite for {wrong} of {len(values)} records",
            "finite numbers: its training diverged, or its weights are damaged",
            "train with a lower --learning_rate or a longer warm-up, or use another checkpoint",
        )


def _padded(values: list[np.ndarray]) -> np.ndarray:
    """The values as one array, padded with 0 along their first axis."""
    longest = max(map(len, values))
    padded = np.zeros([len(values), longest, *values[0].shape[1:]], values[0].dtype)
    for row, value in enumerate(values):
        padded[row, : len(value)] = value
    return padded


# ---------------------------------------------------------------------------- parts of a run


def write_records(
    path: str, record: Record, rows: Iterable[Mapping], *, total: int | None = None
) -> int:
    """Writes a TFRecord file, which appears when it is whole; returns the number of records.

    Args:
      path: local or remote.
      record: the features.
      rows: the values of the features of each record.
      total: about how many records there are, for the progress.

    Raises:
      InputError: the file cannot be written, or other processes of the run have other rows.
    """
    count = 0
    checksum = 0
    with (
        path_errors(path, "written"),
        published(path) as temporary,
        tf.io.TFRecordWriter(temporary) as writer,
    ):
        label = f"write {os.path.basename(path)}"
        for count, row in enumerate(counted(rows, label, total, "records"), 1):  # noqa: B007
            serialized = record.serialize(row)
            checksum = zlib.crc32(serialized, checksum)
            writer.write(serialized)
    # Also waits until the chief has written the file, which all processes read.
    runtime.check_same({f"records of {path}": checksum})
    return count


def optimizer_of(
    schedule: FineTuningSchedule, num_train_steps: int
) -> optimization.AdamWeightDecay:
    """The optimizer of a fine-tuning run with `num_train_steps` steps."""
    rates = optimization.warmed_up(
        num_train_steps,
        learning_rate=schedule.learning_rate,
        warmup_proportion=schedule.warmup_proportion,
    )
    decay = schedule.layerwise_lr_decay
    return optimization.optimizer_of(schedule, rates, layerwise_lr_decay=decay)
