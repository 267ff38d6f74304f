"""Shows which tokens a pre-trained BERT expects in place of each [MASK].

    bert-tf fill-mask --init_checkpoint=/models/mine "Bread is made from [MASK] and water."

The folder of a run holds all that is needed; otherwise give --bert_config_file and --vocab_file.
"""

from bert_tf.checkpoints.options import Pretrained
from bert_tf.errors import InputError, quoted
from bert_tf.options import Options, Reading, option
from bert_tf.serving.options import MASK, AnswerPrecision


class FillMask(Options):
    """The options of this command."""

    model: Pretrained
    texts: tuple[str, ...] = option(
        "Texts with [MASK]; default: the lines of standard input", default=(), words="TEXT ..."
    )
    top_k: int = option("Guesses for each [MASK].", default=5, low=1)
    answers: AnswerPrecision = AnswerPrecision()
    reading: Reading = Reading()


def main(options: FillMask) -> None:
    """Model -> guesses for each [MASK] -> standard output."""
    from bert_tf.serving.answer_files import read_texts
    from bert_tf.serving.predictor import Predictor
    from bert_tf.tokenization.wordpiece import SPECIAL_TOKEN, warn_of_special_tokens

    predictor = Predictor(
        options.model.init_checkpoint,
        task="fill_mask",
        top_k=options.top_k,
        bert_config_file=options.model.bert_config_file,
        vocab_file=options.model.vocab_file,
        do_lower_case=options.model.do_lower_case,
        precision=options.answers.precision,
    )
    lines = read_texts(input_format="text", reading=options.reading)
    for text in options.texts or filter(None, map(str.strip, lines)):
        print(text)
        warn_of_special_tokens(bool(SPECIAL_TOKEN.search(text.replace(MASK, ""))), 1)
        (answer,) = predictor.predict([text])
        if not answer["num_masks"]:
            expected = f"a text with {MASK} among the tokens that the model reads"
            raise InputError(f"{quoted(text, 200)}", expected, "write it for the word to guess")
        guesses = zip(answer["pieces"], answer["probabilities"], strict=True)
        for number, (pieces, probabilities) in enumerate(guesses, 1):
            pairs = zip(pieces, probabilities, strict=True)
            listed = [f"{piece} {percent(probability)}" for piece, probability in pairs]
            print(f"  [MASK] {number}: {'  '.join(listed)}")


def percent(probability: float) -> str:
    """A probability in percent, with one decimal; a small one with two digits.

    >>> percent(0.6082), percent(0.000123)
    ('60.8%', '0.012%')
    """
    return f"{probability:.1%}" if probability >= 0.001 else f"{100 * probability:.2g}%"
