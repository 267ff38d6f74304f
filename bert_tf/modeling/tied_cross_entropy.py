"""The masked-LM loss in one pass over the logits, the largest tensor of pre-training."""

from keras import backend, ops


def tied_cross_entropy(x, table, bias, labels):
    """Cross entropy of softmax(x tableᵀ + bias) against labels, row by row.

    With e = exp(logits - shift), kept from the forward pass, z = sum(e), and w equal to e but for
    e - z at each row's label, the gradients need no soft-max of their own: its scale 1/z goes into
    the small factor of each product, and only one element a row of the large one is changed.

        d x      = (g / z) (w table)
        d table  = wᵀ (x g / z)
        d bias   = (g / z)ᵀ w

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
        of_label = _scores_of_labels(x, table, labels, scores)
        of_label = of_label + ops.take(bias32, labels, axis=0)  # [M], the labels' logits

        def gradient(*arguments, upstream=None):
            g = arguments[0] if upstream is None else upstream  # [M]
            rows = ops.arange(ops.shape(labels)[0], dtype=labels.dtype)
            cells = ops.stack([rows, labels], axis=1)  # [M, 2]
            at_label = ops.exp(of_label - shift[:, 0]) - z  # [M]
            w = ops.cast(ops.scatter_update(e, cells, at_label), x.dtype)  # [M, V]
            scale = ops.cast(g / z, x.dtype)[:, None]  # [M, 1]
            d_x = scale * ops.matmul(w, table)
            d_table = ops.matmul(ops.transpose(w), scale * x)
            d_bias = ops.matmul(ops.transpose(scale), w)[0]  # this way w need not be transposed
            return d_x, d_table, ops.cast(d_bias, bias.dtype)

        return ops.log(z) + shift[:, 0] - of_label, gradient

    return cross_entropy(x, table, bias)


def _scores_of_labels(x, table, labels, scores):
    """The labels' elements of x tableᵀ, float32 [M].

    In half precision the product is rounded: a label's score that was not would not fit the sum
    over all, and the loss could be below 0. In float32 the scores need not be looked at again.
    """
    if backend.standardize_dtype(x.dtype) == "float32":
        return ops.sum(x * ops.take(table, labels, axis=0), axis=1)
    return ops.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
