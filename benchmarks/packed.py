"""What packing gives: rates of training with rows of several sequences, and with one a row.

    BERT_TF_DATA=... python benchmarks/packed.py --what=rows                    pre-training
    BERT_TF_DATA=... python benchmarks/packed.py --what=rows --paragraphs=2     short articles
    BERT_TF_DATA=... python benchmarks/packed.py --what=batches --tasks=mrpc    fine-tuning

The shipped commands train both ways in turn, each for --steps steps; rates are those that they
write for TensorBoard, without the steps that are compiled.

rows     L4 H256, 512 tokens, 8 rows, on the same Wikipedia articles: real tokens a second, and the
         ratio that the fill of the rows predicts.
batches  all-MiniLM-L6-v2, batches of 32, 128 tokens: examples a second, and without
         --nobucket_by_length.
"""

import json
import pathlib
import re
import statistics
import tempfile

from bert_tf.cli.plot import read_curves

from measuring import data_dir, in_turn, parse_options, print_rates, verb

S, P, ROWS = 512, 80, 8
CONFIG = {
    "vocab_size": 30522, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 1024, "max_position_embeddings": S, "type_vocab_size": 2,
}  # fmt: skip
ARTICLE = re.compile(r"(<doc [^>]*>\n)(.*?)(</doc>)", re.DOTALL)
FOLDERS = {"mrpc": "MRPC", "sst-2": "SST-2", "cola": "CoLA", "rte": "RTE", "sts-b": "STS-B"}


def main() -> None:
    """Both ways in turn -> a table."""
    options = parse_options(
        __doc__, what="rows", files=6, paragraphs=0, tasks=("mrpc",), rounds=3, steps=60
    )
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "rows":
            rows(pathlib.Path(folder), options)
        else:
            for task in options.tasks:
                batches(task, pathlib.Path(folder), options)


def rows(folder: pathlib.Path, options) -> None:
    """Pre-training."""
    sizes = {"max_seq_length": S, "max_predictions_per_seq": P}
    vocabulary = data_dir() / "vocab/uncased_en_30522.txt"
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    flags = {"input_file": write_text(folder, options), "input_format": "wikiextractor"}
    flags |= {"vocab_file": vocabulary, "dupe_factor": 1} | sizes
    fill, rates = {}, {"packed": [], "a sequence a row": []}
    for name in rates:
        output = folder / f"{name.split()[0]}.tfrecord"
        verb("data", output_file=output, pack=True if name == "packed" else None, **flags)
        fill[name] = json.loads((folder / f"report_{output.name}.json").read_text())["real_share"]
    for name in in_turn(rates, options.rounds):
        given = {"input_file": folder / f"{name.split()[0]}.tfrecord", "train_batch_size": ROWS}
        given |= {"bert_config_file": folder / "bert_config.json", "learning_rate": 1e-4} | sizes
        given |= {"num_train_steps": options.steps, "num_warmup_steps": 10}
        rate = trained("pretrain", folder, **given)
        rates[name].append(rate * S * fill[name])
    print_rates("real tokens/s", rates)
    one, packed = fill["a sequence a row"], fill["packed"]
    print(f"rows are {one:.1%} and {packed:.1%} full, which predicts {packed / one:.2f} times")


def batches(task: str, folder: pathlib.Path, options) -> None:
    """Fine-tuning."""
    data = data_dir() / "glue" / FOLDERS[task]
    examples = (data / "train.tsv").read_text("utf-8").count("\n")
    given = {"task_name": task, "data_dir": data, "num_train_epochs": 32 * options.steps / examples}
    given |= {"init_checkpoint": data_dir() / "weights/all-MiniLM-L6-v2", "max_seq_length": 128}
    given |= {"learning_rate": 5e-5, "train_batch_size": 32}
    rates: dict[str, list[float]] = {"packed": [], "plain": []}
    for name in in_turn(rates, options.rounds):
        plain = {"nobucket_by_length": True} if name == "plain" else {}
        rates[name].append(trained("classify", folder, **given, **plain))
    print_rates(f"{task}, examples/s", rates)


def trained(name: str, folder: pathlib.Path, **flags: object) -> float:
    """Examples a second of a training: the median over its parts."""
    with tempfile.TemporaryDirectory(dir=folder) as output:
        verb(name, output_dir=output, do_train=True, log_steps=10, **flags)
        return statistics.median(read_curves(output)["examples_per_second"].values())


def write_text(folder: pathlib.Path, options) -> pathlib.Path:
    """The articles, or the title and first paragraphs of each, in one file."""
    paths = sorted((data_dir() / "wiki/extracted").iterdir())[: options.files]
    texts = [path.read_text("utf-8") for path in paths]
    if options.paragraphs:
        texts = [ARTICLE.sub(lambda article: cut(article, options.paragraphs), t) for t in texts]
    (folder / "text").write_text("".join(texts), "utf-8")
    return folder / "text"


def cut(article: re.Match, paragraphs: int) -> str:
    """An article's title and first paragraphs; lines of a few words are headings."""
    title, *lines = [line for line in article[2].splitlines() if line.strip()]
    kept = [line for line in lines if len(line) > 80][:paragraphs]
    return article[1] + "\n".join([title, "", *kept]) + "\n" + article[3]


if __name__ == "__main__":
    main()
