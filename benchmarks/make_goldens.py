"""Makes all goldens: what google-research/bert itself computes, on texts of this repository.

    git clone https://github.com/google-research/bert ../bert
    python benchmarks/make_goldens.py --bert=../bert

The files of that checkout are run as they are, under TensorFlow 2's v1 mode, by Python 3.11 (whose
Unicode 14.0 the tokenizer has). `Original` stands in for what TensorFlow 2 lacks: `tf.contrib`'s
layer normalization, `tf.layers.dense`, and flags for each script of its own. All else is the
original's: its graphs, gradients and optimizer, its tokenizer, features, answers and records.

Files of another commit than eedf571 are named. Inputs are drawn with fixed seeds, so the goldens of
another machine differ in the last bits of the floats at most. SHA256SUMS is written last.
"""

import argparse
import functools
import gzip
import hashlib
import importlib
import json
import pathlib
import random
import subprocess
import sys
import types
import unicodedata

import numpy as np
import tensorflow
from absl import flags

ROOT = pathlib.Path(__file__).parents[1]
SAMPLE_TEXT = ROOT / "data_gen" / "sample_text"
DOCUMENTS = [document for path in sorted(SAMPLE_TEXT.glob("*.txt"))
             for document in path.read_text(encoding="utf-8").strip().split("\n\n")]  # fmt: skip
tf = tensorflow.compat.v1
# The files of commit eedf571 (11 March 2020), by their names in git.
BLOBS = {
    "create_pretraining_data": "5340d96ae3d5e31bd0d38f35bac785515250d98f",
    "modeling": "fed525971ca9ef440cbd78933d24e07896190a88",
    "optimization": "d33dabd91dd965781d3dd912e0727ba23d7c2918",
    "run_pretraining": "b118f62a38c04ab4c2d78c5678e1f8c758656c34",
    "run_squad": "edd4c3ed9863ea350dd8de330dbe9e84609a048c",
    "tokenization": "0ee13595356d7a62080218202b144ce3c9f3bcfc",
}


class Original(types.ModuleType):
    """The original's modules as attributes; while they are imported, their `tensorflow`."""

    def __init__(self, folder: pathlib.Path):
        super().__init__("tensorflow")
        self.layers = types.SimpleNamespace(dense=dense)
        layers = types.SimpleNamespace(layer_norm=layer_norm)
        self.contrib = types.SimpleNamespace(layers=layers)
        sys.path.insert(0, str(folder))
        sys.modules["tensorflow"] = self
        self.modules = {}
        for name, blob in BLOBS.items():
            content = (folder / f"{name}.py").read_bytes()
            if hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest() != blob:
                print(f"{name}.py is not that of commit eedf571", file=sys.stderr)
            values = flags.FlagValues()
            self.flags = types.SimpleNamespace(FLAGS=values)
            for kind in ("string", "bool", "integer", "float"):
                name_of = f"DEFINE_{kind}"
                define = functools.partial(getattr(flags, name_of), flag_values=values)
                setattr(self.flags, name_of, define)
            self.modules[name] = importlib.import_module(name)
        sys.modules["tensorflow"] = tensorflow

    def __getattr__(self, name: str):
        return self.modules[name] if name in BLOBS else getattr(tf, name)


def dense(inputs, units, activation=None, name=None, kernel_initializer=None):
    """`tf.layers.dense` of a matrix."""
    with tf.variable_scope(name, default_name="dense"):
        shape = [inputs.shape[-1], units]
        kernel = tf.get_variable("kernel", shape, initializer=kernel_initializer)
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    outputs = tf.nn.bias_add(tf.matmul(inputs, kernel), bias)
    return activation(outputs) if activation else outputs


def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope):
    """`tf.contrib.layers.layer_norm` over the last axis, -1; for float32 its epsilon is 1e-12."""
    with tf.variable_scope(scope, default_name="LayerNorm"):
        shape = [inputs.shape[begin_params_axis]]
        beta = tf.get_variable("beta", shape, initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", shape, initializer=tf.ones_initializer())
    mean, variance = tf.nn.moments(inputs, [begin_norm_axis], keepdims=True)
    return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)


