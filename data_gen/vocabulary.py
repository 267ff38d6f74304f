"""Text -> a WordPiece vocabulary for it.

    count       the words of the text, split and normalized as the tokenizer does it
    alphabet    the characters that get a word piece; words with other characters become [UNK]
    train       the most frequent pair of pieces is merged, again and again (package tokenizers)

Order of the file: [PAD] [UNK] [CLS] [SEP] [MASK], the alphabet, the merges. Same text and
settings, same bytes.
"""

import collections
import dataclasses
import itertools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.metadata import CONFIG_FILE, METADATA_FILE, ModelMetadata
from bert_tf.config import BertConfig
from bert_tf.data.records import expand_patterns
from bert_tf.decoding import replacement_warning
from bert_tf.errors import InputError
from bert_tf.files import (
    gfile,
    is_stream,
    make_folder,
    output,
    path_errors,
    published,
    read_blocks,
    write_text,
)
from bert_tf.options import PLAIN_READING, Reading
from bert_tf.runtime import import_extra
from bert_tf.terminal import Progress
from bert_tf.tokenization import basic
from bert_tf.tokenization.wordpiece import accents_beside, strips_accents, warn_of_lost_letters
from data_gen.documents import Block, DocumentReader
from data_gen.options import MODEL_SIZES
from data_gen.workers import BLOCK_CHARACTERS, Workers, choose_num_workers

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LINES_PER_CALL = 1000
MOST_LEFT_OUT = 0.01  # of the characters
# Longer words are addresses and the like; the tokenizer limits the length of pieces, too.
MAX_WORD_CHARACTERS = 50
MIN_FREQUENCY = 2  # of two pieces beside one another that are merged
# With more distinct words than this, those that occurred once so far are forgotten.
MAX_WORDS = 5_000_000
REPEATS_PER_CALL = 1000

WordCounts = collections.Counter[str]


def write_vocabulary(
    input_file: str,
    output_file: str,
    *,
    do_lower_case: bool,
    strip_accents: bool | None = None,
    model_size: str | None = None,
    input_format: str,
    reading: Reading = PLAIN_READING,
    num_workers: int,
    **learned: Any,
) -> None:
    """Learns a vocabulary from texts and writes it, and beside it what `write_beside` does.

    The arguments are named as the flags of `bert-tf vocab`; `learned` is for `learn_vocabulary`.

    Raises:
      InputError: the text cannot be used, or the file cannot be written; or a file beside it says
        something else about case or accents.
    """
    paths = expand_patterns(input_file)
    output_file = output(output_file, paths)
    folder = os.path.dirname(output_file)
    beside = [output(os.path.join(folder, name), paths) for name in (CONFIG_FILE, METADATA_FILE)]
    if output_file in beside:
        expected = "another name: the sizes of a model for the vocabulary are written there"
        if output_file == beside[1]:
            expected = "another name: what is done with accents is written there"
        raise InputError(f"{output_file} for a vocabulary", expected, "choose another name")
    facts = ModelMetadata(
        do_lower_case=do_lower_case,
        strip_accents=None if strip_accents == do_lower_case else strip_accents,
    )
    if not is_stream(output_file):
        check_facts(output_file, facts)
    make_folder(folder or ".")
    reader = DocumentReader(paths, input_format=input_format, reading=reading)
    if strips_accents(facts):
        own = DocumentReader(paths, input_format=input_format, reading=reading)
        lines = itertools.chain.from_iterable(next(own.blocks(BLOCK_CHARACTERS), []))
        warn_of_lost_letters(lines, "--nostrip_accents keeps them")
    with path_errors(output_file, "made"), published(output_file) as temporary:
        words = count_words(
            reader,
            do_lower_case=do_lower_case,
            strip_accents=facts.strip_accents,
            num_workers=num_workers,
        )
        if replaced := replacement_warning(reader.counts):
            logging.warning("%s", replaced)
        with Progress("merge the pieces"):
            pieces = learn_vocabulary(words, **learned)
        with gfile().GFile(temporary, "w") as file:
            file.write("".join(f"{piece}\n" for piece in pieces))
    logging.info(
        "%s: %d pieces, learned from %d words", output_file, len(pieces), sum(words.values())
    )
    if len(pieces) != learned["vocab_size"]:
        says = "The text gives %d pieces, not %d."
        logging.warning(says, len(pieces), learned["vocab_size"])
    if not is_stream(output_file):
        write_config(beside[0], len(pieces), model_size)
        if facts.strip_accents is not None:
            logging.info("%s: strip_accents %s", beside[1], facts.strip_accents)
            write_text(beside[1], facts.to_json_string())


