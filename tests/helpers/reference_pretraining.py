"""Pre-training instances in plain Python, one random draw after the other, as in the original.

The reference for data_gen, which makes many draws at a time.
"""

import random

SPECIAL = 3  # [CLS], [SEP], [SEP]
CONTINUES_WORD = 1 << 30  # the flag of an id that continues a word, with `words_from_spaces`


def instances(documents, settings, vocab, rng: random.Random):
    """Yields (input ids, masked positions, their ids, length of A, whether B is random)."""
    for _ in range(settings.dupe_factor):
        for index, document in enumerate(documents):
            for a, b, is_random in pairs(document, index, documents, settings, rng):
                ids = [vocab["[CLS]"], *a, vocab["[SEP]"], *b, vocab["[SEP]"]]
                yield *masked(ids, len(a), settings, vocab, rng), len(a), is_random


def pairs(document, index, corpus, settings, rng):
    """Yields (A, B, whether B is random)."""
    room = settings.max_seq_length - SPECIAL
    target = rng.randint(2, room) if rng.random() < settings.short_seq_prob else room
    begin = 0
    while begin < len(document):
        end = begin + 1
        while end < len(document) and sum(map(len, document[begin:end])) < target:
            end += 1
        a_end = begin + (rng.randint(1, end - begin - 1) if end - begin >= 2 else 1)
        a = joined(document[begin:a_end])
        b = joined(document[a_end:end])
        is_random = end - begin == 1 or rng.random() < 0.5
        if is_random:
            b = elsewhere(index, corpus, target - len(a), rng)
            end = a_end  # the next pair begins with the sentences that were not used
        begin = end
        while len(a) + len(b) > room:
            longer = a if len(a) > len(b) else b
            longer.pop(0 if rng.random() < 0.5 else -1)
        yield a, b, is_random


def joined(sentences):
    """The tokens of the sentences."""
    return [token for sentence in sentences for token in sentence]


def elsewhere(index, corpus, wanted, rng):
    """Tokens of sentences of another document, `wanted` or a few more if it has so many."""
    for _ in range(10):
        number = rng.randint(0, len(corpus) - 1)
        if number != index:
            break
    tokens = []
    for sentence in corpus[number][rng.randint(0, len(corpus[number]) - 1) :]:
        tokens += sentence
        if len(tokens) >= wanted:
            break
    return tokens


def masked(ids, length_a, settings, vocab, rng):
    """(ids after masking, positions, labels)."""
    number = max(1, round(len(ids) * settings.masked_lm_prob))
    number = min(settings.max_predictions_per_seq, number)
    pieces = list(vocab)
    groups = []
    for position, token in enumerate(ids):
        if position in (0, length_a + 1, len(ids) - 1):
            continue
        if settings.words_from_spaces:
            continues = token >= CONTINUES_WORD
        else:
            continues = settings.do_whole_word_mask and pieces[token].startswith("##")
        if groups and continues:
            groups[-1].append(position)
        else:
            groups.append([position])
    rng.shuffle(groups)
    ids = [token % CONTINUES_WORD for token in ids]
    shown = list(ids)
    chosen = []
    for group in groups:
        if len(chosen) < number and len(chosen) + len(group) <= number:
            chosen += group
    rest = settings.random_share + settings.unchanged_share
    unchanged_share = settings.unchanged_share / rest if rest else 0
    for position in chosen:
        if rng.random() < settings.mask_share:
            shown[position] = vocab["[MASK]"]
        elif rng.random() >= unchanged_share:
            shown[position] = rng.randint(0, len(vocab) - 1)
    return shown, sorted(chosen), [ids[position] for position in sorted(chosen)]
