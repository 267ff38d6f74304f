"""How long an export takes to answer, beside PyTorch, ONNX Runtime and OpenVINO, in one run.

    pip install -r benchmarks/requirements.txt
    BERT_TF_DATA=... python benchmarks/serving_latency.py --models=minilm,base --torch_python=...
    BERT_TF_DATA=... python benchmarks/serving_latency.py --threads=2/2,1/2,1/1 --clients=1,2,4
    BERT_TF_DATA=... python benchmarks/serving_latency.py --contenders=ours,ours-bfloat16,openvino

Raw text in, a mean-pooled vector for each text out, tokenization included on all sides, two threads
or as many as the machine has cores. --cases says how many words a text has and how many texts a
request (20 words are some 26 tokens, 98 some 128); the texts are real ones, cut from SQuAD's
contexts, others in every request. minilm is all-MiniLM-L6-v2 itself; base has BERT-Base's sizes and
random weights. Contenders, each a process of its own:

    ours              an export, by TensorFlow's C API: the session that TensorFlow Serving runs it
                      in, in a process with neither Keras nor this package
    ours-bfloat16     an export of --precision=bfloat16, likewise
    pytorch           transformers' model, eager, in inference mode, with its Rust tokenizer
    pytorch-bfloat16  as model.to(torch.bfloat16)
    pytorch-int8      its linear layers by torch.ao.quantization.quantize_dynamic
    onnxruntime       the same model, exported by PyTorch, all optimizations of ONNX Runtime on
    onnxruntime-int8  its weights quantized by onnxruntime.quantization.quantize_dynamic
    openvino          the same file, with INFERENCE_PRECISION_HINT f32
    openvino-bfloat16 and with bf16, its own default on CPUs that multiply it
    openvino-int8     the file of onnxruntime-int8

They take turns of a few requests, so that a change of the machine's speed affects all. Prints
p50 and p99 of the time of a request, texts a second and the process's CPU time for a request in the
median turn, and the greatest difference between the vectors of the first contender and theirs. If
one thread takes much longer than its CPU time, the machine was not quiet.

With --threads the contenders are our export in sessions with so many threads for one operation and
for operations at the same time, as --tensorflow_intra_op_parallelism and
--tensorflow_inter_op_parallelism of TensorFlow Serving set them; a and b are written a/b. A client
sends its next request when it has the answer; with --clients several do so at once. --predictor
asks bert_tf.Predictor in place of the C API, with the numbers in TensorFlow's environment.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

from measuring import (
    ROOT,
    Contender,
    command,
    data_dir,
    in_turn,
    parse_options,
    print_rows,
    print_titles,
    serve,
    verb,
)

MAX_LENGTH = 512  # ids of a text at most
CUT = {"truncation": True, "max_length": MAX_LENGTH}
ROUNDING = 1e-4  # vectors that differ by more are not of the same texts
COARSE = 0.5  # likewise, of fewer bits
CONTENDERS = (
    "ours",
    "ours-bfloat16",
    "pytorch",
    "pytorch-bfloat16",
    "pytorch-int8",
    "onnxruntime",
    "onnxruntime-int8",
    "openvino",
    "openvino-bfloat16",
    "openvino-int8",
)
DRAWN = {  # models with random weights
    "base": {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
    "tiny": {
        "vocab_size": 30522,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 512,
    },
}


def main() -> None:
    """Every model, every contender, every case -> a table."""
    options = parse_options(
        __doc__,
        models=("minilm", "base"),
        contenders=("ours", "pytorch", "onnxruntime"),  # some of those above
        cases=("20x1", "200x1", "20x32"),  # words of a text x texts of a request
        rounds=20,  # turns of each contender
        requests=10,  # of one text, in a turn
        torch_python=sys.executable,
        threads=(),  # of our sessions, as 1/2
        clients=(1,),  # that ask at once
        predictor=False,  # with --threads
        contender=None,  # what this process is, if it is one, and the folder of its model
        folder=None,
    )
    if options.contender:
        others = {"pytorch": pytorch, "onnxruntime": onnx, "openvino": openvino}
        kind = options.contender.partition("-")[0]
        make = others.get(kind, predictor if options.predictor else ours)
        serve(timed(make(options)))
        return
    titles = "model", "request", "clients", "contender", "p50 ms", "p99 ms", "texts/s", "CPU ms"
    print_titles(*titles, "difference")
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            make_models(model, pathlib.Path(folder))
            report(model, measure(pathlib.Path(folder), options))


def make_models(model: str, folder: pathlib.Path) -> None:
    """folder/hugging_face, for the others, and folder/export/1, of the same weights."""
    source = data_dir() / "weights/all-MiniLM-L6-v2"
    if model in DRAWN:
        source = write_drawn(source, folder / "hugging_face", DRAWN[model])
    else:
        (folder / "hugging_face").symlink_to(source)
    # The contenders cut no earlier and no later.
    flags = {"task": "embeddings", "max_seq_length": MAX_LENGTH}
    for precision in ("float32", "bfloat16"):
        export_dir = folder / f"export-{precision}"
        verb("export", init_checkpoint=source, export_dir=export_dir, precision=precision, **flags)
    (folder / "tensors.json").write_text(json.dumps(names_of(folder / "export-float32/1")))


def write_drawn(other: pathlib.Path, path: pathlib.Path, sizes: dict) -> pathlib.Path:
    """Random weights of such a model, with another model's vocabulary."""
    import bert_tf
    import keras
    from bert_tf.modeling.names import checkpoint_name

    keras.utils.set_random_seed(1)
    config = bert_tf.BertConfig(**sizes)
    encoder = bert_tf.BertModel(config)
    tensors = {checkpoint_name(v): v.numpy() for v in encoder.trainable_variables}
    weights = dataclasses.replace(
        bert_tf.open_weights(str(other)),
        shapes={name: value.shape for name, value in tensors.items()},
        read=tensors.__getitem__,
        config=config,
    )
    bert_tf.save_weights(weights, str(path))
    return path


