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

import json
import pathlib
import statistics
import tempfile
import time
import types

from bert_tf.cli.plot import read_curves
from bert_tf.runtime import import_extra

from measuring import (
    Results,
    data_dir,
    parse_options,
    print_rows,
    print_titles,
    run,
    scores_in,
    verb,
)

BATCH, LENGTH, PREDICTIONS, RATE, EVAL_BATCHES = 32, 128, 20, 1e-3, 40
SIZES = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}
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
    options = parse_options(
        __doc__,
        bert=None,
        results="head_to_head.jsonl",
        folder="head_to_head",  # of the records
        seeds=(1, 2, 3),
        steps=3000,
        eval_steps=250,
        picture=None,
        original_part=None,  # the work of the original's process
    )
    if options.original_part:
        original_part(**json.loads(options.original_part))
        return
    results, folder = Results(options.results), pathlib.Path(options.folder)
    for seed in options.seeds if options.bert else ():
        for side, measure in (("original", run_original), ("ours", run_ours)):
            key = {"side": side, "seed": seed, "num_steps": options.steps}
            if not results.find(**key):
                make_records(folder)
                with tempfile.TemporaryDirectory() as model:
                    begin = time.perf_counter()
                    found = measure(seed, pathlib.Path(model), folder, options)
                    results.add(key | {"seconds": round(time.perf_counter() - begin)} | found)
    print_table(results.lines)
    if options.picture:
        draw(results.lines, options.picture)


def make_records(folder: pathlib.Path) -> None:
    """Vocabulary, records and configuration from the sample of Wikipedia, if they are missing."""
    if (folder / "bert_config.json").exists():
        return
    folder.mkdir(exist_ok=True)
    texts = sorted((data_dir() / "wiki/extracted").iterdir())
    vocabulary = folder.resolve() / "vocab.txt"
    text = {"input_format": "wikiextractor", "input_file": ",".join(map(str, texts))}
    verb("vocab", output_file=vocabulary, vocab_size=CONFIG["vocab_size"], **text)
    for name in ("dev", "train"):
        part = [str(text) for text in texts if (text.name in HELD_OUT) == (name == "dev")]
        text["input_file"] = ",".join(part)
        output = folder.resolve() / f"{name}.tfrecord"
        flags = {"vocab_file": vocabulary, "output_file": output, "dupe_factor": 1}
        verb("data", **flags, **text, **SIZES)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")


# -------------------------------------------------------------------------------- ours


