"""The REST interface: what TensorFlow Serving's documents say of each request, over HTTP."""

import base64
import concurrent.futures
import json
import urllib.parse

import numpy as np
import pytest
from serving import serving

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


IDS = {"input_ids": [2, 7, 3], "input_mask": [1, 1, 1], "segment_ids": [0, 0, 0]}
OF_IDS = {"signature_name": "ids"}
AT_1 = "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
# What TensorFlow Serving says to these (json_tensor.cc, with its tests; http_rest_api_util.cc).
WRONG = [
    (b"", "JSON Parse error: The document is empty"),
    (b"{", "JSON Parse error: "),
    (b"[" * 100_000, "JSON Parse error: "),
    (b'{"instances": ["a"], "instances": ["b"]}', "'instances' is given twice"),
    (b'{"instances": ' + b"[" * 800 + b"]" * 800 + b"}", "text has 800 dimensions, expected 1"),
    ([1], "JSON Value: [1] Is not object"),
    ({"signature_name": 5, "instances": ["a"]}, "'signature_name' key must be a string value."),
    ({}, "Missing 'inputs' or 'instances' key"),
    ({"instances": ["a"], "inputs": ["a"]}, "Not formatted correctly expecting only one of "
     "'inputs' or 'instances' keys to exist "),
    ({"instances": "a"}, "Excepting 'instances' to be an list/array"),
    ({"instances": []}, "No values in 'instances' array"),
    ({"instances": ["a", 7]}, AT_1 + "JSON Value: 7 Type: Number is not of expected type: string"),
    ({"instances": ["a", None]}, "JSON Value: null Type: Null is not of expected type: string"),
    ({"instances": ["a", True]}, "Type: True is not of expected type: string"),
    ({"instances": ["a", ["a"]]}, AT_1 + "Expecting shape [] but got: [1]"),
    ({"instances": ["a", ["a", "b"]]}, AT_1 + "Expecting tensor size: 1 but got: 2"),
    ({"instances": [["a"]]}, "text has 2 dimensions, expected 1"),
    ({"instances": ["a", {"text": "a"}]},
     "Expecting value/list but got object at item 1 of input list"),
    ({"instances": [{"text": "a"}, "a"]}, "Expecting object but got list at item 1 of input list"),
    ({"instances": [{"b64": "%"}]}, "Unable to base64 decode"),
    ({"inputs": {"text": [{"b64": 7}]}},
     'JSON Value: {"b64": 7} not formatted correctly for base64 data'),
    ({"instances": [{"txt": "a"}]}, "Failed to process element: 0 key: txt of 'instances' "
     "list. Error: INVALID_ARGUMENT: JSON object: does not have named input: txt"),
    ({"instances": [IDS, {"input_ids": [2, 7, 3]}], **OF_IDS}, "Failed to process element: 1 of "
     "'instances' list. JSON object: {\"input_ids\": [2, 7, 3]} keys must be equal to: "
     "input_ids,input_mask,segment_ids"),
    ({"inputs": {"txt": ["a"]}}, "Missing named input: text in 'inputs' object."),
    ({"inputs": [1], **OF_IDS}, "inputs is a plain value/list, but expecting an object as "
     "multiple input tensors required as per tensorinfo_map"),
    ({"instances": ["a"], **OF_IDS}, "instances is a plain list, but expecting list of objects "
     "as multiple input tensors required as per tensorinfo_map"),
    ({"instances": ["a"], "signature_name": "no"},
     'Serving signature name: "no" not found in signature def'),
    ({"inputs": {name: [[1, 1]] * (1 + (name == "input_ids")) for name in IDS}, **OF_IDS},
     "different batch sizes"),
    ({"inputs": IDS | {"input_ids": [[1, 2], [3]]}, **OF_IDS},
     "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
    ({"inputs": IDS | {"input_ids": [[1, 2], 3]}, **OF_IDS},
     "JSON Value: 3 found at incorrect level: 2 in the JSON DOM. Expected at level: 2"),
    ({"inputs": json.loads("[" * 70 + '"a"' + "]" * 70)}, "text has 70 dimensions, expected 1"),
    ({"inputs": IDS | {"input_ids": [1, [3]]}, **OF_IDS},
     "Encountered list at unexpected level: 1 expected < 1"),
    ({"inputs": IDS | {"input_ids": [[0] * 10**5] + [[]] * 10**5}, **OF_IDS}, "size: 0 at level"),
    ({"instances": [IDS | {"input_ids": [2, 99_999, 3]}], **OF_IDS},
     "assertion failed: [input_ids must be"),
    ({"instances": [IDS | {"input_ids": [2, 1.5, 3]}], **OF_IDS},
     "JSON Value: 1.5 Type: Number is not of expected type: int32"),
    ({"instances": [IDS | {"input_ids": [2, 2**40, 3]}], **OF_IDS}, "of expected type: int32"),
    ({"instances": [IDS, IDS | {"input_ids": [2]}], **OF_IDS}, "Failed to process element: 1 key: "
     "input_ids of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 3 but got: 1"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "says"), WRONG)
def test_wrong_requests(of_texts, body, says):
    found = ask(of_texts, "/v1/models/m:predict", body)
    assert found[0] == 400
    assert [*found[1]] == ["error"]
    assert says in found[1]["error"]
    assert ".py" not in found[1]["error"]  # nothing of this machine


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/v1/models/x", 404, "Could not find any versions of model x"),
        ("GET", "/v1/models/m/versions/7", 404, "Could not find version 7 of model m"),
        ("GET", "/v1/models/x/metadata", 404, "Servable not found for request: Latest(x)"),
        ("POST", "/v1/models/x:predict", 404, "Servable not found for request: Latest(x)"),
        ("POST", "/v1/models/m/versions/7:predict", 404, "request: Specific(m, 7)"),
        ("GET", "/v1/models/m:predict", 400, "Malformed request: GET /v1/models/m:predict"),
        ("POST", "/v1/models/m", 400, "Malformed request: POST /v1/models/m"),
        ("GET", "/v1/models", 400, "Missing model name in request."),
        ("POST", "/v1/models/m:run", 400, "Malformed request: POST /v1/models/m:run"),
        (
            "POST",
            "/v1/models/m:classify",
            400,
            "Expected classification signature method_name to be"
            " tensorflow/serving/classify. Was: tensorflow/serving/predict",
        ),
        ("POST", "/V1/models/m:Regress", 400, "Expected regression signature method_name to be"),
        ("POST", "/v1/models/m/labels/stable:predict", 400, "servable version label: stable"),
        ("GET", f"/v1/models/m/versions/{10**19}", 400, "Failed to convert version: 1000"),
        ("GET", f"/v1/models/m/versions/{'9' * 9000}", 400, "Failed to convert version: 9999"),
        ("GET", "/v1/nothing", 400, "Malformed request"),
    ],
)
def test_wrong_paths(of_texts, method, path, status, says):
    body = {"instances": ["a"], "examples": [{"x": 1}]} if method == "POST" else None
    found = ask(of_texts, path, body, method)
    assert found[0] == status
    assert says in found[1]["error"]


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
