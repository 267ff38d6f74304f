"""What a Keras developer takes for granted: each habit tried with bert_tf and with keras-hub.

    python benchmarks/habits.py                              bert_tf
    PYTHONPATH=CHECKOUT python benchmarks/habits.py          bert_tf as another checkout has it
    PYTHON_WITH_KERAS_HUB benchmarks/habits.py --of=keras_hub

Prints a line for each habit: yes, or the error. A habit is a few lines of code for each library; it
holds if they run within a minute and the last one is true. They run in a process of their own: one
that crashes or hangs is replaced for the next habit.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from measuring import parse_options, print_rows, print_titles

SECONDS = 60  # for a habit
NO_ANSWER, HAS_ENDED = "no answer in time", "the process has ended"

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##d", "good", "bad", "film"]
OURS = """
import keras, numpy as np, tensorflow as tf
import bert_tf
from bert_tf import heads, layers
block = lambda **k: layers.EncoderBlock(hidden_size=8, num_heads=2, intermediate_size=16, **k)
embed = lambda **k: layers.Embeddings(vocab_size=12, hidden_size=8, max_positions=16, **k)
config = bert_tf.BertConfig(vocab_size=12, hidden_size=8, num_hidden_layers=2,
    num_attention_heads=2, intermediate_size=16, max_position_embeddings=16, type_vocab_size=2)
