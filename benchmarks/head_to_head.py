"""google-research/bert beside ours: a BERT-Tiny pre-trained on the same records, three seeds each.

    BERT_TF_DATA=... python benchmarks/head_to_head.py --bert=../bert --results=results.jsonl

--bert is a checkout of the original, whose model_fn, optimizer and input_fn run as they are in
TensorFlow 2's v1 mode; of what is gone from it, `Original` and `original_part` have stand-ins. Ours
is `run_pretraining.py`. Both: L2 H128, batch 32, 128 tokens, dropout 0.1, a peak rate of 1e-3 after
300 steps of 3,000, evaluations on the first 1,280 examples of two files of articles that are not
trained on. Each side shuffles the records in its own way, and draws first weights and dropout from
its own generator. At the end ours also evaluates the original's checkpoint: the same figures, if
both measure the same.

What --results already holds is not measured again, and nothing is without --bert; all of it is
printed as a table at the end, and drawn by --picture. TF_NUM_INTRAOP_THREADS=1 and
TF_NUM_INTEROP_THREADS=1 in the environment limit both to one core.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

from bert_tf.cli.results import read_curves
from bert_tf.runtime import import_extra

from scores import scores_in

ROOT = pathlib.Path(__file__).parents[1]
BATCH, LENGTH, PREDICTIONS, RATE, EVAL_BATCHES = 32, 128, 20, 1e-3, 40
HELD_OUT = ("AD_wiki_92", "AD_wiki_99")
CONFIG = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 128, "initializer_range": 0.02, "intermediate_size": 512,
    "max_position_embeddings": 512, "num_attention_heads": 2, "num_hidden_layers": 2,
    "type_vocab_size": 2, "vocab_size": 8000,
}  # fmt: skip
METRICS = {  # of an evaluation: title
    "masked_lm_loss": "masked-LM loss",
    "next_sentence_loss": "next-sentence loss",
    "masked_lm_accuracy": "masked-LM accuracy",
    "next_sentence_accuracy": "next-sentence accuracy",
}
SIDES = {"original": "C1", "ours": "C0"}


def main() -> None:
    """Measures what is missing, then prints the table."""
    options = parse_options()
    if options.original_part:
        original_part(**json.loads(options.original_part))
        return
    results = pathlib.Path(options.results)
    for seed in options.seeds if options.bert else ():
        for side, run in (("original", run_original), ("ours", run_ours)):
            key = {"side": side, "seed": seed, "num_steps": options.steps}
            if not any(key.items() <= line.items() for line in read(results)):
                make_records(options.folder)
                with tempfile.TemporaryDirectory() as model:
                    begin = time.perf_counter()
                    found = run(seed, pathlib.Path(model), options)
                    line = key | {"seconds": round(time.perf_counter() - begin)} | found
                with results.open("a") as file:
                    print(json.dumps(line), file=file)
                print(line, flush=True)
    print_table(read(results))
    if options.picture:
        draw(read(results), options.picture)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bert", help="checkout of the original")
    parser.add_argument("--results", default="head_to_head.jsonl")
    parser.add_argument(
        "--folder", default="head_to_head", type=pathlib.Path, help="of the records"
    )
    parser.add_argument("--seeds", type=lambda x: [*map(int, x.split(","))], default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--eval_steps", type=int, default=250)
    parser.add_argument("--picture")
    parser.add_argument("--original_part", help=argparse.SUPPRESS)
    return parser.parse_args()


def read(results: pathlib.Path) -> list[dict]:
    """The measurements of earlier runs."""
    return [*map(json.loads, results.read_text().splitlines())] if results.exists() else []


def command(*words: str) -> None:
    """Runs Python in the clone, with its messages."""
    subprocess.run([sys.executable, *words], check=True)


def make_records(folder: pathlib.Path) -> None:
    """Vocabulary, records and configuration from the sample of Wikipedia, if they are missing."""
    if (folder / "bert_config.json").exists():
        return
    folder.mkdir(exist_ok=True)
    texts = sorted(pathlib.Path(os.environ["BERT_TF_DATA"], "wiki/extracted").iterdir())
    parts = {
        "dev": [text for text in texts if text.name in HELD_OUT],
        "train": [text for text in texts if text.name not in HELD_OUT],
    }
    tool, vocab = ("-m", "bert_tf"), f"{folder}/vocab.txt"
    files, size = ",".join(map(str, texts)), CONFIG["vocab_size"]
    sources = (f"--input_file={files}", "--input_format=wikiextractor")
    command(*tool, "vocab", *sources, f"--output_file={vocab}", f"--vocab_size={size}")
    for name, part in parts.items():
        sources = (f"--input_file={','.join(map(str, part))}", "--input_format=wikiextractor")
        sizes = (f"--max_seq_length={LENGTH}", f"--max_predictions_per_seq={PREDICTIONS}")
        output = f"--output_file={folder}/{name}.tfrecord"
        command(*tool, "data", *sources, f"--vocab_file={vocab}", output, *sizes, "--dupe_factor=1")
    (folder / "bert_config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")


# -------------------------------------------------------------------------------- ours


def run_ours(seed: int, model: pathlib.Path, options) -> dict:
    """The script, as a user calls it."""
    pretrain(
        *(options.folder, model, "--do_train"),
        *(f"--num_train_steps={options.steps}", f"--num_warmup_steps={options.steps // 10}"),
        *(f"--learning_rate={RATE}", f"--train_batch_size={BATCH}", f"--seed={seed}"),
        *(f"--eval_steps={options.eval_steps}", f"--log_steps={options.eval_steps}"),
    )
    curves = read_curves(str(model))
    found = {"steps": sorted(curves["eval/masked_lm_loss"])}
    for name in METRICS:
        found[name] = [round(curves[f"eval/{name}"][step], 5) for step in found["steps"]]
    found["training_loss"] = [round(curves["loss"][step], 5) for step in sorted(curves["loss"])]
    return found


def pretrain(folder: pathlib.Path, model: pathlib.Path, *flags: str) -> None:
    """Our script, with an evaluation."""
    command(
        *(str(ROOT / "run_pretraining.py"), f"--output_dir={model}", "--do_eval", *flags),
        *(f"--bert_config_file={folder}/bert_config.json", f"--vocab_file={folder}/vocab.txt"),
        *(f"--max_seq_length={LENGTH}", f"--max_predictions_per_seq={PREDICTIONS}"),
        *(f"--input_file={folder}/train.tfrecord", f"--eval_input_file={folder}/dev.tfrecord"),
        *(f"--eval_batch_size={BATCH}", f"--max_eval_steps={EVAL_BATCHES}"),
    )


# -------------------------------------------------------------------------------- the original


def run_original(seed: int, model: pathlib.Path, options) -> dict:
    """The original in a process of its own; then the evaluation of its last weights by ours."""
    work = {
        "bert": options.bert, "seed": seed, "model": str(model), "folder": str(options.folder),
        "num_steps": options.steps, "eval_steps": options.eval_steps,
    }  # fmt: skip
    command(__file__, f"--original_part={json.dumps(work)}")
    found = json.loads((model / "found.json").read_text())
    pretrain(options.folder, model / "ours", f"--init_checkpoint={model}/model.ckpt")
    scores = scores_in(model / "ours" / "eval_results.txt")
    return found | {"evaluated_by_ours": {name: round(scores[name], 5) for name in METRICS}}


def original_part(
    bert: str, seed: int, model: str, folder: str, num_steps: int, eval_steps: int
) -> None:
    """Trains the original's graph; evaluates its checkpoints in another, as its estimator does."""
    from make_goldens import Original, tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    original = Original(pathlib.Path(bert))
    modes, experimental = types.SimpleNamespace(TRAIN="train", EVAL="eval"), tf.data.experimental
    original.estimator = types.SimpleNamespace(ModeKeys=modes)
    original.contrib.tpu = types.SimpleNamespace(TPUEstimatorSpec=types.SimpleNamespace)
    original.contrib.data = types.SimpleNamespace(
        parallel_interleave=experimental.parallel_interleave,
        map_and_batch=experimental.map_and_batch,
    )
    script = original.run_pretraining
    config = original.modeling.BertConfig.from_json_file(f"{folder}/bert_config.json")
    settings = (config, None, RATE, num_steps, num_steps // 10)
    model_fn = script.model_fn_builder(*settings, use_tpu=False, use_one_hot_embeddings=False)

    def build(name: str, mode: str):
        """A graph with its session and saver; the original's operations and batches."""
        session = tf.Session(graph=tf.Graph())
        with session.graph.as_default():
            tf.set_random_seed(seed)
            files, is_training = [f"{folder}/{name}.tfrecord"], mode == modes.TRAIN
            input_fn = script.input_fn_builder(files, LENGTH, PREDICTIONS, is_training)
            batches = tf.data.make_initializable_iterator(input_fn({"batch_size": BATCH}))
            spec = model_fn(batches.get_next(), None, mode, None)
            return session, tf.train.Saver(), spec, batches

    session, saver, training, batches = build("train", modes.TRAIN)
    with session.graph.as_default():
        session.run([tf.global_variables_initializer(), batches.initializer])
    eval_session, eval_saver, evaluation, eval_batches = build("dev", modes.EVAL)
    with eval_session.graph.as_default():
        metric_fn, tensors = evaluation.eval_metrics
        metrics, reset = metric_fn(*tensors), tf.local_variables_initializer()
    values = {name: value for name, (value, _) in metrics.items()}
    updates = [update for _, update in metrics.values()]

    found: dict[str, list] = {name: [] for name in ("steps", *METRICS, "training_loss")}
    losses: list[float] = []
    for step in range(num_steps + 1):
        if step % eval_steps == 0 or step == num_steps:
            eval_saver.restore(eval_session, saver.save(session, f"{model}/model.ckpt"))
            eval_session.run([reset, eval_batches.initializer])
            for _ in range(EVAL_BATCHES):
                eval_session.run(updates)
            for name, value in eval_session.run(values).items():
                found[name].append(round(float(value), 5))
            found["steps"].append(step)
            if losses:
                found["training_loss"].append(round(statistics.fmean(losses), 5))
            losses = []
            print(step, {name: value[-1:] for name, value in found.items()}, flush=True)
        if step < num_steps:
            losses.append(float(session.run([training.train_op, training.loss])[1]))
    pathlib.Path(model, "found.json").write_text(json.dumps(found))


# -------------------------------------------------------------------------------- the table


def print_table(lines: list[dict]) -> None:
    """The ends: means and deviations over seeds; differences of the means and their errors."""
    print("| at the end | original | ours | difference | its standard error |")
    print("|---|---|---|---|---|")
    for name in (*METRICS, "training_loss"):
        ends = {s: [x[name][-1] for x in lines if x["side"] == s] for s in SIDES}
        if min(map(len, ends.values())) < 2:
            continue
        cells = [f"{statistics.fmean(x):.4f} ± {statistics.stdev(x):.4f}" for x in ends.values()]
        difference = statistics.fmean(ends["ours"]) - statistics.fmean(ends["original"])
        error = sum(statistics.variance(x) / len(x) for x in ends.values()) ** 0.5
        print(f"| {name} | {cells[0]} | {cells[1]} | {difference:+.4f} | {error:.4f} |")
    for line in lines:
        if "evaluated_by_ours" in line:
            gaps = [abs(line["evaluated_by_ours"][name] - line[name][-1]) for name in METRICS]
            print(f"Seed {line['seed']} of the original, evaluated by ours: within {max(gaps):.5f}")


def draw(lines: list[dict], picture: str) -> None:
    """A panel for each metric, a line for each run."""
    plt = import_extra(
        "matplotlib.pyplot", package="matplotlib", extra="plot", needed_by="a picture"
    )
    plt.switch_backend("agg")
    figure, grid = plt.subplots(2, 2, figsize=(11, 6), layout="constrained")
    for axes, (name, title) in zip(grid.flat, METRICS.items(), strict=True):
        for line in lines:
            side, seed = line["side"], line["seed"]
            label = f"{side}, {len([x for x in lines if x['side'] == side])} seeds"
            first = seed == min(x["seed"] for x in lines if x["side"] == side)
            style = "--" if side == "original" else "-"
            axes.plot(
                *(line["steps"], line[name], style), color=SIDES[side], linewidth=1,
                label=label if first else None,
            )  # fmt: skip
        axes.set(xlabel="step", title=f"{title}, held out")
        if name.endswith("loss"):
            axes.set(ylabel="nats")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(picture, dpi=90)


if __name__ == "__main__":
    main()
