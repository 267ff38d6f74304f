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
    lines = plan(tmp_path, capsys, "--fits", memory_gb=16)
    assert lines[0] == "Parameters: 110,106,428"
    memory = step_memory(BASE)
    assert f"Memory of a device: {amount(memory.total)}, peak at: {memory.peak}" in lines
    batch = largest_batch(BASE, int(15.25 * GIB))
    assert f"Largest --train_batch_size in 16 GB: {batch}" in lines
    (fits,) = (line.split() for line in lines if line.startswith("  BERT-Base    128"))
    assert (fits[4], fits[-1]) == (str(batch), "32")
    assert " 0 B" not in "\n".join(lines)


def test_an_accelerator_by_name(tmp_path, capsys):
    lines = plan(tmp_path, capsys, "--device=v5e", precision="bfloat16", num_replicas=2)
    work = changed(BASE, precision="bfloat16", num_replicas=2)
    expected = largest_batch(work, DEVICES["v5e"].memory_bytes, "tpu")
    assert f"Largest --train_batch_size on TPU v5e: {expected}" in lines


@pytest.mark.parametrize("words", [[], ["--device=v5e"], ["--memory_gb=9", "--fits"]])
def test_a_command_without_a_model_is_refused(words):
    with in_process("plan") as main, pytest.raises(InputError, match="no --bert_config_file"):
        main(*words)
