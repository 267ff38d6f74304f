"""bert-tf plan: what it prints, and what it refuses."""

import pytest
from small_plans import BASE, changed
from walking import in_process, write_config

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


@pytest.mark.parametrize("device", ["h100x", "nan", "-3", "1e9"])
def test_an_unknown_device_is_refused(tmp_path, capsys, device):
    with pytest.raises(InputError, match=f"--device={device}"):
        plan(tmp_path, capsys, device=device)


def test_what_fits_as_the_results_say(tmp_path, capsys):
    """BERT-Base on 12 GB, beside the original's 32 and 6."""
    for length, batch in ((128, 129), (512, 30)):
        lines = plan(tmp_path, capsys, task="classification", device=12, max_seq_length=length)
        assert lines[-1] == f"Largest --train_batch_size on a GPU of 12 GB: {batch}"
