"""Behind which prefix a BERT's names stand in a file of weights: one rule for every format.

    bert/embeddings/word_embeddings              the original
    embeddings.word_embeddings.weight            the encoder alone, of Hugging Face
    module/bert/embeddings/word_embeddings       a module of TF-Hub
    module.bert.embeddings.word_embeddings...    PyTorch's DataParallel
    model.bert.embeddings.word_embeddings...     Lightning

Names of the encoder show the prefix, which is the same for all of them. What wraps the encoder,
`module` or `model`, may stand before the names of heads too.
"""

import re
from collections.abc import Iterable, Mapping

from bert_tf.errors import InputError

_WRAPPERS = r"module(?:_\d+)?|model"


def unwrapped(names: Iterable[str], path: str, *, separator: str) -> dict[str, str]:
    """The names of a file, each with the name that it has without what wraps the model.

    Args:
      names: of all tensors of the file.
      path: of the file, for messages.
      separator: of the parts of a name, "/" or ".".

    Returns:
      The names in their order: those of the encoder begin with `bert` and the separator, those of
      heads with nothing before them; what belongs to neither is as it was.

    Raises:
      InputError: names of an encoder stand behind several prefixes, as where a file has two
        encoders, or behind one that is not known; or two names differ in their prefix alone.
    """
    names = list(names)
    separated = re.escape(separator)
    parts = (
        rf"embeddings{separated}(?:\w+_embeddings|LayerNorm|position_ids)",
        rf"encoder{separated}layer[_.]\d+{separated}",
        rf"pooler{separated}dense",
    )
    known = re.compile(
        rf"((?:(?:{_WRAPPERS}){separated})*)(?:bert{separated})?(?={'|'.join(parts)})"
    )
    table = re.compile(
        rf"((?:.+{separated})?)embeddings{separated}word_embeddings(?:{separated}weight)?"
    )
    places: dict[str, list[str]] = {}  # behind each prefix
    wrapper = ""
    for name in names:
        if of_encoder := known.match(name):
            places.setdefault(of_encoder[0], []).append(name[of_encoder.end() :])
            wrapper = of_encoder[1]
        elif of_table := table.fullmatch(name):
            places.setdefault(of_table[1], []).append(name[of_table.end(1) :])
    _refuse_several(places, path)
    _refuse_unknown(places, known, path, separator)

    def without(name: str) -> str:
        if of_encoder := known.match(name):
            return f"bert{separator}{name[of_encoder.end() :]}"
        return name.removeprefix(wrapper)

    found: dict[str, str] = {}
    first: dict[str, str] = {}
    for name in names:
        found[name] = without(name)
        if (other := first.setdefault(found[name], name)) != name:
            raise refused_pair(path, other, name)
    return found


def _refuse_several(places: Mapping[str, list[str]], path: str) -> None:
    """Raises `InputError` if places of the encoder stand behind several prefixes."""
    if len(places) > 1:
        first, second, *_ = places
        same = next((place for place in places[first] if place in places[second]), None)
        place, other = (same, same) if same else (places[first][0], places[second][0])
        raise refused_pair(path, first + place, second + other)


def _refuse_unknown(
    places: Mapping[str, list[str]], known: re.Pattern, path: str, separator: str
) -> None:
    """Raises `InputError` if the prefix is not known."""
    of_bert = f"bert{separator}"
    for prefix, (place, *_) in places.items():
        if not known.match(prefix + place):
            received = f"{path}, whose encoder's names begin with {prefix}, such as {prefix}{place}"
            expected = f"names that begin with {of_bert}, such as {of_bert}{place}"
            remedy = (
                f"if it is a BERT, write a file whose names have {of_bert} in place of {prefix}"
            )
            raise InputError(received, expected, remedy)


def refused_pair(path: str, name: str, other: str) -> InputError:
    """The error for names that are not of one encoder and its heads."""
    return InputError(
        f"{path} with both {name} and {other}",
        "one encoder, all of its names behind one prefix",
        "write a file with the weights of one model, whose encoder's names begin with bert",
    )
