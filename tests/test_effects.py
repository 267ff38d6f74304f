"""Flags whose effect is recomputed: each case sets them as a command line does.

Weights after some steps of a small linear model are worked out in NumPy float64, from the papers'
formulas and rates by hand; shares of generated data are counted. Each case records its largest
difference. What is proved by independent recomputation elsewhere, and not repeated here:

    one variable's update, AdamW and LAMB           training/test_optimization.py, three_steps
    names that decay, of every name of a BERT       ... which_variables_decay
    warm-up, decay, end_learning_rate               ... schedule_by_hand
    levels of the layers, patterns of --freeze      ... every_level_down, patterns_of_what_is_frozen
    the same updates in `fit`                       ... keras_updates_as_the_training_loop_does
    frozen weights of a BERT, their moments         training/test_partial_training.py
    replicas and parts of a BERT's batch            training/test_step.py, test_trainer.py
    steps and warm-up of MRPC                       training/test_fine_tuning.py
    best checkpoint, NaN, a patience of two         ... stops_after_two, undefined_score
    doc_stride, max_query_length, max_seq_length    squad/test_windows.py, by the plain reference
    n_best_size, max_answer_length                  squad/test_answers.py, likewise
    null odds, null_score_diff_threshold            ... test_decide, by hand
    which trial of a sweep is kept, ties            tasks/test_trials.py, best_trial_is_kept
    mean and deviation of trials                    ... tables_of_a_sweep, by hand
    each draw of masks, whole words, short          data_gen/test_instances.py, by the plain way;
      sequences, passes                               test_pipeline.py, the original's records
    the seed of data and of their order             data_gen/test_pipeline.py, data/test_batches.py
    --pooling and --layers of features              serving/test_pretrained.py
"""

import math
import random
import types
import unittest.mock

import keras
import numpy as np
import pytest
import small
import tensorflow as tf
from scripted_run import DEV, ScriptedRun
from walking import eagerly, parsed

from bert_tf.checkpoints import tf1
from bert_tf.cli import training
from bert_tf.cli.training_options import FineTuningCommand, TrainingCommand
from bert_tf.data import SEQUENCES
from bert_tf.heads.head import Head
from bert_tf.training import distribution, pretraining
from bert_tf.training.best import BestCheckpoint
from bert_tf.training.evaluation import StopTraining
from bert_tf.training.fine_tuning import Run, optimizer_of
from bert_tf.training.options import FineTuningSchedule
from bert_tf.training.trainer import Trainer
from data_gen.corpus import Corpus
from data_gen.documents import Counts
from data_gen.instances import InstanceMaker
from data_gen.pipeline import settings_of

# ---------------------------------------------------------------------------- weights after steps

# Of each weight its layer, name and shape, whether it decays, and its levels below the head.
WEIGHTS = (
    ("embeddings", "word_embeddings", (3, 4), True, 4),
    ("embeddings", "gamma", (2,), False, 4),
    ("layer_0", "kernel", (1, 5), True, 3),
    ("layer_1", "bias", (6,), False, 2),
    ("layer_1", "kernel", (7,), True, 2),
    ("pooler", "kernel", (4, 2), True, 1),
    ("classifier", "output_weights", (2, 5), True, 0),
    ("classifier", "output_bias", (1,), False, 0),
)
SCOPES = {"embeddings": "bert/embeddings/", "pooler": "bert/pooler/"}
SCOPES |= {layer: f"bert/encoder/{layer}/" for layer in ("layer_0", "layer_1")}
SIZES = tuple(math.prod(shape) for _, _, shape, _, _ in WEIGHTS)
ROWS, EXAMPLES = 6, 23  # of a batch, in an epoch
REAL = np.float32([1, 1, 1, 0, 1, 0])  # others only fill the batch up: 2, 1 and 1 in three parts
START = keras.initializers.RandomNormal(stddev=0.3, seed=2)
SCALES = (1.0, 0.2, 0.7, 0.1, 0.3, 0.05, 0.4)  # of inputs: gradients are long or short