def main() -> None:
    """Every golden, and their hashes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bert", required=True, type=pathlib.Path, help="checkout of the original")
    parser.add_argument("--output", default=ROOT / "tests" / "goldens", type=pathlib.Path)
    parser.add_argument("--model", default=ROOT / "bert_tf" / "goldens", type=pathlib.Path)
    options = parser.parse_args()
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"Python 3.11 is needed: this one has Unicode {unicodedata.unidata_version}")
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    original, folder, model = Original(options.bert), options.output, options.model
    for own in (folder, model):
        if (own / "SHA256SUMS").exists():  # of an earlier run
            for path in own.rglob("*"):
                if path.is_file() and path.name != "README.md":
                    path.unlink()
    model.mkdir(parents=True, exist_ok=True)
    for name in ("vocab", "squad_v1", "squad_v2"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    make_tokenization(original, folder)
    make_records(original, folder)
    make_model(original, model)
    for version_2 in (False, True):
        make_squad(original, folder, version_2=version_2)
    write_sums(folder)
    write_sums(model)


def write_sums(folder: pathlib.Path) -> None:
    """SHA256SUMS, as sha256sum writes it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        for path in paths
        if path.name not in ("SHA256SUMS", "README.md")
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))


def write_json(path: pathlib.Path, content) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------------- tokenization

MASK = 4  # as in every vocabulary of `bert-tf vocab`
NUM_TEXTS = 1000
HARD_TEXTS = [
    "", " ", "\t\n\r", "\0\ufffd", "no\0thing\ufffd", "[CLS] [MASK][SEP]", "don't, can't", "...!?",
    "\u200b", "zero\u200bwidth\u200d\ufeff", "one\u00a0two\u2003six\u3000ten\u1680\u202f",
    "x\u2028y\u2029z\x0bw\x0c\x85\x1cv", "\u0301a\u0301\u0327e\u0301", "é\u0323",
    "Malmö MALMÖ", "straße STRASSE ẞ", "İstanbul ıI", "ΟΔΟΣ Σ ΑΣ Σ. ΣΑ", "ﬁrst ﬂoor ﬀ",
    "①½²³", "東京 tokyo東京tokyo", "中国人民", "おはよう日本", "고맙습니다",
    "한\u1112\u1161\u11ab", "हिन्दी में", "ภาษาไทย", "שלום עולם", "مرحبا بالعالم", "Привет, МИР!",
    "😀👩\u200d🔬🏳\ufe0f", "\U00010400\U00010428", "\U00020000\U0002a6d6", "\ufa0e\uf900",
    "$100 + 5^2 = `x` ~|", "<a href=\"x\">¿qué?</a>", "—–‐‘’“”…", "b" * 200, "b" * 201,
    "é" * 200 + " " + "é" * 201, "x." * 70, "\ue000private", "\U000e0001tag", "soft\u00adhyphen",
    "100%/day", "e-mail@example.org", "C++ C# .NET",
]  # fmt: skip
SCRIPTS = [
    (0x00, 0x7F), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x6FF),
    (0x900, 0xDFF), (0xE00, 0x10FF), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x2BFF),
    (0x2E80, 0x30FF), (0x3400, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFD),
    (0x10000, 0x1FFFF), (0x20000, 0x2FFFF), (0xE0000, 0xE01FF),
]  # fmt: skip


def make_tokenization(original: Original, folder: pathlib.Path) -> None:
    """Texts with the original's tokens and ids, by vocabularies that know some of their words."""
    texts = make_texts(random.Random(1))
    for name in ("uncased", "cased"):
        path, lower = folder / "vocab" / f"{name}.txt", name == "uncased"
        write_vocabulary(original, path, texts, do_lower_case=lower)
        tokenizer = original.tokenization.FullTokenizer(str(path), lower)
        lines = []
        for text in texts:
            tokens = tokenizer.tokenize(text)
            ids = tokenizer.convert_tokens_to_ids(tokens)
            lines.append(json.dumps({"text": text, "tokens": tokens, "ids": ids}) + "\n")
        content = gzip.compress("".join(lines).encode(), mtime=0)
        (folder / f"tokenization_{name}.jsonl.gz").write_bytes(content)


