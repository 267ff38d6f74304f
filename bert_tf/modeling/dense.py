"""Dense layers: products of rows, what is saved of LoRA's factors, and int8 kernels."""

import keras
from keras import ops


class Dense(keras.layers.Dense):
    """A dense layer that takes all rows as one matrix: half the cost of batched products."""

    def call(self, x):
        """x [..., in] -> [..., units]."""
        return self._by_rows(super().call, x)

    def quantized_call(self, x):
        """As `call`, with a kernel of whole numbers."""
        return self._by_rows(super().quantized_call, x)

    def _by_rows(self, product, x):
        shape = ops.shape(x)
        rows = ops.reshape(x, (-1, x.shape[-1]))
        return ops.reshape(product(rows), (*shape[:-1], self.units))

    def quantize(self, mode=None, type_check=True, config=None):
        """As Keras's own, which would refuse a subclass; merges LoRA's product first."""
        if self.lora_enabled and self.quantization_mode is None:  # else it is rounded when saved
            self._kernel.assign(self.merged_kernel())
            self.lora_kernel_b.assign(ops.zeros_like(self.lora_kernel_b))
        super().quantize(mode, type_check=False, config=config)

    def merged_kernel(self):
        """The kernel with the product of LoRA's factors, [in, units] in the kernel's own dtype."""
        factors = ops.matmul(self.lora_kernel_a, self.lora_kernel_b)
        return self._kernel + factors * (self.lora_alpha / self.lora_rank)

    def save_own_variables(self, store):
        """As Keras's own, which would round a merged kernel to the dtype of the products."""
        if self.lora_enabled and self.quantization_mode is None:
            store["0"], store["1"] = self.merged_kernel(), self.bias
        else:
            super().save_own_variables(store)

    def load_own_variables(self, store):
        """As Keras's own, which also zeroes LoRA's first factor: no gradient would be left."""
        first = ops.copy(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables(store)
        if first is not None:
            self.lora_kernel_a.assign(first)


def dense_layers(layer: keras.layers.Layer) -> list[Dense]:
    """The dense layers inside a layer."""
    return [inner for inner in layer._flatten_layers() if isinstance(inner, Dense)]


def quantization_of(layer: keras.layers.Layer) -> list[dict] | None:
    """How each dense layer inside a layer is quantized, for its configuration; None: none is.

    Keras saves this for the outermost layer alone.
    """
    dense = dense_layers(layer)
    if all(inner.quantization_mode is None for inner in dense):
        return None
    return [
        {
            "dtype": keras.dtype_policies.serialize(inner.dtype_policy),
            "quantization": keras.saving.serialize_keras_object(inner.quantization_config),
        }
        for inner in dense
    ]


def restore_quantization(layer: keras.layers.Layer, kinds: list[dict] | None) -> None:
    """Prepares a layer that is not built yet for what `quantization_of` gave."""
    for inner, kind in zip(dense_layers(layer), kinds, strict=True) if kinds else ():
        inner.dtype_policy = keras.dtype_policies.deserialize(kind["dtype"])
        inner.quantization_config = keras.saving.deserialize_keras_object(kind["quantization"])
