"""Exact match and F1 of answers cut by the original's heuristic, and by offsets.

    python benchmarks/squad_alignment.py --model=/models/squad --predict_file=dev-v1.1.json

The model answers every question once; its logits then become text in both ways, so that nothing
else differs between the rows. Also prints the questions whose score changes, with both answers.
"""

import argparse
import dataclasses
import tempfile
import time

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

from bert_tf.checkpoints import loading as weights
from bert_tf.checkpoints.loading import PretrainedModel
from bert_tf.data.packing import BatchingConfig
from bert_tf.squad import evaluation
from bert_tf.squad.answers import AnswerConfig, AnswerSizes, make_alignment, rank_answers
from bert_tf.squad.data import SquadFile, read_squad
from bert_tf.squad.run import QuestionData, SquadRun
from bert_tf.squad.windows import WindowSizes
from bert_tf.training import distribution

WAYS = {"legacy": True, "offsets": False}


def main() -> None:
    """Questions -> windows -> logits -> answers in both ways -> scores."""
    options = parse_options()
    file = read_squad(options.predict_file)
    file = dataclasses.replace(file, examples=file.examples[: options.num_questions])
    answers = answer_in_both_ways(file, options)
    print(f"{'alignment':12}{'EM':>10}{'F1':>10}{'seconds':>10}")
    for way, (texts, seconds) in answers.items():
        exact, f1 = list(evaluation.official_scores(file, texts).values())[:2]
        print(f"{way:12}{exact:10.4f}{f1:10.4f}{seconds:10.1f}")
    legacy, offsets = (answers[way][0] for way in WAYS)
    different = sum(legacy[qas_id] != offsets[qas_id] for qas_id in legacy)
    print(f"answers that differ: {different} of {len(legacy)}")
    print_changes(file, legacy, offsets, shown=options.shown)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="of run_squad.py, any format")
    parser.add_argument("--predict_file", required=True)
    parser.add_argument("--version_2_with_negative", action="store_true")
    parser.add_argument("--num_questions", type=int, help="the first ones only")
    parser.add_argument("--shown", type=int, default=10, help="changed answers to print")
    parser.add_argument("--predict_batch_size", type=int, default=8)
    for sizes in (WindowSizes(), AnswerSizes()):
        for name, value in dataclasses.asdict(sizes).items():
            parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def answer_in_both_ways(
    file: SquadFile, options: argparse.Namespace
) -> dict[str, tuple[dict[str, str], float]]:
    """For each way the answers by id, and the seconds from logits to answers."""
    source = weights.open_weights(options.model)
    config = weights.config_of(source)
    tokenizer = weights.tokenizer_of(source, config)
    cuts = WindowSizes(options.max_seq_length, options.doc_stride, options.max_query_length)
    model = PretrainedModel(source, config, tokenizer)
    windows, logits = logits_of(model, cuts, file, options)
    found = {}
    for way, legacy_alignment in WAYS.items():
        started = time.perf_counter()
        config = AnswerConfig(
            options.n_best_size,
            options.max_answer_length,
            options.version_2_with_negative,
            legacy_alignment,
        )
        align = make_alignment(windows, tokenizer, config)
        predictions = rank_answers(file.examples, windows, *logits, align, config)
        threshold = source.metadata.null_score_diff_threshold or 0.0
        texts = evaluation.decided(predictions, threshold=threshold)
        found[way] = texts, time.perf_counter() - started
    return found


def logits_of(model: PretrainedModel, sizes, file: SquadFile, options: argparse.Namespace):
    """The windows of all questions, and their start and end logits."""
    with tempfile.TemporaryDirectory() as folder:
        run = SquadRun(
            sizes=sizes,
            config=AnswerConfig(),
            model=model,
            strategy=distribution.make_strategy("auto"),
            batching=BatchingConfig(max_seq_length=options.max_seq_length),
            output_dir=folder,
        )
        run.restore()
        data = QuestionData(name="eval", questions=file, batch_size=options.predict_batch_size)
        logits = run.window_logits(data)
    return data.windows, logits


def print_changes(
    file: SquadFile, legacy: dict[str, str], offsets: dict[str, str], *, shown: int
) -> None:
    """How many scores rise and fall with offsets, and the first of them."""
    changes = []
    for example in file.examples:
        texts = legacy[example.qas_id], offsets[example.qas_id]
        before, after = (
            evaluation.score_question(example, text, version_2=file.version_2) for text in texts
        )
        if before != after:
            changes.append((after.f1 - before.f1, after.exact - before.exact, example, *texts))
    for name, column in (("F1", 0), ("EM", 1)):
        better = sum(change[column] > 0 for change in changes)
        worse = sum(change[column] < 0 for change in changes)
        print(f"{name} by offsets: better for {better} questions, worse for {worse}")
    for f1, _, example, before, after in changes[:shown]:
        golds = list(dict.fromkeys(answer.text for answer in example.answers))
        print(f"  {f1:+.2f}  legacy {before!r}  offsets {after!r}  gold {golds}")


if __name__ == "__main__":
    main()
