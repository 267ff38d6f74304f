"""What changes in a model's answers in bfloat16, on the dev sets of real tasks.

    BERT_TF_DATA=... python benchmarks/bfloat16_answers.py --folder=models --tasks=mrpc,sst-2,cola

Trains all-MiniLM-L6-v2 for each task in float32, by the recipe of benchmarks/sentence_tasks.py,
into --folder, unless it is there: sst-2 on a fifth of the rows, squad on --squad_epochs of SQuAD
v1.1, words to label words as NER does: which words of 4,000 passages of SQuAD begin with a capital
letter, shown in lower case. Then it asks the model in float32 and in bfloat16
(`bert_tf.Predictor`) and prints: labels, or answers, that change of 1,000; accuracy, and the
calibration error of ten bins, in both; the greatest and the mean difference of a label's
probability. Of vectors, the task is `vectors`: the least and the mean cosine between both
precisions of the sentences of STS-B, and how the order of pairs by similarity agrees (Spearman).
"""

import json
import pathlib
import re

import numpy as np

import question_answering
from measuring import ROOT, data_dir, parse_options, print_rows, print_titles, run
from question_answering import PRECISIONS
from sentence_tasks import TASKS, run_ours, weights

BINS = 10
PARTS = {"sst-2": 0.2}  # epochs, where a part of the rows is enough
WORDS = re.compile(r"[A-Za-z]+|[0-9]+")


def main() -> None:
    """Trains what is missing; then a row for each task."""
    options = parse_options(
        __doc__,
        folder="models",
        tasks=("mrpc", "sst-2", "cola", "words", "vectors", "squad"),
        squad_epochs=0.03,
        questions=2000,  # of SQuAD's dev set
    )
    folder = pathlib.Path(options.folder)
    print_titles("task", "answers", "that change of 1,000", "float32", "bfloat16", "differences")
    for task in options.tasks:
        if task == "vectors":
            print_rows(of_vectors())
        elif task == "words":
            print_rows(of_words(folder / task))
        elif task == "squad":
            print_rows(of_squad(folder / "squad", options.squad_epochs, options.questions))
        else:
            print_rows(of_labels(task, folder / task))


def predictors(path: pathlib.Path) -> list:
    """The model in both precisions."""
    import bert_tf

    return [bert_tf.Predictor(path, precision=precision) for precision in PRECISIONS]


def of_labels(task: str, folder: pathlib.Path) -> list:
    """The row of a task with labels."""
    from bert_tf.tasks import registry

    if not (folder / "model_facts.json").exists():
        run_ours(task, 1, folder, precision="float32", epochs=PARTS.get(task))
    examples = registry.get_task(task).read(str(data_dir() / TASKS[task][0]), "dev")
    items = [(e.text_a, e.text_b) if e.text_b else e.text_a for e in examples]
    exact, coarse = (model.predict(items) for model in predictors(folder))
    change = np.mean([a["label"] != b["label"] for a, b in zip(exact, coarse, strict=True)])
    gold = [example.label for example in examples]
    probabilities = [np.array([a["probabilities"] for a in found]) for found in (exact, coarse)]
    differences = np.abs(np.subtract(*probabilities)).max(1)  # [N]
    scores = [
        f"accuracy {accuracy(found, gold):.4f}, calibration error {calibration(found, gold):.4f}"
        for found in (exact, coarse)
    ]
    said = f"probability: at most {differences.max():.1e}, mean {differences.mean():.1e}"
    return [task, len(items), f"{1000 * change:.1f}", *scores, said]


def accuracy(answers: list[dict], gold: list[str]) -> float:
    """The share of right labels."""
    return float(np.mean([a["label"] == g for a, g in zip(answers, gold, strict=True)]))


