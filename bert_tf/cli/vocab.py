"""Text -> a WordPiece vocabulary for it.

    bert-tf vocab --input_file='wiki/*' --input_format=wikiextractor \\
        --output_file=vocab.txt --vocab_size=30522

Same text and flags, same bytes. Unless there is a bert_config.json beside the vocabulary, one is
written with the sizes of --model_size and the number of pieces. If accents are treated otherwise
than the case suggests, as with --nostrip_accents, a model_facts.json beside it says so; `bert-tf
data` reads it. Needs the extra `vocab`.
"""

from bert_tf.options import option
from data_gen.options import MODEL_SIZES, Texts


class Vocabulary(Texts, most_used="input_file output_file vocab_size do_lower_case num_workers"):
    """The options of this verb."""

    output_file: str = option("The vocabulary to write.", path=True, original=True)
    vocab_size: int = option("Word pieces, special tokens included.", default=30522, low=1)
    strip_accents: bool | None = option(
        "Remove accents, or keep them, whatever the case; default: as --do_lower_case.",
        default=None,
    )
    model_size: str | None = option(
        "The sizes in the bert_config.json beside the vocabulary: those of a released BERT.",
        default=None,
        shown="base",
        choices=tuple(MODEL_SIZES),
    )


def main(options: Vocabulary) -> None:
    """Text -> words, counted -> pieces -> file."""
    from data_gen.vocabulary import write_vocabulary
    from data_gen.workers import prepare_script

    prepare_script()
    write_vocabulary(
        options.input_file,
        options.output_file,
        do_lower_case=options.do_lower_case is not False,
        strip_accents=options.strip_accents,
        model_size=options.model_size,
        input_format=options.input_format,
        reading=options.reading,
        num_workers=options.num_workers,
        vocab_size=options.vocab_size,
    )
