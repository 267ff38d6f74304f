"""The masked-LM loss in one pass over the logits, the largest tensor of pre-training."""

from keras import ops


def tied_cross_entropy(x, table, bias, labels):
    """Cross entropy of softmax(x tableᵀ + bias) against labels, row by row.

    With e = exp(logits - shift), kept from the forward pass, and z = sum(e), the gradients need no
    soft-max of their own: its scale 1/z goes into the small factor of each product.

        d x      = g (e table / z - table[label])
        d table  = eᵀ (g x / z),  less g x in the label's row
        d bias   = eᵀ (g / z),    less g at the label

    Args:
      x: [M, D].
      table: [V, D].
      bias: [V].
      labels: int [M], rows of the table.

    Returns:
      float32 [M], in nats.
    """

    @ops.custom_gradient
    def cross_entropy(x, table, bias):
        scores = ops.cast(ops.matmul(x, ops.transpose(table)), "float32")  # [M, V]
        bias32 = ops.cast(bias, "float32")
        # Nothing is above this shift; so the bias needs no pass of its own over the scores.
        shift = ops.max(scores, axis=1, keepdims=True) + ops.max(bias32)  # [M, 1]
        e = ops.exp(scores + bias32 - shift)  # [M, V]
        z = ops.sum(e, axis=1)  # [M]
        label_rows = ops.take(table, labels, axis=0)  # [M, D]
        of_label = ops.sum(ops.cast(x * label_rows, "float32"), axis=1)
        of_label = of_label + ops.take(bias32, labels, axis=0)  # [M]

        def gradient(*arguments, upstream=None):
            g = arguments[0] if upstream is None else upstream  # [M]
            scale = (g / z)[:, None]  # [M, 1]
            g = ops.cast(g, x.dtype)[:, None]
            weights = ops.cast(e, x.dtype)
            scaled = ops.cast(scale, x.dtype)
            d_x = scaled * ops.matmul(weights, table) - g * label_rows
            d_table = ops.matmul(ops.transpose(weights), scaled * x)
            d_bias = ops.matmul(ops.transpose(weights), scaled)[:, 0]
            at_labels = labels[:, None]
            d_table = d_table - ops.scatter(at_labels, g * x, table.shape)
            d_bias = d_bias - ops.scatter(at_labels, g[:, 0], bias.shape)
            return d_x, d_table, ops.cast(d_bias, bias.dtype)

        return ops.log(z) + shift[:, 0] - of_label, gradient

    return cross_entropy(x, table, bias)
