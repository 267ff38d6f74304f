"""What a checkpoint is served as: its files say it, the caller chooses, the rest is refused."""

import dataclasses

import pytest
import served_models
from served_models import CONFIG, TOKENIZER

from bert_tf.checkpoints.loading import Weights, open_weights
from bert_tf.errors import InputError
from bert_tf.heads import make_model
from bert_tf.serving import export, options, pretrained
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.signatures import ServingTask, head_of, make_task

MOST = CONFIG.max_position_embeddings


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Gives the weights of a kind, and what else is known of them."""
    written: dict[str, Weights] = {}

    def get(kind: str, **known) -> Weights:
        if kind not in written:
            folder = tmp_path_factory.mktemp(kind) / "model"
            written[kind] = served_models.write_folder(kind, folder)
        metadata = dataclasses.replace(written[kind].metadata, **known)
        return dataclasses.replace(written[kind], metadata=metadata)

    return get


def make(weights: Weights, **options) -> ServingTask:
    return make_task(weights, CONFIG, TOKENIZER, ServingOptions(**options))


def test_every_format_has_a_file_or_a_writer():
    assert set(options.EXPORT_FORMATS) == set(export.MODEL_FILES)
    assert set(options.FEATURE_FORMATS) == set(pretrained.WRITERS)


@pytest.mark.parametrize("kind", ["pairs", "regression", "multiple_choice", "question_answering"])
def test_two_texts_for_a_model_of_one_segment_type(source, kind):
    """A single text needs no second one."""
    weights, config = source(kind), dataclasses.replace(CONFIG, type_vocab_size=1)
    table = "bert/embeddings/token_type_embeddings"
    shapes = dict(weights.shapes) | {table: (1, CONFIG.hidden_size)}

    def read(name):
        return weights.read(name)[: shapes[name][0]] if name == table else weights.read(name)

    one = dataclasses.replace(weights, config=config, shapes=shapes, read=read)
    options = served_models.options(kind)
    with pytest.raises(InputError, match="for a model with type_vocab_size 1"):
        make_task(one, config, TOKENIZER, options)
    if options.pairs:
        make_task(one, config, TOKENIZER, dataclasses.replace(options, pairs=False))


# ---------------------------------------------------------------------------- what is known


SHORT_PAIRS = {"pairs": True, "max_seq_length": 11}
WINDOWS = {"max_seq_length": 17, "doc_stride": 3, "max_query_length": 4}


@pytest.mark.parametrize(
    ("kind", "known", "given", "wanted"),
    [
        ("classification", {}, {"task": "multi_label"}, {"pairs": False, "max_seq_length": MOST}),
        ("classification", {"task": "multi_label"}, {"task": "embeddings"}, {"pairs": False}),
        ("classification", SHORT_PAIRS, {}, {}),
        ("classification", SHORT_PAIRS, {"pairs": True, "max_seq_length": 7}, {}),
        ("multiple_choice", {}, {}, {"num_choices": 4}),
        ("multiple_choice", {"num_choices": 3}, {"num_choices": 2}, {}),
        ("fill_mask", {"max_seq_length": 9}, {"top_k": 2}, {}),
        ("question_answering", {"max_query_length": 5}, {},
         {"max_seq_length": MOST, "doc_stride": 128}),
        ("question_answering", WINDOWS, {"doc_stride": 5}, {}),
    ],
)  # fmt: skip
def test_what_is_given_goes_before_what_is_known(source, kind, known, given, wanted):
    task = make(source(kind, **known), **given)
    chosen, wanted = task.listed_options() | {"task": task.head.name}, known | given | wanted
    assert {name: chosen[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("stored", "trained", "given", "negative", "wanted"),
    [
        (None, None, None, None, (False, 0.0)),
        (-1.5, None, None, None, (True, -1.5)),
        (None, True, None, None, (True, 0.0)),
        (-1.5, False, None, None, (False, -1.5)),
        (None, False, 0.5, None, (True, 0.5)),
        (-1.5, True, None, False, (False, -1.5)),
        (None, None, None, True, (True, 0.0)),
    ],
)
def test_whether_there_may_be_no_answer(source, stored, trained, given, negative, wanted):
    known = {"null_score_diff_threshold": stored, "version_2_with_negative": trained}
    weights = source("no_answer", **known, max_query_length=4)
    chosen = {"null_score_diff_threshold": given, "version_2_with_negative": negative}
    found = make(weights, **chosen).options
    assert (found.version_2_with_negative, found.null_score_diff_threshold) == wanted


# ---------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("kind", "known", "given", "says"),
    [
        ("classification", {"max_seq_length": 11}, {"max_seq_length": -1}, "max_seq_length[ =]-1"),
        ("token_labels", {}, {"max_seq_length": 4}, "max_seq_length[ =]4"),
        ("question_answering", WINDOWS, {"max_seq_length": MOST + 1}, rf"length[ =]{MOST + 1}"),
        ("classification", {"task": "pretraining"}, {}, r"'pretraining' as task in model_facts"),
        ("classification", {}, {"task": "poetry"}, "'poetry' as task"),
        ("classification", {}, {"labels": ("a", "a", "b")}, "3 labels: a, a, b"),
        ("classification", {"task": "multi_label"}, {"task": "classification"}, "task = multi_"),
        ("classification", {"task": "classification"}, {"task": "multi_label"}, "task = class"),
        ("classification", {"pairs": False}, {"pairs": True}, "pairs = False"),
        ("classification", {}, {"task": "regression"}, "output_"),
        ("regression", {"task": "regression"}, {"task": "multiple_choice"}, "architecture = "),
        ("token_labels", {}, {"task": "classification"}, "architecture = BertForToken"),
        ("fill_mask", {"architecture": "BertForSentiment"}, {}, "another head"),
    ],
)
def test_what_a_checkpoint_cannot_be(source, kind, known, given, says):
    with pytest.raises(InputError, match=says):
        make(source(kind, **known), **given)


def test_labels_in_another_order_stay_with_their_classes(source):
    """Whatever order they are given in, a text has the same probabilities by name."""
    weights, names = source("classification"), served_models.LABELS
    given = (names[2], names[0], names[1])
    features = served_models.features_of([2, 5, 3], [0, 0, 0])

    def by_name(labels) -> dict:
        task = make(weights, labels=labels)
        found = task.answer_ids(features)["probabilities"][0].numpy()
        return dict(zip(task.options.labels, found, strict=True))

    first, second = by_name(None), by_name(given)
    assert list(second) == list(given)
    assert {name: first[name] for name in names} == pytest.approx(second, abs=1e-6)


@pytest.mark.parametrize(
    ("task", "sizes"),
    [("token_labels", {"num_classes": 3}), ("multiple_choice", {"num_choices": 3})],
)
def test_a_keras_file_says_what_it_is(tmp_path, task, sizes):
    """Its weights alone look like those of a classifier."""
    make_model(task, CONFIG, **sizes).save(tmp_path / "model.keras")
    weights = open_weights(str(tmp_path / "model.keras"))
    assert head_of(weights, ServingOptions()).name == task
