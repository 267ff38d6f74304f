"""How fast the tokenizer is, on one core, beside the other BERT tokenizers that are installed.

    python benchmarks/tokenization.py --vocab_file=vocab.txt --input_file=text.txt

Every non-empty line is a text. All take turns in the same minutes; the best of three rounds
counts, in seconds of CPU time, all threads together. `differ` counts the texts whose pieces are
not ours (which tests show to be the original's).
"""

import time
from collections.abc import Callable
from importlib import util

import bert_tf
from bert_tf.cli import flags as shared_flags

import tensorflow as tf
import tensorflow_text as tf_text
from absl import flags

FLAGS = flags.FLAGS
ROUNDS = 3


def define_flags() -> None:
    shared_flags.define_vocabulary()
    flags.DEFINE_string("input_file", None, "A text file in UTF-8.", required=True)
    flags.DEFINE_integer("batch_size", 1000, "Texts handed over at once.")


def main(_) -> None:
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    with tf.io.gfile.GFile(FLAGS.input_file) as file:
        texts = [line.strip() for line in file if line.strip()]
    started = time.process_time()
    tokenizer = bert_tf.FullTokenizer(FLAGS.vocab_file, FLAGS.do_lower_case)
    print(f"constructed in {time.process_time() - started:.2f} s of CPU time")
    tokenizers = {
        "tokenize_ids": lambda batch: tokenizer.tokenize_ids(batch).to_list(),
        "tokenize_with_offsets": lambda batch: tokenizer.tokenize_with_offsets(batch)[0].to_list(),
        "tokenize": lambda batch: list(
            map(tokenizer.convert_tokens_to_ids, tokenizer.tokenize(batch))
        ),
    } | other_tokenizers()
    groups = {
        "all lines": texts,
        "ASCII": [text for text in texts if text.isascii()],
        "not ASCII": [text for text in texts if not text.isascii()],
    }
    for group, members in groups.items():
        if members:
            compare(group, members, tokenizers)


def other_tokenizers() -> dict[str, Callable]:
    """tensorflow-text's own and, where it is installed, Hugging Face's."""
    options = {"lower_case_nfd_strip_accents": FLAGS.do_lower_case, "token_out_type": tf.int32}
    with tf.io.gfile.GFile(FLAGS.vocab_file) as file:
        pieces = [line.strip() for line in file]
    fast = tf_text.FastBertTokenizer(pieces, **options)
    graph = tf.function(fast.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    result = {"FastBertTokenizer (other pieces)": lambda batch: graph(tf.constant(batch)).to_list()}
    if util.find_spec("tokenizers"):
        import tokenizers

        face = tokenizers.BertWordPieceTokenizer(FLAGS.vocab_file, lowercase=FLAGS.do_lower_case)
        result["Hugging Face tokenizers"] = lambda batch: [
            row.ids for row in face.encode_batch(batch, add_special_tokens=False)
        ]
    return result


def compare(group: str, texts: list[str], tokenizers: dict[str, Callable]) -> None:
    """Prints a table: a line a tokenizer."""
    size = sum(len(text.encode()) for text in texts)
    print(f"\n{group}: {len(texts):,} texts, {size / 1e6:.1f} MB")
    print(f"{'':34}{'texts/s':>10}{'MB/s':>8}{'differ':>8}")
    batches = [texts[i : i + FLAGS.batch_size] for i in range(0, len(texts), FLAGS.batch_size)]
    seconds, ids = dict.fromkeys(tokenizers, float("inf")), {}
    for _ in range(ROUNDS):
        for name, tokenize in tokenizers.items():
            started = time.process_time()
            ids[name] = [row for batch in batches for row in tokenize(batch)]
            seconds[name] = min(seconds[name], time.process_time() - started)
    for name, best in seconds.items():
        differ = sum(ours != row for ours, row in zip(ids["tokenize_ids"], ids[name], strict=True))
        print(f"{name:34}{len(texts) / best:10,.0f}{size / best / 1e6:8.2f}{differ:8}")


if __name__ == "__main__":
    define_flags()
    shared_flags.run(main)
