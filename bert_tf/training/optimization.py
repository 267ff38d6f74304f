"""Learning-rate schedule and weight updates, exactly those of the original by default."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.config import check_fields, declared, size
from bert_tf.errors import InputError
from bert_tf.training.settings import OPTIMIZERS

# Weight decay applies to kernels, embeddings and output_weights, not to biases and normalizations.
NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """Linear warm-up, then linear decay (original: `create_optimizer`).

        step t < W   init * t / W
        else         end + (init - end) * (1 - min(t, T) / T)

    t counts from 0, so the first step's rate is 0 with any warm-up; the rate falls from
    init * (W-1)/W to that of the decay, init * (1 - W/T), when the warm-up ends; the last step's is
    init / T. With W = 0 there is no warm-up.

    Raises:
      InputError: a rate or a number of steps is out of range.
    """

    learning_rate: float = declared(above=0, high=1e6)  # init
    num_train_steps: int = size()  # T
    num_warmup_steps: int = declared(0, low=0, high=2**31 - 1)  # W
    end_learning_rate: float = declared(0.0, low=0, high=1e6)

    def __post_init__(self):
        check_fields(self)

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The rate of step t, int scalar counted before the update -> float32 scalar."""
        step = tf.cast(step, tf.float32)
        total = float(self.num_train_steps)
        span = self.learning_rate - self.end_learning_rate
        rate = span * (1.0 - tf.minimum(step, total) / total) + self.end_learning_rate
        if self.num_warmup_steps:
            warmup = self.learning_rate * (step / self.num_warmup_steps)
            rate = tf.where(step < self.num_warmup_steps, warmup, rate)
        return rate

    def rate(self, step: int) -> float:
        """The rate of a step, as a number."""
        return float(self(tf.constant(step)))

    def warning(self) -> str:
        """Why a run with it learns less than was meant, and what to do; "" for a sound one."""
        total, warmup = self.num_train_steps, self.num_warmup_steps
        last = self.rate(total - 1)
        if warmup >= total:
            return (
                f"The warm-up of {warmup} steps lasts for the whole run of {total}: the learning "
                f"rate ends at {last:g}, still rising to {self.learning_rate:g}. Use a shorter one "
                f"(--num_warmup_steps or --warmup_proportion), {total // 10} steps, say."
            )
        if not max(self.rate(0), self.rate(warmup), last):
            return "The learning rate is 0 in every step: nothing is learned. Use a greater one."
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamWeightDecay:
    """Adam with decoupled weight decay (original: `AdamWeightDecayOptimizer`).

        m = beta_1 m + (1 - beta_1) g        v = beta_2 v + (1 - beta_2) g^2
        u = m / (sqrt(v) + epsilon) + weight_decay_rate * p
        p = p - learning_rate * u

    There is no bias correction by default: m and v start at 0, and the first updates are about
    three times as large as Adam's. The decay is not an L2 loss, whose gradient would pass through m
    and v; it is applied to p directly. With a `layerwise_lr_decay` below 1, lower layers change
    less (`layer_scales`).
    """

    schedule: Schedule
    weight_decay_rate: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    clip_norm: float = 1.0
    bias_correction: bool = False
    layerwise_lr_decay: float = 1.0

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to the variable of that checkpoint name."""
        return not NOT_DECAYED.search(name)

    def updated(
        self,
        p: tf.Tensor,
        m: tf.Tensor,
        v: tf.Tensor,
        gradient: tf.Tensor,
        *,
        step: tf.Tensor,
        decays: bool,
        scale: float = 1.0,
        skipped: tf.Tensor | int = 0,
        rate: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The new (p, m, v) of one variable after step t, at `scale` times the learning rate.

        All tensors are of the variable's shape. The `skipped` steps before t, which have left the
        moments as they were, do not count in the bias correction. `rate` is that of the schedule,
        if it is known already.
        """
        m = self.beta_1 * m + (1.0 - self.beta_1) * gradient
        v = self.beta_2 * v + (1.0 - self.beta_2) * tf.square(gradient)
        m_hat, v_hat = m, v
        if self.bias_correction:
            count = tf.cast(step - skipped, tf.float32) + 1.0
            m_hat = m / (1.0 - tf.pow(self.beta_1, count))
            v_hat = v / (1.0 - tf.pow(self.beta_2, count))
        update = m_hat / (tf.sqrt(v_hat) + self.epsilon)
        rate = self.schedule(step) if rate is None else rate
        if decays:
            update += self.weight_decay_rate * p
            rate *= self.trust_ratio(p, update)
        return p - rate * scale * update, m, v

    def trust_ratio(self, p: tf.Tensor, update: tf.Tensor) -> tf.Tensor | float:
        """The factor of the learning rate of one variable to which weight decay applies."""
        del p, update
        return 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lamb(AdamWeightDecay):
    """LAMB (You et al., 2020): each variable's update has the norm of its weights times the rate.

    The update of `AdamWeightDecay` is scaled by |p| / |u| for variables to which weight decay
    applies, even at a decay rate of 0; others, and those with |p| or |u| of 0, keep the plain rate.
    """

    def trust_ratio(self, p: tf.Tensor, update: tf.Tensor) -> tf.Tensor:
        """|p| / |u|, or 1 where one of them is 0."""
        weight_norm, update_norm = tf.norm(p), tf.norm(update)
        usable = (weight_norm > 0.0) & (update_norm > 0.0)
        return tf.where(usable, weight_norm / tf.where(usable, update_norm, 1.0), 1.0)


