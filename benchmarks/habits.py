"""What a Keras developer takes for granted: each habit tried with bert_tf and with keras-hub.

    python benchmarks/habits.py                              bert_tf
    PYTHON_WITH_KERAS_HUB benchmarks/habits.py --of=keras_hub

Prints a line for each habit: yes, or the error. A habit is a few lines of code for each library; it
holds if they run and the last one is true.
"""

import os
import tempfile

from measuring import parse_options, print_rows, print_titles

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##d", "good", "bad", "film"]
OURS = """
import keras, numpy as np, tensorflow as tf
import bert_tf
from bert_tf import heads, layers
block = lambda **k: layers.EncoderBlock(hidden_size=8, num_heads=2, intermediate_size=16, **k)
embed = lambda **k: layers.Embeddings(vocab_size=12, hidden_size=8, max_positions=16, **k)
config = bert_tf.BertConfig(vocab_size=12, hidden_size=8, num_hidden_layers=2,
    num_attention_heads=2, intermediate_size=16, max_position_embeddings=16, type_vocab_size=2)
backbone = lambda: bert_tf.BertModel(config)
classifier = lambda: bert_tf.classifier(FOLDER + "/model", labels=["bad", "good"])
tokenizer = lambda: layers.Tokenizer(PIECES, length=8, do_lower_case=True)
inputs = lambda: {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
"""
THEIRS = """
import keras, numpy as np, tensorflow as tf, keras_hub
from keras_hub import layers, models
block = lambda **k: layers.TransformerEncoder(intermediate_dim=16, num_heads=2, **k)
embed = lambda **k: layers.TokenAndPositionEmbedding(12, 16, 8, mask_zero=True, **k)
backbone = lambda: models.BertBackbone(vocabulary_size=12, num_layers=2, num_heads=2,
    hidden_dim=8, intermediate_dim=16, max_sequence_length=16)
words = lambda: models.BertTokenizer(vocabulary=PIECES, lowercase=True)
tokenizer = lambda: models.BertTextClassifierPreprocessor(words(), sequence_length=8)
classifier = lambda: models.BertTextClassifier(backbone(), num_classes=2, preprocessor=tokenizer())
inputs = lambda: {"token_ids": ids, "padding_mask": mask, "segment_ids": 0 * ids}
"""
SHARED = """
ids = np.array([[2, 5, 6, 3, 0], [2, 9, 3, 0, 0]]); mask = (ids != 0).astype("int32")
x = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
texts, labels = ["a good film", "a bad film"] * 2, np.array([1, 0, 1, 0])
close = lambda a, b: np.allclose(a, b, atol=1e-5)
seen = np.tril(np.ones((2, 5, 5), bool)); file = FOLDER + "/habit.keras"
ce = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
"""
SAME = None  # as of the first
HABITS = {  # by name: the code for bert_tf, and for keras-hub
    "a block from numbers": ("block()(x).shape == (2, 5, 8)", SAME),
    "a block saves its own numbers alone": (
        "c = block().get_config(); 'vocab_size' not in str(c) and 'config' not in c", SAME),
    "a block again from its configuration": (
        "b = block(); type(b).from_config(b.get_config()).get_config() == b.get_config()", SAME),
    "embeddings from ids alone": ("embed()(ids).shape == (2, 5, 8)", SAME),
    "ids, segments and positions": (
        "embed()(ids, 0 * ids, np.arange(5) + 0 * ids).shape == (2, 5, 8)", SAME),
    "padding goes on as a mask of Keras": (
        "e = embed(); b = block(); y = b(np.array(e(ids)), padding_mask=mask); "
        "close(b(e(ids))[:, :3], y[:, :3])", SAME),
    "Masking before a block": (
        "y = np.where(mask[..., None], x, 0.); b = block(); "
        "close(b(keras.layers.Masking()(y))[:, :3], b(y, padding_mask=mask)[:, :3])", SAME),
    "padding_mask [B, S]": (
        "b = block(); not close(b(x, padding_mask=mask), b(x))", SAME),
    "attention_mask [B, S, S]": (
        "b = block(); z = x.copy(); z[:, 4] = 9.; "
        "close(b(x, attention_mask=seen)[:, :4], b(z, attention_mask=seen)[:, :4])", SAME),
    "attention_mask of each head [B, N, S, S]": (
        "s = np.stack([seen, seen], 1); b = block(); "
        "close(b(x, attention_mask=s), b(x, attention_mask=seen))", SAME),
    "return_attention_scores": (
        "y, p = block()(x, return_attention_scores=True); p.shape == (2, 2, 5, 5)", SAME),
    "a mask of a wrong shape is an error": (
        "bad = 0\ntry: block()(x, padding_mask=mask[:, :3])\nexcept Exception: bad = 1\nbad", SAME),
    "a wrong number of heads is an error": (
        "bad = 0\ntry: layers.EncoderBlock(8, 3, 16)(x)\nexcept ValueError: bad = 1\nbad",
        "bad = 0\ntry: layers.TransformerEncoder(16, 3)(x)\nexcept ValueError: bad = 1\nbad"),
    "a masked-LM head tied by the layer": (
        "e = embed(); heads.MaskedLmHead(embeddings=e)(e(ids), ids[:, :2] % 5).shape == (2, 2, 12)",
        "e = embed(); y = e(ids); "
        "h = layers.MaskedLMHead(token_embedding=e.token_embedding); "
        "h(y, ids[:, :2] % 5).shape == (2, 2, 12)"),
    "... in a copy of the model, too": (
        "i, p = (keras.Input((None,), dtype='int32') for _ in '12'); e = embed()\n"
        "m = keras.Model([i, p], heads.MaskedLmHead(embeddings=e)(e(i), p))\n"
        "len(keras.models.clone_model(m).weights) == len(m.weights)",
        "i, p = (keras.Input((None,), dtype='int32') for _ in '12'); e = embed()\n"
        "m = keras.Model([i, p], layers.MaskedLMHead(token_embedding=e.token_embedding)(e(i), p))\n"
        "len(keras.models.clone_model(m).weights) == len(m.weights)"),
    "a next-sentence head": ("heads.NextSentenceHead()(x[:, 0]).shape == (2, 2)",
                             "layers.NextSentenceHead"),
    "the encoder with its parts as attributes": (
        "m = backbone(); len(m.blocks) == 2 and m.embeddings.hidden_size == 8",
        "m = backbone(); len(m.transformer_layers) == 2 and m.token_embedding.output_dim == 8"),
    "ids alone are enough": (
        "'pooled_output' in backbone()(ids)", "'pooled_output' in backbone()(ids)"),
    "ids outside of the vocabulary are an error": (
        "bad = 0\ntry: backbone()({**inputs(), 'input_ids': ids + 50})\n"
        "except Exception: bad = 1\nbad",
        "bad = 0\ntry: backbone()({**inputs(), 'token_ids': ids + 50})\n"
        "except Exception: bad = 1\nbad"),
    "mixed precision": (
        "b = block(dtype='mixed_bfloat16'); str(b(x).dtype).find('bfloat16') >= 0", SAME),
    "summary": ("backbone().summary(print_fn=lambda *_, **__: 0); 1", SAME),
    "clone_model": ("len(keras.models.clone_model(backbone()).weights) > 30", SAME),
    "a .keras file and back": (
        "m = backbone(); m.save(file); n = keras.models.load_model(file)\n"
        "close(m(inputs())['pooled_output'], n(inputs())['pooled_output'])", SAME),
    "enable_lora": (
        "bert_tf.add_lora(backbone(), rank=2) > 0", "m = backbone(); m.enable_lora(2); 1"),
    "a tokenizer in tf.data": (
        "t = tokenizer(); d = tf.data.Dataset.from_tensor_slices(texts).map(t).batch(2)\n"
        "len(list(d)) == 2", SAME),
    "a tokenizer as the first layer of a model": (
        "i = keras.Input((), dtype='string'); m = keras.Model(i, backbone()(tokenizer()(i)))\n"
        "m.predict(tf.constant(texts), verbose=0)['pooled_output'].shape == (4, 8)", SAME),
    "... in its .keras file": (
        "i = keras.Input((), dtype='string'); m = keras.Model(i, tokenizer()(i)); m.save(file)\n"
        "len(keras.models.load_model(file).layers) == 2", SAME),
    "fit from texts, uncompiled": (
        "m = classifier(); m.fit(texts, labels, verbose=0); "
        "m.predict(texts, verbose=0).shape == (4, 2)",
        SAME),
    "fit from texts and names of labels": (
        "m = classifier(); m.fit(texts, ['good', 'bad'] * 2, verbose=0); 1", SAME),
    "a loss of probabilities for logits is an error": (
        "bad = 0\ntry: m = classifier(); m.compile('adam', 'sparse_categorical_crossentropy'); "
        "m.fit(texts, labels, verbose=0)\nexcept Exception: bad = 1\nbad", SAME),
    "export of a model that takes texts": (
        "i = keras.Input((), dtype='string'); m = keras.Model(i, backbone()(tokenizer()(i)))\n"
        "m.export(FOLDER + '/e', verbose=False); s = tf.saved_model.load(FOLDER + '/e')\n"
        "s.serve(tf.constant(texts))['pooled_output'].shape == (4, 8)", SAME),
    "in two towers": (
        "one = lambda k: {n: keras.Input((5,), dtype='int32', name=n + k) for n in inputs()}\n"
        "m = backbone(); a, b = one('a'), one('b')\n"
        "keras.Model([a, b], [m(a)['pooled_output'], m(b)['pooled_output']]).count_params() > 0",
        SAME),
}  # fmt: skip


