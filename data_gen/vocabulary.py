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
from collections.abc import Iterator, Mapping, Sequence
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
    """Learns a vocabulary from texts, and writes it and the files beside it.

    Beside it are written bert_config.json, unless it exists, and model_facts.json, if accents are
    treated otherwise than the case suggests. The arguments are named as the flags of `bert-tf
    vocab`; `learned` is for `learn_vocabulary`.

    Raises:
      InputError: the text cannot be used, the file cannot be written, or a file beside it says
        something else about case or accents.
    """
    paths = expand_patterns(input_file)
    output_file = output(output_file, paths)
    config_path, metadata_path = _paths_beside(output_file, paths)
    metadata = ModelMetadata(
        do_lower_case=do_lower_case,
        strip_accents=None if strip_accents == do_lower_case else strip_accents,
    )
    if not is_stream(output_file):
        check_metadata(output_file, metadata)
    make_folder(os.path.dirname(output_file) or ".")
    reader = DocumentReader(paths, input_format=input_format, reading=reading)
    if strips_accents(metadata):
        first_reader = DocumentReader(paths, input_format=input_format, reading=reading)
        _warn_of_letters(next(first_reader.blocks(BLOCK_CHARACTERS), []))
    with path_errors(output_file, "made"), published(output_file) as temporary:
        words = count_words(
            reader,
            do_lower_case=do_lower_case,
            strip_accents=metadata.strip_accents,
            num_workers=num_workers,
        )
        if warning := replacement_warning(reader.counts):
            logging.warning("%s", warning)
        with Progress("merge the pieces"):
            pieces = learn_vocabulary(words, **learned)
        with gfile().GFile(temporary, "w") as file:
            file.write("".join(f"{piece}\n" for piece in pieces))
    num_words = sum(words.values())
    logging.info("%s: %d pieces, learned from %d words", output_file, len(pieces), num_words)
    if len(pieces) != learned["vocab_size"]:
        message = "The text gives %d pieces, not %d."
        logging.warning(message, len(pieces), learned["vocab_size"])
    if is_stream(output_file):
        return
    write_config(config_path, len(pieces), model_size)
    if metadata.strip_accents is not None:
        logging.info("%s: strip_accents %s", metadata_path, metadata.strip_accents)
        write_text(metadata_path, metadata.to_json_string())


def _warn_of_letters(block: Block) -> None:
    """Warns if the text has letters that lose their accents, and their meaning."""
    lines = itertools.chain.from_iterable(block)
    warn_of_lost_letters(lines, "--nostrip_accents keeps them")


def _paths_beside(vocab_file: str, inputs: Sequence[str]) -> tuple[str, str]:
    """The paths of bert_config.json and model_facts.json beside a vocabulary.

    Raises:
      InputError: one of them is an input, or the vocabulary itself.
    """
    folder = os.path.dirname(vocab_file)
    config_path = output(os.path.join(folder, CONFIG_FILE), inputs)
    metadata_path = output(os.path.join(folder, METADATA_FILE), inputs)
    reasons = {
        config_path: "the sizes of a model for the vocabulary are written there",
        metadata_path: "what is done with accents is written there",
    }
    if reason := reasons.get(vocab_file):
        expected = f"another name: {reason}"
        raise InputError(f"{vocab_file} for a vocabulary", expected, "choose another name")
    return config_path, metadata_path


def check_metadata(vocab_file: str, metadata: ModelMetadata) -> None:
    """Refuses a vocabulary beside files that contradict it, or that would be lost.

    These are model_facts.json and, for accents, tokenizer_config.json.

    Args:
      vocab_file: the vocabulary to write.
      metadata: its case and accents.

    Raises:
      InputError: there is such a file.
    """
    path = os.path.join(os.path.dirname(vocab_file), METADATA_FILE)
    existing = ModelMetadata.from_json_file(path)
    strips = strips_accents(metadata)
    strips_beside = accents_beside(vocab_file)
    remedy = "write the vocabulary into another folder"
    if strips_beside not in (None, strips):
        received = f"{vocab_file}, beside files that say strip_accents {strips_beside}"
        expected = f"strip_accents {strips}, as of this command"
        flag = "--strip_accents" if strips_beside else "--nostrip_accents"
        raise InputError(received, expected, f"use {flag}, or {remedy}")
    if existing.do_lower_case not in (None, metadata.do_lower_case):
        received = f"{vocab_file}, beside {path} with do_lower_case {existing.do_lower_case}"
        expected = f"do_lower_case {metadata.do_lower_case}, as of this command"
        raise InputError(received, expected, remedy)
    if metadata.strip_accents is not None and existing not in (ModelMetadata(), metadata):
        received = f"{vocab_file}, beside {path} of a model"
        raise InputError(received, "a folder without it: strip_accents is written there", remedy)