def make_texts(draw: random.Random) -> list[str]:
    """Hard cases, sentences with changes, and code points of some scripts."""
    sentences = "\n".join(DOCUMENTS).split("\n")
    texts = list(HARD_TEXTS)
    while len(texts) < 400:
        words = draw.choice(sentences).split()[:9]
        case = draw.choice([str, str.upper, str.title, str.swapcase])
        text = draw.choice([" ", " ", "  ", "", "-", "\u00a0", "/"]).join(map(case, words))
        places = [draw.randrange(len(text) + 1) for _ in range(draw.randrange(4))]
        for place in places:
            text = text[:place] + draw.choice("\u0301\u0308\u200b\t,'’é中1\0") + text[place:]
        texts.append(text)
    while len(texts) < NUM_TEXTS:
        ranges = draw.choices(SCRIPTS, k=2)
        size = draw.randint(1, 24)
        chars = [chr(draw.randint(*draw.choice(ranges))) for _ in range(size)]
        texts.append("".join(" " if draw.random() < 0.15 else char for char in chars))
    return texts


def write_vocabulary(original: Original, path: pathlib.Path, texts, *, do_lower_case: bool) -> None:
    """600 pieces learned from the sample text; and of the words of the texts half the characters,

    and half the beginnings of two and three, so that the longest piece is often a dead end.
    """
    subprocess.run(
        [
            sys.executable, "-m", "bert_tf", "vocab", f"--input_file={SAMPLE_TEXT}/*.txt",
            f"--output_file={path}", "--vocab_size=600", "--num_workers=1",
            f"--do_lower_case={do_lower_case}",
        ],
        cwd=ROOT,
        check=True,
    )  # fmt: skip
    pieces = path.read_text(encoding="utf-8").splitlines()
    tokenizer, draw = original.tokenization.BasicTokenizer(do_lower_case), random.Random(2)
    for word in dict.fromkeys(word for text in texts for word in tokenizer.tokenize(text)):
        new = [prefix + char for char in word[:24] for prefix in ("", "##")]
        new += [word[:2], word[:3], f"##{word[1:3]}"]
        pieces += [piece for piece in new if draw.random() < 0.5]
    lines = [f"{piece}\n" for piece in dict.fromkeys(pieces) if piece.removeprefix("##").strip()]
    path.write_text("".join(lines), encoding="utf-8")


# ---------------------------------------------------------------------------- data generation


def make_records(original: Original, folder: pathlib.Path) -> None:
    """Some documents of the sample text, the first 64 of the records made of them, and figures."""
    corpus = folder / "corpus.txt"
    corpus.write_text("\n\n".join(DOCUMENTS[::4]) + "\n", encoding="utf-8")
    figures = {}
    for kind in ("wordpiece", "wwm"):
        path = folder / f"pretraining_{kind}.tfrecord"
        values = {
            "input_file": corpus, "output_file": path, "vocab_file": folder / "vocab/uncased.txt",
            "do_whole_word_mask": kind == "wwm", "dupe_factor": 5, "random_seed": 12345,
        }  # fmt: skip
        generation = original.create_pretraining_data
        generation.FLAGS(["", *(f"--{name}={value}" for name, value in values.items())])
        generation.main(None)
        records = list(tf.python_io.tf_record_iterator(str(path)))
        figures[kind] = describe(records)
        with tf.python_io.TFRecordWriter(str(path)) as writer:
            for record in records[:64]:
                example = tf.train.Example.FromString(record)
                writer.write(example.SerializeToString(deterministic=True))
    write_json(folder / "pretraining_data_stats.json", figures)


def describe(records: list[bytes]) -> dict:
    """Counts and means over all records."""
    columns = {}
    for record in records:
        for name, value in tf.train.Example.FromString(record).features.feature.items():
            kind = value.WhichOneof("kind")
            columns.setdefault(name, []).append(list(getattr(value, kind).value))
    columns = {name: np.array(rows) for name, rows in columns.items()}
    lengths, chosen = columns["input_mask"].sum(1), columns["masked_lm_weights"] == 1
    shown = np.take_along_axis(columns["input_ids"], columns["masked_lm_positions"], 1)[chosen]
    return {
        "instances": len(records),
        "mean_length": lengths.mean(),
        "full_length_share": (lengths == columns["input_ids"].shape[1]).mean(),
        "mean_predictions": chosen.sum(1).mean(),
        "mask_share": (shown == MASK).mean(),
        "unchanged_share": (shown == columns["masked_lm_ids"][chosen]).mean(),
        "random_next_share": columns["next_sentence_labels"].mean(),
    }


# ---------------------------------------------------------------------------- the model

