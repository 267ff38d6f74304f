"""Runs SavedModels by TensorFlow's C API alone, as TF Serving does: no Keras, no bert_tf.

    python saved_model_process.py LIBRARIES CALLS_FILE

LIBRARIES is a JSON list: TensorFlow's C++ library, then libraries of custom operations. CALLS_FILE
is a pickled list of calls (export_dir, inputs, outputs): arrays by the tensor name to feed, and the
tensor names to fetch. The process pickles a list to standard output: for each call a list of
arrays, or the message if it failed. It loads each export once.
"""

import ctypes
import json
import pickle
import sys
import threading

import numpy as np

FLOAT, INT32, STRING, INT64, BOOL = 1, 3, 7, 9, 10  # TF_DataType
DTYPES = {FLOAT: np.float32, INT32: np.int32, INT64: np.int64, BOOL: np.bool_}
STRING_BYTES = 24  # sizeof(TF_TString)
FOREIGN = ("tensorflow", "keras", "bert_tf", "tf_keras", "tensorflow_text")


class Output(ctypes.Structure):
    """TF_Output."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("free", ctypes.c_void_p)]


class TensorFlow:
    """Functions of the C API, for any number of threads."""

    def __init__(self, library: str, operations: list[str]):
        framework = library.replace("libtensorflow_cc", "libtensorflow_framework")
        # Globally: the libraries of custom operations look their symbols up there.
        self._framework = ctypes.CDLL(framework, mode=ctypes.RTLD_GLOBAL)
        self._api = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self._of_thread = threading.local()
        for path in operations:
            self.call("TF_LoadLibrary", ctypes.c_void_p, path.encode(), self.status)
            self.check()

    @property
    def status(self) -> int:
        """The TF_Status of this thread."""
        if not hasattr(self._of_thread, "status"):
            self._of_thread.status = self.call("TF_NewStatus", ctypes.c_void_p)
        return self._of_thread.status

    def call(self, name: str, result, *arguments):
        """Calls a function; int and None among its arguments are passed as pointers.

        Args:
          name: the name of the function.
          result: the ctypes type of its result.
          *arguments: ctypes values, bytes, int or None.
        """
        function = getattr(self._api, name)
        function.restype = result
        passed = []
        for argument in arguments:
            is_pointer = argument is None or isinstance(argument, int)
            passed.append(ctypes.c_void_p(argument) if is_pointer else argument)
        return function(*passed)

    def check(self) -> None:
        """Raises RuntimeError if the last call of this thread failed."""
        if self.call("TF_GetCode", ctypes.c_int, self.status):
            raise RuntimeError(
                self.call("TF_Message", ctypes.c_char_p, self.status).decode(errors="replace")
            )

    # ------------------------------------------------------------------------ tensors

    def tensor(self, array: np.ndarray) -> int:
        """A TF_Tensor of an array; an array of objects has bytes."""
        is_string = array.dtype == object
        if is_string:
            dtype = STRING
            num_bytes = array.size * STRING_BYTES
        else:
            (dtype,) = (code for code, known in DTYPES.items() if known == array.dtype)
            num_bytes = array.nbytes
        tensor = self.call(
            "TF_AllocateTensor",
            ctypes.c_void_p,
            ctypes.c_int(dtype),
            (ctypes.c_int64 * array.ndim)(*array.shape),
            ctypes.c_int(array.ndim),
            ctypes.c_size_t(num_bytes),
        )
        data = self.call("TF_TensorData", ctypes.c_void_p, tensor)
        if not is_string:
            ctypes.memmove(data, np.ascontiguousarray(array).ctypes.data, num_bytes)
            return tensor
        for number, value in enumerate(array.reshape(-1)):
            place = data + number * STRING_BYTES
            self.call("TF_StringInit", None, place)
            length = ctypes.c_size_t(len(value))
            self.call("TF_StringCopy", None, place, ctypes.c_char_p(value), length)
        return tensor

    def free_strings(self, tensor: int, array: np.ndarray) -> None:
        """Frees the memory that `tensor` allocated for strings; TensorFlow does not."""
        if array.dtype == object:
            data = self.call("TF_TensorData", ctypes.c_void_p, tensor)
            for number in range(array.size):
                self.call("TF_StringDealloc", None, data + number * STRING_BYTES)

    def array(self, tensor: int) -> np.ndarray:
        """The array of a TF_Tensor."""
        rank = self.call("TF_NumDims", ctypes.c_int, tensor)
        axes = map(ctypes.c_int, range(rank))
        shape = [self.call("TF_Dim", ctypes.c_int64, tensor, axis) for axis in axes]
        dtype = self.call("TF_TensorType", ctypes.c_int, tensor)
        data = self.call("TF_TensorData", ctypes.c_void_p, tensor)
        count = int(np.prod(shape))
        if dtype != STRING:
            raw = ctypes.string_at(data, count * np.dtype(DTYPES[dtype]).itemsize) if count else b""
            return np.frombuffer(raw, DTYPES[dtype]).reshape(shape)
        values = np.empty(count, object)
        for number in range(count):
            place = data + number * STRING_BYTES
            start = self.call("TF_StringGetDataPointer", ctypes.c_void_p, place)
            size = self.call("TF_StringGetSize", ctypes.c_size_t, place)
            values[number] = ctypes.string_at(start, size)
        return values.reshape(shape)


class SavedModel:
    """A SavedModel in a session; `config` is a serialized ConfigProto."""

    def __init__(self, tensorflow: TensorFlow, path: str, config: bytes = b""):
        self._tf = tensorflow
        self._graph = tensorflow.call("TF_NewGraph", ctypes.c_void_p)
        options = tensorflow.call("TF_NewSessionOptions", ctypes.c_void_p)
        content = ctypes.c_char_p(config)
        size = ctypes.c_size_t(len(config))
        tensorflow.call("TF_SetConfig", None, options, content, size, tensorflow.status)
        tensorflow.check()
        tags = (ctypes.c_char_p * 1)(b"serve")
        meta_graph = Buffer()
        self._session = tensorflow.call(
            "TF_LoadSessionFromSavedModel", ctypes.c_void_p, options, None, path.encode(), tags,
            ctypes.c_int(1), self._graph, ctypes.byref(meta_graph), tensorflow.status,
        )  # fmt: skip
        tensorflow.check()

    def _output(self, name: str) -> Output:
        """The TF_Output of a tensor, such as "operation:0"."""
        operation_name, _, index = name.partition(":")
        operation = self._tf.call(
            "TF_GraphOperationByName", ctypes.c_void_p, self._graph, operation_name.encode()
        )
        return Output(operation, int(index))

    def run(self, inputs: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
        """Runs the graph: arrays by tensor name -> the arrays of the tensors in `outputs`."""
        tensorflow = self._tf
        feeds = (Output * len(inputs))(*map(self._output, inputs))
        fetches = (Output * len(outputs))(*map(self._output, outputs))
        values = (ctypes.c_void_p * len(inputs))(*map(tensorflow.tensor, inputs.values()))
        results = (ctypes.c_void_p * len(outputs))()
        try:
            tensorflow.call(
                "TF_SessionRun", None, self._session, None,
                feeds, values, ctypes.c_int(len(inputs)),
                fetches, results, ctypes.c_int(len(outputs)),
                None, ctypes.c_int(0), None, tensorflow.status,
            )  # fmt: skip
            tensorflow.check()
            return [tensorflow.array(result) for result in results]
        finally:
            for tensor, array in zip(values, inputs.values(), strict=True):
                tensorflow.free_strings(tensor, array)
            for tensor in [*values, *filter(None, results)]:
                tensorflow.call("TF_DeleteTensor", None, tensor)


def main() -> None:
    library, *operations = json.loads(sys.argv[1])
    with open(sys.argv[2], "rb") as file:
        calls = pickle.load(file)
    tensorflow = TensorFlow(library, operations)
    models = {}
    results = []
    for path, inputs, outputs in calls:
        if path not in models:
            models[path] = SavedModel(tensorflow, path)
        try:
            results.append(models[path].run(inputs, outputs))
        except RuntimeError as error:
            results.append(str(error))
    foreign = sorted({name.partition(".")[0] for name in sys.modules} & set(FOREIGN))
    if foreign:
        raise SystemExit(f"this process has imported {foreign}")
    sys.stdout.buffer.write(pickle.dumps(results))


if __name__ == "__main__":
    main()
