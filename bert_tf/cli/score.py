"""Scores lines of text by a pre-trained BERT: how likely they are.

    bert-tf score --init_checkpoint=/models/mine "The cat sat." "Cat the sat."
    bert-tf score --init_checkpoint=/models/mine --input_file=lines.txt --output_file=s.jsonl

Each token is masked in turn and predicted from the others (Salazar et al., 2020). A line of JSON
for each line of text: `score`, the sum of the natural logarithms of the probabilities, higher for
the likelier; `tokens`, how many were predicted; `perplexity`, exp(-score / tokens), lower for the
likelier, to compare texts of different lengths. A token of a text that is longer than the model's
maximum is predicted from the tokens around it.

The folder of a run holds all that is needed; otherwise give --bert_config_file and --vocab_file.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bert_tf.checkpoints.options import Pretrained
from bert_tf.cli.paths import written_format
from bert_tf.errors import InputError, quoted
from bert_tf.options import Options, option
from bert_tf.serving.options import AnswerFiles, InputRows

if TYPE_CHECKING:
    from bert_tf.serving.pretrained import Scorer


class Score(Options):
    """The options of this command."""

    model: Pretrained
    texts: tuple[str, ...] = option(
        "The texts; default: the lines of --input_file", default=(), words="TEXT ..."
    )
    files: AnswerFiles = AnswerFiles()
    rows: InputRows = InputRows()

    def check(self) -> None:
        """Refuses texts of two sources, of which one would not be scored, and other formats."""
        written_format(self.files.output_file or "", ("jsonl",))
        if self.texts and self.files.input_file:
            received = f"--input_file with the text {quoted(self.texts[0], 60)}"
            raise InputError(received, "texts from one source", "leave out one of the two")


def main(options: Score) -> None:
    """Model -> score of each text -> JSON lines."""
    from bert_tf.serving.answer_files import open_output, read_texts, write_lines

    input_file = options.files.input_file
    output_file = options.files.output_file
    model = options.model.init_checkpoint
    with open_output(output_file, input_file, model) as file:  # before the model loads
        scorer = make_scorer(options.model, batch_size=options.files.batch_size)
        rows = options.rows
        texts = options.texts or read_texts(
            input_file,
            column=rows.text_a_column,
            input_format=rows.input_format,
            reading=rows.reading,
            skip_bad_rows=rows.skip_bad_rows,
        )
        write_lines(file, scores(scorer, texts))


def make_scorer(given: Pretrained, *, batch_size: int) -> "Scorer":
    """The scorer of a model with a masked-LM head.

    Raises:
      InputError: the model has no such head, or its files do not fit each other.
    """
    from bert_tf.checkpoints.loading import complete_model, open_weights
    from bert_tf.checkpoints.matching import load_checkpoint
    from bert_tf.heads import ENCODER, make_model
    from bert_tf.library.models import length_of
    from bert_tf.serving.pretrained import Scorer

    pretrained = complete_model(open_weights(given.init_checkpoint), given)
    model = make_model("fill_mask", pretrained.config)
    load_checkpoint(model, pretrained.source, required=f"{ENCODER}|cls/predictions/")
    length = length_of(pretrained.source, pretrained.config)
    return Scorer(model, pretrained.tokenizer, max_seq_length=length, batch_size=batch_size)


def scores(scorer: "Scorer", texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yields score, tokens and perplexity of each text; at the end logs those of all."""
    from absl import logging

    from bert_tf.serving import pretrained
    from bert_tf.terminal import number_of

    count = 0
    total = pretrained.Score(0.0, 0)
    for text in texts:
        score = scorer.score(text)
        count += 1
        total += score
        yield dataclasses.asdict(score) | {"perplexity": score.perplexity}
    perplexity = "unknown" if total.perplexity is None else f"{total.perplexity:.6g}"
    texts_and_tokens = f"{number_of(count, 'texts')}, {number_of(total.tokens, 'tokens')}"
    logging.info("%s, pseudo-perplexity %s", texts_and_tokens, perplexity)