def names_of(export: pathlib.Path) -> dict:
    """Libraries and tensor names of an export, for our contender, which imports no TensorFlow."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    import saved_models

    (meta_graph,) = saved_models.read_saved_model(str(export)).meta_graphs
    signature = meta_graph.signature_def["serving_default"]
    return {
        "libraries": [str(saved_models.LIBRARY), *map(str, saved_models.OPERATIONS)],
        "input": signature.inputs["text"].name,
        "output": signature.outputs["mean"].name,
    }


# -------------------------------------------------------------------------------- turns


def measure(folder: pathlib.Path, options) -> dict:
    """By case, clients and contender: what was measured in each request and in each turn."""
    names = options.threads or options.contenders
    contenders = {name: start(name, folder, options) for name in names}
    sizes = [tuple(map(int, case.split("x"))) for case in options.cases]
    cases = [(case, clients) for case in sizes for clients in options.clients]
    found: dict = {(*case, name): ([], [], [], []) for case in cases for name in contenders}
    for turn in range(options.rounds + 1):  # the first warms up
        for case, clients in cases:
            count = clients * (options.requests if case[1] == 1 else 1)
            requests = texts_of(*case, turn, count)
            for name in in_turn(contenders, 1):
                answer = contenders[name].ask({"texts": requests, "clients": clients})
                seconds, vectors, rates, cpu = found[case, clients, name]
                seconds += answer["seconds"] if turn else []
                rates += [count * case[1] / answer["wall"]] if turn else []
                cpu += [answer["cpu"] / count] if turn else []
                vectors += answer["vectors"]
    for contender in contenders.values():
        contender.close()
    return found


def start(name: str, folder: pathlib.Path, options) -> Contender:
    """A contender's process."""
    if name in CONTENDERS:
        python = sys.executable if name.startswith("ours") else options.torch_python
        return Contender(command(__file__, python=python, contender=name, folder=folder))
    asked = {"threads": name, "predictor": options.predictor or None, "folder": folder}
    return Contender(command(__file__, contender="ours", **asked))


def texts_of(num_words: int, num_texts: int, turn: int, num_requests: int) -> list[list[str]]:
    """Real texts of so many words; other ones in every turn."""
    content = json.loads((data_dir() / "squad/dev-v1.1.json").read_text(encoding="utf-8"))
    contexts = [p["context"] for article in content["data"] for p in article["paragraphs"]]
    words = " ".join(contexts).split()
    random = np.random.default_rng([num_words, num_texts, turn])
    starts = random.integers(0, len(words) - num_words, [num_requests, num_texts])
    return [[" ".join(words[at : at + num_words]) for at in row] for row in starts.tolist()]


