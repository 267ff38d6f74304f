"""The commands that meet faults, as small as they can be, and the files that they are given.

A command runs in a folder of its own: it finds its input in in/, writes to out/, and has tmp/ for
temporary files. What one command makes another one takes: `Command.given` names the makers.
"""

import dataclasses
import json
import random
from collections.abc import Callable

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = [f"w{number}" for number in range(30)]
SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
}
BLOCKS_BYTES = 1_150_000  # of text: two blocks of data generation


@dataclasses.dataclass(frozen=True)
class Command:
    """A command and what is known of its files.

    Attributes:
      verb: of `bert-tf`.
      words: its flags; paths are relative.
      texts: files of `TEXTS` in in/.
      given: in/NAME is what the command of that name has made.
      script: of the original, which does the same.
      overwrites: whether it replaces files that are there.
      saves: files below out/ that change while it runs: a run's list of checkpoints, say.
      whole: a folder below out/ that appears with all its files or not at all.
      keeps: a folder below out/ that an error leaves, for the same command to go on with.
      weight: how often it is chosen beside the others.
    """

    verb: str
    words: tuple[str, ...]
    texts: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    script: str | None = None
    overwrites: bool = False
    saves: tuple[str, ...] = ()
    whole: str | None = None
    keeps: str | None = None
    weight: float = 1.0

    @property
    def trains(self) -> bool:
        """Whether it goes on from a checkpoint."""
        return "--do_train" in self.words


# ---------------------------------------------------------------------------- commands


def _flags(**values: object) -> tuple[str, ...]:
    return tuple(f"--{k}" if v is True else f"--{k}={v}" for k, v in values.items())


_DATA = {"max_seq_length": 17, "max_predictions_per_seq": 5, "vocab_file": "in/vocab.txt"}
_TRAINING = {"do_train": True, "xla": False, "strategy": "one", "train_batch_size": 4,
             "save_checkpoints_steps": 2, "keep_checkpoint_max": 0, "log_steps": 2}  # fmt: skip
_MODEL = {"init_checkpoint": "in/pretrain"}
_RUN_FILES = ("checkpoint", "model_facts.json")

COMMANDS = {
    "data": Command(
        "data",
        _flags(
            input_file="in/text.txt",
            output_file="out/a.tfrecord,out/b.tfrecord",
            num_workers=1,
            **_DATA,
        ),
        texts=("text.txt", "vocab.txt"),
        script="create_pretraining_data.py",
        overwrites=True,
        weight=4,
    ),
    "data_workers": Command(
        "data",
        _flags(
            input_file="in/blocks.txt",
            output_file="out/a.tfrecord",
            num_workers=2,
            dupe_factor=1,
            max_seq_length=128,
            max_predictions_per_seq=20,
            vocab_file="in/vocab.txt",
        ),
        texts=("blocks.txt", "vocab.txt"),
        script="create_pretraining_data.py",
        overwrites=True,
        weight=0.5,
    ),
    "data_shards": Command(
        "data",
        _flags(
            input_file="in/blocks.txt",
            output_file="out/x",
            num_shards=3,
            num_workers=1,
            dupe_factor=1,
            max_seq_length=128,
            max_predictions_per_seq=20,
            vocab_file="in/vocab.txt",
        ),
        texts=("blocks.txt", "vocab.txt"),
        script="create_pretraining_data.py",
        keeps=".x.working",
    ),
    "vocab": Command(
        "vocab",
        _flags(
            input_file="in/text.txt",
            output_file="out/vocab.txt",
            vocab_size=60,
            character_coverage=1,
            num_workers=1,
        ),
        texts=("text.txt",),
        overwrites=True,
        weight=3,
    ),
    "pretrain": Command(
        "pretrain",
        _flags(
            input_file="in/data/*.tfrecord",
            eval_input_file="in/data/a.tfrecord",
            output_dir="out",
            bert_config_file="in/bert_config.json",
            do_eval=True,
            max_eval_steps=2,
            num_train_steps=6,
            num_warmup_steps=1,
            **_TRAINING,
            **_DATA,
        ),
        texts=("bert_config.json", "vocab.txt"),
        given=("data",),
        script="run_pretraining.py",
        saves=_RUN_FILES,
        weight=0.7,
    ),
    "classify": Command(
        "classify",
        _flags(
            task_name="csv",
            text_a_column="words",
            label_column="kind",
            data_dir="in",
            output_dir="out",
            do_eval=True,
            do_predict=True,
            max_seq_length=17,
            num_train_epochs=2,
            **_TRAINING,
            **_MODEL,
        ),
        texts=("train.csv", "dev.csv", "test.csv"),
        given=("pretrain",),
        script="run_classifier.py",
        saves=_RUN_FILES,
        weight=0.7,
    ),
    "squad": Command(
        "squad",
        _flags(
            train_file="in/train.json",
            predict_file="in/dev.json",
            output_dir="out",
            do_predict=True,
            do_eval=True,
            version_2_with_negative=True,
            max_seq_length=17,
            doc_stride=6,
            max_query_length=4,
            num_train_epochs=2,
            **_TRAINING,
            **_MODEL,
        ),
        texts=("train.json", "dev.json"),
        given=("pretrain",),
        script="run_squad.py",
        saves=_RUN_FILES,
        weight=0.7,
    ),
    "evaluate-squad": Command(
        "evaluate-squad",
        (
            "in/dev.json",
            "in/predictions.json",
            *_flags(na_prob_file="in/null_odds.json", report_file="out/report.html"),
        ),
        texts=("dev.json", "predictions.json", "null_odds.json"),
        overwrites=True,
        weight=4,
    ),
    "features": Command(
        "features",
        _flags(
            input_file="in/lines.txt",
            output_file="out/features.jsonl",
            layers="-1",
            max_seq_length=9,
            **_MODEL,
        ),
        texts=("lines.txt",),
        given=("pretrain",),
        script="extract_features.py",
        overwrites=True,
        weight=2,
    ),
    "predict": Command(
        "predict",
        _flags(model="in/export/1", input_file="in/lines.txt", output_file="out/answers.jsonl"),
        texts=("lines.txt",),
        given=("export",),
        overwrites=True,
        weight=2,
    ),
    "fill-mask": Command(
        "fill-mask", ("w1 w2 [MASK] w3 .", *_flags(**_MODEL)), given=("pretrain",)
    ),
    "export": Command(
        "export",
        _flags(init_checkpoint="in/classify", export_dir="out"),
        given=("classify",),
        whole="1",
    ),
    "convert": Command(
        "convert",
        _flags(**{"from": "in/pretrain", "to": "out/model"}),
        given=("pretrain",),
        whole="model",
        weight=3,
    ),
    "plot": Command(
        "plot",
        _flags(output_dir="in/pretrain", picture="out/curves.png"),
        given=("pretrain",),
        overwrites=True,
    ),
}

