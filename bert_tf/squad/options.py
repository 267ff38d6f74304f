"""The options of questions: how contexts are cut and answers are found. Loads no TensorFlow."""

import dataclasses

from bert_tf.errors import InputError
from bert_tf.options import LONGEST, Options, option
from bert_tf.tokenization import SPECIAL_PIECES

NULL_THRESHOLD = 0.0  # of null odds, if none is given or stored with a model


@dataclasses.dataclass(frozen=True)
class WindowSizes:
    """How contexts are cut, in pieces.

    Raises:
      InputError: a window would have no room for its context, or windows would not advance.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64

    def __post_init__(self):
        if self.max_query_length < 0 or self.room(self.max_query_length) < 1:
            flags = f"--max_seq_length={self.max_seq_length}"
            received = f"{flags} --max_query_length={self.max_query_length}"
            expected = f"0 <= max_query_length <= max_seq_length - {SPECIAL_PIECES + 1}"
            raise InputError(received, expected, "use longer windows or shorter questions")
        if self.doc_stride < 1:
            raise InputError(f"--doc_stride={self.doc_stride}", "1 or more", "correct --doc_stride")

    def room(self, query_length: int) -> int:
        """How many pieces of context fit into a window with a question of that length."""
        return self.max_seq_length - query_length - SPECIAL_PIECES


WINDOW_SIZES = tuple(field.name for field in dataclasses.fields(WindowSizes))


class Windows(Options):
    """The sizes of windows as options; None: the default of `WindowSizes`."""

    max_seq_length: int | None = option(
        "Most tokens of an example, or of a window where texts are read in windows; longer "
        "examples are cut. Without --do_train: as the model was trained.",
        default=None,
        shown=WindowSizes.max_seq_length,
        low=1,
        high=LONGEST,
        recorded=True,
        original=True,
    )
    doc_stride: int | None = option(
        "Tokens from the start of a window to the start of the next.",
        default=None,
        shown=WindowSizes.doc_stride,
        low=1,
        recorded=True,
        original=True,
    )
    max_query_length: int | None = option(
        "Most tokens of a question; longer ones are cut.",
        default=None,
        shown=WindowSizes.max_query_length,
        low=0,
        recorded=True,
        original=True,
    )

    def given(self) -> dict[str, int]:
        """The sizes that are given, by name."""
        sizes = {name: getattr(self, name) for name in vars(self)}
        return {name: size for name, size in sizes.items() if size is not None}

    def sizes(self) -> WindowSizes:
        """The sizes, with defaults; raises `InputError` as `WindowSizes` does."""
        return WindowSizes(**self.given())


class AnswerSizes(Options):
    """How many answers are compared, and how long they may be."""

    n_best_size: int = option(
        "Starts and ends tried in a window; answers ranked for a question.",
        default=20,
        low=1,
        acts="do_predict or export_dir",
        original=True,
    )
    max_answer_length: int = option(
        "Most tokens of an answer.",
        default=30,
        low=1,
        acts="do_predict or export_dir",
        original=True,
    )


class Answers(AnswerSizes):
    """Sizes of answers, and how pieces become text."""

    legacy_alignment: bool = option(
        "Cut answers from the text as the original does; else by offsets.",
        default=True,
        acts="do_predict",
    )
    verbose_logging: bool = option(
        "Log the answers that --legacy_alignment cannot align exactly.",
        default=False,
        acts="do_predict and legacy_alignment",
        original=True,
    )
