"""The ids of one or two texts -> the ids and segments of one sequence, cut to length.

    one     [CLS] a [SEP]             segments 0 0 0
    pair    [CLS] a [SEP] b [SEP]     segments 0 0 0 1 1

Source: `convert_single_example` and `_truncate_seq_pair` of google-research/bert.
"""

from bert_tf.tokenization.wordpiece import FullTokenizer


class Packer:
    """Joins the ids of one or two texts to sequences of at most `max_seq_length` ids."""

    def __init__(self, tokenizer: FullTokenizer, max_seq_length: int):
        self._cls, self._sep = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        self._max_seq_length = max_seq_length

    def pack(self, a: list[int], b: list[int]) -> tuple[list[int], list[int], bool]:
        """Ids, segments, and whether ids were cut off; a second text without ids counts as none."""
        room = self._max_seq_length - (3 if b else 2)
        is_cut = len(a) + len(b) > room
        a, b = truncate_pair(a, b, room)
        first, second = [self._cls, *a, self._sep], [*b, self._sep] if b else []
        return first + second, [0] * len(first) + [1] * len(second), is_cut


def truncate_pair(a: list[int], b: list[int], most: int) -> tuple[list[int], list[int]]:
    """Cuts from the end of the longer, of the second if equal, until both fit into `most`."""
    excess = max(0, len(a) + len(b) - most)
    from_longer = min(excess, abs(len(a) - len(b)))
    rest = excess - from_longer
    cut_a, cut_b = rest // 2, rest - rest // 2
    if len(a) > len(b):
        cut_a += from_longer
    else:
        cut_b += from_longer
    return a[: len(a) - cut_a], b[: len(b) - cut_b]