def calibration(answers: list[dict], gold: list[str]) -> float:
    """The expected calibration error (Guo et al., 2017)."""
    sure = np.array([answer["probability"] for answer in answers])
    right = np.array([a["label"] == g for a, g in zip(answers, gold, strict=True)])
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = [abs(sure[bins == b].sum() - right[bins == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(sure))


def of_words(folder: pathlib.Path) -> list:
    """The row of labels of words: C for those that had a capital letter."""
    train, dev = (sentences(name, count) for name, count in (("train", 4000), ("dev", 500)))
    if not (folder / "model_facts.json").exists():
        data = folder.with_name("words_data")
        data.mkdir(parents=True, exist_ok=True)
        for name, part in (("train", train), ("dev", dev)):
            blocks = ("".join(f"{word} {label}\n" for word, label in words) for words in part)
            (data / f"{name}.txt").write_text("\n".join(blocks), encoding="utf-8")
        flags = {"task_name": "ner", "data_dir": data, "do_train": True, "output_dir": folder}
        flags |= {"init_checkpoint": weights(), "learning_rate": 1e-4, "num_train_epochs": 1}
        run(ROOT / "run_classifier.py", **flags, train_batch_size=16, max_seq_length=128)
    items = [" ".join(word for word, _ in words) for words in dev]
    gold = np.array([label for words in dev for _, label in words])
    exact, coarse = (model.predict(items) for model in predictors(folder))
    labels = [np.array([label for a in of for label in a["labels"]]) for of in (exact, coarse)]
    shares = [np.concatenate([np.array(a["probabilities"]) for a in of]) for of in (exact, coarse)]
    differences = np.abs(np.subtract(*shares))  # of the chosen labels, [W]
    change = np.mean(labels[0] != labels[1])
    scores = [f"accuracy {np.mean(of == gold):.4f}" for of in labels]
    said = f"probability: at most {differences.max():.1e}, mean {differences.mean():.1e}"
    return ["words", len(gold), f"{1000 * change:.1f}", *scores, said]


def sentences(name: str, count: int) -> list[list[tuple[str, str]]]:
    """The first sentences of passages of SQuAD: lower-case words and their labels."""
    path = data_dir() / f"squad/{name}-v1.1.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    contexts = [p["context"] for article in content["data"] for p in article["paragraphs"]]
    found = []
    for context in contexts[:: max(1, len(contexts) // count)]:
        words = WORDS.findall(context)[:60]
        found.append([(word.lower(), "C" if word[0].isupper() else "O") for word in words])
    return [words for words in found if words]


def of_vectors() -> list:
    """The row of MiniLM's own vectors."""
    from bert_tf.tasks import registry

    examples = registry.get_task("sts-b").read(str(data_dir() / TASKS["sts-b"][0]), "dev")
    texts = [text for example in examples for text in (example.text_a, example.text_b)]
    units = []
    for predictor in predictors(weights()):
        vectors = np.array([answer["mean"] for answer in predictor.predict(texts)])
        units.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))  # [N, D]
    cosines = (units[0] * units[1]).sum(1)
    gold = [float(example.label) for example in examples]
    scores = [
        f"Spearman with STS-B {spearman((of[0::2] * of[1::2]).sum(1), gold):.4f}" for of in units
    ]
    said = f"cosine: at least {cosines.min():.5f}, mean {cosines.mean():.6f}"
    return ["vectors", len(texts), "", *scores, said]


def spearman(values, others) -> float:
    """The correlation of ranks."""
    ranks = []
    for numbers in (values, others):
        _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - counts / 2)[places])  # equal ones share the mean rank
    return float(np.corrcoef(*ranks)[0, 1])


def of_squad(folder: pathlib.Path, epochs: float, questions: int) -> list:
    """The row of answers to SQuAD's questions."""
    from bert_tf.squad.evaluation import normalize_answer, token_f1

    data = data_dir() / "squad"
    if not (folder / "model_facts.json").exists():
        run(ROOT / "run_squad.py", **question_answering.flags_of(folder, epochs=epochs, batch=8))
    content = json.loads((data / "dev-v1.1.json").read_text(encoding="utf-8"))
    asked = [
        (qa["question"], paragraph["context"], [answer["text"] for answer in qa["answers"]])
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]
    asked = asked[:: max(1, len(asked) // questions)]
    items = [(question, context) for question, context, _ in asked]
    exact, coarse = (model.predict(items) for model in predictors(folder))
    change = np.mean([a["answer"] != b["answer"] for a, b in zip(exact, coarse, strict=True)])
    scores = []
    for found in (exact, coarse):
        best = []
        for answer, (*_, gold) in zip(found, asked, strict=True):
            text = answer["answer"]
            is_exact = normalize_answer(text) in {normalize_answer(g) for g in gold}
            best.append((is_exact, max(token_f1(text, g) for g in gold)))
        scores.append("exact {:.2f}, F1 {:.2f}".format(*(100 * np.mean(best, 0))))
    return ["SQuAD", len(items), f"{1000 * change:.1f}", *scores, ""]


if __name__ == "__main__":
    main()