@keras.saving.register_keras_serializable(package="test_effects")
class Products(keras.layers.Layer):
    """The sum of a layer's weights times inputs, [B, weights] -> [B, 1]."""

    def build(self, _):
        for layer, name, shape, _, _ in WEIGHTS:
            if layer == self.name:
                self.add_weight(name=name, shape=shape, initializer=START)
        self.built = True

    def call(self, x):
        """Adds up."""
        weights = tf.concat([tf.reshape(w, [-1]) for w in self.trainable_weights], axis=0)
        return tf.reduce_sum(x * weights, axis=1, keepdims=True)


class Squares(Head):
    """Half the squared difference of the sum of all weights times their inputs, and a label."""

    name, terms, outputs = "squares", ("squares",), ("sum",)

    def model(self, config, **_):
        """One input to each layer."""
        widths: dict[str, int] = {}
        for (layer, *_rest), size in zip(WEIGHTS, SIZES, strict=True):
            widths[layer] = widths.get(layer, 0) + size
        inputs = {
            f"of_{layer}": keras.Input([n], name=f"of_{layer}") for layer, n in widths.items()
        }
        products = [Products(name=layer)(inputs[f"of_{layer}"]) for layer in widths]
        return keras.Model(inputs, {"sum": keras.layers.Add()(products)})

    def losses(self, outputs, batch):
        """Of each row."""
        return {"squares": tf.square(outputs["sum"][:, 0] - batch["label"]) / 2}


def fine_tuned(options: FineTuningCommand) -> Trainer:
    """The trainer of a run that fine-tunes."""
    source = types.SimpleNamespace(shapes={})
    model = types.SimpleNamespace(config=small.CONFIG, source=source)
    one = distribution.make_strategy("one")
    run = Run(**training.run_arguments(options, model, one, max_seq_length=17))
    run.head = Squares()
    is_squad = isinstance(options.schedule, FineTuningSchedule)
    schedule = options.schedule if is_squad else options.schedule.at(options.learning_rate[0])
    config = training.training_config(options, run, schedule)
    train = types.SimpleNamespace(files=range(EXAMPLES), num_counted=EXAMPLES)
    optimizer = optimizer_of(config.schedule, run.plan(config, train).num_train_steps)
    return run.make_trainer(optimizer, seed=config.seed, freeze=config.freeze)


def pretrained(options: TrainingCommand) -> Trainer:
    """The trainer of a run that pre-trains."""
    facts = types.SimpleNamespace(config=small.CONFIG, data=None)

    def trainer(_, objective, optimizer, **how):
        head = Squares()
        return Trainer(lambda: head.model(None), head, optimizer, **how)

    with unittest.mock.patch.object(pretraining, "Trainer", trainer):
        return pretraining.make_trainer(
            facts,
            options.data.task,
            options.schedule,
            strategy=distribution.make_strategy("one"),
            seed=options.training.seed,
            step_config=training.step_of_devices(options.step),
        )


