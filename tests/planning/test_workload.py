"""What a workload is: its variables as the models have them, and what is refused."""

import pytest
from small_plans import CONFIG, C, changed

from bert_tf import make_model
from bert_tf.checkpoints import tf1
from bert_tf.errors import InputError
from bert_tf.planning import tables
from bert_tf.planning.workload import HEADS, Workload


@pytest.mark.parametrize("head", HEADS)
def test_variables_are_those_of_the_model(head):
    workload = changed(head=head)
    model = make_model(head, CONFIG, num_classes=C)
    assert workload.variables == {
        tf1.checkpoint_name(v): tuple(v.shape) for v in model.trainable_variables
    }
    assert workload.parameters() == model.count_params()


def test_parameters_of_the_published_models():
    """The paper's 110M and 340M (section 3) are these."""
    head = {"BERT-Base": 624_188, "BERT-Large": 1_084_220}  # both heads of pre-training
    for name, encoder in {"BERT-Base": 109_482_240, "BERT-Large": 335_141_888}.items():
        workload = Workload(config=tables.PUBLISHED[name])
        assert workload.parameters("bert/") == encoder
        assert workload.parameters() == encoder + head[name]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_seq_length": 72}, "max_seq_length 72"),
        ({"head": "embeddings"}, "--head=embeddings"),
        ({"precision": "int8"}, "--precision=int8"),
        ({"num_replicas": 0}, "--num_replicas=0"),
        ({"num_replicas": 2}, "--train_batch_size=11"),
    ],
)
def test_what_cannot_be_is_refused(changes, named):
    with pytest.raises(InputError) as error:
        changed(**changes)
    assert named in error.value.received
