"""Our BERT beside PyTorch's with the same real weights, and every conversion between the two.

    BERT_TF_DATA=... BERT_TF_GOLDENS=... python benchmarks/hugging_face.py --torch_python=...

Prints, with all-MiniLM-L6-v2 and real sentences of STS-B:

    outputs       ids, and the greatest difference of sequence outputs over real tokens
    round trip    Hugging Face -> ours -> Hugging Face, loaded by transformers again
    pre-training  a TF1 checkpoint with both heads -> BertForPreTraining, its logits
    similarity    Spearman correlation of mean-pooled vectors with STS-B dev, by `bert-tf features`
    pickles       our reader on a pytorch_model.bin, and on one that would run code
    accents       ids of XQuAD's contexts and of sentences in eight other languages, with and
                  without lower case and accents, the multilingual vocabulary

--torch_python names a Python that has torch and transformers.
"""

import json
import os
import pathlib
import pickle
import sys
import tempfile

import numpy as np

from measuring import data_dir, parse_options, run, verb

SENTENCES, BATCH = 200, 25
CASES = [(lower, strip) for lower in (True, False) for strip in (True, False)]
OTHERS = (
    "Où êtes-vous, garçon? Dès Noël, haï", "À noite, a avó vê o ímã; não há pinguim",
    "Zażółć gęślą jaźń, łódź", "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Iğdır'ın ILIK şehri, İstanbul", "Tiếng Việt: đường phố, Hằng", "Η ψυχή, Ϊ και Ώρα",  # noqa: RUF001
    "ऋषियों को दुष्ट राक्षस", "A reuşit să obţină țări și șervete",
)  # fmt: skip


def main() -> None:
    """Every comparison, one after the other."""
    options = parse_options(
        __doc__,
        torch_python=sys.executable,
        part=None,  # what this process does, if it is another's, and its arguments
        arguments=(),
    )
    if options.part:
        PARTS[options.part](*options.arguments)
        return
    goldens = pathlib.Path(os.environ["BERT_TF_GOLDENS"])
    with tempfile.TemporaryDirectory() as folder:
        compare = Comparison(options.torch_python, pathlib.Path(folder))
        rows = read_sts(data_dir() / "glue/STS-B/dev.tsv")
        first = compare.outputs([row[0] for row in rows[:SENTENCES]])
        compare.round_trip(first)
        compare.pretraining(goldens / "pretraining_tiny")
        compare.similarity(rows)
        compare.pickles()
        compare.accents()


def read_sts(path: pathlib.Path) -> list[tuple[str, str, float]]:
    """Both sentences and the score of each row."""
    lines = path.read_text(encoding="utf-8").split("\n")[1:]
    fields = [line.split("\t") for line in lines if line]
    return [(row[7], row[8], float(row[9])) for row in fields]


