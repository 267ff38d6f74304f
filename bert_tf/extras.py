"""Packages of the extras, imported where they are needed and not before."""

import importlib
from typing import Any

from bert_tf.errors import InputError


def import_extra(
    module: str, *, package: str, extra: str, needed_by: str, otherwise: str = ""
) -> Any:
    """The module of a package that need not be installed.

    Args:
      module: its name, "sklearn.metrics" for instance.
      package: what pip calls the package.
      extra: of bert-tf, the one that brings the package.
      needed_by: what the user asked for, with which the message begins.
      otherwise: what the user can do in place of installing it.

    Raises:
      InputError: it is not there, or cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            received=f"{needed_by}, but {package} is not installed ({error})",
            expected=f"the extra `{extra}`",
            remedy=f"pip install 'bert-tf[{extra}]'" + (otherwise and f", or {otherwise}"),
        ) from error
