"""Writes a model's answers to texts: a line of JSON for each, or a table with more columns.

    bert-tf predict --model=/serving/mrpc --input_file=pairs.tsv --output_file=answers.jsonl
    bert-tf predict --model=/models/topics --input_file=test.csv --output_file=answers.csv
    bert-tf predict --model=/serving/squad < questions.jsonl
    echo "A fine film." | bert-tf predict --model=/models/sst2

The model is an export of bert-tf export, or the folder of a checkpoint. The format of the input is
found from its content, as in training. Memory does not grow with the input, except for a JSON list
and sentences in CoNLL's format; the lines of a pipe are answered as they come. An empty text has no
label and no score: null, or an empty cell. A table gets the separator and the line ends of the
input; a .csv gets a byte order mark unless the input is plain UTF-8.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from bert_tf.cli.paths import written_format
from bert_tf.options import Options, option
from bert_tf.serving.options import TABLES, AnswerFiles, InputRows, WeightsOptions

if TYPE_CHECKING:
    from bert_tf.serving.predictor import Predictor
    from bert_tf.serving.rows import Question, Questions

OUTPUT_FORMATS = ("jsonl", *TABLES)


class Predict(Options):
    """The options of this command."""

    model: str = option(
        "An export (its latest version, or that of serving/topics/3), or a folder with weights, "
        "local or remote; or hf:OWNER/NAME[@REVISION].",
        path=True,
    )
    text_b_column: str | None = option(
        "The column of the second text; default: as in training.", default=None
    )
    id_column: str = option("The column that is passed on as `id`.", default="id")
    sentence_column: str | None = option(
        "Of a table with a word a row, for a model of tags: the column that numbers sentences. "
        "Default: empty rows part them.",
        default=None,
    )
    probabilities: bool = option(
        "In a .csv or .tsv, also a column for the probability of each label.",
        default=False,
        acts="output_file=*.csv or output_file=*.tsv",
    )
    min_probability: float = option(
        'Of one of several labels: below it the answer is "unsure".',
        default=0.0,
        low=0.0,
        high=1.0,
    )
    files: AnswerFiles = AnswerFiles()
    rows: InputRows = InputRows()
    weights: WeightsOptions = WeightsOptions()

    def check(self) -> None:
        """Refuses an output whose ending is of another format."""
        written_format(self.files.output_file or "", OUTPUT_FORMATS)


def main(options: Predict) -> None:
    """Model -> answers to the inputs -> JSON lines or a table."""
    from absl import logging

    from bert_tf.serving.answer_files import answered, num_rows, open_output
    from bert_tf.serving.predictor import Predictor
    from bert_tf.terminal import Progress, counted, number_of

    input_file = options.files.input_file
    output_file = options.files.output_file
    with open_output(output_file, input_file, options.model) as file:  # before the model loads
        with Progress(f"load {options.model}"):
            size = options.files.batch_size
            predictor = Predictor(options.model, batch_size=size, **options.weights.arguments())
        questions = read(options, predictor)
        answers = answered(
            predictor,
            questions,
            min_probability=options.min_probability,
            id_key=options.id_column,
            skip_bad_rows=options.rows.skip_bad_rows,
        )
        if output_file:  # otherwise the answers themselves show the progress
            total = num_rows(questions, input_file, options.rows.reading)
            answers = counted(answers, "answer", total, "inputs")
        count = write(file, answers, questions, options, predictor)
    if output_file:
        logging.info("Wrote %s to %s", number_of(count, "answers"), output_file)


def read(options: Predict, predictor: "Predictor") -> "Questions":
    """The rows of the input, as the model takes them."""
    from bert_tf.serving import rows

    return rows.read_questions(
        options.files.input_file,
        predictor.model.metadata,
        input_format=options.rows.input_format,
        given=(options.rows.text_a_column, options.text_b_column),
        id_column=options.id_column,
        sentence_column=options.sentence_column,
        reading=options.rows.reading,
    )


def write(
    file: BinaryIO,
    answers: "Iterator[tuple[Question, dict[str, Any]]]",
    questions: "Questions",
    options: Predict,
    predictor: "Predictor",
) -> int:
    """Writes the answers in the format of the output; returns how many there are."""
    from bert_tf.serving import answer_files

    output_file = options.files.output_file or ""
    kind = written_format(output_file, OUTPUT_FORMATS)
    if kind not in TABLES:
        return answer_files.write_lines(file, (answer for _, answer in answers))
    return answer_files.write_table(
        file,
        predictor,
        questions,
        answers,
        kind=kind,
        output_file=output_file,
        encoding=options.rows.reading.encoding,
        probabilities=options.probabilities,
    )
