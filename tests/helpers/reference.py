"""BERT in plain NumPy, float64, written from the paper and the original's variable names.

The reference for layers.py and models.py: one head and one example at a time, and weights in a dict
by their names in the original's checkpoints.
"""

import math

import numpy as np

from bert_tf.modeling.names import checkpoint_name


def variable_shapes(config, *, heads: bool = True) -> dict[str, tuple[int, ...]]:
    """The shape of every weight, by its name in the original's checkpoints."""
    hidden = config.hidden_size
    wide = config.intermediate_size
    shapes = {
        "bert/embeddings/word_embeddings": (config.vocab_size, hidden),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, hidden),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, hidden),
        **_norm("bert/embeddings", hidden),
        **_dense("bert/pooler/dense", hidden, hidden),
    }
    for i in range(config.num_hidden_layers):
        layer = f"bert/encoder/layer_{i}"
        for name in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention/self/{name}", hidden, hidden)
        shapes |= _dense(f"{layer}/attention/output/dense", hidden, hidden)
        shapes |= _norm(f"{layer}/attention/output", hidden)
        shapes |= _dense(f"{layer}/intermediate/dense", hidden, wide)
        shapes |= _dense(f"{layer}/output/dense", wide, hidden)
        shapes |= _norm(f"{layer}/output", hidden)
    if heads:
        shapes |= _dense("cls/predictions/transform/dense", hidden, hidden)
        shapes |= _norm("cls/predictions/transform", hidden)
        shapes["cls/predictions/output_bias"] = (config.vocab_size,)
        shapes["cls/seq_relationship/output_weights"] = (2, hidden)
        shapes["cls/seq_relationship/output_bias"] = (2,)
    return shapes


def _dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/LayerNorm/beta": (size,), f"{name}/LayerNorm/gamma": (size,)}


def random_weights(config, *, seed: int, scale: float = 0.3) -> dict[str, np.ndarray]:
    """Random weights, float32, so large that every weight, also a bias, affects the outputs."""
    rng = np.random.default_rng(seed)
    return {
        name: (name.endswith("gamma") + scale * rng.standard_normal(shape)).astype(np.float32)
        for name, shape in variable_shapes(config).items()
    }


def put_weights(model, weights) -> None:
    """Assigns a model its weights by name; asserts that names are unique and shapes are equal."""
    variables = {checkpoint_name(variable): variable for variable in model.trainable_variables}
    assert len(variables) == len(model.trainable_variables)
    assert variables.keys() <= weights.keys()
    for name, variable in variables.items():
        assert variable.shape == weights[name].shape, name
        variable.assign(weights[name])


def take_weights(model) -> dict[str, np.ndarray]:
    """A model's weights by name."""
    return {checkpoint_name(v): np.array(v) for v in model.trainable_variables}


# ---------------------------------------------------------------------------- the arithmetic


def layer_norm(weights, scope: str, x: np.ndarray) -> np.ndarray:
    """Layer normalization over the last axis, with the biased variance and epsilon 1e-12."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    gamma = weights[f"{scope}/LayerNorm/gamma"]
    beta = weights[f"{scope}/LayerNorm/beta"]
    return gamma * (x - mean) / np.sqrt(variance + 1e-12) + beta


def dense(weights, scope: str, x: np.ndarray) -> np.ndarray:
    return x @ weights[f"{scope}/kernel"] + weights[f"{scope}/bias"]


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def activation(name: str):
    return {
        "gelu": gelu_tanh,
        "gelu_erf": gelu_erf,
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
        "linear": lambda x: x,
    }[name]


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


# ---------------------------------------------------------------------------- the model


def self_attention(weights, config, scope: str, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One example: x [S, D], mask [S] -> context [S, D]; head h has columns h*H to (h+1)*H."""
    query, key, value = (dense(weights, f"{scope}/{n}", x) for n in ("query", "key", "value"))
    size = config.hidden_size // config.num_attention_heads
    contexts = []
    for head in range(config.num_attention_heads):
        columns = slice(head * size, (head + 1) * size)
        scores = query[:, columns] @ key[:, columns].T / math.sqrt(size)  # [S, S]
        probabilities = softmax(scores - 10000.0 * (1 - mask)[None, :])
        contexts.append(probabilities @ value[:, columns])  # [S, H]
    return np.concatenate(contexts, axis=-1)


def encoder_block(weights, config, scope: str, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One example: x [S, D], mask [S] -> [S, D]."""
    context = self_attention(weights, config, f"{scope}/attention/self", x, mask)
    projected = dense(weights, f"{scope}/attention/output/dense", context)
    x = layer_norm(weights, f"{scope}/attention/output", x + projected)
    wide = activation(config.hidden_act)(dense(weights, f"{scope}/intermediate/dense", x))
    narrow = dense(weights, f"{scope}/output/dense", wide)
    return layer_norm(weights, f"{scope}/output", x + narrow)


def embed(weights, input_ids: np.ndarray, segment_ids: np.ndarray) -> np.ndarray:
    """One example: ids [S] -> [S, D]."""
    x = weights["bert/embeddings/word_embeddings"][input_ids]
    x = x + weights["bert/embeddings/token_type_embeddings"][segment_ids]
    x = x + weights["bert/embeddings/position_embeddings"][: len(input_ids)]
    return layer_norm(weights, "bert/embeddings", x)


def pretraining_outputs(weights, config, batch) -> dict[str, np.ndarray]:
    """All outputs of `small.with_layers(make_model("pretraining", config))`, without dropout."""
    weights = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    rows = []
    for number in range(len(batch["input_ids"])):
        example = {name: np.asarray(values)[number] for name, values in batch.items()}
        rows.append(_outputs_of_example(weights, config, example))
    outputs = {}
    for name in rows[0]:
        outputs[name] = np.stack([row[name] for row in rows])
    return outputs


def _outputs_of_example(weights, config, example) -> dict[str, np.ndarray]:
    x = embed(weights, example["input_ids"], example["segment_ids"])
    outputs = {"embedding_output": x}
    for i in range(config.num_hidden_layers):
        x = encoder_block(weights, config, f"bert/encoder/layer_{i}", x, example["input_mask"])
        outputs[f"layer_{i}"] = x
    outputs["sequence_output"] = x
    pooled = np.tanh(dense(weights, "bert/pooler/dense", x[0]))
    outputs["pooled_output"] = pooled
    at_masks = x[example["masked_lm_positions"]]  # [P, D]
    transformed = dense(weights, "cls/predictions/transform/dense", at_masks)
    transformed = activation(config.hidden_act)(transformed)
    transformed = layer_norm(weights, "cls/predictions/transform", transformed)
    table = weights["bert/embeddings/word_embeddings"]  # [V, D]
    bias = weights["cls/predictions/output_bias"]  # [V]
    outputs["masked_lm_logits"] = transformed @ table.T + bias  # [P, V]
    outputs["next_sentence_logits"] = (
        weights["cls/seq_relationship/output_weights"] @ pooled
        + weights["cls/seq_relationship/output_bias"]
    )
    return outputs