# ---------------------------------------------------------------------------- input


def _text(sentences: int, seed: int) -> str:
    rng = random.Random(seed)
    lines = []
    for number in range(1, sentences + 1):
        lines.append(" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) + ".")
        if number % 7 == 0:
            lines.append("")
    return "\n".join(lines) + "\n"


def _rows(count: int, seed: int) -> str:
    rng = random.Random(seed)
    rows = (
        f"{' '.join(rng.choices(WORDS, k=rng.randint(1, 12)))},{'ab'[n % 2]}" for n in range(count)
    )
    return "\n".join(["words,kind", *rows]) + "\n"


def _questions(count: int, seed: int) -> dict:
    rng = random.Random(seed)
    paragraphs = []
    for number in range(count):
        words = rng.choices(WORDS, k=rng.randint(4, 20))
        place = rng.randrange(len(words))
        answer = {"text": words[place], "answer_start": len(" ".join([*words[:place], ""]))}
        impossible = number % 3 == 0
        question = {
            "id": f"q{number}",
            "question": "w1 w2",
            "answers": [] if impossible else [answer],
            "is_impossible": impossible,
        }
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}


TEXTS: dict[str, Callable[[], str]] = {  # file of in/: makes its text
    "text.txt": lambda: _text(60, 1),
    "blocks.txt": lambda: _text(BLOCKS_BYTES // 22, 2),
    "vocab.txt": lambda: "".join(f"{piece}\n" for piece in (*SPECIAL, ".", *WORDS)),
    "bert_config.json": lambda: json.dumps(SIZES | {"vocab_size": len(SPECIAL) + 1 + len(WORDS)}),
    "train.csv": lambda: _rows(11, 3),
    "dev.csv": lambda: _rows(5, 4),
    "test.csv": lambda: _rows(3, 5),
    "train.json": lambda: json.dumps(_questions(7, 6)),
    "dev.json": lambda: json.dumps(_questions(5, 7)),
    "predictions.json": lambda: json.dumps({f"q{n}": f"w{n} w{n + 1}" for n in range(5)}),
    "null_odds.json": lambda: json.dumps({f"q{n}": n - 2.5 for n in range(5)}),
    "lines.txt": lambda: _text(7, 8),
}