backbone = lambda **k: bert_tf.BertModel(config, **k)
classifier = lambda: bert_tf.classifier(FOLDER + "/model.keras", labels=["bad", "good"])
tokenizer = lambda: layers.Tokenizer(PIECES, length=8, do_lower_case=True)
inputs = lambda: {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
IDS, MASK, POSITIONS = "input_ids", "input_mask", "masked_lm_positions"
lm_head = lambda e: heads.MaskedLmHead(embeddings=e)
optimizer = lambda **k: bert_tf.make_optimizer(10, **k)
"""
THEIRS = """
import keras, numpy as np, tensorflow as tf, keras_hub
from keras_hub import layers, models
block = lambda **k: layers.TransformerEncoder(intermediate_dim=16, num_heads=2, **k)
embed = lambda **k: layers.TokenAndPositionEmbedding(12, 16, 8, mask_zero=True, **k)
backbone = lambda **k: models.BertBackbone(vocabulary_size=12, num_layers=2, num_heads=2,
    hidden_dim=8, intermediate_dim=16, max_sequence_length=16, **k)
words = lambda: models.BertTokenizer(vocabulary=PIECES, lowercase=True)
tokenizer = lambda: models.BertTextClassifierPreprocessor(words(), sequence_length=8)
classifier = lambda: models.BertTextClassifier(backbone(), num_classes=2, preprocessor=tokenizer())
inputs = lambda: {"token_ids": ids, "padding_mask": mask, "segment_ids": 0 * ids}
IDS, MASK, POSITIONS = "token_ids", "padding_mask", "mask_positions"
lm_head = lambda e: layers.MaskedLMHead(token_embedding=e.token_embedding)
optimizer = lambda **k: keras.optimizers.AdamW(5e-5, **k)
"""
SHARED = """
import inspect, pickle, subprocess, sys
ids = np.array([[2, 5, 6, 3, 0], [2, 9, 3, 0, 0]]); mask = (ids != 0).astype("int32")
x = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
texts, labels = ["a good film", "a bad film"] * 2, np.array([1, 0, 1, 0])
close = lambda a, b: np.allclose(a, b, atol=1e-5)
seen = np.tril(np.ones((2, 5, 5), bool)); file = FOLDER + "/habit.keras"
ce = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
few = mask * np.array([1, 1, 0, 0, 0]); some = np.ones((2, 5, 5), bool); some[:, :, 1] = False
symbols = lambda: {n: keras.Input((5,), dtype="int32", name=n) for n in inputs()}
def refused(call, kind=Exception):  # whether it is an error
    try: call()
    except kind: return True
    return False
def fresh(*lines):  # whether the model m that they load predicts y.npy in a new process
    y = f"np.load({FOLDER + '/y.npy'!r})"
    check = f"assert np.allclose(m.predict({texts}, verbose=0), {y}, atol=1e-5)"
    words = [sys.executable, "-c", "\\n".join([*lines, "import numpy as np", check])]
    options = {"cwd": FOLDER, "capture_output": True, "text": True, "timeout": SECONDS - 5}
    ended = subprocess.run(words, **options)
    if ended.returncode: raise RuntimeError(ended.stderr.strip().split("\\n")[-1])
    return True
of_every_layer = keras.layers.Layer().get_config().keys() | {"self", "kwargs"}
names_of_config = lambda part: part.get_config().keys() - of_every_layer
def names_of_constructor(part):
    return inspect.signature(type(part).__init__).parameters.keys() - of_every_layer
"""
OWN_OF_TEXTS = """
@keras.saving.register_keras_serializable("habits")
class Own(keras.Model):
    def __init__(self, **k):
        super().__init__(**k)
        self.tokenizer, self.vectors = tokenizer(), keras.layers.Embedding(12, 3)
    def call(self, texts):
        return self.vectors(self.tokenizer(texts)[IDS])
m = Own()
y = m.predict(tf.constant(texts), verbose=0)
"""  # a model, which has been called
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
    "a mask of Keras and an attention_mask together": (
        "e, b = embed(), block(); y = b(np.array(e(ids)), padding_mask=mask, attention_mask=some)\n"
        "i, a = keras.Input((5,), dtype='int32'), keras.Input((5, 5), dtype='bool')\n"
        "m = keras.Model([i, a], b(e(i), attention_mask=a))\n"
        "ours = b(e(ids), attention_mask=some), m.predict([ids, some], verbose=0)\n"
        "all(close(z[:, :3], y[:, :3]) for z in ours)", SAME),
    "a mask of booleans, floats or any number": (
        "b = block(); y = b(x, padding_mask=mask)\n"
        "masks = mask > 0, mask.astype('float32'), mask * np.array([1, 2, 7, 1, 1])\n"
        "all(close(b(x, padding_mask=m), y) for m in masks)", SAME),
    "return_attention_scores": (
        "y, p = block()(x, return_attention_scores=True); p.shape == (2, 2, 5, 5)", SAME),
    "a mask of a wrong shape is an error": (
        "refused(lambda: block()(x, padding_mask=mask[:, :3]))", SAME),
    "a wrong number of heads is an error": (
        "refused(lambda: layers.EncoderBlock(8, 3, 16)(x), ValueError)",
        "refused(lambda: layers.TransformerEncoder(16, 3)(x), ValueError)"),
    "compute_output_shape without a call": (
        "tuple(block().compute_output_shape((2, 5, 8))) == (2, 5, 8) and "
        "tuple(embed().compute_output_shape((2, 5))) == (2, 5, 8) and "
        "tuple(lm_head(embed()).compute_output_shape((2, 5, 8), (2, 3))) == (2, 3, 12)", SAME),
    "get_config has the names of the constructor's arguments": (
        "parts = block(), embed(), layers.SelfAttention(hidden_size=8, num_heads=2)\n"
        "all(names_of_config(p) == names_of_constructor(p) for p in parts)",
        "parts = block(), embed(), layers.MaskedLMHead(vocabulary_size=12)\n"
        "all(names_of_config(p) == names_of_constructor(p) for p in parts)"),
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
    "... on an encoder that is called as a layer": (
        "m = backbone(); i, p = symbols(), keras.Input((2,), dtype='int32', name=POSITIONS)\n"
        "y = lm_head(m.embeddings)(m(i)['sequence_output'], p)\n"
        "k = keras.Model({**i, POSITIONS: p}, y); own = len(k.weights) - len(m.weights)\n"
        "k({**inputs(), POSITIONS: ids[:, :2] % 5}).shape == (2, 2, 12) and own == 5",
        "m = backbone(); i, p = symbols(), keras.Input((2,), dtype='int32', name=POSITIONS)\n"
        "y = lm_head(m)(m(i)['sequence_output'], p)\n"
        "k = keras.Model({**i, POSITIONS: p}, y); own = len(k.weights) - len(m.weights)\n"
        "k({**inputs(), POSITIONS: ids[:, :2] % 5}).shape == (2, 2, 12) and own == 5"),
    "... in the file of a model, still tied": (
        "m = backbone(); i, p = symbols(), keras.Input((2,), dtype='int32', name=POSITIONS)\n"
        "y = lm_head(m.embeddings)(m(i)['sequence_output'], p)\n"
        "k = bert_tf.BertModel({**i, POSITIONS: p}, {'logits': y}); k.save(file)\n"
        "n = keras.models.load_model(file); j = {**inputs(), POSITIONS: ids[:, :2] % 5}\n"
        "tables = [w for w in n.weights if tuple(w.shape) == (12, 8)]\n"
        "len(tables) == 1 and close(n(j)['logits'], k(j)['logits'])",
        "k = models.BertMaskedLM(backbone()); k.save(file)\n"
        "n = keras.models.load_model(file); j = {**inputs(), POSITIONS: ids[:, :2] % 5}\n"
        "tables = [w for w in n.weights if tuple(w.shape) == (12, 8)]\n"
        "len(tables) == 1 and close(n(j), k(j))"),
    "... in the summary of a subclassed model": (
        "class Own(keras.Model):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.e = embed(); self.h = lm_head(self.e)\n"
        "    def call(self, ids): return self.h(self.e(ids), ids[:, :2] % 5)\n"
        "m = Own(); m(ids); lines = []; m.summary(print_fn=lambda line, **_: lines.append(line))\n"
        "'2, 2, 12' in '\\n'.join(lines)", SAME),
    "a next-sentence head": ("heads.NextSentenceHead()(x[:, 0]).shape == (2, 2)",
                             "layers.NextSentenceHead"),
    "the encoder with its parts as attributes": (
        "m = backbone(); len(m.blocks) == 2 and m.embeddings.hidden_size == 8",
        "m = backbone(); len(m.transformer_layers) == 2 and m.token_embedding.output_dim == 8"),
    "ids alone are enough": (
        "'pooled_output' in backbone()(ids)", "'pooled_output' in backbone()(ids)"),
    "an input as a keyword is used, or refused": (
        "m = backbone(); y = m({**inputs(), MASK: few})['pooled_output']\n"
        "call = lambda: m(ids, attention_mask=few)['pooled_output']\n"
        "refused(call) or close(call(), y)",
        "m = backbone(); y = m({**inputs(), MASK: few})['pooled_output']\n"
        "call = lambda: m({IDS: ids, 'segment_ids': 0 * ids}, padding_mask=few)['pooled_output']\n"
        "refused(call) or close(call(), y)"),
    "an unknown keyword of a call is an error": (
        "m = backbone(); m(inputs()); refused(lambda: m(inputs(), trainning=True))", SAME),
    "an unknown argument of a model is an error": (
        "refused(lambda: backbone(hiden_size=8))", SAME),
    "stateless_call takes what a call takes": (
        "m = backbone(); given = {'input_ids': ids, 'attention_mask': few}; y = m(given)\n"
        "z, _ = m.stateless_call(m.trainable_variables, m.non_trainable_variables, given)\n"
        "close(z['pooled_output'], y['pooled_output'])",
        "m = backbone(); given = {**inputs(), MASK: few}; y = m(given)\n"
        "z, _ = m.stateless_call(m.trainable_variables, m.non_trainable_variables, given)\n"
        "close(z['pooled_output'], y['pooled_output'])"),
    "average pooling over what the mask shows, id 0 too": (
        "given = {**inputs(), IDS: ids * np.array([1, 0, 1, 1, 1])}\n"
        "y = backbone()(given)['sequence_output']\n"
        "mean = keras.layers.GlobalAveragePooling1D()(y)\n"
        "close(mean, np.sum(y * mask[..., None], 1) / mask.sum(1, keepdims=True))",
        "given = {**inputs(), IDS: ids * np.array([1, 0, 1, 1, 1])}\n"
        "y = backbone()(given)['sequence_output']\n"
        "mean = keras.layers.GlobalAveragePooling1D()(y, mask=mask)\n"
        "close(mean, np.sum(y * mask[..., None], 1) / mask.sum(1, keepdims=True))"),
    "ids outside of the vocabulary are an error": (
        "refused(lambda: backbone()({**inputs(), IDS: ids + 50}))", SAME),
    "mixed precision": (
        "b = block(dtype='mixed_bfloat16'); str(b(x).dtype).find('bfloat16') >= 0", SAME),
    "the dtype of a whole model": (
        "m = backbone(dtype='mixed_bfloat16'); y = m(inputs())['pooled_output']\n"
        "'bfloat16' in str(y.dtype) and m.weights[0].dtype == 'float32'", SAME),
    "name and dtype of a model that is loaded": (
        "m, _ = bert_tf.load(FOLDER + '/model.keras', name='own', dtype='mixed_bfloat16')\n"
        "m.name == 'own' and 'bfloat16' in str(m(inputs())['pooled_output'].dtype)",
        "backbone().save_to_preset(FOLDER + '/preset')\n"
        "m = models.BertBackbone.from_preset(\n"
        "    FOLDER + '/preset', name='own', dtype='mixed_bfloat16')\n"
        "m.name == 'own' and 'bfloat16' in str(m(inputs())['pooled_output'].dtype)"),
    "summary": ("backbone().summary(print_fn=lambda *_, **__: 0); 1", SAME),
    "clone_model": ("len(keras.models.clone_model(backbone()).weights) > 30", SAME),
    "a .keras file and back": (
        "m = backbone(); m.save(file); n = keras.models.load_model(file)\n"
        "close(m(inputs())['pooled_output'], n(inputs())['pooled_output'])", SAME),
    "a .h5 file and back, or refused when saved": (
        "m = backbone(); save = lambda: m.save(FOLDER + '/habit.h5')\n"
        "back = lambda: keras.models.load_model(FOLDER + '/habit.h5')(inputs())['pooled_output']\n"
        "refused(save) or close(back(), m(inputs())['pooled_output'])", SAME),
    "quantized to int8, a .keras file and back": (
        "m = backbone(); m.quantize('int8'); m.save(file); n = keras.models.load_model(file)\n"
        "close(m(inputs())['pooled_output'], n(inputs())['pooled_output'])", SAME),
    "a .keras file in a process that has imported a class": (
        "m = classifier(); m.save(file); np.save(FOLDER + '/y.npy', m.predict(texts, verbose=0))\n"
        "first = 'from bert_tf.modeling.models import BertModel'\n"
        "fresh(first, 'import keras', f'm = keras.models.load_model({file!r})')",
        "m = classifier(); m.save(file); np.save(FOLDER + '/y.npy', m.predict(texts, verbose=0))\n"
        "first = 'from keras_hub.models import BertTextClassifier'\n"
        "fresh(first, 'import keras', f'm = keras.models.load_model({file!r})')"),
    "a pickle in a process that has imported nothing": (
        "m = classifier(); np.save(FOLDER + '/y.npy', m.predict(texts, verbose=0))\n"
        "with open(FOLDER + '/pickle', 'wb') as stream: pickle.dump(m, stream)\n"
        "fresh('import pickle', f'm = pickle.load(open({FOLDER!r} + \"/pickle\", \"rb\"))')", SAME),
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
    "... without keras.Input in a Sequential": (
        "m = keras.Sequential([tokenizer(), backbone()])\n"
        "m.predict(tf.constant(texts), verbose=0)['pooled_output'].shape == (4, 8)", SAME),
    "... in a subclassed model and its .keras file": (
        OWN_OF_TEXTS + "m.save(file); n = keras.models.load_model(file)\n"
        "close(n.predict(tf.constant(texts), verbose=0), y)", SAME),
    "... in the export of a subclassed model": (
        OWN_OF_TEXTS + "kind = tf.TensorSpec((None,), tf.string)\n"
        "m.export(FOLDER + '/own', input_signature=[kind], verbose=False)\n"
        "s = tf.saved_model.load(FOLDER + '/own'); close(s.serve(tf.constant(texts)), y)", SAME),
    "fit from texts, uncompiled": (
        "m = classifier(); m.fit(texts, labels, verbose=0); "
        "m.predict(texts, verbose=0).shape == (4, 2)",
        SAME),
    "fit from texts and names of labels": (
        "m = classifier(); m.fit(texts, ['good', 'bad'] * 2, verbose=0); 1", SAME),
    "fit, evaluate, predict from texts in tf.data": (
        "d = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(2); m = classifier()\n"
        "m.fit(d, verbose=0); m.evaluate(d, verbose=0)\n"
        "m.predict(d.map(lambda text, label: text), verbose=0).shape == (4, 2)", SAME),
    "class_weight for texts": (
        "m = classifier(); weights = {'bad': 0., 'good': 0.}\n"
        "h = m.fit(texts, ['good', 'bad'] * 2, class_weight=weights, verbose=0)\n"
        "h.history['loss'] == [0]",
        "m = classifier(); h = m.fit(texts, labels, class_weight={0: 0., 1: 0.}, verbose=0)\n"
        "h.history['loss'] == [0]"),
    "callbacks that keep the best file, stop and restore": (
        "c = keras.callbacks; m = classifier(); stop = c.EarlyStopping(restore_best_weights=True)\n"
        "kept = c.ModelCheckpoint(file, save_best_only=True)\n"
        "m.fit(texts, labels, validation_data=(texts, labels), epochs=2, verbose=0,\n"
        "    callbacks=[kept, stop])\n"
        "keras.models.load_model(file).predict(texts, verbose=0).shape == (4, 2)", SAME),
    "an optimizer that averages weights, or sums gradients": (
        "average = keras.callbacks.SwapEMAWeights()\n"
        "m = classifier(); m.compile(optimizer(use_ema=True), ce)\n"
        "m.fit(texts, labels, epochs=2, batch_size=2, callbacks=[average], verbose=0)\n"
        "m = classifier(); m.compile(optimizer(gradient_accumulation_steps=2), ce)\n"
        "m.fit(texts, labels, batch_size=2, verbose=0); 1", SAME),
    "the encoder of a classifier, frozen": (
        "m = classifier(); m.backbone.trainable = False; m.compile(keras.optimizers.SGD(1.), ce)\n"
        "old = [np.array(w) for w in m.backbone.weights]; m.fit(texts, labels, verbose=0)\n"
        "len(m.trainable_weights) == 2 and all(map(close, old, m.backbone.weights))", SAME),
    "a loaded classifier answers as the saved one, long texts too": (
        "t = [*texts[:3], 'a ' * 40]; m = classifier(); m.fit(t, labels, verbose=0); m.save(file)\n"
        "n = keras.models.load_model(file)\n"
        "both = [(k.predict(t, verbose=0), k.evaluate(t, labels, verbose=0)) for k in (m, n)]\n"
        "all(map(close, *both))", SAME),
    "... and trains on": (
        "m = classifier(); m.fit(texts, labels, verbose=0); m.save(file)\n"
        "n = keras.models.load_model(file); n.fit(texts, labels, epochs=3, verbose=0)\n"
        "not close(n.predict(texts, verbose=0), m.predict(texts, verbose=0))", SAME),
    "a tagger of words: class_weight, a file, words again": (
        "m = bert_tf.token_classifier(FOLDER + '/model.keras', labels=['O', 'X'])\n"
        "words, tags = [['a', 'film'], ['good']], [['O', 'X'], ['O']]\n"
        "m.fit(words, tags, class_weight={'O': .5, 'X': 2.}, verbose=0); m.save(file)\n"
        "keras.models.load_model(file).predict(words, verbose=0).shape == (2, 2, 2)",
        "models.BertTokenClassifier"),
    "a loss of probabilities for logits is an error": (
        "m = classifier(); probabilities = 'sparse_categorical_crossentropy'\nrefused("
        "lambda: (m.compile('adam', probabilities), m.fit(texts, labels, verbose=0)))", SAME),
    "export of a model that takes texts": (
        "i = keras.Input((), dtype='string'); m = keras.Model(i, backbone()(tokenizer()(i)))\n"
        "m.export(FOLDER + '/e', verbose=False); s = tf.saved_model.load(FOLDER + '/e')\n"
        "s.serve(tf.constant(texts))['pooled_output'].shape == (4, 8)", SAME),
    "in two towers": (
        "one = lambda k: {n: keras.Input((5,), dtype='int32', name=n + k) for n in inputs()}\n"
        "m = backbone(); a, b = one('a'), one('b')\n"
        "keras.Model([a, b], [m(a)['pooled_output'], m(b)['pooled_output']]).count_params() > 0",
        SAME),
    "two encoders in one model": (
        "i = symbols(); m = keras.Model(i, [backbone()(i)['pooled_output'] for _ in '12'])\n"
        "len(m.predict(inputs(), verbose=0)) == 2", SAME),
}  # fmt: skip


def main() -> None:
    """Tries all."""
    of = parse_options(__doc__, of="bert_tf").of
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    print_titles("habit", of)
    held = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, found in zip(HABITS, answers(of, folder), strict=True):
            print_rows([name, found])
            held += found == "yes"
    print(f"\n{held} of {len(HABITS)}")


def answers(of: str, folder: str) -> Iterator[str]:
    """What `try_habit` says of each habit, or why its process says nothing."""
    context, process = multiprocessing.get_context("spawn"), None
    for name in HABITS:
        if process is None:
            here, there = context.Pipe()
            process = context.Process(target=try_habits, args=(of, folder, there), daemon=True)
            process.start()
            there.close()  # else an end of the process is not seen
            here.recv()
        here.send(name)
        try:
            found = here.recv() if here.poll(SECONDS) else NO_ANSWER
        except EOFError:
            found = HAS_ENDED
        if found in (NO_ANSWER, HAS_ENDED):
            process.kill()
            process = None
        yield found
    if process is not None:
        process.kill()


def try_habits(of: str, folder: str, connection: Connection) -> None:
    """In a process of its own: tries each habit whose name it receives."""
    scope = {"__name__": "habits", "FOLDER": folder, "PIECES": PIECES, "SECONDS": SECONDS}
    exec((OURS if of == "bert_tf" else THEIRS) + SHARED, scope)
    if of == "bert_tf":
        write_model(scope["bert_tf"], scope["config"], f"{folder}/model.keras")
    connection.send("ready")
    while True:
        ours, theirs = HABITS[connection.recv()]
        code = ours if of == "bert_tf" or theirs is SAME else theirs
        connection.send(try_habit(code, scope))


def write_model(bert_tf: Any, config: Any, path: str) -> None:
    """A checkpoint for `classifier`."""
    if not os.path.exists(path):
        model = bert_tf.BertModel(config)
        model.tokenizer = bert_tf.FullTokenizer("vocab.txt", pieces=PIECES)
        model.save(path)


def try_habit(code: str, scope: dict[str, Any]) -> str:
    """Runs the code: "yes" if its last line is true, else "no" or the error."""
    lines = code.split("\n")
    *before, last = lines[:-1] + lines[-1].split("; ")
    try:
        variables = dict(scope)
        exec("\n".join(before), variables)
        return "yes" if bool(eval(last, variables)) else "no"
    except Exception as error:  # what is asked for
        return f"{type(error).__name__}: {' '.join(str(error).split())[:60]}"


if __name__ == "__main__":
    main()
