"""What each process does: blocks of text -> token ids, and blocks of documents -> records.

A block is worked on in the same way whichever process gets it. Its random numbers come from the
seed and its own number, so the result depends on neither the number of processes nor their speed.
"""

import dataclasses
import functools
import hashlib
import pathlib
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.data.records import pretraining_record
from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen.corpus import DiskCorpus, MemoryCorpus, TokenizedBlock
from data_gen.documents import Block, Counts, sentence_splitter
from data_gen.instances import InstanceMaker, Settings, Vocabulary
from data_gen.pairs import Corpus, Sentence
from data_gen.shuffling import KEY_BITS, spread

SENTENCES_PER_CALL = 1000
CORPUS_FOLDER, BUCKETS_FOLDER = "corpus", "buckets"


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that the work on a block depends on."""

    settings: Settings
    vocab_file: str
    do_lower_case: bool
    input_format: str  # a key of documents.INPUT_FORMATS
    language: str
    working_folder: pathlib.Path
    sample_every: int  # of how many sentences one is looked at for repetitions, by its hash


class Tokenized(NamedTuple):
    """What `BlockWorker.tokenize` makes of a block of text."""

    block: TokenizedBlock
    counts: Counts
    sampled: Counts  # hash of a sentence -> how often it was met
    bytes_read: int


class InstanceTask(NamedTuple):
    """A block of documents in the corpus on disk."""

    index: int
    documents: range
    num_buckets: int


class BlockWorker:
    """One process's tools."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._tokenizer = FullTokenizer(plan.vocab_file, plan.do_lower_case)
        self._tokenizer.require_special_tokens("[CLS]", "[SEP]", "[MASK]", "[UNK]")
        self._split = sentence_splitter(plan.input_format, plan.language)
        vocabulary = Vocabulary.from_pieces(self._tokenizer.vocab)
        self._unk_id = vocabulary.unk_id
        self._maker = InstanceMaker(plan.settings, vocabulary)
        self._record = pretraining_record(
            max_seq_length=plan.settings.max_seq_length,
            max_predictions_per_seq=plan.settings.max_predictions_per_seq,
        )

    @functools.cached_property
    def _corpus(self) -> DiskCorpus:
        return DiskCorpus(self._plan.working_folder / CORPUS_FOLDER)

    def tokenize(self, block: Block) -> Tokenized:
        """Text -> ids. Sentences without a token and documents without a sentence are dropped."""
        documents = [
            [sentence for line in document for sentence in self._split(line)]
            for document in block.documents
        ]
        sentences = [sentence for document in documents for sentence in document]
        tokens, lengths = self._token_ids(sentences)
        kept_lengths = [
            np.count_nonzero(part)
            for part in np.split(lengths, np.cumsum([len(document) for document in documents]))
        ][:-1]
        kept = np.asarray([length for length in kept_lengths if length], np.int64)
        counts = Counts(
            documents=len(kept),
            documents_without_tokens=len(documents) - len(kept),
            documents_of_one_sentence=int(np.count_nonzero(kept == 1)),
            sentences=int(kept.sum()),
            sentences_without_tokens=len(sentences) - int(kept.sum()),
            tokens=len(tokens),
            unknown_tokens=int(np.count_nonzero(tokens == self._unk_id)),
        )
        return Tokenized(
            TokenizedBlock(tokens, lengths[lengths > 0], kept),
            counts,
            sample_sentences(sentences, self._plan.sample_every),
            block.bytes_read,
        )

    def _token_ids(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all sentences, one after the other, and how many each has."""
        tokens, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for start in range(0, len(sentences), SENTENCES_PER_CALL):
            ids = self._tokenizer.tokenize_ids(sentences[start : start + SENTENCES_PER_CALL])
            tokens.append(ids.values.numpy())
            lengths.append(np.diff(ids.row_splits.numpy()))
        return np.concatenate(tokens), np.concatenate(lengths)

    def write_instances(self, task: InstanceTask) -> Counts:
        """Documents of the corpus on disk -> records, spread over the buckets of the shuffle."""
        counts = Counts()
        spread(
            self.keyed_records(task.index, task.documents, counts),
            self._plan.working_folder / BUCKETS_FOLDER,
            num_buckets=task.num_buckets,
        )
        return counts

    def keyed_records(
        self, index: int, documents: range, counts: Counts
    ) -> Iterator[tuple[int, bytes]]:
        """The records of a block of the corpus on disk, each with its key in the shuffle.

        Args:
          index: of the block; its random numbers come from it.
          documents: the numbers of its documents in the corpus.
          counts: what `InstanceMaker.count` counts is added to it.
        """
        seed = self._plan.settings.random_seed
        rng = random.Random(f"{seed}/{index}/instances")
        key_rng = random.Random(f"{seed}/{index}/order")
        sentences = self._corpus.read_documents(documents)
        for record in self._records(sentences, documents.start, self._corpus, rng, counts):
            yield key_rng.getrandbits(KEY_BITS), record

    def shuffled_records(self, documents: list[list[Sentence]], counts: Counts) -> list[bytes]:
        """All the records of a small corpus, in their final order.

        Here every random number is drawn when the original draws it: same corpus, same seed, same
        records, under Python 3.
        """
        rng = random.Random(self._plan.settings.random_seed)
        rng.shuffle(documents)
        records = list(self._records(documents, 0, MemoryCorpus(documents), rng, counts))
        rng.shuffle(records)
        return records

    def _records(
        self,
        documents: Sequence[Sequence[Sentence]],
        first_document: int,
        corpus: Corpus,
        rng: random.Random,
        counts: Counts,
    ) -> Iterator[bytes]:
        instances = self._maker.instances(
            documents, first_document=first_document, corpus=corpus, rng=rng
        )
        for instance in self._maker.count(instances, counts):
            yield self._record.serialize(self._maker.record_values(instance))


def sample_sentences(sentences: Sequence[str], sample_every: int) -> Counts:
    """How often each sentence is there whose hash is a multiple of `sample_every`.

    All copies of a sentence have the same hash, so the sample has all of them or none.
    """
    hashes = Counts()
    for sentence in sentences:
        digest = hashlib.blake2b(sentence.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = int.from_bytes(digest, "little")
        if number % sample_every == 0:
            hashes[number] += 1
    return hashes
