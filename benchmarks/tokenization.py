"""How fast the tokenizer is, on one core, beside the other BERT tokenizers that are installed.

    python benchmarks/tokenization.py --vocab_file=vocab.txt --input_file=text.txt

Every non-empty line is a text. All take turns in the same minutes; the best of three rounds
counts, in seconds of CPU time, all threads together. `differ` counts the texts whose pieces are
not ours (which tests show to be the original's).
"""

import argparse
import time
from collections.abc import Callable
from importlib import util

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

import bert_tf
import tensorflow as tf
import tensorflow_text as tf_text

ROUNDS = 3


def main() -> None:
    """Every tokenizer on all lines, on those in ASCII and on the others -> tables."""
    options = parse_options()
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    with tf.io.gfile.GFile(options.input_file) as file:
        texts = [line.strip() for line in file if line.strip()]
    started = time.process_time()
    tokenizer = bert_tf.FullTokenizer(options.vocab_file, options.do_lower_case)
    print(f"constructed in {time.process_time() - started:.2f} s of CPU time")
    tokenizers = {
        "tokenize_ids": lambda batch: tokenizer.tokenize_ids(batch).to_list(),
        "tokenize_with_offsets": lambda batch: tokenizer.tokenize_with_offsets(batch)[0].to_list(),
        "tokenize": lambda batch: list(
            map(tokenizer.convert_tokens_to_ids, tokenizer.tokenize(batch))
        ),
    } | other_tokenizers(options.vocab_file, options.do_lower_case)
    groups = {
        "all lines": texts,
        "ASCII": [text for text in texts if text.isascii()],
        "not ASCII": [text for text in texts if not text.isascii()],
    }
    for group, members in groups.items():
        if members:
            compare(group, members, tokenizers, options.batch_size)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--do_lower_case", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--batch_size", type=int, default=1000)
    return parser.parse_args()


def other_tokenizers(vocab_file: str, do_lower_case: bool) -> dict[str, Callable]:
    """tensorflow-text's own and, where it is installed, Hugging Face's."""
    options = {"lower_case_nfd_strip_accents": do_lower_case, "token_out_type": tf.int32}
    with tf.io.gfile.GFile(vocab_file) as file:
        pieces = [line.strip() for line in file]
    fast = tf_text.FastBertTokenizer(pieces, **options)
    graph = tf.function(fast.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    result = {"FastBertTokenizer (other pieces)": lambda batch: graph(tf.constant(batch)).to_list()}
    if util.find_spec("tokenizers"):
        import tokenizers

        face = tokenizers.BertWordPieceTokenizer(vocab_file, lowercase=do_lower_case)
        result["Hugging Face tokenizers"] = lambda batch: [
            row.ids for row in face.encode_batch(batch, add_special_tokens=False)
        ]
    return result


def compare(group: str, texts: list[str], tokenizers: dict[str, Callable], size: int) -> None:
    """Prints a table with a line for each tokenizer, which takes `size` texts at once."""
    num_bytes = sum(len(text.encode()) for text in texts)
    print(f"\n{group}: {len(texts):,} texts, {num_bytes / 1e6:.1f} MB")
    print(f"{'':34}{'texts/s':>10}{'MB/s':>8}{'differ':>8}")
    batches = [texts[i : i + size] for i in range(0, len(texts), size)]
    seconds, ids = dict.fromkeys(tokenizers, float("inf")), {}
    for _ in range(ROUNDS):
        for name, tokenize in tokenizers.items():
            started = time.process_time()
            ids[name] = [row for batch in batches for row in tokenize(batch)]
            seconds[name] = min(seconds[name], time.process_time() - started)
    for name, best in seconds.items():
        differ = sum(ours != row for ours, row in zip(ids["tokenize_ids"], ids[name], strict=True))
        print(f"{name:34}{len(texts) / best:10,.0f}{num_bytes / best / 1e6:8.2f}{differ:8}")


if __name__ == "__main__":
    main()
