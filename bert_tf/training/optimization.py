"""The learning-rate schedule and the optimizers; by default those of the original.

They are computed by `keras.ops` alone, on every backend: the training step calls `new_values`, and
`fit` the methods of Keras's optimizers.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import keras
import numpy as np
from keras import ops

from bert_tf.declarations import check, check_fields, declared, size
from bert_tf.errors import InputError
from bert_tf.modeling.keras_private import SumsFirst, index_of_variable
from bert_tf.modeling.names import checkpoint_name
from bert_tf.training.options import Updates

if TYPE_CHECKING:
    from bert_tf.keywords import OptimizerOptions

# Arguments of Keras's optimizers that ours take, too.
KERAS_OPTIONS = (
    "use_ema",
    "ema_momentum",
    "ema_overwrite_frequency",
    "gradient_accumulation_steps",
    "loss_scale_factor",
)
# Weight decay applies to kernels, embeddings and output_weights, not to biases and normalizations.
NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias|gamma$|beta$")


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then linear decay (original: `create_optimizer`).

        step t < W   init * t / W
        else         end + (init - end) * (1 - min(t, T) / T)

    t counts from 0: with a warm-up the first step has the rate 0, and the last one has init / T if
    end is 0. Where the warm-up ends, the rate falls from init * (W - 1) / W to the decay's
    init * (1 - W / T). With W = 0 there is no warm-up.

    Raises:
      InputError: a rate or a number of steps is out of range.
    """

    learning_rate: float = declared(above=0, high=1e6)  # init
    num_train_steps: int = size()  # T
    num_warmup_steps: int = declared(0, low=0, high=2**31 - 1)  # W
    end_learning_rate: float = declared(0.0, low=0, high=1e6)

    def __post_init__(self):
        check_fields(self)

    def __call__(self, step: Any) -> Any:
        """The rate of a step.

        Args:
          step: int scalar, the number of updates before it.

        Returns:
          float32 scalar.
        """
        step = ops.cast(ops.convert_to_tensor(step), "float32")
        total = float(self.num_train_steps)
        span = self.learning_rate - self.end_learning_rate
        rate = span * (1.0 - ops.minimum(step, total) / total) + self.end_learning_rate
        if self.num_warmup_steps:
            warmup = self.learning_rate * (step / self.num_warmup_steps)
            rate = ops.where(step < self.num_warmup_steps, warmup, rate)
        return rate

    def rate(self, step: int) -> float:
        """The rate of a step, as a number."""
        return float(self(step))

    def warning(self) -> str:
        """A warning if the warm-up does not end before the run, with a remedy; otherwise ""."""
        num_steps = self.num_train_steps
        if self.num_warmup_steps < num_steps:
            return ""
        return (
            f"The warm-up of {self.num_warmup_steps} steps lasts for the whole run of {num_steps}: "
            f"the learning rate ends at {self.rate(num_steps - 1):g}, still rising. "
            f"--num_warmup_steps={num_steps // 10} is usual."
        )

    def get_config(self) -> dict[str, Any]:
        """The fields."""
        return dataclasses.asdict(self)


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(SumsFirst):
    """Adam with decoupled weight decay (original: `AdamWeightDecayOptimizer`).

        m = beta_1 m + (1 - beta_1) g        v = beta_2 v + (1 - beta_2) g^2
        u = m / (sqrt(v) + epsilon) + weight_decay_rate * p
        p = p - learning_rate * u

    There is no bias correction by default: m and v start at 0, and the first updates are about
    three times as large as Adam's. The decay is not an L2 loss, whose gradient would pass through m
    and v; it is applied to p directly. With a `layerwise_lr_decay` below 1, lower layers change
    less (`layer_scales`).

    `training/step.py` keeps the moments itself and calls `new_values`; in `fit` Keras calls
    `build`, `clipped` and `update_step`.

    Attributes:
      schedule: the schedule of the learning rate, if it is a `Schedule`; otherwise None.
    """

    def __init__(
        self,
        learning_rate: "Schedule | keras.optimizers.schedules.LearningRateSchedule | float",
        *,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float = 1.0,
        bias_correction: bool = False,
        layerwise_lr_decay: float = 1.0,
        name: str | None = None,
        **kwargs: Any,
    ):
        """Stores the constants of the formula.

        Args:
          learning_rate: the schedule; for `fit` also one of Keras's, or a number.
          weight_decay_rate, beta_1, beta_2, epsilon: as in the formula.
          clip_norm: the norm to which all gradients together are clipped; 0: they are not.
          bias_correction: whether m and v are corrected as in Adam.
          layerwise_lr_decay: the factor of the rate for each level down (`layer_scales`).
          name: the name of the optimizer.
          **kwargs: for `fit`, arguments of Keras's optimizers: use_ema, ema_momentum,
            ema_overwrite_frequency, gradient_accumulation_steps, loss_scale_factor.

        Raises:
          InputError: an argument is unknown, such as Keras's global_clipnorm, here clip_norm.
        """
        if unknown := kwargs.keys() - KERAS_OPTIONS:
            received = f"{type(self).__name__} with {', '.join(sorted(unknown))}"
            expected = f"also {', '.join(KERAS_OPTIONS)}"
            remedy = "leave it out; gradients are clipped by clip_norm"
            raise InputError(received, expected, remedy)
        super().__init__(learning_rate, name=name, **kwargs)
        self.schedule = learning_rate if isinstance(learning_rate, Schedule) else None
        self.clip_norm = clip_norm
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        self.layerwise_lr_decay = layerwise_lr_decay

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to a variable, by its name in checkpoints."""
        return not NOT_DECAYED.search(name)

    def new_values(
        self, p: Any, m: Any, v: Any, gradient: Any, *, rate: Any, count: Any, decays: bool
    ) -> tuple[Any, Any, Any]:
        """The new p, m and v of a variable.

        Args:
          p: the variable; m, v and the gradient have its shape.
          m: its first moment.
          v: its second moment.
          gradient: the gradient of the loss, already clipped.
          rate: the learning rate, float32 scalar.
          count: int scalar, 1 for the first update of the moments; for the bias correction.
          decays: whether weight decay applies.
        """
        m = self.beta_1 * m + (1.0 - self.beta_1) * gradient
        v = self.beta_2 * v + (1.0 - self.beta_2) * ops.square(gradient)
        m_hat = m
        v_hat = v
        if self.bias_correction:
            count = ops.cast(count, "float32")
            m_hat = m / (1.0 - ops.power(self.beta_1, count))
            v_hat = v / (1.0 - ops.power(self.beta_2, count))
        update = m_hat / (ops.sqrt(v_hat) + self.epsilon)
        if decays:
            update = update + self.weight_decay_rate * p
            rate = rate * self.trust_ratio(p, update)
        return p - rate * update, m, v

    def trust_ratio(self, p: Any, update: Any) -> Any:
        """The factor of the learning rate of one variable to which weight decay applies."""
        del p, update
        return 1.0

    # ------------------------------------------------------------------ for `fit`

    def build(self, variables: list[keras.Variable]) -> None:
        """Makes the moments; called by Keras."""
        if self.built:
            return
        super().build(variables)
        self._m, self._v = self.add_optimizer_variables(variables, ["m", "v"])
        self._names = [checkpoint_name(variable) for variable in variables]
        self._scales = layer_scales(self._names, self.layerwise_lr_decay)
        is_layered = any(name.startswith("bert/") for name in self._names)
        if self.layerwise_lr_decay != 1 and not is_layered:
            received = f"layerwise_lr_decay={self.layerwise_lr_decay} for {self._names[0]}, ..."
            expected = "variables of a functional model, such as layer_0/output/dense/kernel"
            remedy = "make the model of BertModel's outputs, or leave layerwise_lr_decay out"
            raise InputError(received, expected, remedy)

    def clipped(self, gradients: list[Any]) -> list[Any]:
        """The gradients, scaled so that their global norm is at most `clip_norm`.

        If the norm is not finite, all become NaN, as by `tf.clip_by_global_norm`. They may have
        several types, as in a model in float64; Keras's clipping refuses these.
        """
        if not self.clip_norm:
            return gradients
        wide = "float64" if any("float64" in str(g.dtype) for g in gradients) else "float32"
        squares = [ops.sum(ops.square(ops.cast(gradient, wide))) for gradient in gradients]
        norm = ops.sqrt(ops.sum(ops.stack(squares)))
        scale = self.clip_norm * ops.minimum(1.0 / norm, 1.0 / self.clip_norm)
        scale += norm - norm  # NaN unless the norm is finite
        return [gradient * ops.cast(scale, gradient.dtype) for gradient in gradients]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates a variable and its moments; called by Keras."""
        index = index_of_variable(self, variable)
        name = self._names[index]
        m = self._m[index]
        v = self._v[index]
        new_values = self.new_values(
            ops.convert_to_tensor(variable),
            ops.convert_to_tensor(m),
            ops.convert_to_tensor(v),
            ops.convert_to_tensor(gradient),
            rate=ops.cast(learning_rate * self._scales[name], variable.dtype),
            count=self.iterations + 1,
            decays=self.decays(name),
        )
        for slot, value in zip((variable, m, v), new_values, strict=True):
            self.assign(slot, value)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        keras_config = super().get_config()
        arguments = AdamWeightDecay.__init__.__kwdefaults__ or {}
        config = {name: getattr(self, name) for name in arguments}
        for name in ("learning_rate", *KERAS_OPTIONS):
            config[name] = keras_config[name]
        return config