class Comparison:
    """Shared by all parts: the other Python, the model, and a folder for files."""

    def __init__(self, torch_python: str, folder: pathlib.Path):
        self.torch_python, self.folder = torch_python, folder
        self.model = data_dir() / "weights/all-MiniLM-L6-v2"
        self.sentences = folder / "sentences.json"

    def torch(self, part: str, *arguments: object) -> None:
        """Runs a part in the Python that has torch."""
        words = ",".join(map(str, arguments))
        run(__file__, python=self.torch_python, part=part, arguments=words)

    def outputs(self, sentences: list[str]) -> dict[str, np.ndarray]:
        """(a) Sequence outputs of both; returns theirs."""
        self.sentences.write_text(json.dumps(sentences))
        self.torch("encode", self.model, self.sentences, self.folder / "theirs.npz")
        theirs = dict(np.load(self.folder / "theirs.npz"))
        ours = our_outputs(self.model, sentences)
        print(f"outputs: {len(sentences)} sentences, {len(theirs['ids'])} tokens")
        print(f"  input ids equal: {np.array_equal(ours['ids'], theirs['ids'])}")
        print(
            f"  greatest difference: {greatest(ours['vectors'], theirs['vectors']):.2g}", flush=True
        )
        return theirs

    def round_trip(self, first: dict[str, np.ndarray]) -> None:
        """(b) There and back by `bert-tf convert`, loaded by transformers."""
        ours, again = self.folder / "ours", self.folder / "again"
        print("round trip:", flush=True)
        verb("convert", f"--from={self.model}", to=ours)
        verb("convert", f"--from={ours}", to=again)
        self.torch("encode", again, self.sentences, self.folder / "again.npz")
        second = dict(np.load(self.folder / "again.npz"))
        print(f"  input ids equal: {np.array_equal(second['ids'], first['ids'])}")
        difference = greatest(second["vectors"], first["vectors"])
        print(f"  greatest difference in transformers: {difference}")

    def pretraining(self, golden: pathlib.Path) -> None:
        """(c) Both heads of a checkpoint of the original's."""
        from bert_tf.checkpoints import loading, saving

        target, inputs_file = self.folder / "pretraining", self.folder / "inputs.npz"
        print("pre-training:", flush=True)
        verb("convert", f"--from={golden}", to=target)
        source = loading.open_weights(str(golden))
        inputs = saving.random_inputs(source.config)
        np.savez(inputs_file, **inputs)
        self.torch("pretraining", target, inputs_file, self.folder / "logits.npz")
        theirs = np.load(self.folder / "logits.npz")
        ours = saving.outputs_of(source, inputs)
        for name in ("masked_lm_logits", "next_sentence_logits"):
            print(f"  {name}: greatest difference {greatest(ours[name], theirs[name]):.2g}")

    def similarity(self, rows: list[tuple[str, str, float]]) -> None:
        """(d) STS-B dev through `bert-tf features`."""
        texts, vectors = self.folder / "texts.jsonl", self.folder / "vectors.npz"
        lines = [json.dumps({"text": text}) for column in (0, 1) for text in by(rows, column)]
        texts.write_text("\n".join(lines) + "\n")
        flags = {"input_file": texts, "output_file": vectors, "pooling": "mean"}
        verb("features", init_checkpoint=self.model, **flags)
        x = np.load(vectors)["embeddings"].astype(np.float64)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        cosine = np.sum(x[: len(rows)] * x[len(rows) :], axis=1)
        print(
            f"similarity: {len(rows)} pairs, Spearman {spearman(cosine, by(rows, 2)):.4f}",
            flush=True,
        )

    def pickles(self) -> None:
        """(e) Our reader beside torch, in a process of its own."""
        place = self.folder / "pickles"
        place.mkdir()
        (place / "config.json").write_text((self.model / "config.json").read_text())
        self.torch("save_pickle", self.model, place / "pytorch_model.bin")
        packages = run("-c", "import torch; print(*torch.__path__)", python=self.torch_python)
        words = (pathlib.Path(packages.strip()).parent, place, self.model)
        print("pickles:", flush=True)
        print(run(__file__, part="read_pickles", arguments=",".join(map(str, words))), end="")

    def accents(self) -> None:
        """(f) Every case of lower-casing and accents, against transformers' tokenizer."""
        from bert_tf import FullTokenizer

        vocabulary = data_dir() / "vocab/multi_cased_119547.txt"
        pieces = vocabulary.read_text("utf-8").splitlines()
        texts, target = [*OTHERS], self.folder / "ids.json"
        for path in sorted((data_dir() / "xquad").glob("*.json")):
            articles = json.loads(path.read_text("utf-8"))["data"]
            texts += [one["context"] for article in articles for one in article["paragraphs"]]
        self.sentences.write_text(json.dumps(texts))
        self.torch("tokenize", vocabulary, self.sentences, target)
        for (lower, strip), theirs in zip(CASES, json.loads(target.read_text()), strict=True):
            ours = FullTokenizer(str(vocabulary), lower, strip_accents=strip, pieces=pieces)
            found = [ours.convert_tokens_to_ids(ours.tokenize(text)) for text in texts]
            differ = sum(a != b for a, b in zip(found, theirs, strict=True))
            says = f"{differ} of {len(texts)} texts differ, {sum(map(len, found))} ids"
            print(f"accents: do_lower_case {lower}, strip_accents {strip}: {says}", flush=True)


def by(rows: list[tuple], column: int) -> list:
    """One column."""
    return [row[column] for row in rows]


def greatest(a: np.ndarray, b: np.ndarray) -> float:
    """The greatest difference of two arrays of one shape."""
    if a.shape != b.shape:
        raise ValueError(f"received shapes {a.shape} and {b.shape}, expected the same")
    return float(np.max(np.abs(a.astype(np.float64) - b)))


def spearman(a, b) -> float:
    """The correlation of ranks; equal values share the mean of theirs."""

    def ranks(values) -> np.ndarray:
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


# ---------------------------------------------------------------------------- with TensorFlow


