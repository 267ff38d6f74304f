"""Requests to TensorFlow Serving's REST interface, its answers by its sources, and ours.

python tests/helpers/tf_serving_requests.py > docs/tf_serving_requests.md
"""

import base64
import gzip
import json
import pathlib
import tempfile
from typing import Any, NamedTuple

from serving import PREDICT, Answer, Served, serving

OK = 200, ""
Said = tuple[int, str]  # a status, and a part of the message
MODEL = "/v1/models/m"
MOST_SHOWN = 76  # characters of a cell
ABOUT = """# Requests that TensorFlow Serving answers

What TensorFlow Serving 2 answers to these requests, according to its sources \
(`http_rest_api_handler.cc`, `json_tensor.cc` and its test, `http_rest_api_util.cc`, \
`evhttp_request.cc`) and public reports, and what `bert-tf serve` answers: the status, and the \
characteristic part of an error message. The last column is empty where both are the same. The \
model takes single texts and has the name m; ids stands for its signature of that name, which has \
three inputs. `python tests/helpers/tf_serving_requests.py` writes this page with the answers of a \
running server.

| request | TensorFlow Serving | `bert-tf serve` |
|---|---|---|
"""


class Request(NamedTuple):
    """A request and its answers.

    Attributes:
      what: the text that the page shows for it.
      theirs: TensorFlow Serving's answer: the status, and a part of the message.
      body: JSON or bytes.
      path: the path of the URL.
      method: the HTTP method; "": GET without a body, POST with one.
      headers: further headers.
      ours: our answer, where it differs.
    """

    what: str
    theirs: Said
    body: Any = None
    path: str = PREDICT
    method: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012
    ours: Said | None = None

    def send(self, server: Served) -> Answer:
        """The answer of a server."""
        return server.ask(self.path, self.body, self.method, **self.headers)


def of(body: Any, status_or_says: int | str = 200, what: str = "", **more: Any) -> Request:
    """A POST of JSON or bytes to :predict.

    Args:
      body: JSON or bytes.
      status_or_says: 200, or a part of the message of an answer with the status 400.
      what: as in `Request`; by default the body.
      **more: further fields of `Request`.
    """
    theirs = OK if status_or_says == 200 else (400, str(status_or_says))
    shown = what or (body.decode() if isinstance(body, bytes) else json.dumps(body))
    return Request(shown, theirs, body, **more)


def to(method: str, path: str, status: int, says: str = "", **more: Any) -> Request:
    """A request to any path; arguments as in `Request`."""
    body = {"instances": ["a"], "examples": [{"x": 1}]} if method == "POST" else None
    return Request(f"{method} {path:.60}", (status, says), body, path, method, **more)


IDS = {"input_ids": [2, 7, 3], "input_mask": [1, 1, 1], "segment_ids": [0, 0, 0]}
OF_IDS = {"signature_name": "ids"}
AT_1 = "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
SEVERAL = "plain value/list, but expecting an object as multiple input tensors required"
TEXTS = json.dumps({"instances": ["a", "b"]}).encode()
CODED = base64.b64encode(b"some text that is coded").decode()
PACKED = gzip.compress(TEXTS, mtime=0)
GZIP = {"Content_Encoding": "gzip"}