def sizes_of(model_size: str, num_pieces: int) -> BertConfig:
    """The configuration of a released size with this vocab_size."""
    num_layers, width = MODEL_SIZES[model_size]
    return BertConfig(
        vocab_size=num_pieces,
        hidden_size=width,
        num_hidden_layers=num_layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        type_vocab_size=2,
    )


def write_config(path: str, num_pieces: int, model_size: str | None) -> None:
    """Writes the sizes with this vocab_size, by default those of BERT-Base.

    An existing file stays. A warning says if its sizes are not those that are asked for.
    """
    wanted = sizes_of(model_size or "base", num_pieces)
    try:
        # A killed command may have left an empty file.
        exists = gfile().exists(path) and any(read_blocks(path))
        existing = BertConfig.from_json_file(path) if exists else wanted
    except InputError as error:
        logging.warning("%s stays as it is: received %s", path, error.received)
        return
    if not exists:
        name = (model_size or "base").capitalize()
        logging.info("%s: the sizes of BERT-%s, for this vocabulary", path, name)
        write_text(path, wanted.to_json_string())
        return
    if existing.vocab_size != num_pieces:
        message = "%s has a vocab_size of %d, and the vocabulary %d pieces: correct it."
        logging.warning(message, path, existing.vocab_size, num_pieces)
    if model_size and dataclasses.replace(existing, vocab_size=num_pieces) != wanted:
        message = (
            "%s stays as it is, with sizes other than those of --model_size=%s: remove it first."
        )
        logging.warning(message, path, model_size)


class WordCounter:
    """Counts words as the tokenizer splits and normalizes them."""

    def __init__(self, do_lower_case: bool, strip_accents: bool | None):
        arrays = basic.load_unicode_table(do_lower_case=do_lower_case, strip_accents=strip_accents)
        table = basic.UnicodeTable(*map(tf.constant, arrays))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def count(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            is_plain = tf.strings.regex_full_match(texts, basic.PLAIN_TEXT)
            plain_texts = tf.boolean_mask(texts, is_plain)
            other_texts = tf.boolean_mask(texts, ~is_plain)
            plain_words = basic.plain_words(plain_texts, do_lower_case=do_lower_case).values
            other_words = basic.split_words(other_texts, table).strings
            unique = tf.unique_with_counts(tf.concat([plain_words, other_words], 0))
            return unique.y, unique.count

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
      InputError: the text has no word.
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
                repeated = {word: number for word, number in totals.items() if number > 1}
                totals = collections.Counter(repeated)
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
      vocab_size: V, the most pieces. There are fewer when no further pair is frequent enough.
      character_coverage: share of all characters that get a piece.

    Returns:
      The special pieces, the alphabet, and the merged pieces, first merged first.

    Raises:
      InputError: `vocab_size` is too small for the alphabet, or tokenizers is not installed.
    """
    alphabet = choose_alphabet(words, character_coverage)
    taught = {}  # the words that are learned from
    for word in sorted(words):  # the trainer's order is that of a hash table with a random seed
        if len(word) <= MAX_WORD_CHARACTERS and alphabet.issuperset(word):
            taught[word] = words[word]
    left_out = 1 - _num_characters(taught) / max(1, _num_characters(words))
    if left_out > MOST_LEFT_OUT:
        message = (
            "%.1f %% of the characters teach nothing: they are in words of more than %d, or with "
            "rare ones. If the text has no spaces, cut it into words first."
        )
        logging.warning(message, 100 * left_out, MAX_WORD_CHARACTERS)
    first_pieces = [*SPECIAL_PIECES, *alphabet_pieces(taught)]
    if len(first_pieces) > vocab_size:
        received = f"--vocab_size={vocab_size} for text with {len(alphabet)} characters"
        expected = f"at least {len(first_pieces)}, for special pieces and all characters"
        raise InputError(received, expected, "use a larger --vocab_size")
    return _merged(taught, first_pieces, vocab_size)


def _merged(words: Mapping[str, int], first_pieces: list[str], vocab_size: int) -> list[str]:
    """The first pieces, and those that the package tokenizers merges, first merged first."""
    tokenizers = import_extra(
        "tokenizers", package="tokenizers", extra="vocab", needed_by="bert-tf vocab"
    )
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
    tokenizer.train_from_iterator(_repeated(words), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Yields each word as often as it occurs, several at a time: the trainer counts by itself."""
    for word, number in words.items():
        for done in range(0, number, REPEATS_PER_CALL):
            yield f"{word} " * min(REPEATS_PER_CALL, number - done)


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