def our_outputs(model: pathlib.Path, sentences: list[str]) -> dict[str, np.ndarray]:
    """ids [T] and last layer [T, D] of all real tokens of all sentences."""
    from bert_tf.checkpoints import loading
    from bert_tf.serving import pretrained

    source = loading.open_weights(str(model))
    tokenizer = loading.tokenizer_of(source, source.config)
    extractor = pretrained.Extractor(
        source, source.config, tokenizer, layers=[-1], pooling="none", max_seq_length=128,
        batch_size=BATCH,
    )  # fmt: skip
    found = list(extractor.extract((text, None) for text in sentences))
    tokens = [token for vectors in found for token in vectors.tokens]
    return {
        "ids": np.array(tokenizer.convert_tokens_to_ids(tokens)),
        "vectors": np.concatenate([vectors.layers[0] for vectors in found]),
    }


class Payload:
    """What runs code when it is unpickled."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def read_pickles(packages: str, folder: str, model: str) -> None:
    """Opens a good and a bad pickle where torch can be imported too."""
    from bert_tf.checkpoints import loading
    from bert_tf.errors import InputError

    sys.path.append(packages)  # last: what TensorFlow needs comes from where it did
    expected = loading.open_weights(model)
    try:
        found = loading.open_weights(folder)
    except InputError as error:  # no torch for this version of Python
        print(f"  state_dict: {error}")
        return
    equal = all(np.array_equal(found.read(n), expected.read(n)) for n in expected.names)
    print(f"  state_dict: {len(found.names)} tensors, equal to those of safetensors: {equal}")
    trace = pathlib.Path(folder) / "trace"
    with open(f"{folder}/pytorch_model.bin", "wb") as file:
        pickle.dump({"weight": Payload(str(trace))}, file)
    try:
        loading.open_weights(folder)
        print("  one that runs code: OPENED")
    except InputError as error:
        print(f"  one that runs code: {error.received.replace(folder, '...')}")
    print(f"  its code has run: {trace.exists()}")


# ---------------------------------------------------------------------------- with PyTorch


def encode(model: str, sentences_file: str, target: str) -> None:
    """ids [T] and last layer [T, D] of all real tokens, by transformers."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    bert = transformers.AutoModel.from_pretrained(model).eval()
    sentences = json.loads(pathlib.Path(sentences_file).read_text())
    ids, vectors = [], []
    for start in range(0, len(sentences), BATCH):
        batch = tokenizer(
            sentences[start : start + BATCH], padding=True, truncation=True, max_length=128,
            return_tensors="pt",
        )  # fmt: skip
        with torch.no_grad():
            output = bert(**batch).last_hidden_state
        real = batch["attention_mask"].bool()
        ids.append(batch["input_ids"][real].numpy())
        vectors.append(output[real].numpy())
    np.savez(target, ids=np.concatenate(ids), vectors=np.concatenate(vectors))


def pretraining(model: str, inputs_file: str, target: str) -> None:
    """Logits of BertForPreTraining; of the masked pieces at their positions."""
    import torch
    import transformers

    inputs = {name: torch.from_numpy(v).long() for name, v in np.load(inputs_file).items()}
    bert = transformers.BertForPreTraining.from_pretrained(model).eval()
    with torch.no_grad():
        output = bert(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["input_mask"],
            token_type_ids=inputs["segment_ids"],
        )
    rows = torch.arange(len(inputs["input_ids"]))[:, None]
    masked = output.prediction_logits[rows, inputs["masked_lm_positions"]]
    np.savez(
        target,
        masked_lm_logits=masked.numpy(),
        next_sentence_logits=output.seq_relationship_logits.numpy(),
    )


def save_pickle(model: str, target: str) -> None:
    """A pytorch_model.bin as transformers used to write it."""
    import torch
    import transformers

    torch.save(transformers.AutoModel.from_pretrained(model).state_dict(), target)


def tokenize(vocabulary: str, texts_file: str, target: str) -> None:
    """The ids of texts in every case, by transformers."""
    import transformers

    texts = json.loads(pathlib.Path(texts_file).read_text())
    found = []
    for lower, strip in CASES:
        case = {"do_lower_case": lower, "strip_accents": strip}
        tokenizer = transformers.BertTokenizerFast(vocab=vocabulary, **case)
        found.append([tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts])
    pathlib.Path(target).write_text(json.dumps(found))


PARTS = {f.__name__: f for f in (encode, pretraining, save_pickle, read_pickles, tokenize)}

if __name__ == "__main__":
    main()
