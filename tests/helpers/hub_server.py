"""A server on this machine that answers as Hugging Face's hub does, for their client."""

import contextlib
import functools
import http.server
import json
import pathlib
import threading
from collections.abc import Iterator, Sequence

MAIN = "a" * 40  # a commit
OLDER = "b" * 40  # another commit
# A part of the path: the code of the error. "" is in every path.
ERRORS = {"gone": "RepoNotFound", "gated": "GatedRepo", "": "RevisionNotFound"}


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves a folder with OWNER/NAME/resolve/COMMIT/FILE, and the answers of the API as JSON."""

    def translate_path(self, path):
        return super().translate_path(path) + ".json" * path.startswith("/api/")

    def end_headers(self):
        error = next(ERRORS[part] for part in ERRORS if part in self.path)
        self.send_header("X-Error-Code", error)
        self.send_header("X-Repo-Commit", MAIN)
        self.send_header("ETag", self.path.replace("/", "-"))
        super().end_headers()


def describe_repository(root: pathlib.Path, name: str, files: Sequence[pathlib.Path]) -> None:
    """Writes the answers of the API about the repository o/NAME.

    Args:
      root: the folder that `serving` serves.
      name: the name of the repository.
      files: the files of its commit MAIN.
    """
    tree = []
    for file in files:
        size = file.stat().st_size
        tree.append({"type": "file", "path": file.name, "oid": "c", "size": size})
    answers = {
        "revision/older": {"id": name, "sha": OLDER},
        "": {"id": name, "sha": MAIN},
        f"tree/{MAIN}": tree,
        "revision/main": {"id": name, "sha": MAIN},
    }
    for path, answer in answers.items():
        file = root / f"api/models/o/{name}/{path}".rstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".json").write_text(json.dumps(answer))


@contextlib.contextmanager
def serving(root: pathlib.Path) -> Iterator[str]:
    """Serves a folder; yields the URL."""
    handler = functools.partial(Server, directory=root)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