CONFIG = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 24, "initializer_range": 0.02, "intermediate_size": 56,
    "max_position_embeddings": 30, "num_attention_heads": 3, "num_hidden_layers": 2,
    "type_vocab_size": 3, "vocab_size": 90,
}  # fmt: skip
NUM_BATCHES, B, S, P = 12, 4, 22, 5  # batches, examples, sequence, predictions
SCHEDULE = {"init_lr": 5e-4, "num_train_steps": NUM_BATCHES, "num_warmup_steps": 4}


def make_model(original: Original, folder: pathlib.Path) -> None:
    """Weights, batches, all outputs and gradients for the first, and twelve updates, twice."""
    write_json(folder / "bert_config.json", CONFIG)
    draw = np.random.default_rng(3)
    batches = [make_batch(draw) for _ in range(NUM_BATCHES)]
    arrays = {f"{i}/{name}": v for i, batch in enumerate(batches) for name, v in batch.items()}
    np.savez_compressed(folder / "batches.npz", **arrays)
    with tf.Graph().as_default(), tf.Session() as session:
        features, outputs = build(original, batches[0], use_one_hot_embeddings=False)
        variables = tf.trainable_variables()
        gradients = tf.gradients(outputs["loss"], variables)
        gradients = dict(zip([f"grad/{v.op.name}" for v in variables], gradients, strict=True))
        gradients = {name: tf.convert_to_tensor(value) for name, value in gradients.items()}
        session.run(tf.global_variables_initializer())
        for variable in variables:  # large enough for every part to show
            size = 0.1 if variable.op.name.endswith("gamma") else 0.2
            mean = float(variable.op.name.endswith("gamma"))
            value = mean + size * draw.standard_normal(variable.shape.as_list())
            variable.load(value.astype(np.float32), session)
        weights = dict(zip([v.op.name for v in variables], session.run(variables), strict=True))
        feed = dict(zip(features, batches[0].values(), strict=True))
        values = session.run(outputs | gradients, feed)
        np.savez_compressed(folder / "forward.npz", **values)
    train(original, folder, weights, batches, "train_one_hot")
    train(original, folder, weights, batches[:1] * NUM_BATCHES, "train_repeat")


def make_batch(draw: np.random.Generator) -> dict[str, np.ndarray]:
    """Sequences of 8 to S tokens with 1 to P predictions, the rest padding."""
    lengths, counts = draw.integers(8, S + 1, B), draw.integers(1, P + 1, B)
    mask, weights = np.arange(S) < lengths[:, None], np.arange(P) < counts[:, None]
    positions = [np.sort(draw.permutation(length)[:P]) for length in lengths]
    batch = {
        "input_ids": draw.integers(1, CONFIG["vocab_size"], (B, S)) * mask,
        "input_mask": mask,
        "segment_ids": draw.integers(0, CONFIG["type_vocab_size"], (B, S)) * mask,
        "masked_lm_positions": np.array(positions) * weights,
        "masked_lm_ids": draw.integers(1, CONFIG["vocab_size"], (B, P)) * weights,
        "masked_lm_weights": weights.astype(np.float32),
        "next_sentence_labels": draw.integers(0, 2, (B, 1)),
    }
    return {n: v if v.dtype == np.float32 else v.astype(np.int32) for n, v in batch.items()}


def build(original: Original, batch, *, use_one_hot_embeddings: bool) -> tuple[list, dict]:
    """Placeholders for a batch, and the outputs of the original's graph, without dropout."""
    features = {name: tf.placeholder(v.dtype, v.shape, name) for name, v in batch.items()}
    config = original.modeling.BertConfig.from_dict(CONFIG)
    model = original.modeling.BertModel(
        config,
        is_training=False,
        input_ids=features["input_ids"],
        input_mask=features["input_mask"],
        token_type_ids=features["segment_ids"],
        use_one_hot_embeddings=use_one_hot_embeddings,
    )
    mlm = original.run_pretraining.get_masked_lm_output(
        config,
        model.get_sequence_output(),
        model.get_embedding_table(),
        features["masked_lm_positions"],
        features["masked_lm_ids"],
        features["masked_lm_weights"],
    )
    nsp = original.run_pretraining.get_next_sentence_output(
        config, model.get_pooled_output(), features["next_sentence_labels"]
    )
    outputs = {
        "embedding_output": model.get_embedding_output(),
        "sequence_output": model.get_sequence_output(),
        "pooled_output": model.get_pooled_output(),
        **{f"layer_{i}": x for i, x in enumerate(model.get_all_encoder_layers())},
        "mlm_loss": mlm[0],
        "mlm_log_probs": mlm[2],
        "nsp_loss": nsp[0],
        "nsp_log_probs": nsp[2],
        "loss": mlm[0] + nsp[0],
    }
    return list(features.values()), outputs


