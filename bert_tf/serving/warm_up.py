"""The requests that TF Serving runs when it loads a model, before it answers the first client.

They are a TFRecord of `PredictionLog` messages in `assets.extra/tf_serving_warmup_requests`. The
messages are built of a declaration of the few fields that are used (names and numbers as in
tensorflow_serving/apis), so that an export needs no tensorflow-serving-api; a test reads them back
with that package's own classes.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FILE = "tf_serving_warmup_requests"
_PACKAGE = "bert_tf.serving"  # not tensorflow.serving: both may be loaded in one process
# message: field -> (number, type)
_MESSAGES = {
    "ModelSpec": {"name": (1, "string"), "signature_name": (3, "string")},
    "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, "InputsEntry*")},
    "InputsEntry": {"key": (1, "string"), "value": (2, "tensorflow.TensorProto")},
    "PredictLog": {"request": (1, "PredictRequest")},
    "PredictionLog": {"predict_log": (6, "PredictLog")},
}


def warm_up_records(
    requests: Sequence[tuple[str, Mapping[str, tf.Tensor | np.ndarray]]], *, model_name: str
) -> list[bytes]:
    """Serialized PredictionLogs.

    Args:
      requests: for each the signature's name and its inputs.
      model_name: as TF Serving is to call the model.
    """
    message = _prediction_log()
    records = []
    for signature_name, inputs in requests:
        log = message()
        request = log.predict_log.request
        request.model_spec.name = model_name
        request.model_spec.signature_name = signature_name
        for name, value in sorted(inputs.items()):
            # A map's entries are written as any repeated message.
            entry = request.inputs.add(key=name)
            entry.value.CopyFrom(tf.make_tensor_proto(value))
        records.append(log.SerializeToString(deterministic=True))
    return records


def write_warm_up(path: str, records: Sequence[bytes]) -> None:
    """Writes the TFRecord."""
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)


@functools.cache
def _prediction_log() -> Any:
    """The class of PredictionLog."""
    file = descriptor_pb2.FileDescriptorProto(
        name="bert_tf/serving/prediction_log.proto", package=_PACKAGE, syntax="proto3"
    )
    file.dependency.append(type(tf.make_tensor_proto(0)).DESCRIPTOR.file.name)
    kinds = descriptor_pb2.FieldDescriptorProto
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, (number, kind) in fields.items():
            field = message.field.add(name=name, number=number)
            field.label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind == "string":
                field.type = kinds.TYPE_STRING
            else:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".{kind}" if "." in kind else f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.Default()  # where TensorProto is
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"{_PACKAGE}.PredictionLog")
    return message_factory.GetMessageClass(found)