def main() -> None:
    """Tries all."""
    options = parse_options(__doc__, of="bert_tf")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as folder:
        scope = {"FOLDER": folder, "PIECES": PIECES}
        exec((OURS if options.of == "bert_tf" else THEIRS) + SHARED, scope)
        if options.of == "bert_tf":
            write_model(scope["bert_tf"], scope["config"], folder)
        print_titles("habit", options.of)
        held = [print_habit(name, code, options.of, scope) for name, code in HABITS.items()]
    print(f"\n{sum(held)} of {len(held)}")


def write_model(bert_tf, config, folder: str) -> None:
    """A checkpoint for `classifier`."""
    model = bert_tf.BertModel(config)
    model.tokenizer = bert_tf.FullTokenizer("vocab.txt", pieces=PIECES)
    bert_tf.save_weights(model, f"{folder}/model")


def print_habit(name: str, code: tuple[str, str | None], of: str, scope: dict) -> bool:
    """Runs the code; prints whether its last line is true."""
    ours, theirs = code
    lines = (ours if of == "bert_tf" or theirs is None else theirs).split("\n")
    *before, last = lines[:-1] + lines[-1].split("; ")
    try:
        own = dict(scope)
        exec("\n".join(before), own)
        found = "yes" if bool(eval(last, own)) else "no"
    except Exception as error:  # what is asked for
        found = f"{type(error).__name__}: {' '.join(str(error).split())[:60]}"
    print_rows([name, found])
    return found == "yes"


if __name__ == "__main__":
    main()
