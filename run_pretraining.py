"""Pre-trains BERT: TFRecords -> masked-LM and next-sentence loss -> checkpoints.

    python run_pretraining.py --input_file=/data/*.tfrecord --output_dir=/models/mine \\
        --bert_config_file=bert_config.json --do_train --do_eval

The original's flags keep their names, defaults and meaning. The same command resumes a run that was
stopped, from its last checkpoint, and ends as if it had never been stopped.
"""

import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING

from bert_tf.cli.main import run
from bert_tf.cli.training_options import TrainingCommand, require, require_one_of
from bert_tf.options import option, replaced
from bert_tf.training.options import (
    Intervals,
    PretrainedFrom,
    PretrainingData,
    PretrainingSchedule,
    Training,
)

if TYPE_CHECKING:
    from bert_tf.checkpoints.companions import Companions
    from bert_tf.data.batches import Batches
    from bert_tf.options import Settings
    from bert_tf.training.plan import RunPlan


class Pretrain(
    TrainingCommand,
    most_used="input_file bert_config_file vocab_file output_dir do_train do_eval num_train_steps",
):
    """The options of this script."""

    model: PretrainedFrom = PretrainedFrom()
    data: PretrainingData
    do_eval: bool = option("Evaluate; after training, if both.", default=False, original=True)
    schedule: PretrainingSchedule = PretrainingSchedule()
    intervals: Intervals = Intervals()
    training: Training = Training()

    def check(self) -> None:
        """Refuses options that lack others."""
        super().check()
        require_one_of(do_train=self.do_train, do_eval=self.do_eval)
        require("export_dir", self.export_dir, vocab_file=self.model.vocab_file)


def main(options: Pretrain) -> None:
    """Model, data -> trainer -> first weights -> train -> evaluate -> export."""
    from absl import logging

    from bert_tf.checkpoints import tf1
    from bert_tf.cli import training
    from bert_tf.cli.record import write_record
    from bert_tf.files import EVAL_RESULTS, locked
    from bert_tf.training import pretraining
    from bert_tf.training.log import write_eval_results, write_final_evaluation

    given_options = options
    strategy = training.make_strategy(options)
    if options.do_eval:  # --max_eval_steps counts batches, so their size affects the result
        training.check_batch_size("eval_batch_size", options.data.eval_batch_size, strategy)
    # An evaluation alone writes one file, and may do so while a training runs in the folder.
    is_run = options.do_train or options.export_dir
    with locked(options.output_dir, folder=True) if is_run else contextlib.nullcontext():
        training.refuse_others(options)
        options, model = with_model(options)
        plan, batches, eval_batches = make_batches(options, model)
        keep_max = options.training.keep_checkpoint_max
        folder = tf1.CheckpointFolder(options.output_dir, keep_max=keep_max)
        trainer = pretraining.make_trainer(
            model,
            options.data.task,
            options.schedule,
            strategy=strategy,
            seed=options.training.seed,
            step_config=training.step_of_devices(options.step),
        )
        model = pretraining.load_first_weights(
            trainer, folder, model, options.model, is_trained=options.do_train
        )
        # Cached by step: the last evaluation of training is also that of --do_eval.
        evaluate = functools.cache(lambda _: trainer.evaluate(eval_batches))
        scores = {}
        if options.do_train:
            trainer.train(
                batches,
                plan,
                folder=folder,
                run_settings=settings_of(options, model, plan, batches),
                on_begin=lambda: model.write(folder.path),
                evaluate=lambda step, _: evaluate(step),
            )
        if options.do_eval:
            step = pretraining.restore_last(trainer, folder, options.model)
            results = {"global_step": step, **evaluate(step)}
            write_eval_results(options.output_dir, results)
            write_final_evaluation(options.output_dir, results)
            scores = {EVAL_RESULTS: results}
        if options.export_dir:
            trained = pretraining.trained_model(folder, model, options.model)
            length = options.data.max_seq_length
            training.export(options, trained, task="fill_mask", max_seq_length=length)
        if is_run:
            write_record(options.output_dir, given_options, scores)
    logging.info("Wrote %s", options.output_dir)


def settings_of(
    options: Pretrain, model: "Companions", plan: "RunPlan", batches: "Batches"
) -> "Settings":
    """The settings that affect the result of the run; its checkpoints record them."""
    from bert_tf.cli import training

    settings = training.settings_of(options, model.config)
    return settings.with_values(**plan.settings(), train_records=batches.fingerprint())


def with_model(options: Pretrain) -> "tuple[Pretrain, Companions]":
    """The options, completed from the weights and the data; the model that is pre-trained."""
    from bert_tf.checkpoints.loading import pinned
    from bert_tf.training.pretraining import model_of_data

    weights = pinned(options.model.init_checkpoint, options.output_dir)
    options = replaced(options, init_checkpoint=weights)
    model, data = model_of_data(
        options.model,
        options.data,
        options.data.files(is_trained=options.do_train, is_evaluated=options.do_eval),
        output_dir=options.output_dir,
        is_exported=bool(options.export_dir),
    )
    return dataclasses.replace(options, data=data), model


def make_batches(
    options: Pretrain, model: "Companions"
) -> "tuple[RunPlan | None, Batches | None, Batches | None]":
    """The plan and the batches of training, the batches of evaluation; None if not asked for."""
    from bert_tf.training import pretraining

    plan = None
    batches = None
    eval_batches = None
    if options.do_train:
        files = pretraining.open_records(options.data.input_file, options.data, model)
        plan = pretraining.plan_of(
            files,
            options.schedule,
            options.intervals,
            output_dir=options.output_dir,
            seed=options.training.seed,
        )
        batches = pretraining.training_batches(files, plan)
    if options.do_eval:
        eval_batches = pretraining.evaluation_batches(options.data, model)
    return plan, batches, eval_batches


if __name__ == "__main__":
    run(main)