@keras.saving.register_keras_serializable(package="bert_tf")
class Lamb(AdamWeightDecay):
    """LAMB (You et al., 2020): the norm of a variable's update is the rate times that of p.

    The update u of `AdamWeightDecay` is scaled by |p| / |u| for variables to which weight decay
    applies, even at a decay rate of 0. Others are not scaled, nor if |p| or |u| is 0.
    """

    def trust_ratio(self, p: Any, update: Any) -> Any:
        """|p| / |u|; 1 if one of them is 0."""
        weight_norm = ops.sqrt(ops.sum(ops.square(p)))
        update_norm = ops.sqrt(ops.sum(ops.square(update)))
        is_usable = ops.logical_and(weight_norm > 0.0, update_norm > 0.0)
        return ops.where(is_usable, weight_norm / ops.where(is_usable, update_norm, 1.0), 1.0)


CLASSES = {"adamw": AdamWeightDecay, "lamb": Lamb}  # by the names of `options.OPTIMIZERS`


def optimizer_of(
    updates: Updates, schedule: Schedule, *, layerwise_lr_decay: float = 1.0
) -> AdamWeightDecay:
    """The optimizer of a training command.

    Args:
      updates: its options.
      schedule: the schedule of the learning rate.
      layerwise_lr_decay: as for `AdamWeightDecay`.
    """
    return CLASSES[updates.optimizer](
        schedule,
        bias_correction=updates.bias_correction,
        layerwise_lr_decay=layerwise_lr_decay,
    )