def run_ours(seed: int, model: pathlib.Path, folder: pathlib.Path, options) -> dict:
    """The script, as a user calls it."""
    flags = {"do_train": True, "num_train_steps": options.steps, "seed": seed}
    flags |= {"num_warmup_steps": options.steps // 10, "learning_rate": RATE}
    flags |= {"eval_steps": options.eval_steps, "log_steps": options.eval_steps}
    pretrain(folder, model, train_batch_size=BATCH, **flags)
    curves = read_curves(str(model))
    found = {"steps": sorted(curves["eval/masked_lm_loss"])}
    for name in METRICS:
        found[name] = [round(curves[f"eval/{name}"][step], 5) for step in found["steps"]]
    found["training_loss"] = [round(curves["loss"][step], 5) for step in sorted(curves["loss"])]
    return found


def pretrain(folder: pathlib.Path, model: pathlib.Path, **flags: object) -> None:
    """Our script, with an evaluation."""
    folder = folder.resolve()
    flags |= {"bert_config_file": folder / "bert_config.json", "vocab_file": folder / "vocab.txt"}
    flags |= {"input_file": folder / "train.tfrecord", "eval_input_file": folder / "dev.tfrecord"}
    flags |= {"eval_batch_size": BATCH, "max_eval_steps": EVAL_BATCHES} | SIZES
    run("run_pretraining.py", output_dir=model, do_eval=True, **flags)


# -------------------------------------------------------------------------------- the original


def run_original(seed: int, model: pathlib.Path, folder: pathlib.Path, options) -> dict:
    """The original in a process of its own; then the evaluation of its last weights by ours."""
    work = {
        "bert": str(pathlib.Path(options.bert).resolve()), "folder": str(folder.resolve()),
        "seed": seed, "model": str(model), "num_steps": options.steps,
        "eval_steps": options.eval_steps,
    }  # fmt: skip
    run(__file__, original_part=json.dumps(work))
    found = json.loads((model / "found.json").read_text())
    pretrain(folder, model / "ours", init_checkpoint=model / "model.ckpt")
    scores = scores_in(model / "ours" / "eval_results.txt")
    return found | {"evaluated_by_ours": {name: round(scores[name], 5) for name in METRICS}}


def original_part(
    bert: str, seed: int, model: str, folder: str, num_steps: int, eval_steps: int
) -> None:
    """Trains the original's graph; evaluates its checkpoints in another, as its estimator does."""
    original, tf = load_original(bert)
    config = original.modeling.BertConfig.from_json_file(f"{folder}/bert_config.json")
    settings = (config, None, RATE, num_steps, num_steps // 10)
    model_fn = original.run_pretraining.model_fn_builder(
        *settings, use_tpu=False, use_one_hot_embeddings=False
    )
    train, dev = (
        Graph(original, tf, model_fn, f"{folder}/{name}.tfrecord", name, seed)
        for name in ("train", "dev")
    )
    with train.session.graph.as_default():
        train.session.run([tf.global_variables_initializer(), train.batches.initializer])
    with dev.session.graph.as_default():
        metric_fn, tensors = dev.spec.eval_metrics
        metrics, reset = metric_fn(*tensors), tf.local_variables_initializer()
    found: dict[str, list] = {name: [] for name in ("steps", *METRICS, "training_loss")}
    losses: list[float] = []
    for step in range(num_steps + 1):
        if step % eval_steps == 0 or step == num_steps:
            dev.saver.restore(dev.session, train.saver.save(train.session, f"{model}/model.ckpt"))
            dev.session.run([reset, dev.batches.initializer])
            for _ in range(EVAL_BATCHES):
                dev.session.run([update for _, update in metrics.values()])
            values = dev.session.run({name: value for name, (value, _) in metrics.items()})
            for name, value in values.items():
                found[name].append(round(float(value), 5))
            found["steps"].append(step)
            found["training_loss"] += [round(statistics.fmean(losses), 5)] if losses else []
            losses = []
        if step < num_steps:
            run_step = [train.spec.train_op, train.spec.loss]
            losses.append(float(train.session.run(run_step)[1]))
    pathlib.Path(model, "found.json").write_text(json.dumps(found))


def load_original(bert: str):
    """The original with stand-ins for what is gone from TensorFlow, and the TensorFlow it gets."""
    from make_goldens import Original, tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    original = Original(pathlib.Path(bert))
    modes = types.SimpleNamespace(TRAIN="train", EVAL="dev")
    original.estimator = types.SimpleNamespace(ModeKeys=modes)
    original.contrib.tpu = types.SimpleNamespace(TPUEstimatorSpec=types.SimpleNamespace)
    original.contrib.data = types.SimpleNamespace(
        parallel_interleave=tf.data.experimental.parallel_interleave,
        map_and_batch=tf.data.experimental.map_and_batch,
    )
    return original, tf


class Graph:
    """A graph of its own with session, saver, the original's operations and batches."""

    def __init__(self, original, tf, model_fn, file: str, mode: str, seed: int):
        self.session = tf.Session(graph=tf.Graph())
        with self.session.graph.as_default():
            tf.set_random_seed(seed)
            input_fn = original.run_pretraining.input_fn_builder(
                [file], LENGTH, PREDICTIONS, mode == "train"
            )
            batches = input_fn({"batch_size": BATCH})
            self.batches = tf.data.make_initializable_iterator(batches)
            self.spec = model_fn(self.batches.get_next(), None, mode, None)
            self.saver = tf.train.Saver()


# -------------------------------------------------------------------------------- the table


def print_table(lines: list[dict]) -> None:
    """The ends: means and deviations over seeds; differences of the means and their errors."""
    print_titles("at the end", "original", "ours", "difference", "its standard error")
    for name in (*METRICS, "training_loss"):
        ends = {s: [x[name][-1] for x in lines if x["side"] == s] for s in SIDES}
        if min(map(len, ends.values())) < 2:
            continue
        cells = [f"{statistics.fmean(x):.4f} ± {statistics.stdev(x):.4f}" for x in ends.values()]
        difference = statistics.fmean(ends["ours"]) - statistics.fmean(ends["original"])
        error = sum(statistics.variance(x) / len(x) for x in ends.values()) ** 0.5
        print_rows([name, *cells, f"{difference:+.4f}", f"{error:.4f}"])
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
