"""run_pretraining.py and what stands around it, as a user runs them."""

import json
import os
import random
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from walking import (
    COMPILE_QUICKLY,
    ROOT,
    SIZES,
    command,
    contents,
    describe,
    eagerly,
    in_process,
    read_results,
    read_tensors,
    write_config,
    write_encoder,
    write_records,
    write_vocabulary,
)

import bert_tf
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import tokenizer_of
from bert_tf.cli.plot import read_curves
from bert_tf.data.batches import ShuffledSampler
from bert_tf.data.records import pretraining_record
from bert_tf.errors import InputError
from bert_tf.heads.pretraining import Pretraining
from bert_tf.training import distribution
from bert_tf.training.trainer import Trainer

pytestmark = pytest.mark.walk


@pytest.fixture
def main():
    """`main` of run_pretraining.py, called with flags."""
    with in_process("run_pretraining.py") as main:
        yield main


@pytest.fixture
def briefly(main):
    """The same for a few steps, without graphs."""
    return eagerly()(main)


def one_step(folder, records: str = "t.tfrecord", **config) -> dict:
    """The flags of a short run on seven records, which are written."""
    return {
        "input_file": write_records(folder / records, 7, seed=6),
        "bert_config_file": write_config(folder / "c.json", **{"num_hidden_layers": 1} | config),
        "do_train": True, "num_train_steps": 1, "num_warmup_steps": 0, "train_batch_size": 3,
        "xla": False, "strategy": "one", **SIZES,
    }  # fmt: skip


@pytest.mark.parametrize(
    "what",
    [
        "bert_model.ckpt with checkpoint", "bert_model.ckpt", "model.safetensors", "model.keras",
        "model.weights.h5",
    ],
)  # fmt: skip
def test_a_model_in_the_folder_of_a_run(briefly, tmp_path, what):
    """It is not begun with random weights instead, nor taken for a checkpoint of the run."""
    run, (name, *named) = tmp_path / "run", what.split()[::2]
    run.mkdir()
    write_encoder(run, num_hidden_layers=1)
    if named:
        (run / named[0]).write_text('model_checkpoint_path: "bert_model.ckpt"\n')
    elif name != "bert_model.ckpt":
        for path in run.glob("*ckpt*"):
            path.rename(tmp_path / path.name)
        (run / name).touch()
    before = contents(run)
    with pytest.raises(InputError, match="which no run has left") as caught:
        briefly(**one_step(tmp_path), output_dir=run)
    assert caught.value.remedy.startswith(f"add --init_checkpoint={run}/{name}, and")
    assert {k: v for k, v in contents(run).items() if "lock" not in str(k)} == before


def known(folder) -> dict:
    """What is recorded with a model."""
    return json.loads((folder / "model_facts.json").read_text())


def weights(folder) -> dict[str, np.ndarray]:
    """All tensors of a folder's latest checkpoint, moments included."""
    reader = tf.train.load_checkpoint(str(folder))
    names = [n for n in reader.get_variable_to_shape_map() if not n.startswith("bert_tf/")]
    return {name: reader.get_tensor(name) for name in names}


def write_first_batch(path, tiny) -> dict[str, int]:
    """The golden batch 0 as a TFRecord file; returns its sizes as flags."""
    arrays = np.load(tiny / "batches.npz")
    batch = {k.removeprefix("0/"): arrays[k] for k in arrays.files if k.startswith("0/")}
    sizes = {
        "max_seq_length": batch["input_ids"].shape[1],
        "max_predictions_per_seq": batch["masked_lm_ids"].shape[1],
    }
    record = pretraining_record(**sizes)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in range(4):
            writer.write(record.serialize({f.name: batch[f.name][row] for f in record.features}))
    return sizes