def warmed_up(
    num_train_steps: int,
    *,
    learning_rate: float,
    warmup_proportion: float,
    end_learning_rate: float = 0.0,
) -> Schedule:
    """The schedule of fine-tuning, whose warm-up is a share of the steps.

    Raises:
      InputError: a number is out of range.
    """
    check("num_train_steps", num_train_steps, int, low=1)
    check("warmup_proportion", warmup_proportion, float, low=0, high=1)
    return Schedule(
        learning_rate=learning_rate,
        num_train_steps=num_train_steps,
        num_warmup_steps=int(num_train_steps * warmup_proportion),
        end_learning_rate=end_learning_rate,
    )


def make_optimizer(
    num_train_steps: int,
    *,
    learning_rate: float = 5e-5,
    warmup_proportion: float = 0.1,
    end_learning_rate: float = 0.0,
    optimizer: Literal["adamw", "lamb"] = "adamw",
    **options: "Unpack[OptimizerOptions]",
) -> AdamWeightDecay:
    """The optimizer of fine-tuning, as in `run_classifier.py`; for `compile`.

    Args:
      num_train_steps: the number of steps of the whole training: `epochs * len(dataset)`.
      learning_rate: the maximum, at the end of the warm-up.
      warmup_proportion: the share of the steps in which the rate rises; after these it falls.
      end_learning_rate: the rate to which it falls.
      optimizer: adamw or lamb.
      **options: other arguments of `AdamWeightDecay`.

    Raises:
      InputError: a number is out of range, or the optimizer is unknown.
    """
    check("optimizer", optimizer, str, choices=CLASSES)
    schedule = warmed_up(
        _number(num_train_steps),
        learning_rate=_number(learning_rate),
        warmup_proportion=_number(warmup_proportion),
        end_learning_rate=end_learning_rate,
    )
    return CLASSES[optimizer](schedule, **options)