def train(original: Original, folder: pathlib.Path, weights, batches, name: str) -> None:
    """An update for each batch -> losses and final weights; the first state as a checkpoint.

    The rate reads the step, which an operation of the same group increases, before or after it. As
    designed it reads it before: the number is fed.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        features, outputs = build(original, batches[0], use_one_hot_embeddings=True)
        update = original.optimization.create_optimizer(outputs["loss"], **SCHEDULE, use_tpu=False)
        variables = {variable.op.name: variable for variable in tf.trainable_variables()}
        session.run(tf.global_variables_initializer())
        for key, variable in variables.items():
            variable.load(weights[key], session)
        if name == "train_one_hot":
            saver = tf.train.Saver()
            saver.save(session, str(folder / "bert_model.ckpt"), write_meta_graph=False)
            (folder / "checkpoint").unlink()
        losses = []
        for step, batch in enumerate(batches):
            feed = dict(zip(features, batch.values(), strict=True)) | {"global_step/read:0": step}
            losses.append(session.run([outputs["loss"], update], feed)[0])
        final = {f"final/{key}": value for key, value in session.run(variables).items()}
    np.savez_compressed(folder / f"{name}.npz", losses=np.array(losses), **SCHEDULE, **final)


# ---------------------------------------------------------------------------- questions

SIZES = {384: (128, 64), 96: (24, 20)}  # window: stride, longest question
ODD_CONTEXT = (
    "Zoë's café (est. 1895\u20131943) stood in Genève;\u00a0it sold crème\u202fbrûlée \u2014 "
    "\u201cthe best\u201d, people said.\n\n In 中国 and 東京 the owner, Mu\u0308ller-Łoś, bought\t"
    "tea for £3.50/day. The ﬁrst cook, İnci\u200b Ünal, left e\u0301tage 2½ in 1901. Σίσυφος ΟΔΟΣ "
    "was the name of a dish: rice, ﬂour, 한국 salt and \u00adyeast (\u2248 12,5 %)... "
    "Nobody\u2019s guests of C++ street 12a/b paid [UNK] francs."
)
# Paragraphs, by the first words of documents of the sample text, and their questions: the text of
# the answer, or None.
QUESTIONS = [
    (["Every country"], [
        ("What is the capital of France?", "Paris"),
        ("Which city lies in the middle of its country?", "Madrid"),
        ("What is the capital of the moon?", None),
        ("How does " + "the white city of " * 15 + "Lisbon lie?", "on seven hills near the sea"),
    ]),
    (["Paris is the"], [
        ("What is the most famous tower made of?", "iron"),
        ("How high is it?", "more than three hundred metres"),
        ("What is bread made from?", "flour, water, salt and yeast"),
    ]),
    (["Switzerland lies", "Rome is"], [
        ("Where do people speak Italian?", "Lugano"),
        ("Where does the Rhône flow?", "south to the Mediterranean"),
        ("Which language did the old Romans speak?", "Latin"),
        ("Who built the first train?", None),
    ]),
    ([], [
        ("What was it called?", "Zoë's café"),
        ("When?", "1895\u20131943"),
        ("What did it sell?", "crème\u202fbrûlée"),
        ("Who was the owner?", "Mu\u0308ller-Łoś"),
        ("A day?", "£3.50"),
        ("Who left?", "İnci\u200b Ünal"),
        ("名前?", "ΟΔΟΣ"),
        ("What is in it?", "ﬂour, 한국 salt"),
        ("\u200b", "C++"),
        ("", None),
        ("Which text does the original not find?", "the first cook"),
    ]),
]  # fmt: skip


def make_squad(original: Original, parent: pathlib.Path, *, version_2: bool) -> None:
    """Questions; their features; random logits, and the files that the original makes of them."""
    folder = parent / ("squad_v2" if version_2 else "squad_v1")
    squad, vocabulary = original.run_squad, str(parent / "vocab" / "uncased.txt")
    tokenizer = original.tokenization.FullTokenizer(vocabulary, do_lower_case=True)
    squad.FLAGS(["", f"--version_2_with_negative={version_2}"])
    paths = {"predict": folder / "input.json", "train": folder / "input_train.json"}
    for mode, path in paths.items():
        write_json(path, squad_content(version_2=version_2, only_first=mode == "train"))
    for length, (doc_stride, max_query_length) in SIZES.items():
        for mode, path in paths.items():
            features, training = [], mode == "train"
            examples = squad.read_squad_examples(str(path), training)
            squad.convert_examples_to_features(
                examples, tokenizer, length, doc_stride, max_query_length, training, features.append
            )
            columns = feature_columns(features, examples, with_answers=training)
            np.savez_compressed(folder / f"features_{mode}_{length}.npz", **columns)
            if mode == "predict":
                write_answers(squad, folder, length, examples, features)


def squad_content(*, version_2: bool, only_first: bool) -> dict:
    """The questions in SQuAD's format; the first answer alone, or the text's every occurrence."""
    articles = []
    for number, (beginnings, questions) in enumerate(QUESTIONS):
        chosen = [next(d for d in DOCUMENTS if d.startswith(start)) for start in beginnings]
        context = " ".join(" ".join(chosen).split("\n")) or ODD_CONTEXT
        qas = []
        for place, (question, text) in enumerate(questions):
            if text is None and not version_2:
                continue
            starts = [i for i in range(len(context)) if text and context.startswith(text, i)]
            starts = starts or ([40] if text else [])
            kind = f"plain{number}" if beginnings else "odd"
            qa = {"id": f"{kind}-{place}", "question": question}
            chosen = starts[:1] if only_first else starts[:3]
            qa["answers"] = [{"text": text, "answer_start": start} for start in chosen]
            qas.append(qa | ({"is_impossible": text is None} if version_2 else {}))
        paragraph = {"context": context, "qas": qas}
        articles.append({"title": f"Article {number}", "paragraphs": [paragraph]})
    return {"version": "v2.0" if version_2 else "1.1", "data": articles}


def feature_columns(features, examples, *, with_answers: bool) -> dict[str, np.ndarray]:
    columns = {
        "input_ids": np.array([f.input_ids for f in features], np.int32),
        "lengths": np.array([sum(f.input_mask) for f in features], np.int32),
        "segment_ids": np.array([f.segment_ids for f in features], np.int8),
        "example_index": np.array([f.example_index for f in features], np.int32),
        "doc_span_index": np.array([f.doc_span_index for f in features], np.int32),
        "unique_id": np.array([f.unique_id for f in features], np.int64),
    }
    if with_answers:
        columns["start"] = np.array([f.start_position for f in features], np.int32)
        columns["end"] = np.array([f.end_position for f in features], np.int32)
        columns["kept_ids"] = np.array([example.qas_id for example in examples])
    return columns


def write_answers(squad, folder: pathlib.Path, length: int, examples, features) -> None:
    """Logits in eighths, with many ties; and for two settings all files of the original."""
    draw = np.random.default_rng(length)
    logits = draw.normal(0, 2, (2, len(features), length))
    for row, feature in enumerate(features):  # every question has candidates
        place = draw.integers(len(feature.tokens) // 3, len(feature.tokens) - 12)
        logits[:, row, place : place + 12] += 4
        logits[:, row, 0] += 8 * (feature.example_index % 2)  # null wins at times
    logits = (np.round(8 * logits) / 8).astype(np.float16)
    np.savez_compressed(folder / f"logits_{length}.npz", start=logits[0], end=logits[1])
    results = [
        squad.RawResult(feature.unique_id, *(row.astype(float).tolist() for row in rows))
        for feature, rows in zip(features, np.moveaxis(logits, 0, 1), strict=True)
    ]
    for n_best_size, max_answer_length, threshold in ((20, 30, 0), (10, 12, -1.5)):
        squad.FLAGS.null_score_diff_threshold = threshold
        prefix = f"{length}_n{n_best_size}_a{max_answer_length}_t{threshold}"
        paths = [folder / f"{prefix}_{n}.json" for n in ("predictions", "nbest", "null_odds")]
        squad.write_predictions(
            examples, features, results, n_best_size, max_answer_length, True, *map(str, paths)
        )


if __name__ == "__main__":
    main()