@pytest.mark.parametrize("goldens_dir", ["shipped"], indirect=True)
def test_four_records_of_the_original(main, tiny, tmp_path):
    """The original's twelve updates over one batch, by the script itself."""
    sizes = write_first_batch(tmp_path / "batch_0.tfrecord", tiny)
    config = json.loads((tiny / "bert_config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "bert_config.json").write_text(json.dumps(config))
    golden = np.load(tiny / "train_repeat.npz")
    main(
        input_file=tmp_path / "batch_0.tfrecord", bert_config_file=tmp_path / "bert_config.json",
        output_dir=tmp_path / "run", init_checkpoint=tiny / "bert_model.ckpt", do_train=True,
        train_batch_size=4, learning_rate=float(golden["init_lr"]),
        num_train_steps=int(golden["num_train_steps"]),
        num_warmup_steps=int(golden["num_warmup_steps"]), log_steps=1, **sizes,
    )  # fmt: skip
    losses = read_curves(str(tmp_path / "run"))["loss"]
    np.testing.assert_allclose([losses[s] for s in range(1, 13)], golden["losses"], atol=1e-4)
    final = weights(tmp_path / "run")
    compared = [name for name in golden.files if name.startswith("final/")]
    assert len(compared) == 46
    for name in compared:
        np.testing.assert_allclose(final[name.removeprefix("final/")], golden[name], atol=1e-4)


@pytest.mark.parametrize("goldens_dir", ["shipped"], indirect=True)
def test_records_of_the_original(briefly, goldens_dir, uncased, tmp_path):
    """TFRecords that the original wrote, both ways of masking: trained on, evaluated, exported."""
    for kind in ("wordpiece", "wwm"):  # a run writes an index beside its records
        shutil.copy(goldens_dir / f"pretraining_{kind}.tfrecord", tmp_path)
    briefly(
        input_file=tmp_path / "pretraining_*.tfrecord",
        bert_config_file=write_config(
            tmp_path / "c.json", vocab_size=uncased.vocab_size, max_position_embeddings=128,
            num_hidden_layers=1,
        ),
        vocab_file=goldens_dir / "vocab" / "uncased.txt", do_lower_case=True,
        output_dir=tmp_path / "run", do_train=True, do_eval=True, num_train_steps=4,
        num_warmup_steps=1, max_eval_steps=3, strategy="one", xla=False,
        export_dir=tmp_path / "serving",
    )  # fmt: skip
    facts = json.loads(read_tensors(tmp_path / "run")["bert_tf/run_facts"])
    assert facts["num_records"] == 128
    values = read_results(tmp_path / "run")
    assert list(values) == [
        "global_step", "loss", "masked_lm_accuracy", "masked_lm_loss", "next_sentence_accuracy",
        "next_sentence_loss",
    ]  # fmt: skip
    total = values["masked_lm_loss"] + values["next_sentence_loss"]
    assert values["loss"] == pytest.approx(total, abs=1e-2)
    assert known(tmp_path / "run") == {
        "architecture": "BertForPreTraining", "do_lower_case": True, "max_seq_length": 128
    }  # fmt: skip
    text = "the capital of [MASK] is [MASK] ."  # the export guesses as the checkpoint does
    found = bert_tf.Predictor(tmp_path / "serving").predict([text])
    wanted = bert_tf.Predictor(tmp_path / "run", task="fill_mask").predict([text])
    assert found[0]["pieces"] == wanted[0]["pieces"]
    np.testing.assert_allclose(found[0]["probabilities"], wanted[0]["probabilities"], atol=1e-5)
    facts = json.loads((tmp_path / "serving" / "1" / "export.json").read_text())
    assert facts["task"] == "fill_mask"
    assert facts["options"]["max_seq_length"] == 128
    assert "masked_lm_accuracy" in facts["metrics"]


THREE_CPUS = """
import runpy, sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
sys.argv = {}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_one_and_three_devices_then_guesses(tmp_path, capsys):
    """The same weights on three devices, which take their rows in parts, with dropout."""
    flags = {
        "input_file": write_records(tmp_path / "train.tfrecord", 45, seed=3),
        "eval_input_file": write_records(tmp_path / "held_out.tfrecord", 29, seed=4),
        "bert_config_file": write_config(tmp_path / "c.json", num_hidden_layers=1),
        "vocab_file": write_vocabulary(tmp_path / "vocab.txt"), "do_lower_case": True,
        "do_train": True, "do_eval": True, "train_batch_size": 12, "num_train_steps": 5,
        "num_warmup_steps": 2, "learning_rate": 1e-3, "save_checkpoints_steps": 2,
        "keep_checkpoint_max": 2, "eval_steps": 3, "xla": "false", **SIZES,
    }  # fmt: skip
    one, three = tmp_path / "one", tmp_path / "three"
    mirrored = {"strategy": "mirrored", "gradient_accumulation_steps": 2}
    given = command("run_pretraining.py", **flags, output_dir=three, eval_batch_size=6, **mirrored)
    code = THREE_CPUS.format(given[1:])
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | COMPILE_QUICKLY)
    with in_process("run_pretraining.py") as main:
        main(**flags, output_dir=one, eval_batch_size=7, strategy="one")

    ours, theirs = weights(one), weights(three)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, rtol=0, atol=1e-6, err_msg=name)
    # 29 examples, in batches of 7 and of 6: each counted once.
    for name, value in read_results(one).items():
        tolerance = 5e-2 if name == "loss" else 1e-5  # loss is a mean over other batches
        assert read_results(three)[name] == pytest.approx(value, abs=tolerance), name
    steps = sorted(int(p.name[11:-6]) for p in one.glob("model.ckpt-*.index"))
    assert steps == [4, 5]
    assert set(read_curves(str(one))["eval/loss"]) == {0, 3, 5}  # 5: --do_eval
    with in_process("fill-mask") as fill_mask:
        fill_mask("w3 [MASK] w5 [MASK]", init_checkpoint=one, top_k=3)
    guesses = capsys.readouterr().out
    assert guesses.startswith("w3 [MASK] w5 [MASK]\n")
    rows = re.findall(r"^  \[MASK\] [12]: (?:\S+ \d+\.\d%\s*){3}$", guesses, re.MULTILINE)
    assert len(rows) == 2


def test_a_model_to_begin_with_says_its_sizes_and_vocabulary(briefly, tmp_path):
    """Then the folder of the run is a whole model again, whatever the flags say."""
    flags = one_step(tmp_path) | {"bert_config_file": None, "do_lower_case": True}
    begin = tmp_path / "begin"
    begin.mkdir()
    write_encoder(begin, num_hidden_layers=1)
    with pytest.raises(InputError, match="no --bert_config_file"):
        briefly(**flags, output_dir=tmp_path / "run")
    briefly(**flags, output_dir=tmp_path / "run", init_checkpoint=begin)
    found = bert_tf.open_weights(tmp_path / "run")
    assert found.config == bert_tf.open_weights(begin).config
    assert len(found.pieces) == found.config.vocab_size
    briefly(**flags | {"num_train_steps": 2}, output_dir=tmp_path / "run", init_checkpoint=begin)
    _, record = json.loads((tmp_path / "run/run.json").read_text())["commands"]
    assert record["flags"]["num_train_steps"] == 2
    assert record["settings"]["seed"] == 12345
    assert record["versions"]["bert_tf"] == bert_tf.__version__


def test_without_next_sentences(briefly, tmp_path):
    """Data without next_sentence_labels; the next-sentence head is not there to be trained."""
    flags = one_step(tmp_path) | {
        "input_file": write_records(tmp_path / "m.tfrecord", 11, seed=5, next_sentence=False),
        "num_train_steps": 3,
        "num_warmup_steps": 1,
    }
    briefly(
        **flags, output_dir=tmp_path / "run", task="fill_mask", do_eval=True, optimizer="lamb",
        bias_correction=True, max_eval_steps=2,
    )  # fmt: skip
    keys = {"global_step", "loss", "masked_lm_accuracy", "masked_lm_loss"}
    assert set(read_results(tmp_path / "run")) == keys
    assert not any("seq_relationship" in name for name in weights(tmp_path / "run"))
    # The settings that affect the weights are recorded, to be compared on resume.
    facts = json.loads(read_tensors(tmp_path / "run")["bert_tf/run_facts"])
    noted = ("task", "bias_correction", "optimizer", "hidden_dropout_prob")
    assert [facts[name] for name in noted] == ["fill_mask", True, "lamb", 0.1]


def test_a_causal_model(briefly, tmp_path):
    """Without the next-sentence task; guessed from what stands before, by its export too."""
    run, serving = tmp_path / "run", tmp_path / "serving"
    flags = one_step(tmp_path, attention="causal", initializer_range=0.5)
    flags |= {"do_eval": True, "max_eval_steps": 2}
    vocab = write_vocabulary(tmp_path / "vocab.txt")
    briefly(**flags, output_dir=run, vocab_file=vocab, do_lower_case=True, export_dir=serving)
    keys = {"global_step", "loss", "masked_lm_accuracy", "masked_lm_loss"}
    assert set(read_results(run)) == keys
    assert not any("seq_relationship" in name for name in weights(run))
    assert json.loads((run / "bert_config.json").read_text())["attention"] == "causal"
    for model in (bert_tf.Predictor(run, task="fill_mask"), bert_tf.Predictor(serving)):
        one, other, changed = (
            model.predict([text])[0]["probabilities"]
            for text in ("w3 w4 [MASK] w5 w6", "w3 w4 [MASK] w6", "w3 w5 [MASK] w5 w6")
        )
        np.testing.assert_allclose(other, one, atol=1e-5)
        assert np.abs(np.subtract(changed, one)).max() > 1e-2
    two_way = flags | {"bert_config_file": write_config(tmp_path / "d.json", num_hidden_layers=1)}
    with pytest.raises(InputError, match=r"another configuration \(attention\) and architecture"):
        briefly(**two_way, output_dir=run)


def test_packed_data(tmp_path, two_replicas, monkeypatch):
    """From text to a model: on two devices, in parts, the weights of one."""
    rng, text = random.Random(5), tmp_path / "text"
    lines = [f"{' '.join(f'w{rng.randrange(30)}' for _ in range(rng.randint(2, 9)))} .\n"
             f"{chr(10) * (rng.random() < 0.2)}" for _ in range(400)]  # fmt: skip
    text.write_text("".join(lines))
    vocab = write_vocabulary(tmp_path / "vocab.txt")
    sizes = {"max_seq_length": 96, "max_predictions_per_seq": 15}
    with in_process("create_pretraining_data.py") as create:
        create(input_file=text, output_file=tmp_path / "t.tfrecord", vocab_file=vocab, pack=True,
               dupe_factor=2, short_seq_prob=0.8, do_lower_case=True, num_workers=1,
               **sizes)  # fmt: skip
    assert (
        json.loads((tmp_path / "report_t.tfrecord.json").read_text())["instances_per_record"] > 1.5
    )
    flags = one_step(tmp_path, "other.tfrecord", max_position_embeddings=96) | sizes | {
        "input_file": tmp_path / "t.tfrecord", "vocab_file": vocab, "train_batch_size": 8,
        "num_train_steps": 4, "do_eval": True, "max_eval_steps": 2, "eval_batch_size": 4,
    }  # fmt: skip
    with in_process("run_pretraining.py") as main:
        with eagerly():
            main(**flags, output_dir=tmp_path / "one")
        with monkeypatch.context() as patch:
            patch.setattr(distribution, "make_strategy", lambda *_, **__: two_replicas)
            main(**flags, gradient_accumulation_steps=2, output_dir=tmp_path / "two")
        for name, value in weights(tmp_path / "one").items():
            found = weights(tmp_path / "two")[name]
            np.testing.assert_allclose(found, value, rtol=0, atol=1e-6, err_msg=name)
        results = read_results(tmp_path / "one")
        assert 0 < results["next_sentence_accuracy"] <= 1
        unsaid = {name: value for name, value in flags.items() if name not in sizes}
        with eagerly():
            main(
                **unsaid | {"task": "fill_mask", "do_eval": False},
                output_dir=tmp_path / "words_alone",
            )
        assert known(tmp_path / "words_alone")["max_seq_length"] == 96  # as the data say

        with pytest.raises(InputError, match="use --max_seq_length=96"):
            main(**flags | {"max_seq_length": 64, "output_dir": tmp_path / "none"})
        (tmp_path / "info_t.tfrecord.json").unlink()
        with pytest.raises(InputError, match="copy its info"):
            main(**flags | {"output_dir": tmp_path / "none", "do_lower_case": True})


def test_two_phases_are_one_schedule(briefly, tmp_path, caplog):
    """The first stops in the middle of the decay; the second goes on, there with other data."""
    flags = one_step(tmp_path) | {"num_train_steps": 7, "num_warmup_steps": 2}
    briefly(**flags, output_dir=tmp_path / "at_once")
    for _ in range(2):  # of which the second has nothing to do
        briefly(**flags, output_dir=tmp_path / "phases", stop_at_step=4)
        assert weights(tmp_path / "phases")["global_step"] == 4
    shutil.copytree(tmp_path / "phases", tmp_path / "others")
    briefly(**flags, output_dir=tmp_path / "phases", stop_at_step=9)  # of the 7 in all
    np.testing.assert_equal(weights(tmp_path / "phases"), weights(tmp_path / "at_once"))
    flags["input_file"] = write_records(tmp_path / "b.tfrecord", 13, seed=6)
    briefly(**flags, output_dir=tmp_path / "others")
    assert "Resuming with other records, whose checksum is" in caplog.text
    assert weights(tmp_path / "others")["global_step"] == 7


def test_another_batch_size_goes_on_with_the_records_that_are_left(
    briefly, tmp_path, monkeypatch, caplog
):
    """Steps 1 to 3 of 2 records, 4 to 6 of 3, 7 to 13 of 1: 22, of two epochs of 11.

    Then steps of 4 of others, as if they had been read from the beginning.
    """
    flags, out, read = one_step(tmp_path), tmp_path / "out", []
    flags |= {"input_file": write_records(tmp_path / "eleven", 11, seed=8), "output_dir": out}
    train = Trainer.train

    def spied(trainer, batches, plan, **options):
        train(trainer, batches, plan, **options)
        read.append((batches, plan.last_step))

    monkeypatch.setattr(Trainer, "train", spied)
    for step, size in ((3, 2), (6, 3), (13, 1)):
        briefly(**flags | {"num_train_steps": step, "train_batch_size": size})
    changed = {r.args[0] for r in caplog.records if r.msg.startswith("Resuming with")}
    assert {"train_batch_size", "data_order"} & changed == {"train_batch_size"}  # said once
    begin, rows = 0, []
    for batches, end in read:
        rows += batches.rows(range(begin, end)).ravel().tolist()
        begin = end
    assert [sorted(rows[:11]), sorted(rows[11:])] == [[*range(11)]] * 2
    saved = tf1.CheckpointReader(tf1.CheckpointFolder(str(out)).latest()).run_settings()
    assert saved["data_order"] == [2, 22 - 13 * 1]
    flags["input_file"] = write_records(tmp_path / "other", 7, seed=9)
    briefly(**flags | {"num_train_steps": 14, "train_batch_size": 4})
    undisturbed = ShuffledSampler([7], batch_size=4, seed=12345)
    assert read[-1][0].rows(range(13, 14))[0].tolist() == undisturbed.rows(52, 56).tolist()


def test_few_calls_from_main_to_the_loss(main, tmp_path, monkeypatch):
    """Our functions in a call of `losses`, those that TensorFlow rewrites for graphs included."""
    losses, found = Pretraining.losses, []

    def with_callers(*args):
        frame, names = sys._getframe(1), ["losses"]
        while frame:
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            is_ours = file.startswith((f"{ROOT}/bert_tf", f"{ROOT}/run_"))
            if is_ours or (name.startswith("tf__") and name != "tf__with_callers"):
                names.append(name.removeprefix("tf__"))
            frame = frame.f_back
        found.append(names[::-1])
        return losses(*args)

    monkeypatch.setattr(Pretraining, "losses", with_callers)
    main(**one_step(tmp_path), output_dir=tmp_path / "run")
    assert found[0][0] == "main"
    assert len(found[0]) <= 8, " ".join(found[0])


# ---------------------------------------------------------------------------- the case of the data


def test_the_case_of_the_data_goes_with_the_model(tmp_path):
    """From the text through records, checkpoint and export: no step guesses it."""
    write_vocabulary(tmp_path / "small.txt", 100)
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text((tmp_path / "small.txt").read_text() + "Paris\n")
    (tmp_path / "text.txt").write_text("w1 Paris w3\nParis w5\n\nw6 w7\nw8 Paris w1\n" * 9)
    flags = one_step(tmp_path, "other") | {"input_file": tmp_path / "t.tfrecord*"}
    with in_process("create_pretraining_data.py") as create:
        create(
            input_file=tmp_path / "text.txt",
            output_file=tmp_path / "t.tfrecord",
            vocab_file=vocabulary,
            do_lower_case=False,
            **SIZES,
        )
    with in_process("run_pretraining.py") as main, eagerly():
        main(**flags, vocab_file=vocabulary, output_dir=tmp_path / "run")
        main(**flags, output_dir=tmp_path / "plain")
        describe(tmp_path / "other", tmp_path / "small.txt")
        flags["input_file"] = tmp_path / "other"
        with pytest.raises(InputError, match=r"another vocabulary than that of .*model\.ckpt-1"):
            main(**flags, output_dir=tmp_path / "next", init_checkpoint=tmp_path / "run")
        flags |= {"input_file": tmp_path / "undescribed", "do_lower_case": False}
        write_records(tmp_path / "undescribed", 8, seed=3)
        heads = write_config(tmp_path / "4.json", num_hidden_layers=1, num_attention_heads=4)
        for wrong, says in (
            ({"vocab_file": tmp_path / "small.txt"}, "another vocabulary"),
            ({"bert_config_file": heads}, r"another configuration \(num_attention_heads\)"),
        ):
            before = contents(tmp_path / "run")
            with pytest.raises(InputError, match=says):  # of the run that is resumed
                main(**flags | {"num_train_steps": 2} | wrong, output_dir=tmp_path / "run")
            assert contents(tmp_path / "run") == before
    for name in ("run", "plain"):  # recorded without a vocabulary too, which may be given later
        assert known(tmp_path / name)["do_lower_case"] is False
    plain = bert_tf.open_weights(tmp_path / "plain")
    tokenizer = tokenizer_of(plain, plain.config, str(vocabulary))
    assert tokenizer.tokenize("Paris") == ["Paris"]
    with pytest.raises(InputError, match="whose model says do_lower_case False"):
        tokenizer_of(plain, plain.config, str(vocabulary), True)


def test_pieces_that_the_data_keep_whole_go_with_the_model(briefly, tmp_path, caplog):
    vocabulary = write_vocabulary(tmp_path / "vocab.txt")
    flags = one_step(tmp_path) | {"vocab_file": vocabulary}
    describe(tmp_path / "t.tfrecord", vocabulary, never_split=["w3"])
    write_records(tmp_path / "undescribed", 8, seed=3)
    both = f"{tmp_path}/t.tfrecord,{tmp_path}/undescribed"
    with pytest.raises(InputError, match=r"info_undescribed\.json, beside .*--never_split=w3"):
        briefly(**flags | {"input_file": both, "do_lower_case": False}, output_dir=tmp_path / "run")
    briefly(**flags, output_dir=tmp_path / "run")
    found = bert_tf.open_weights(tmp_path / "run")
    assert found.metadata.never_split == ("w3",)
    assert tokenizer_of(found, found.config).tokenize("xw3") == ["[UNK]", "w3"]
    describe(tmp_path / "t.tfrecord", vocabulary)
    for other in (
        {"num_train_steps": 2, "output_dir": tmp_path / "run"},
        {"output_dir": tmp_path / "new", "init_checkpoint": tmp_path / "run"},
    ):
        says = "another never_split" if "num_train_steps" in other else "without --never_split"
        with pytest.raises(InputError, match=says):
            briefly(**flags | other)
    describe(tmp_path / "t.tfrecord", vocabulary, never_split=["w3", "w4"])
    briefly(**flags, output_dir=tmp_path / "new", init_checkpoint=tmp_path / "run")
    assert bert_tf.open_weights(tmp_path / "new").metadata.never_split == ("w3", "w4")


def test_accents_of_the_data_go_with_the_model(briefly, tmp_path):
    vocabulary = write_vocabulary(tmp_path / "vocab.txt")
    flags = one_step(tmp_path) | {"vocab_file": vocabulary}
    describe(tmp_path / "t.tfrecord", vocabulary, strip_accents=True)
    briefly(**flags, output_dir=tmp_path / "run")
    found = bert_tf.open_weights(tmp_path / "run")
    assert tokenizer_of(found, found.config).strip_accents is True
    describe(tmp_path / "t.tfrecord", vocabulary)
    with pytest.raises(InputError, match="data made with strip_accents False") as caught:
        briefly(**flags, output_dir=tmp_path / "new", init_checkpoint=tmp_path / "run")
    assert caught.value.expected == "strip_accents True, as the model has it"
    describe(tmp_path / "t.tfrecord", vocabulary, do_lower_case=True, strip_accents=False)
    facts = tmp_path / "run/model_facts.json"
    facts.write_text(facts.read_text().replace('"do_lower_case": false', '"do_lower_case": true'))
    with pytest.raises(InputError, match="data made with strip_accents False"):
        briefly(**flags, output_dir=tmp_path / "new", init_checkpoint=tmp_path / "run")


def test_data_of_which_the_case_is_unknown(briefly, tmp_path, caplog):
    """The original's records say nothing: its own command goes on, and records nothing."""
    flags = one_step(tmp_path) | {"output_dir": tmp_path / "run"}
    vocabulary = write_vocabulary(tmp_path / "vocab.txt")
    with pytest.raises(InputError, match=r"without .*info_t\.tfrecord") as caught:
        briefly(**flags, vocab_file=vocabulary)
    assert "--nodo_lower_case" in caught.value.remedy
    assert not (tmp_path / "run").exists()
    briefly(**flags)
    assert "The model will not record do_lower_case" in caplog.text
    found = {"architecture": "BertForPreTraining", "max_seq_length": 17}
    assert known(tmp_path / "run") == found
    briefly(**flags | {"num_train_steps": 2}, vocab_file=vocabulary, do_lower_case=False)
    assert known(tmp_path / "run")["do_lower_case"] is False
    with pytest.raises(InputError, match=r"True in the flags, False in .*model_facts"):
        briefly(**flags | {"num_train_steps": 3}, do_lower_case=True)


def test_an_evaluation_alone_has_the_step_of_its_model(briefly, tmp_path):
    """Of a checkpoint in another folder; there was `global_step = 0`."""
    flags = one_step(tmp_path)
    briefly(**flags, output_dir=tmp_path / "run")
    flags |= {"do_train": False, "do_eval": True, "max_eval_steps": 2}
    briefly(**flags, init_checkpoint=tmp_path / "run" / "model.ckpt-1", output_dir=tmp_path / "new")
    assert read_results(tmp_path / "new")["global_step"] == 1