def timed(answer):
    """Answers lists of texts, for a number of clients; or one client's, without that number."""

    def of_one(texts: list[str]) -> tuple[float, np.ndarray]:
        begin = time.perf_counter()
        found = answer(texts)
        return time.perf_counter() - begin, found

    def of_all(asked) -> dict:
        asked = asked if isinstance(asked, dict) else {"texts": asked, "clients": 1}
        with concurrent.futures.ThreadPoolExecutor(asked["clients"]) as pool:
            begin, cpu = time.perf_counter(), time.process_time()
            found = list((pool.map if asked["clients"] > 1 else map)(of_one, asked["texts"]))
            turn = {"wall": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
        vectors = [one.tolist() for _, one in found]
        return turn | {"seconds": [one for one, _ in found], "vectors": vectors}

    return of_all


def report(model: str, found: dict) -> None:
    """The rows of one model."""
    first = next(iter(found))[-1]
    for (case, clients, name), (seconds, vectors, rates, cpu) in found.items():
        words, texts = case
        p50, p99 = 1000 * np.quantile(seconds, [0.5, 0.99])
        pairs = zip(vectors, found[case, clients, first][1], strict=True)
        difference = max(np.abs(np.subtract(a, b)).max() for a, b in pairs)
        figures = [p50, p99, np.median(rates), 1000 * np.median(cpu)]
        cells = [model, f"{texts} x {words} words", clients, name, *(f"{x:.1f}" for x in figures)]
        print_rows([*cells, f"{difference:.1e}"])
        if not difference < (COARSE if "-" in name else ROUNDING):
            sys.exit(f"{name} and {first} differ by {difference:.1e}")


# -------------------------------------------------------------------------------- contenders


def ours(options):
    """Texts -> vectors [N, D] by the export."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from saved_model_process import SavedModel, TensorFlow

    folder = pathlib.Path(options.folder)
    names = json.loads((folder / "tensors.json").read_text())
    tensorflow = TensorFlow(names["libraries"][0], names["libraries"][1:])
    config = b""
    for threads in options.threads:  # fields 2 and 5 of ConfigProto
        config = bytes([2 << 3, int(threads.split("/")[0]), 5 << 3, int(threads.split("/")[1])])
    precision = "bfloat16" if options.contender == "ours-bfloat16" else "float32"
    model = SavedModel(tensorflow, str(folder / f"export-{precision}/1"), config)

    def answer(texts: list[str]) -> np.ndarray:
        feed = {names["input"]: np.array([text.encode() for text in texts], object)}
        return model.run(feed, [names["output"]])[0]

    return answer


def predictor(options):
    """The same by bert_tf.Predictor."""
    intra_op, inter_op = options.threads[0].split("/")
    os.environ.update(TF_NUM_INTRAOP_THREADS=intra_op, TF_NUM_INTEROP_THREADS=inter_op)
    from bert_tf.runtime import prepare_process

    prepare_process()
    import bert_tf

    model = bert_tf.Predictor(pathlib.Path(options.folder) / "export-float32")
    return lambda texts: np.array([one["mean"] for one in model.predict(texts)])


def pytorch(options):
    """The same by transformers."""
    import torch
    import transformers

    folder = pathlib.Path(options.folder) / "hugging_face"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    dtype = torch.bfloat16 if options.contender == "pytorch-bfloat16" else torch.float32
    model = transformers.AutoModel.from_pretrained(folder, dtype=dtype).eval()
    if options.contender == "pytorch-int8":
        quantize = torch.ao.quantization.quantize_dynamic
        model = quantize(model, {torch.nn.Linear}, dtype=torch.qint8)

    @torch.inference_mode()
    def answer(texts: list[str]) -> np.ndarray:
        batch = tokenizer(texts, padding=True, **CUT, return_tensors="pt")
        vectors = model(**batch).last_hidden_state.float().numpy()
        return mean(vectors, batch["attention_mask"].numpy())

    return answer


def export_onnx(model, inputs: dict, path: str) -> None:
    """Writes the model, of batches and texts of any size."""
    import torch

    class Encoder(torch.nn.Module):
        """Takes its inputs by position, as the exporter gives them."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *values):
            named = dict(zip(inputs, values, strict=True))
            return self.model(**named, return_dict=False)[0]

    torch.onnx.export(
        Encoder().eval(),
        tuple(inputs.values()),
        path,
        input_names=[*inputs],
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "batch", 1: "sequence"} for name in [*inputs, "last_hidden_state"]},
        opset_version=17,
        dynamo=False,
    )


def onnx_file(options):
    """Tokenizer, and the path of the model as ONNX, made by PyTorch."""
    import transformers

    folder = pathlib.Path(options.folder) / "hugging_face"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    names = ["input_ids", "attention_mask", "token_type_ids"]

    path = str(pathlib.Path(options.folder) / f"{options.contender}.onnx")
    batch = tokenizer(["two", "texts of words"], padding=True, return_tensors="pt")
    export_onnx(model, {name: batch[name] for name in names}, path)
    if options.contender.endswith("-int8"):
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(path, path, per_channel=True, weight_type=QuantType.QInt8)
    return tokenizer, path


def of_batches(tokenizer, run):
    """Texts -> vectors [N, D], by a function of ids -> vectors [N, S, D]."""

    def answer(texts: list[str]) -> np.ndarray:
        batch = tokenizer(texts, padding=True, **CUT, return_tensors="np")
        names = "input_ids", "attention_mask", "token_type_ids"
        return mean(run({n: batch[n].astype(np.int64) for n in names}), batch["attention_mask"])

    return answer


def onnx(options):
    """The same by ONNX Runtime."""
    import onnxruntime

    tokenizer, path = onnx_file(options)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return of_batches(tokenizer, lambda feed: session.run(["last_hidden_state"], feed)[0])


def openvino(options):
    """The same by OpenVINO."""
    import openvino

    tokenizer, path = onnx_file(options)
    precision = "bf16" if options.contender == "openvino-bfloat16" else "f32"
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    request = openvino.Core().compile_model(path, "CPU", hints).create_infer_request()
    return of_batches(tokenizer, lambda feed: request.infer(feed)[0])


def mean(vectors: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """[N, S, D] and [N, S] -> [N, D], the mean over real pieces."""
    share = mask[:, :, None].astype(np.float32)
    return (vectors * share).sum(1) / share.sum(1)


if __name__ == "__main__":
    main()