CLASSES = dict(zip(OPTIMIZERS, (AdamWeightDecay, Lamb), strict=True))


def make_optimizer(name: str, schedule: Schedule, **options: Any) -> AdamWeightDecay:
    """The optimizer of that name in `OPTIMIZERS`; `options` are fields of `AdamWeightDecay`."""
    return CLASSES[name](schedule=schedule, **options)


def layer_scales(names: Iterable[str], decay: float) -> dict[str, float]:
    """The factor of each variable's learning rate: `decay` for every level down.

    The levels of L layers are those of ELECTRA's fine-tuning (Clark et al., 2020), whose models
    have nothing between head and encoder; here the pooler is there:

        head 1    pooler decay    layer L-1 decay^2    ...    layer 0 decay^(L+1)
        embeddings decay^(L+2)

    Args:
      names: of variables, as in checkpoints; L is counted from them.
      decay: above 0; 1 for one rate for all.
    """
    names = list(names)
    layers = {name: re.match(r"bert/encoder/layer_(\d+)/", name) for name in names}
    count = 1 + max((int(match[1]) for match in layers.values() if match), default=-1)

    def levels_down(name: str) -> int:
        if match := layers[name]:
            return count + 1 - int(match[1])
        if name.startswith("bert/embeddings/"):
            return count + 2
        return 1 if name.startswith("bert/pooler/") else 0

    return {name: decay ** levels_down(name) for name in names}


def trained_names(names: Sequence[str], freeze: Sequence[str]) -> list[str]:
    """The names of trained variables: those in which none of the patterns is found.

    Args:
      names: of variables, as in checkpoints.
      freeze: regular expressions such as bert/embeddings or bert/encoder/layer_[0-5]/.

    Raises:
      InputError: a pattern is invalid or found in no name, or nothing is left to train.
    """
    frozen: set[str] = set()
    for pattern in freeze:
        try:
            found = {name for name in names if re.search(pattern, name)}
        except re.error as error:
            raise InputError(
                f"--freeze with {pattern!r} ({error})",
                "regular expressions, separated by commas",
                "correct --freeze",
            ) from None
        if not found:
            raise InputError(
                f"--freeze with {pattern!r}, which is in the name of no variable",
                f"a pattern of names such as {', '.join(_samples(names))}",
                "correct --freeze",
            )
        frozen |= found
    trained = [name for name in names if name not in frozen]
    if not trained:
        raise InputError(
            f"--freeze={','.join(freeze)}, which leaves no variable to train",
            "patterns of some of the names",
            "leave one of them out",
        )
    return trained


def _samples(names: Sequence[str]) -> list[str]:
    """One name from each part of a model: embeddings, each layer, ..."""
    parts = {re.sub(r"(layer_\d+|embeddings|pooler)/.*", r"\1", name): name for name in names}
    return list(parts.values())


def clip_by_global_norm(
    gradients: Sequence[tf.Tensor], clip_norm: float
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Scales all gradients together so that their norm is at most `clip_norm`.

    Args:
      gradients: of the whole batch, already summed over replicas and micro-batches.
      clip_norm: the greatest norm; 0 does not clip.

    Returns:
      The gradients, and their norm before. If that is not finite every gradient becomes NaN, so
      training stops with a message, and no weight alone has been updated.
    """
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    norm = tf.linalg.global_norm(dense)
    if not clip_norm:
        return dense, norm
    clipped, _ = tf.clip_by_global_norm(dense, clip_norm, use_norm=norm)
    return clipped, norm
