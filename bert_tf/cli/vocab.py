"""Text -> a WordPiece vocabulary for it.

    bert-tf vocab --input_file='wiki/*' --input_format=wikiextractor \\
        --output_file=vocab.txt --vocab_size=30522

Same text and flags, same bytes. Where there is no bert_config.json beside it, BERT-Base's sizes
are written there. It needs the extra `vocab`.
"""

from bert_tf.options import option
from data_gen.options import Texts


class Vocabulary(Texts, most_used="input_file output_file vocab_size do_lower_case num_workers"):
    """The options of this verb."""

    output_file: str = option("The vocabulary to write.", path=True, original=True)
    vocab_size: int = option("Word pieces, special tokens included.", default=30522, low=1)


def main(options: Vocabulary) -> None:
    """Text -> words, counted -> pieces -> file."""
    from data_gen.vocabulary import write_vocabulary
    from data_gen.workers import prepare_script

    prepare_script()
    write_vocabulary(
        options.input_file,
        options.output_file,
        do_lower_case=options.do_lower_case is not False,
        input_format=options.input_format,
        num_workers=options.num_workers,
        vocab_size=options.vocab_size,
    )
