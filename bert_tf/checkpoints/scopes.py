"""The prefix of a BERT's names in a file of weights: one rule for every format.

    bert/embeddings/word_embeddings              the original
    embeddings.word_embeddings.weight            the encoder alone, of Hugging Face
    module/bert/embeddings/word_embeddings       a module of TF-Hub
    module.bert.embeddings.word_embeddings...    PyTorch's DataParallel
    model.bert.embeddings.word_embeddings...     Lightning

All names of the encoder have the same prefix. A wrapper, `module` or `model`, may also stand before
the names of heads.
"""

import re
from collections.abc import Iterable, Mapping

from bert_tf.errors import InputError

_WRAPPERS = r"module(?:_\d+)?|model"


def unwrapped(names: Iterable[str], path: str, *, separator: str) -> dict[str, str]:
    """The names of a file's tensors without their wrappers, by the names in the file.

    Args:
      names: the names of all tensors of the file.
      path: the path of the file, for messages.
      separator: the separator of the parts of a name, "/" or ".".

    Returns:
      New names in the order of the old ones. Those of the encoder begin with `bert` and the
      separator; names of heads begin with no wrapper; other names are unchanged.

    Raises:
      InputError: names of an encoder have several prefixes, as in a file with two encoders, or one
        that is not known; or two names differ only in their prefix.
    """
    names = list(names)
    known = _known_prefix(separator)
    ends, wrapper = _ends_by_prefix(names, known, separator)
    _refuse_several(ends, path)
    _refuse_unknown(ends, known, path, separator)
    new_names: dict[str, str] = {}
    old_names: dict[str, str] = {}
    for name in names:
        new_name = name.removeprefix(wrapper)
        if match := known.match(name):
            new_name = f"bert{separator}{name[match.end() :]}"
        if new_name in old_names:
            raise refused_pair(path, old_names[new_name], name)
        old_names[new_name] = name
        new_names[name] = new_name
    return new_names


def _known_prefix(separator: str) -> re.Pattern:
    """A pattern of the prefix of an encoder's name; its group 1 is the wrappers before `bert`."""
    separated = re.escape(separator)
    parts = (
        rf"embeddings{separated}(?:\w+_embeddings|LayerNorm|position_ids)",
        rf"encoder{separated}layer[_.]\d+{separated}",
        rf"pooler{separated}dense",
    )
    wrappers = rf"((?:(?:{_WRAPPERS}){separated})*)"
    return re.compile(rf"{wrappers}(?:bert{separated})?(?={'|'.join(parts)})")


def _ends_by_prefix(
    names: Iterable[str], known: re.Pattern, separator: str
) -> tuple[dict[str, list[str]], str]:
    """The ends of the encoder's names by their prefixes; and the wrappers in a known prefix.

    A word table shows an encoder behind any prefix.
    """
    separated = re.escape(separator)
    table = re.compile(
        rf"((?:.+{separated})?)embeddings{separated}word_embeddings(?:{separated}weight)?"
    )
    ends: dict[str, list[str]] = {}
    wrapper = ""
    for name in names:
        if match := known.match(name):
            ends.setdefault(match[0], []).append(name[match.end() :])
            wrapper = match[1]
        elif match := table.fullmatch(name):
            ends.setdefault(match[1], []).append(name[match.end(1) :])
    return ends, wrapper


def _refuse_several(ends: Mapping[str, list[str]], path: str) -> None:
    """Raises `InputError` if the encoder's names have several prefixes."""
    if len(ends) < 2:
        return
    first, second, *_ = ends
    for end in ends[first]:
        if end in ends[second]:
            raise refused_pair(path, first + end, second + end)
    raise refused_pair(path, first + ends[first][0], second + ends[second][0])


def _refuse_unknown(
    ends: Mapping[str, list[str]], known: re.Pattern, path: str, separator: str
) -> None:
    """Raises `InputError` if the prefix of the encoder's names is not known."""
    bert = f"bert{separator}"
    for prefix, (end, *_) in ends.items():
        if not known.match(prefix + end):
            received = f"{path}, whose encoder's names begin with {prefix}, such as {prefix}{end}"
            expected = f"names that begin with {bert}, such as {bert}{end}"
            remedy = f"if it is a BERT, write a file whose names have {bert} in place of {prefix}"
            raise InputError(received, expected, remedy)


def refused_pair(path: str, name: str, other: str) -> InputError:
    """The error for names that are not of one encoder and its heads."""
    return InputError(
        f"{path} with both {name} and {other}",
        "one encoder, all of its names behind one prefix",
        "write a file with the weights of one model, whose encoder's names begin with bert",
    )
