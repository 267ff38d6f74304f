"""Calls as users write them, for type checkers alone (tests/test_typing.py): it is never run.

They must find each mistake, the lines with `# error`, and accept all others.
"""

from keras import Input, losses

import bert_tf
from bert_tf import BertConfig, BertModel, FullTokenizer, InputError, Predictor, heads, layers
from bert_tf.options import Options, option
from bert_tf.training.options import Intervals


class Own(heads.Classification):
    name = "own"
    terms = ("classifier",)


class OwnOptions(Options):
    """As a command of one's own declares them."""

    words: str = option("Text.", path=True)
    length: int = option("Tokens.", default=128, low=1)
    layers: tuple[int, ...] = option("Numbers.", default="all")  # error: a wrong default
    intervals: Intervals = Intervals(eval_steps=7)


def right(texts: list[str], config: BertConfig) -> list[dict[str, object]]:
    model, tokenizer = bert_tf.load("folder", head="classification", labels=["bad", "good"])
    print(model(tokenizer(texts, ["a pair"], max_length=64))["logits"], tokenizer.vocab["[CLS]"])
    model = bert_tf.classifier("folder", labels=("bad", "good"), do_lower_case=True)
    optimizer = bert_tf.make_optimizer(10, learning_rate=1e-4, optimizer="lamb", beta_2=0.98)
    model.compile(optimizer, losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(texts, ["good", "bad"], epochs=2)
    print(model.predict(model.tokenizer("a text")).argmax(), bert_tf.add_lora(model, alpha=8.0) + 1)
    path: str = bert_tf.save_weights(bert_tf.open_weights("folder"), "new", format="tf1")
    print(bert_tf.load_checkpoint(model, path, required="bert/").missing, bert_tf.__version__)
    BertModel(BertConfig(vocab_size=30522), all_layers=True).save("model.keras")
    ids = Input((None,), dtype="int32")
    block = layers.EncoderBlock(hidden_size=8, num_heads=2, intermediate_size=16, name="layer_0")
    x = block(layers.Embeddings.from_bert_config(config)(ids), attention_mask=None)
    BertModel({"input_ids": ids}, heads.NextSentenceHead()(layers.Pooler(8)(x))).blocks[0].sizes
    print(layers.Tokenizer("vocab.txt", length=64)(texts)["input_ids"], model.config)
    pretraining = bert_tf.make_model("pretraining", config, with_losses=True)
    print(bert_tf.Scorer(pretraining, tokenizer, max_seq_length=128).score("a text").perplexity)
    own = OwnOptions(words="a.txt", length=64, layers=(1, 2))
    print(own.intervals.eval_steps + own.length, own.words.strip(), OwnOptions.of(own).layers[0])
    try:
        heads.register(Own())
    except InputError as error:
        print(error.received, error.expected, error.remedy)
    return Predictor("export", max_seq_length=64).predict(["a text", ("a", "b"), {"text_a": "a"}])


def wrong(tokenizer: FullTokenizer, model: BertModel, config: BertConfig) -> None:
    bert_tf.load(3)  # error: a number as a path
    bert_tf.laod("folder")  # error: a misspelt function
    bert_tf.load("folder", label=["a"])  # error: a misspelt keyword
    bert_tf.load("folder", "classification")  # error: a keyword given by position
    bert_tf.load("folder").fit()  # error: the pair used as the model
    bert_tf.load("folder", labels=[0, 1])  # error: numbers as the names of classes
    bert_tf.classifier("folder")  # error: a missing argument
    bert_tf.classifier("folder", labels=["a", "b"], lower_case=True)  # error: a misspelt option
    bert_tf.make_optimizer("10")  # error: text as a number
    bert_tf.make_optimizer(10, weight_decay=0.01)  # error: an option of Keras's own AdamW
    bert_tf.make_optimizer(10, optimizer="adam")  # error: an unknown name as a value
    bert_tf.make_model("fill_mask", "bert_config.json")  # error: a path as a configuration
    bert_tf.save_weights("new", bert_tf.open_weights("a"))  # error: path and weights swapped
    bert_tf.add_lora(model).fit()  # error: a number used as the model
    bert_tf.add_lora(model, targets="query")  # error: a name in the place of a list
    BertConfig()  # error: a missing size
    BertConfig(vocab=30522)  # error: a misspelt size
    config.hidden_size = 3  # error: an attribute of what is frozen
    tokenizer([3])  # error: a number as a text
    tokenizer("a").input_ids  # error: a dict used as an object
    tokenizer.tokenise("a")  # error: a misspelt method
    Predictor("export", batchsize=8)  # error: a misspelt option
    Predictor("export").predict("a")["label"]  # error: a list used as a dict
    bert_tf.Scorer(model, tokenizer, max_seq_length=8).score("a") + 1  # error: no number
    layers.EncoderBlock(8)  # error: missing sizes
    layers.EncodeBlock(config)  # error: a misspelt layer
    heads.SequenceClassifier()  # error: a missing argument
    heads.Clasification()  # error: a misspelt head
    heads.register("own")  # error: a name as a head
    InputError("received")  # error: missing arguments
    OwnOptions(length=64)  # error: a missing required option
    OwnOptions(words="a.txt", lenght=64)  # error: a misspelt option
    OwnOptions(words="a.txt", length="64")  # error: text as a number
    OwnOptions(words="a.txt").length = 64  # error: an option that is written to
    OwnOptions(words="a.txt").eval_steps  # error: an option of a group, not of the command
