"""Every command that takes a model, with every wrong companion of it.

A companion is what belongs to a model: vocabulary, configuration, labels, task, case. A wrong one
must be refused with nothing written, or leave the result as it is without it. The pairs come from
the verbs with their flags. A new verb that takes a model fails here until it is listed.
"""

import collections
import contextlib
import csv
import dataclasses
import io
import itertools
import json
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any

import model_files
import numpy as np
import pytest
import walking
from walking import (
    SIZES,
    SPECIAL_PIECES,
    TINY,
    contents,
    flags_of,
    in_process,
    write_records,
)

from bert_tf.__main__ import VERBS
from bert_tf.checkpoints.loading import open_weights
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.serving.options import TASKS

pytestmark = [pytest.mark.walk, pytest.mark.filterwarnings("ignore:Even though the `tf.config")]
CONFIG = BertConfig(**TINY | {"num_hidden_layers": 1})
UNUSED = [f"[unused{number}]" for number in range(4)]
PIECES = [*SPECIAL_PIECES, *UNUSED, *(f"w{n}" for n in range(CONFIG.vocab_size - 9))]
LABELS = ("sad", "so so", "glad")
TEXTS = ("w1 w7 w30 w12", "w2 w50", "w60 w61 w62 w63 w64 w65 w66")
QUESTION = {"id": "q", "question": "w7 w9", "answers": [{"text": "w30", "answer_start": 6}]}
CONTEXT = "w1 w7 w30 w12 w50"
KINDS = {  # of models: kind of `model_files.tensors_of`, and what is known of each
    "classification": ("classifier", {
        "architecture": "BertForSequenceClassification", "labels": LABELS, "pairs": False}),
    "pretraining": ("pretraining", {"architecture": "BertForPreTraining"}),
    "question_answering": ("span", {"architecture": "BertForQuestionAnswering"}),
}  # fmt: skip
# The outcome that a companion must have; OWN: equal for the model's own task, else refused.
NEEDED, REFUSED, EITHER, OWN = "equal", "refused", "equal or refused", "own"
NEW_HEAD = "new head"  # for other labels, where a model is trained further; this is logged


def shuffled(items: list) -> list:
    """The items with all but the first 20 in another order."""
    return [*items[:20], *np.random.default_rng(5).permutation(items[20:]).tolist()]