def _number(value: Any) -> Any:
    """A NumPy number as Python's, which `check` wants."""
    return value.item() if isinstance(value, np.generic) else value


def layer_scales(names: Iterable[str], decay: float) -> dict[str, float]:
    """The factor of each variable's learning rate: `decay` for every level below the head.

    The levels of L layers are those of ELECTRA's fine-tuning (Clark et al., 2020), plus one for the
    pooler, which ELECTRA lacks:

        head          1
        pooler        decay
        layer L - 1   decay^2
        ...
        layer 0       decay^(L + 1)
        embeddings    decay^(L + 2)

    Args:
      names: the variables, as in checkpoints; L is counted from them.
      decay: above 0; with 1 all rates are the same.
    """
    names = list(names)
    layer_numbers = {}  # of variables in encoder blocks
    for name in names:
        match = re.match(r"bert/encoder/layer_(\d+)/", name)
        if match:
            layer_numbers[name] = int(match[1])
    num_layers = 1 + max(layer_numbers.values(), default=-1)

    def level(name: str) -> int:  # 0: the head
        if name in layer_numbers:
            return num_layers + 1 - layer_numbers[name]
        if name.startswith("bert/embeddings/"):
            return num_layers + 2
        return 1 if name.startswith("bert/pooler/") else 0

    return {name: decay ** level(name) for name in names}


def trained_names(names: Sequence[str], freeze: Sequence[str]) -> list[str]:
    """The names of trained variables: those that no pattern matches anywhere.

    Args:
      names: the names of variables, as in checkpoints.
      freeze: regular expressions such as bert/embeddings or bert/encoder/layer_[0-5]/.

    Raises:
      InputError: a pattern is invalid or matches no name, or nothing is left to train.
    """
    trained = list(names)
    for pattern in freeze:
        try:
            frozen = {name for name in names if re.search(pattern, name)}
        except re.error as error:
            received = f"--freeze with {pattern!r} ({error})"
            raise InputError(received, "regular expressions", "correct --freeze") from None
        trained = [name for name in trained if name not in frozen]
        if not frozen or not trained:
            problem = "leaves no variable to train" if frozen else "is in the name of no variable"
            raise InputError(
                f"--freeze with {pattern!r}, which {problem}",
                f"patterns of some of the names, such as {', '.join(_sample(names))}",
                "correct --freeze",
            )
    return trained


def _sample(names: Sequence[str]) -> list[str]:
    """Some of the names for a message: one of each layer, of the embeddings and of the pooler."""
    by_part = {re.sub(r"(layer_\d+|embeddings|pooler)/.*", r"\1", name): name for name in names}
    return list(by_part.values())
