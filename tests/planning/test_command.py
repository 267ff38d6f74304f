"""bert-tf plan: what it prints, and what it refuses."""

import pytest
from small_plans import BASE, changed
from walking import in_process, write_config

from bert_tf.cli.plan import devices_of
from bert_tf.errors import InputError
from bert_tf.planning.memory import amount, largest_batch, step_memory
from bert_tf.planning.workload import DEVICES, GIB


def plan(tmp_path, capsys, *words, **flags) -> list[str]:
    """What the command prints for BERT-Base."""
    config = write_config(tmp_path / "c.json", **BASE.config.to_dict())
    with in_process("plan") as main:
        main(*words, bert_config_file=config, **flags)
    return capsys.readouterr().out.splitlines()


def test_a_gpu_by_its_memory(tmp_path, capsys):
    lines = plan(tmp_path, capsys, device=16)
    assert lines[0] == "Parameters: 110,106,428"
    memory = step_memory(BASE)
    assert f"Memory of a device: {amount(memory.total)}, peak at: {memory.peak}" in lines
    batch = largest_batch(BASE, int(15.25 * GIB))
    assert f"Largest --train_batch_size on a GPU of 16 GB: {batch}" in lines
    assert " 0 B" not in "\n".join(lines)


def test_an_accelerator_by_name(tmp_path, capsys):
    lines = plan(tmp_path, capsys, "--device=2xv5e", precision="bfloat16")
    work = changed(BASE, precision="bfloat16", num_replicas=2)
    expected = largest_batch(work, DEVICES["v5e"].memory_bytes, "tpu")
    assert f"Largest --train_batch_size on TPU v5e: {expected}" in lines


def test_the_workload_of_the_options(tmp_path, capsys, monkeypatch):
    """Each field is the option of its name; the head is the task."""
    planned = []
    monkeypatch.setattr("bert_tf.cli.plan.lines_of", lambda *given: planned.append(given) or ())
    changes = {
        "max_seq_length": 53, "train_batch_size": 66, "max_predictions_per_seq": 7, "pack": True,
        "precision": "bfloat16", "recompute": True, "gradient_accumulation_steps": 3,
    }  # fmt: skip
    plan(tmp_path, capsys, device="2xh100", **changes)
    plan(tmp_path, capsys, task="token_labels")
    first = changed(BASE, num_replicas=2, **changes)
    assert planned == [(first, DEVICES["h100"]), (changed(BASE, head="token_labels"), None)]


def test_numbers_of_devices():
    assert devices_of("") == (1, None)
    assert devices_of("8x") == (8, None)
    assert devices_of("12xa100") == (12, DEVICES["a100"])
    count, gpu = devices_of("3x40.5")
    assert (count, gpu.name, gpu.memory_bytes) == (3, "a GPU of 40.5 GB", int(39.75 * GIB))


@pytest.mark.parametrize("device", ["h100x", "nan", "-3", "1e9", "0x16", "v5e\n"])
def test_an_unknown_device_is_refused(tmp_path, capsys, device):
    with pytest.raises(InputError, match=f"--device={device}"):
        plan(tmp_path, capsys, device=device)


def test_what_fits_as_the_results_say(tmp_path, capsys):
    """BERT-Base on 12 GB, beside the original's 32 and 6."""
    for length, batch in ((128, 129), (512, 30)):
        lines = plan(tmp_path, capsys, task="classification", device=12, max_seq_length=length)
        assert lines[-1] == f"Largest --train_batch_size on a GPU of 12 GB: {batch}"