def batches(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [T, ROWS, weights] and labels [T, ROWS]."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((steps, ROWS, sum(SIZES))) * np.array(SCALES[:steps])[:, None, None]
    return x.astype("f"), rng.standard_normal((steps, ROWS)).astype("f")


def split(values: np.ndarray) -> list[np.ndarray]:
    """Along the last axis, to each weight its own."""
    return np.split(values, np.cumsum(SIZES)[:-1], axis=-1)


def weights_of(trainer: Trainer) -> list[np.ndarray]:
    """Of each weight its values, flat."""
    state = trainer.steps.weights | trainer.steps.frozen
    return [state[SCOPES.get(one[0], "") + one[1]].numpy().ravel() for one in WEIGHTS]


def trained(trainer: Trainer, steps: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The weights after these steps; loss and norm of the gradient of each, [T, 2]."""
    layers, reports = [f"of_{layer}" for layer, *_ in WEIGHTS], []
    for step, (x, label) in enumerate(zip(*batches(steps), strict=True)):
        batch = {"label": label, "is_real_example": REAL}
        batch[SEQUENCES] = np.arange(ROWS, dtype=np.int32)[:, None]
        for layer, part in zip(layers, split(x), strict=True):
            batch[layer] = np.concatenate([batch.get(layer, part[:, :0]), part], axis=1)
        values = {name: tf.constant(value) for name, value in batch.items()}
        none = tf.zeros(len(trainer.steps.loss_names) + 1)
        reports.append(trainer.steps.train_on(none, values, tf.constant(step)).numpy()[:2])
    return weights_of(trainer), np.array(reports)


def by_hand(
    start, rates, *, lamb=False, corrected=False, decay=1.0, frozen=(), clip=1.0, l2=0.01
) -> tuple[list[np.ndarray], np.ndarray]:
    """The same in NumPy, float64."""
    w = [value.astype(float) for value in start]
    moments = [(np.zeros(size), np.zeros(size)) for size in SIZES]
    learning, reports = [i for i in range(len(WEIGHTS)) if i not in frozen], []
    for t, (rate, x, label) in enumerate(zip(rates, *batches(len(rates)), strict=True), 1):
        x, real = x.astype(float), REAL == 1
        error = (x @ np.concatenate(w) - label)[real]
        gradients = split(error @ x[real] / real.sum())
        norm = math.sqrt(sum(np.square(gradients[i]).sum() for i in learning))
        reports.append([np.square(error).mean() / 2, norm])
        for i in learning:
            g = gradients[i] * min(1.0, clip / norm)
            m = 0.9 * moments[i][0] + 0.1 * g
            v = 0.999 * moments[i][1] + 0.001 * g * g
            moments[i] = m, v
            if corrected:
                m, v = m / (1 - 0.9**t), v / (1 - 0.999**t)
            u, (_, _, _, decays, levels) = m / (np.sqrt(v) + 1e-6), WEIGHTS[i]
            u = u + l2 * w[i] * decays
            ratio = np.linalg.norm(w[i]) / np.linalg.norm(u) if lamb and decays else 1.0
            w[i] = w[i] - rate * decay**levels * ratio * u
    return w, np.array(reports)


PRETRAINING = "--input_file=a --output_dir=b --do_train --train_batch_size=6 --noxla "
FINE_TUNING = PRETRAINING.replace("--input_file=a", "--init_checkpoint=c --nobucket_by_length")
TEXTS = "run_classifier.py", f"--train_file=a {FINE_TUNING} "
QUESTIONS = "run_squad.py", f"--train_file=a {FINE_TUNING} "
RECORDS = "run_pretraining.py", f"{PRETRAINING} --learning_rate=0.07 --num_train_steps=7 "
SEVEN = "--num_train_epochs=2 --learning_rate=0.07 "  # int(23 / 6 * 2), 7.7
WARM = (0, 0.035, 0.05, 0.04, 0.03, 0.02, 0.01)  # two steps of seven, of 0.07
COLD = (0.07, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01)
# The command, flags, the learning rates, and what else is otherwise.
STEPS = {
    "AdamW": (RECORDS, "--num_warmup_steps=2", WARM, {}),
    "bias correction": (RECORDS, "--num_warmup_steps=2 --bias_correction", WARM,
                        {"corrected": True}),
    "LAMB": (RECORDS, "--num_warmup_steps=0 --optimizer=lamb", COLD, {"lamb": True}),
    "LAMB, corrected": (RECORDS, "--num_warmup_steps=2 --optimizer=lamb --bias_correction", WARM,
                        {"lamb": True, "corrected": True}),
    "three parts": (RECORDS, "--num_warmup_steps=2 --gradient_accumulation_steps=3", WARM, {}),
    "epochs, warm-up": (TEXTS, f"{SEVEN} --warmup_proportion=0.3", WARM, {}),
    "no warm-up": (TEXTS, f"{SEVEN} --warmup_proportion=0", COLD, {}),
    "less than an epoch": (QUESTIONS, "--num_train_epochs=0.95 --learning_rate=0.06 "
                           "--warmup_proportion=0.34", (0, 0.04, 0.02), {}),
    "levels": (QUESTIONS, f"{SEVEN} --warmup_proportion=0.2 --layerwise_lr_decay=0.6",
               (0, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01), {"decay": 0.6}),
    "frozen": (TEXTS, f"{SEVEN} --warmup_proportion=0.3 --freeze=bert/emb,layer_[1-4]/k,s$",
               WARM, {"frozen": (0, 1, 3, 4, 6, 7)}),
    "all at once": (QUESTIONS, f"{SEVEN} --warmup_proportion=0.3 --freeze=gamma,layer_0 "
                    "--layerwise_lr_decay=0.8 --optimizer=lamb --bias_correction "
                    "--gradient_accumulation_steps=2", WARM,
                    {"frozen": (1, 2), "decay": 0.8, "lamb": True, "corrected": True}),
}  # fmt: skip


@pytest.mark.parametrize("case", STEPS)
def test_weights_after_some_steps(case, record_property):
    """To 2e-6, and 1e-5 of loss and norm; without an effect they would be ten times as far."""
    (script, given), words, rates, otherwise = STEPS[case]
    build = pretrained if script == "run_pretraining.py" else fine_tuned
    with eagerly():
        trainer = build(parsed(script, *f"{given} {words}".split()))
        assert trainer.optimizer.schedule.num_train_steps == len(rates)
        start = weights_of(trainer)
        found, reports = trained(trainer, len(rates))
    expected, by_step = by_hand(start, rates, **otherwise)
    differences = [np.abs(a - b).max() for a, b in zip(found, expected, strict=True)]
    record_property("difference", float(max(differences)))
    assert max(differences) < 2e-6
    np.testing.assert_allclose(reports, by_step, rtol=1e-5)
    assert by_step[:, 1].min() < 1 < by_step[:, 1].max()
    defaults = by_hand.__kwdefaults__
    for change in {"clip": math.inf}, {"l2": 0.0}, *({n: defaults[n]} for n in otherwise):
        other, _ = by_hand(start, rates, **otherwise | change)
        assert max(np.abs(a - b).max() for a, b in zip(other, expected, strict=True)) > 3e-5


# ---------------------------------------------------------------------------- the best checkpoint

# The metric, --early_stopping, scores every ten steps, the best step and the last; None: it goes on
PATIENCE = (
    ("eval_accuracy", 1, (0.5, 0.6, 0.6, 0.9), 20, 30),
    ("eval_accuracy", 3, (0.4, 0.7, 0.7, 0.6, 0.7, 0.9), 20, 50),
    ("eval_accuracy", 0, (0.5, 0.4, 0.3, 0.5, 0.1), 10, None),
    ("eval_loss", 1, (0.5, 0.4, 0.4, 0.1), 20, 30),
    ("eval_loss", 3, (0.9, 0.3, 0.8, 0.2, 0.2, 0.3, 0.25, 0.1), 40, 70),
    ("eval_loss", 4, (0.9, 0.3, 0.8, 0.4, 0.3), 20, None),
)


@pytest.mark.parametrize(("metric", "patience", "scores", "best_step", "last"), PATIENCE)
def test_patience(metric, patience, scores, best_step, last, tmp_path, record_property):
    """An equal score is not better: the first is kept."""
    run, left, ended = ScriptedRun(tmp_path), [*scores], None
    run.metric, run.evaluate = metric, lambda _: {metric: left.pop(0)}
    folder, settings = tf1.CheckpointFolder(tmp_path), {"dev_data": DEV.digest}
    best = BestCheckpoint(run, DEV, folder, settings, early_stopping=patience)
    for step in range(10, 10 * len(scores) + 1, 10):
        try:
            best(step, lambda: None)
        except StopTraining:
            ended = step
            break
    found = tf1.step_of(best.folder.latest()), ended or 0
    differences = [abs(a - b) for a, b in zip(found, (best_step, last or 0), strict=True)]
    record_property("difference", max(differences))
    assert max(differences) == 0


# ---------------------------------------------------------------------------- data, counted

LENGTH, SENTENCE = 64, 40  # of a sequence; tokens of a document of one sentence
DATA = f"--input_file=a --output_file=b --vocab_file=c --max_seq_length={LENGTH} "
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(302)))
VOCAB = {piece: number for number, piece in enumerate(PIECES)}


def rows_of(words: str, documents) -> np.ndarray:
    """The instances that `bert-tf data` makes of tokenized documents, in order."""
    options = parsed("create_pretraining_data.py", *f"{DATA}{words}".split())
    chosen = settings_of(options)
    corpus, maker = Corpus.of(documents), InstanceMaker(chosen, VOCAB)
    return maker.rows(corpus, range(len(documents)), random.Random(chosen.random_seed), Counts())


# Flags, sequences made of 450 documents, predictions of each, and of these the shares that are
# masked, random and unchanged. A sequence has 64 tokens: 9.6 are predicted by default.
COUNTS = (
    ("--dupe_factor=4", 1800, 10, (0.8, 0.1, 0.1)),
    ("--dupe_factor=7", 3150, 10, (0.8, 0.1, 0.1)),
    ("--dupe_factor=5 --masked_lm_prob=0.3", 2250, 19, (0.8, 0.1, 0.1)),
    ("--dupe_factor=9 --max_predictions_per_seq=8", 4050, 8, (0.8, 0.1, 0.1)),
    ("--dupe_factor=8 --masked_lm_prob=0.001", 3600, 1, (0.8, 0.1, 0.1)),
    ("--dupe_factor=6 --mask_share=0.5 --random_share=0.3", 2700, 10, (0.5, 0.3, 0.2)),
    ("--dupe_factor=6 --mask_share=0.25 --random_share=0", 2700, 10, (0.25, 0, 0.75)),
    ("--dupe_factor=3 --mask_share=0 --random_share=1", 1350, 10, (0, 1, 0)),
    ("--dupe_factor=3 --mask_share=1 --random_share=0", 1350, 10, (1, 0, 0)),
)


@pytest.mark.parametrize(("words", "instances", "predictions", "shares"), COUNTS)
def test_masks_are_counted(words, instances, predictions, shares, record_property):
    """Shares to five deviations; a random piece may be any, [MASK] and the right one too."""
    rng = np.random.default_rng(6)
    rows = rows_of(words, [[rng.integers(5, len(PIECES), SENTENCE).tolist()] for _ in range(450)])
    assert len(rows) == instances
    assert {*rows["num_masked"].tolist()} == {predictions}
    assert {*rows["lengths"].sum(axis=1).tolist()} == {LENGTH - 3}
    positions, labels = (rows[n][:, :predictions].astype(int) for n in ("positions", "labels"))
    shown = np.take_along_axis(rows["input_ids"].astype(int), positions, axis=1)
    is_mask, is_same = shown == VOCAB["[MASK]"], shown == labels
    masked, by_chance, same = shares[0], shares[1] / len(PIECES), shares[2]
    expected = masked + by_chance, shares[1] - 2 * by_chance, same + by_chance
    found = is_mask.mean(), (~is_mask & ~is_same).mean(), is_same.mean()
    differences = np.abs(np.subtract(found, expected))
    record_property("difference", float(differences.max()))
    deviations = np.sqrt(np.multiply(expected, np.subtract(1, expected)) / shown.size)
    assert (differences <= 5 * deviations).all()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 1.0])
def test_short_documents_are_counted(share, record_property):
    """Of pairs that follow each other: a short one has 2 to 61 tokens, each number as often."""
    room, documents = LENGTH - 3, [[[5 + n]] * 61 for n in range(100)]
    words = f"--short_seq_prob={share} --dupe_factor=22 --mask_share=0 --random_share=0"
    rows = rows_of(words, documents)
    document = rows["input_ids"][:, 1].astype(int)
    begins = np.append(True, document[1:] != document[:-1])
    first = rows[begins & ~rows["is_random_next"]]
    assert begins.sum() == 2200
    lengths = first["lengths"].sum(axis=1, dtype=int)
    assert {*lengths.tolist()} <= {*range(2, room + 1)}
    drawn = np.arange(2, room + 1)
    mean = share * drawn.mean() + (1 - share) * room
    square = share * np.square(drawn).mean() + (1 - share) * room**2
    is_short = share * (1 - 1 / len(drawn))
    differences = abs(lengths.mean() - mean), abs((lengths < room).mean() - is_short)
    deviations = math.sqrt(max(0, square - mean**2)), math.sqrt(is_short * (1 - is_short))
    record_property("difference", float(differences[1]))
    for difference, deviation in zip(differences, deviations, strict=True):
        assert difference <= 5 * deviation / math.sqrt(len(first))
    assert abs(len(first) / 2200 - 0.5) < 5 * 0.5 / math.sqrt(2200)