def check_facts(vocab_file: str, facts: ModelMetadata) -> None:
    """Raises `InputError` where files beside a vocabulary do not go with it, or would be lost.

    Those are model_facts.json and, for accents, tokenizer_config.json.
    """
    path = os.path.join(os.path.dirname(vocab_file), METADATA_FILE)
    found, wanted = ModelMetadata.from_json_file(path), strips_accents(facts)
    remedy = "write the vocabulary into another folder"
    if (told := accents_beside(vocab_file)) not in (None, wanted):
        received = f"{vocab_file}, beside files that say strip_accents {told}"
        expected = f"strip_accents {wanted}, as of this command"
        raise InputError(
            received, expected, f"use --{'' if told else 'no'}strip_accents, or {remedy}"
        )
    if found.do_lower_case not in (None, facts.do_lower_case):
        received = f"{vocab_file}, beside {path} with do_lower_case {found.do_lower_case}"
        expected = f"do_lower_case {facts.do_lower_case}, as of this command"
        raise InputError(received, expected, remedy)
    if facts.strip_accents is not None and found not in (ModelMetadata(), facts):
        received = f"{vocab_file}, beside {path} of a model"
        raise InputError(received, "a folder without it: strip_accents is written there", remedy)


def sizes_of(model_size: str, num_pieces: int) -> BertConfig:
    """The configuration of a released size with this vocab_size."""
    layers, width = MODEL_SIZES[model_size]
    return BertConfig(
        vocab_size=num_pieces,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        type_vocab_size=2,
    )


def write_config(path: str, num_pieces: int, model_size: str | None) -> None:
    """Writes the sizes with this vocab_size, of BERT-Base by default; a file that is there stays.

    That the file has others than those that are asked for is logged.
    """
    wanted = sizes_of(model_size or "base", num_pieces)
    try:
        is_there = gfile().exists(path) and any(read_blocks(path))  # a killed command's is empty
        found = BertConfig.from_json_file(path) if is_there else wanted
    except InputError as error:
        logging.warning("%s stays as it is: received %s", path, error.received)
        return
    if not is_there:
        name = (model_size or "base").capitalize()
        logging.info("%s: the sizes of BERT-%s, for this vocabulary", path, name)
        write_text(path, wanted.to_json_string())
        return
    if found.vocab_size != num_pieces:
        says = "%s has a vocab_size of %d, and the vocabulary %d pieces: correct it."
        logging.warning(says, path, found.vocab_size, num_pieces)
    if model_size and dataclasses.replace(found, vocab_size=num_pieces) != wanted:
        says = "%s stays as it is, with sizes other than those of --model_size=%s: remove it first."
        logging.warning(says, path, model_size)