ANSWERED = [
    of({"instances": ["a", "b"]}),
    of({"instances": [{"text": "a"}]}),
    of({"instances": [{"b64": "YQ=="}, {"b64": "YQ"}]}),
    of({"instances": [{"text": {"b64": "YQ=="}}]}),
    of({"inputs": ["a", "b"]}),
    of({"inputs": {"text": ["a"]}}),
    of({"inputs": {"text": ["a"], "note": 1}}),
    of({"instances": ["a"], "note": 1}),
    of({"instances": ["a"], "signature_name": ""}),
    of({"instances": [IDS], **OF_IDS}, what="instances of ids"),
    of({"inputs": {name: [row] for name, row in IDS.items()}, **OF_IDS}, what="inputs of ids"),
    of({"instances": [{"b64": f"{CODED[:12]}\n {CODED[12:]}"}]}, what="b64 with white space"),
    of(PACKED, what="gzip", headers=GZIP),
    of(TEXTS, what="without a Content-Type", headers={"Content_Type": None}),
    of(TEXTS, what="as a form, as curl -d sends it",
       headers={"Content_Type": "application/x-www-form-urlencoded"}),
    to("POST", "/V1/models/m/versions/1:PREDICT", 200),
    to("GET", MODEL, 200),
    to("GET", f"{MODEL}/versions/1", 200),
    to("GET", f"{MODEL}/metadata", 200),
]  # fmt: skip
REFUSED = [
    of(b"", "JSON Parse error: The document is empty", "nothing"),
    of(b"{", "JSON Parse error: "),
    of(b"[" * 100_000, "JSON Parse error: ", "100,000 brackets"),
    of(b'{"instances": ["a"], "instances": ["b"]}', "", ours=(400, "'instances' is given twice"))
    ._replace(theirs=OK),
    of(b"{}", "JSON Parse error: ", "not gzip, but called so", headers=GZIP,
       ours=(400, "a body that is not gzip")),
    of({"instances": [{"b64": "YQ-_"}]}, "Unable to base64 decode"),
    of({"instances": [{"b64": "%"}]}, "Unable to base64 decode"),
    of({"inputs": {"text": [{"b64": 7}]}},
       'JSON Value: {"b64": 7} not formatted correctly for base64 data'),
    of([1], "JSON Value: [1] Is not object"),
    of({"signature_name": 5, "instances": ["a"]}, "'signature_name' key must be a string value."),
    of({}, "Missing 'inputs' or 'instances' key"),
    of({"instances": ["a"], "inputs": ["a"]}, "Not formatted correctly expecting only one of "
       "'inputs' or 'instances' keys to exist "),
    of({"instances": "a"}, "Excepting 'instances' to be an list/array"),
    of({"instances": []}, "No values in 'instances' array"),
    of({"instances": ["a", 7]},
       AT_1 + "JSON Value: 7 Type: Number is not of expected type: string"),
    of({"instances": ["a", None]},
       "JSON Value: null Type: Null is not of expected type: string"),
    of({"instances": ["a", True]}, "Type: True is not of expected type: string"),
    of({"instances": ["a", ["a"]]}, AT_1 + "Expecting shape [] but got: [1]"),
    of({"instances": ["a", ["a", "b"]]}, AT_1 + "Expecting tensor size: 1 but got: 2"),
    of({"instances": [["a"]]}, "", ours=(400, "text has 2 dimensions, expected 1")),
    of({"instances": ["a", {"text": "a"}]},
       "Expecting value/list but got object at item 1 of input list"),
    of({"instances": [{"text": "a"}, "a"]},
       "Expecting object but got list at item 1 of input list"),
    of({"instances": [{"txt": "a"}]}, "Failed to process element: 0 key: txt of 'instances' "
       "list. Error: INVALID_ARGUMENT: JSON object: does not have named input: txt"),
    of({"instances": [IDS, {"input_ids": [2, 7, 3]}], **OF_IDS}, "Failed to process element: 1 "
       "of 'instances' list. JSON object: {\"input_ids\": [2, 7, 3]} keys must be equal to: "
       "input_ids,input_mask,segment_ids", "instances of ids, the second without a mask"),
    of({"inputs": {"txt": ["a"]}}, "Missing named input: text in 'inputs' object."),
    of({"inputs": [1], **OF_IDS}, f"inputs is a {SEVERAL} as per tensorinfo_map"),
    of({"instances": ["a"], **OF_IDS}, "instances is a plain list, but expecting list of objects "
       "as multiple input tensors required as per tensorinfo_map"),
    of({"instances": ["a"], "signature_name": "no"},
       'Serving signature name: "no" not found in signature def'),
    of({"inputs": {name: [[1, 1]] * (1 + (name == "input_ids")) for name in IDS}, **OF_IDS}, "",
       "inputs of ids of different batch sizes", ours=(400, "different batch sizes")),
    of({"inputs": IDS | {"input_ids": [[1, 2], [3]]}, **OF_IDS},
       "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
       "inputs of ids [[1, 2], [3]]"),
    of({"inputs": IDS | {"input_ids": [[1, 2], 3]}, **OF_IDS},
       "JSON Value: 3 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
       "inputs of ids [[1, 2], 3]"),
    of({"inputs": IDS | {"input_ids": [1, [3]]}, **OF_IDS},
       "Encountered list at unexpected level: 1 expected < 1", "inputs of ids [1, [3]]"),
    of({"inputs": IDS | {"input_ids": [[0] * 10**5] + [[]] * 10**5}, **OF_IDS},
       "size: 0 at level", "inputs of ids, a long row and many empty ones"),
    of({"instances": [IDS | {"input_ids": [2, 99_999, 3]}], **OF_IDS},
       "assertion failed: [input_ids must be", "an id beyond the vocabulary"),
    of({"instances": [IDS | {"input_ids": [2, 1.5, 3]}], **OF_IDS},
       "JSON Value: 1.5 Type: Number is not of expected type: int32", "an id of 1.5"),
    of({"instances": [IDS | {"input_ids": [2, 2**40, 3]}], **OF_IDS}, "of expected type: int32",
       "an id of 2**40"),
    of({"instances": [IDS, IDS | {"input_ids": [2]}], **OF_IDS}, "Failed to process element: 1 "
       "key: input_ids of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 3 but "
       "got: 1", "instances of ids of different lengths"),
    of({"inputs": [{"b64": "eA=="}], "signature_name": "examples"},
       "Could not parse example input", "examples that are no tf.Example"),
    of({"inputs": json.loads("[" * 70 + '"a"' + "]" * 70)}, "", "70 brackets around a text",
       ours=(400, "text has 70 dimensions, expected 1")),
]  # fmt: skip
PATHS = [
    to("GET", "/v1/models/x", 404, "Could not find any versions of model x"),
    to("GET", "/v1/models/m/versions/7", 404, "Could not find version 7 of model m"),
    to("GET", "/v1/models/x/metadata", 404, "Servable not found for request: Latest(x)"),
    to("POST", "/v1/models/x:predict", 404, "Servable not found for request: Latest(x)"),
    to("POST", "/v1/models/m/versions/7:predict", 404, "request: Specific(m, 7)"),
    to("GET", "/v1/models/m:predict", 400, "Malformed request: GET /v1/models/m:predict"),
    to("POST", "/v1/models/m", 400, "Malformed request: POST /v1/models/m"),
    to("GET", "/v1/models", 400, "Missing model name in request."),
    to("POST", "/v1/models/m:run", 400, "Malformed request: POST /v1/models/m:run"),
    to("POST", "/v1/models/m:classify", 400, "Expected classification signature method_name to be"
       " tensorflow/serving/classify. Was: tensorflow/serving/predict"),
    to("POST", "/V1/models/m:Regress", 400, "Expected regression signature method_name to be"),
    to("POST", "/v1/models/m/labels/stable:predict", 400, "servable version label: stable"),
    to("GET", f"/v1/models/m/versions/{10**19}", 400, "Failed to convert version: 1000"),
    to("GET", f"/v1/models/m/versions/{'9' * 9000}", 400, "Failed to convert version: 9999"),
    to("GET", "/v1/nothing", 400, "Malformed request"),
    to("GET", f"{MODEL}?a=b", 400, "Malformed request", ours=OK),
    to("HEAD", MODEL, 400, "Malformed request", ours=OK),
    to("OPTIONS", MODEL, 400, "Malformed request", ours=(405, "Method Not Allowed")),
    to("DELETE", MODEL, 400, "Malformed request", ours=(405, "Method Not Allowed")),
]  # fmt: skip
REQUESTS = [*ANSWERED, *REFUSED, *PATHS]


def page_of(server: Served) -> str:
    """The text of the page, with the answers of a server."""
    rows = []
    for request in REQUESTS:
        row = [_code(request.what), cell(*request.theirs), ""]
        if request.ours is not None:
            answer = request.send(server)
            message = answer.error if answer.status != 200 else ""
            _, expected = request.ours
            row[2] = cell(answer.status, expected if expected in message else message)
        rows.append(row)
    return ABOUT + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def cell(status: int, says: str) -> str:
    """A status and a message."""
    return f"{status} {_code(says)}".strip()


def _code(text: str) -> str:
    """The beginning of a text as code."""
    text = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
    escaped = text.replace("|", "\\|").strip()
    return f"`{escaped}`" if escaped else ""


def main() -> None:
    """Prints the page."""
    import served_models

    with tempfile.TemporaryDirectory() as folder:
        weights = served_models.write_folder("classification", pathlib.Path(folder) / "model")
        with serving(served_models.open_kind(weights, "classification")) as server:
            print(page_of(server), end="")


if __name__ == "__main__":
    main()