VOCABULARIES = {  # the lines, and the outcome
    "elsewhere": (PIECES, NEEDED),
    "own words": ([*PIECES[:5], "mine", "ours", *PIECES[7:]], NEEDED),
    "shuffled": (shuffled(PIECES), REFUSED),
    "two swapped": ([*PIECES[:-2], PIECES[-1], PIECES[-2]], REFUSED),
    "a piece less": (PIECES[:-1], REFUSED),
    "a piece more": ([*PIECES, "more"], REFUSED),
    "a piece for two": ([*PIECES[:5], "w7", *PIECES[6:]], REFUSED),
}
CONFIGS = {
    "elsewhere": ({}, NEEDED),
    "other dropout": ({"hidden_dropout_prob": 0.3}, NEEDED),
    "other heads": ({"num_attention_heads": 4}, REFUSED),
    "other activation": ({"hidden_act": "relu"}, REFUSED),
    "other eps": ({"layer_norm_eps": 1e-3}, REFUSED),
    "other size": ({"intermediate_size": 24}, REFUSED),
    "fewer positions": ({"max_position_embeddings": 17}, REFUSED),
}
# Companions by the names of flags and parameters: what is tried -> value, outcome.
COMPANIONS: dict[str, dict[str, tuple[Any, str]]] = {
    "vocab_file": {name: (f"{{home}}/{name}.txt", to) for name, (_, to) in VOCABULARIES.items()},
    "bert_config_file": {name: (f"{{home}}/{name}.json", to) for name, (_, to) in CONFIGS.items()},
    "do_lower_case": {"own": (False, NEEDED), "other": (True, REFUSED)},
    "labels": {
        "own": (LABELS, NEEDED),
        "permuted": ((LABELS[2], *LABELS[:2]), NEEDED),
        "others": (("red", "green", "blue"), REFUSED),
        "too few": (LABELS[:2], REFUSED),
        "twice": ((*LABELS[:2], LABELS[0]), REFUSED),
    },
    "task": {name: (name, OWN) for name in TASKS if name != "embeddings"},  # which has no head
    "pairs": {"own": (False, NEEDED), "other": (True, REFUSED)},
    "max_seq_length": {"longer": (20, NEEDED), "beyond the positions": (25, REFUSED)},
    "label_kind": {"own": ("classes", NEEDED), "several": ("multi_label", REFUSED),
                   "a score": ("regression", REFUSED)},
    "text_b_column": {"pairs": ("text_b", REFUSED)},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _eagerly():
    with walking.untraced():
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> pathlib.Path:
    """The models and their wrong companions."""
    home = tmp_path_factory.mktemp("companions")
    for name, (pieces, _) in VOCABULARIES.items():
        (home / f"{name}.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    for name, (changes, _) in CONFIGS.items():
        walking.write_config(home / f"{name}.json", **CONFIG.to_dict() | changes)
    for kind, (tensors, known) in KINDS.items():
        values = model_files.tensors_of(tensors, CONFIG)
        model_files.write_tf1(home / kind, values, config=CONFIG, pieces=PIECES)
        known = known | {"do_lower_case": False, "max_seq_length": 16}
        known |= {} if kind == "pretraining" else {"task": kind}
        (home / kind / "model_facts.json").write_text(json.dumps(known))
    (home / "texts.txt").write_text("\n".join(TEXTS))
    for name, labels in (("train", LABELS), ("others", ("red", "green", "blue"))):
        rows = [("text_a", "text_b", "label"), *zip(TEXTS, TEXTS, labels, strict=True)]
        with (home / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    shutil.copy(home / "train.csv", home / "test.csv")
    paragraph = {"context": CONTEXT, "qas": [QUESTION]}
    squad = {"version": "1.1", "data": [{"title": "", "paragraphs": [paragraph]}]}
    (home / "questions.json").write_text(json.dumps(squad))
    write_records(home / "good.tfrecord", 8, seed=3)
    return home


# ---------------------------------------------------------------------------- commands


@dataclasses.dataclass(frozen=True)
class Call:
    """A command that takes a model. In flags {home} is the folder of the models, {out} the output.

    Attributes:
      model: one of `KINDS`.
      flags: of a good command.
      result: what it wrote or printed, so that equal results are equal.
      words: outside the flags.
      more: companions of this command alone.
      makes_heads: whether it may initialise a new head, which it then logs.
      has_no: companions that this model or its data do not have: refused, or without effect.
    """

    model: str
    flags: dict[str, Any]
    result: Callable[[pathlib.Path, str], Any]
    words: tuple[str, ...] = ()
    more: dict[str, dict[str, tuple[Any, str]]] = dataclasses.field(default_factory=dict)
    makes_heads: bool = False
    has_no: tuple[str, ...] = ()


def lines_of(out: pathlib.Path, _: str) -> list:
    """Lines of JSON; probabilities by the names of their labels."""
    return [by_name(json.loads(line)) for line in (out / "out").read_text().splitlines()]


def by_name(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without the order of its classes."""
    if isinstance(names := answer.get("labels"), list) and "probabilities" in answer:
        answer = answer | {"labels": dict(zip(names, answer["probabilities"], strict=True))}
        del answer["probabilities"]
    return answer


def guesses_of(_: pathlib.Path, printed: str) -> list[str]:
    """Lines as printed; the pieces [unusedN] may have other words in their place."""
    return printed.replace("mine", UNUSED[0]).replace("ours", UNUSED[1]).splitlines()


def table_of(out: pathlib.Path, _: str) -> list[dict]:
    """The predictions of a classifier with names."""
    lines = (out / "test_results_labeled.tsv").read_text().splitlines()
    return [dict(sorted(row.items())) for row in csv.DictReader(lines, delimiter="\t")]


def model_of(out: pathlib.Path, _: str) -> list:
    """Tensors and facts of a converted model; its vocabulary up to words of the user's own."""
    weights = open_weights(out / "model")
    tensors = {name: weights.read(name).tolist() for name in weights.names}
    own = zip(PIECES, weights.pieces, strict=True)
    pieces = [piece for piece, there in own if piece != there and piece not in UNUSED]
    return [tensors, pieces, weights.metadata.known(), weights.config.num_attention_heads]


CLASSIFY = {
    "task_name": "csv", "data_dir": "{home}", "output_dir": "{out}", "do_predict": True,
    "init_checkpoint": "{model}", "max_seq_length": 16, "xla": False, "strategy": "one",
}  # fmt: skip
TRAIN = {"do_train": True, "num_train_epochs": 1, "train_batch_size": 3, "learning_rate": "1e-30"}
ASK = {"input_file": "{home}/texts.txt", "output_file": "{out}/out"}
CALLS = {  # several of a verb: a name behind it
    "predict": Call("classification", {"model": "{model}", **ASK}, lines_of),
    "fill-mask": Call("pretraining", {"init_checkpoint": "{model}"},
                      guesses_of, ("w1 [MASK] w30",)),
    "score": Call("pretraining", {"init_checkpoint": "{model}", **ASK}, lines_of),
    "features": Call("pretraining", {
        "init_checkpoint": "{model}", **ASK, "max_seq_length": 16, "pooling": "mean"}, lines_of),
    "convert": Call("classification", {"from": "{model}", "to": "{out}/model"}, model_of),
    "classify": Call("classification", CLASSIFY, table_of),
    "classify train": Call("classification", CLASSIFY | TRAIN, table_of, makes_heads=True, more={
        "train_file": {"other labels": ("others.csv", EITHER)}}),
    "squad": Call("question_answering", {
        "init_checkpoint": "{model}", "output_dir": "{out}", "do_predict": True, "xla": False,
        "predict_file": "{home}/questions.json", "max_seq_length": 16, "doc_stride": 8,
        "max_query_length": 4, "strategy": "one",
    }, lambda out, _: json.loads((out / "nbest_predictions.json").read_text()), more={
        "null_score_diff_threshold": {"where all have answers": (5.0, NEEDED)}}),
    "pretrain": Call("pretraining", {
        "init_checkpoint": "{model}", "output_dir": "{out}", "do_eval": True, "xla": False,
        "bert_config_file": "{model}/bert_config.json", "input_file": "{home}/good.tfrecord",
        "do_lower_case": False, "eval_batch_size": 4, "max_eval_steps": 2, "strategy": "one",
        **SIZES,
    }, lambda out, _: (out / "eval_results.txt").read_text(), has_no=("max_seq_length",), more={
        "task": {"a head of labels": ("classification", REFUSED)}}),
}  # fmt: skip
SERVING = {"serve", "export"}  # which take a model as `predict` does
WITHOUT_A_MODEL = {  # verbs: they read no weights
    *("data", "beam-data", "vocab", "evaluate-squad", "plan", "plot", "check")
}


def test_every_verb_is_tried():
    """A new verb is called with a model here, or takes none."""
    listed = {name.split()[0] for name in CALLS} | SERVING | WITHOUT_A_MODEL
    assert listed == VERBS.keys(), "how are these called with a model?"
    for verb in WITHOUT_A_MODEL - {"beam-data"}:  # whose flags are data's
        takes = {"init_checkpoint", "model", "from"} & flags_of(verb)
        assert not takes, f"how is {verb} called with the model of --{takes.pop()}?"


@pytest.mark.parametrize("name", CALLS)
def test_a_command(name, home, tmp_path, caplog):
    call, verb = CALLS[name], name.split()[0]
    before, numbers = contents(home / call.model), itertools.count()
    known = COMPANIONS | call.more

    with in_process(verb) as main:

        def attempt(**given: Any) -> Any:
            out = tmp_path / str(next(numbers))
            places = {"home": home, "out": out, "model": home / call.model}
            printed = io.StringIO()
            values = {n: filled(v, places) for n, v in (call.flags | given).items()}
            words = [filled(word, places) for word in call.words]
            out.mkdir()
            with contextlib.redirect_stdout(printed):
                try:
                    main(*words, **values)
                except InputError:
                    assert not contents(out), "it was refused, and files were written"
                    raise
            return call.result(out, printed.getvalue())

        pairs = {flag: variants for flag, variants in known.items() if flag in flags_of(verb)}
        pairs |= {flag: loosely(pairs[flag]) for flag in pairs.keys() & {*call.has_no}}
        try_all(name, call.model, pairs, attempt, caplog, makes_heads=call.makes_heads)
    assert contents(home / call.model) == before


def loosely(variants: dict[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    """Variants that may be refused, or have no effect."""
    return {name: (value, EITHER) for name, (value, _) in variants.items()}


def filled(value: Any, places: dict[str, pathlib.Path]) -> Any:
    """A value with the paths that it names."""
    if isinstance(value, tuple):
        return ",".join(value)
    return value.format(**places) if isinstance(value, str) else value


# ---------------------------------------------------------------------------- what comes of them


def try_all(
    name: str,
    model: str,
    pairs: dict[str, dict[str, tuple[Any, str]]],
    attempt: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    *,
    makes_heads: bool,
) -> None:
    """Tries every companion; fails at any other outcome than the allowed ones.

    Companions that must make no difference are tried together, one variant of each at a time.
    """
    expected, wrong, equal = attempt(), [], collections.defaultdict(list)

    def outcome_of(given: dict[str, Any]) -> str:
        caplog.clear()
        try:
            with caplog.at_level("INFO", logger="absl"):
                found = attempt(**given)
        except InputError as error:
            return REFUSED if error.received and error.expected and error.remedy else "no parts"
        if makes_heads and re.search("weights are new|a new head", caplog.text):
            return NEW_HEAD
        return NEEDED if same(found, expected) else "differs"

    tries = [(each, *pair) for each, variants in pairs.items() for pair in variants.items()]
    for each, variant, (value, wanted) in tries:
        if wanted == OWN:
            wanted = NEEDED if value == model else REFUSED
        if wanted == NEEDED:
            equal[each].append((variant, value))
            continue
        outcome = outcome_of({each: value})
        if outcome not in ((NEEDED, REFUSED) if wanted == EITHER else (wanted,)) + (NEW_HEAD,):
            wrong.append(f"{each}, {variant}: {outcome}")
    for together in itertools.zip_longest(*equal.values()):
        given = {each: one[1] for each, one in zip(equal, together, strict=True) if one}
        outcome = outcome_of(given)
        if outcome != NEEDED:
            wrong.append(f"{given}: {outcome}")
    assert not wrong, f"{name}: " + " | ".join(wrong)


def same(found: Any, expected: Any) -> bool:
    """Whether two results are equal, up to rounding; of outputs those that both have."""
    if isinstance(expected, dict):
        names = found.keys() & expected.keys()
        return bool(names) and all(same(found[name], expected[name]) for name in names)
    if isinstance(expected, list | tuple):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(same(*pair) for pair in pairs)
    if isinstance(expected, float | np.ndarray):
        return np.shape(found) == np.shape(expected) and np.allclose(found, expected, atol=1e-5)
    return found == expected