class WordCounter:
    """Counts words as the tokenizer splits and normalizes them."""

    def __init__(self, do_lower_case: bool, strip_accents: bool | None):
        case = {"do_lower_case": do_lower_case, "strip_accents": strip_accents}
        table = basic.load_unicode_table(**case)
        table = basic.UnicodeTable(*map(tf.constant, table))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def count(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            is_plain = tf.strings.regex_full_match(texts, basic.PLAIN_TEXT)
            plain, others = tf.boolean_mask(texts, is_plain), tf.boolean_mask(texts, ~is_plain)
            plain = basic.plain_words(plain, do_lower_case=do_lower_case).values
            words = tf.concat([plain, basic.split_words(others, table).strings], 0)
            return tf.unique_with_counts(words)[::2]

        self._count = count

    def count(self, block: Block) -> collections.Counter[bytes]:
        """How often each word occurs in the block."""
        totals: collections.Counter[bytes] = collections.Counter()
        lines = itertools.chain.from_iterable(block)
        while batch := list(itertools.islice(lines, LINES_PER_CALL)):
            words, counts = self._count(tf.constant([line.encode("utf-8") for line in batch]))
            totals.update(dict(zip(words.numpy().tolist(), counts.numpy().tolist(), strict=True)))
        return totals


def count_words(
    reader: DocumentReader,
    *,
    do_lower_case: bool,
    strip_accents: bool | None = None,
    num_workers: int,
) -> WordCounts:
    """How often each word occurs in all documents.

    Raises:
      InputError: there is no word.
    """
    num_workers = choose_num_workers(num_workers, most=1 + reader.total_bytes // BLOCK_CHARACTERS)
    totals: collections.Counter[bytes] = collections.Counter()
    with (
        Workers(num_workers, WordCounter, do_lower_case, strip_accents) as workers,
        Progress("count words", reader.total_bytes / 1e6, "MB") as progress,
    ):
        for counts in workers.map(WordCounter.count, reader.blocks(BLOCK_CHARACTERS)):
            totals.update(counts)
            if len(totals) > MAX_WORDS:
                totals = collections.Counter({w: n for w, n in totals.items() if n > 1})
            progress.update(reader.bytes_read / 1e6)
    if not totals:
        received = "--input_file: files without a word"
        raise InputError(received, "text", "check the files and --input_format")
    return WordCounts({word.decode("utf-8"): number for word, number in totals.items()})


def learn_vocabulary(
    words: Mapping[str, int], *, vocab_size: int, character_coverage: float = 0.9999
) -> list[str]:
    """The word pieces of a vocabulary, most of them learned by merging.

    Args:
      words: how often each word occurs.
      vocab_size: V, most pieces; there are fewer when no further pair is frequent enough.
      character_coverage: share of all characters that get a piece.

    Returns:
      The special pieces, the alphabet, and the merged pieces, first merged first.

    Raises:
      InputError: `vocab_size` is too small for the alphabet, or tokenizers is not installed.
    """
    alphabet = choose_alphabet(words, character_coverage)
    # Sorted, because the trainer's own order is that of a hash table with a random seed.
    kept = {
        word: words[word]
        for word in sorted(words)
        if len(word) <= MAX_WORD_CHARACTERS and alphabet.issuperset(word)
    }
    left_out = 1 - _num_characters(kept) / max(1, _num_characters(words))
    if left_out > MOST_LEFT_OUT:
        logging.warning(
            "%.1f %% of the characters teach nothing: they are in words of more than %d, or with "
            "rare ones. If the text has no spaces, cut it into words first.",
            *(100 * left_out, MAX_WORD_CHARACTERS),
        )
    first_pieces = [*SPECIAL_PIECES, *alphabet_pieces(kept)]
    if len(first_pieces) > vocab_size:
        received = f"--vocab_size={vocab_size} for text with {len(alphabet)} characters"
        expected = f"at least {len(first_pieces)}, for special pieces and all characters"
        remedy = "use a larger --vocab_size"
        raise InputError(received, expected, remedy)
    names = {"package": "tokenizers", "extra": "vocab", "needed_by": "bert-tf vocab"}
    tokenizers = import_extra("tokenizers", **names)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        # The alphabet is passed as special tokens, because these keep their order. Ties between
        # pairs are decided by the ids of their pieces: otherwise the same text would give another
        # vocabulary each time.
        special_tokens=first_pieces,
        limit_alphabet=len(first_pieces),
    )
    # The trainer counts words itself, so each is given as often as it occurs, several at a time.
    repeated = (
        f"{word} " * min(REPEATS_PER_CALL, number - done)
        for word, number in kept.items()
        for done in range(0, number, REPEATS_PER_CALL)
    )
    tokenizer.train_from_iterator(repeated, trainer)
    numbers = tokenizer.get_vocab()
    return sorted(numbers, key=numbers.__getitem__)


def _num_characters(words: Mapping[str, int]) -> int:
    return sum(len(word) * count for word, count in words.items())


def choose_alphabet(words: Mapping[str, int], character_coverage: float) -> set[str]:
    """The fewest characters that make up `character_coverage` of the text.

    >>> sorted(choose_alphabet({"abba": 10, "ox": 1}, 0.95))
    ['a', 'b']
    """
    counts = WordCounts()
    for word, number in words.items():
        for character in word:
            counts[character] += number
    by_frequency = sorted(counts, key=lambda character: (-counts[character], character))
    covered = np.cumsum([counts[character] for character in by_frequency])
    enough = int(np.searchsorted(covered, character_coverage * covered[-1]))
    return set(by_frequency[: enough + 1])


def alphabet_pieces(words: Mapping[str, int]) -> list[str]:
    """All characters as pieces that begin a word, then those that occur within one.

    >>> alphabet_pieces({"abba": 10, "ox": 1})
    ['a', 'b', 'o', 'x', '##a', '##b', '##x']
    """
    characters = {character for word in words for character in word}
    within = {character for word in words for character in word[1:]}
    return [*sorted(characters), *(f"##{character}" for character in sorted(within))]
