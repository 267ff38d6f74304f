"""The REST interface: what TensorFlow Serving's documents say of each request, over HTTP."""

import base64
import concurrent.futures
import json
import pathlib
import urllib.parse

import numpy as np
import pytest
from serving import serving
from tf_serving_requests import REQUESTS, page_of

NAME = "m/ö:1"
KINDS = ("classification", "pairs", "regression", "multiple_choice", "token_labels")


@pytest.fixture(scope="module")
def models():
    """The helper, which starts TensorFlow, after devices are configured."""
    import served_models

    return served_models


@pytest.fixture(scope="module")
def loaded(models, tmp_path_factory) -> dict:
    """Models by kind."""
    folder = tmp_path_factory.mktemp("served")
    return {
        kind: models.open_kind(models.write_folder(kind, folder / kind), kind) for kind in KINDS
    }


def ask(server, path: str, body=None, method: str = "", **headers) -> tuple[int, dict]:
    answer = server.ask(path, body, method, **headers)
    return answer.status, answer.json


@pytest.fixture(scope="module")
def of_texts(loaded):
    with serving(loaded["classification"]) as server:
        yield server


TEXTS = ["who founded it", "Ruprecht (1386)", "café 中", ""]


def test_rows_and_columns(of_texts, loaded):
    wanted = loaded["classification"].run({"text": np.array([t.encode() for t in TEXTS], object)})
    rows = [{"text": text} for text in TEXTS]
    coded = [{"b64": base64.b64encode(text.encode()).decode()} for text in TEXTS]
    by_row = [{"instances": x} for x in (TEXTS, rows, coded, [{"text": x} for x in coded])]
    for request in by_row:
        status, found = ask(of_texts, "/v1/models/m:predict", request)
        assert (status, [*found]) == (200, ["predictions"])
        assert [one["label"].encode() for one in found["predictions"]] == wanted["label"].tolist()
        shares = [one["probabilities"] for one in found["predictions"]]
        np.testing.assert_allclose(shares, wanted["probabilities"], atol=1e-6)
    for request in (
        {"inputs": TEXTS},
        {"inputs": {"text": TEXTS}, "signature_name": ""},
        {"inputs": {"text": TEXTS, "note": 1}},
    ):
        status, found = ask(of_texts, "/V1/models/m/versions/1:PREDICT", request)
        assert status == 200
        np.testing.assert_allclose(
            found["outputs"]["probability"], wanted["probability"], atol=1e-6
        )
    # curl sends another type of content; other keys of a request say nothing here.
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    body = json.dumps({"instances": TEXTS, "note": 1}).encode()
    assert ask(of_texts, "/v1/models/m:predict", body, **form)[0] == 200


def test_a_single_output_has_no_name(loaded):
    with serving(loaded["regression"]) as server:
        rows = [{"text_a": text, "text_b": "it"} for text in TEXTS]
        found = ask(server, "/v1/models/m:predict", {"instances": rows})[1]["predictions"]
        given = {"text_a": TEXTS, "text_b": ["it"] * len(TEXTS)}
        columns = ask(server, "/v1/models/m:predict", {"inputs": given})[1]["outputs"]
    assert found == pytest.approx(columns)
    assert all(isinstance(score, float) for score in found)


def test_status_and_metadata(of_texts):
    ok = {"error_code": "OK", "error_message": ""}
    status = {"version": "1", "state": "AVAILABLE", "status": ok}
    for path in ("/v1/models/m", "/v1/models/m/versions/1"):
        assert ask(of_texts, path) == (200, {"model_version_status": [status]})
    _, found = ask(of_texts, "/v1/models/m/metadata")
    assert found["model_spec"] == {"name": "m", "signature_name": "", "version": "1"}
    signatures = found["metadata"]["signature_def"]["signature_def"]
    assert {"serving_default", "ids", "examples"} <= signatures.keys()
    text = signatures["serving_default"]["inputs"]["text"]
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    assert (text["dtype"], text["tensor_shape"]) == ("DT_STRING", shape)
    assert signatures["serving_default"]["outputs"]["probability"]["dtype"] == "DT_FLOAT"
    assert signatures["ids"]["inputs"]["input_ids"]["dtype"] == "DT_INT32"


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.what)
def test_requests_of_tensorflow_serving(of_texts, request_):
    """Answered as there, or as the table says."""
    status, says = request_.ours or request_.theirs
    answer = request_.send(of_texts)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    if request_.method == "HEAD":
        assert answer.body == b""
    elif status == 200:
        assert "error" not in answer.json
    else:
        assert [*answer.json] == ["error"]
        assert says in answer.error
        assert ".py" not in answer.error  # nothing of this machine


def test_the_page_has_these_answers(of_texts):
    page = pathlib.Path(__file__).parents[2] / "docs/tf_serving_requests.md"
    assert page.read_text(encoding="utf-8") == page_of(of_texts)
    assert len(REQUESTS) >= 60


@pytest.mark.parametrize("kind", ["pairs", "multiple_choice", "token_labels"])
def test_other_models(models, loaded, kind):
    row = models.ROWS[kind]
    arrays = {name: np.array([text], object) for name, text in row.items()}
    if kind == "multiple_choice":
        arrays["endings"] = np.array([[*map(str.encode, row["endings"])]], object)
    arrays = {n: x if n == "endings" else np.array([row[n].encode()], object)
              for n, x in arrays.items()}  # fmt: skip
    wanted = loaded[kind].run(arrays)
    with serving(loaded[kind]) as server:
        status, found = ask(server, "/v1/models/m:predict", {"instances": [row]})
    assert status == 200
    (answer,) = found["predictions"]
    for name, value in wanted.items():
        if value.dtype == np.float32:
            np.testing.assert_allclose(answer[name], value[0], atol=1e-5)


def test_answers_with_counts_are_not_joined(loaded):
    """Their shape would depend on who else asks."""
    texts = ["Ruprecht", "it was founded by him in 1386"]
    path = f"/v1/models/{urllib.parse.quote(NAME, safe='')}:predict"
    with serving(loaded["token_labels"], name=NAME) as server:

        def answer(text: str) -> dict:
            return server.ask(path, {"instances": [text]}).json

        alone = [answer(text) for text in texts]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert [*pool.map(answer, texts * 8)] == alone * 8
