"""Whose requests are answered: by the names in the headers Host and Origin.

A page of another site in a browser of this machine can send requests to a server here. Its Origin
is another, and so is its Host where the site's name leads to this machine (DNS rebinding).
"""

import contextlib
import ipaddress
import re
import urllib.parse
from collections.abc import Iterable, Mapping

from starlette.exceptions import HTTPException

from bert_tf.errors import InputError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Callers:
    """Those who may ask a server.

    Attributes:
      names: hosts that a request may name; None: any.
    """

    def __init__(self, address: Address, allowed: Iterable[str] = ()):
        """Takes who may ask a server on an address.

        Args:
          address: a loopback address has names of its own; on others any name is good unless some
            are allowed.
          allowed: further names.

        Raises:
          InputError: one is no name of a host.
        """
        names = {host_named(name) for name in allowed}
        if address.is_loopback:
            names |= {"localhost", str(address)}
        self.names = names if names else None

    def check(self, headers: Mapping[str, str]) -> None:
        """Looks at a request.

        Raises:
          HTTPException: 421 for its Host, 403 for its Origin.
        """
        if self.names is None:
            return
        expected = f"one of {', '.join(sorted(self.names))}"
        if host_of(f"//{headers.get('host', '')}") not in self.names:
            raise HTTPException(421, f"this server's Host is {expected}; --allow_host adds others")
        origin = headers.get("origin")
        if origin is not None and host_of(origin) not in self.names:
            raise HTTPException(403, f"only pages of {expected} may ask; --allow_host adds others")


def host_named(name: str) -> str:
    """A host by its name or address, with a port or without, as `host_of` writes it.

    >>> host_named("Models.Example:80"), host_named("::2"), host_named("[::2]:80")
    ('models.example', '::2', '::2')

    Raises:
      InputError: it is something else.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name))
    host = host_of(f"//{name}")
    if not host or not re.fullmatch(r"[\w.-]+(:\d+)?|\[[\w:.]+\](:\d+)?", name):
        expected = "names of hosts, such as models.example or 10.0.0.7"
        raise InputError(f"--allow_host={name}", expected, "correct it")
    return host


def host_of(url: str) -> str:
    """The host of an address, written as it always is; "" if there is none.

    >>> host_of("//LOCALHOST.:80"), host_of("http://[0:0::1]:9"), host_of("null")
    ('localhost', '::1', '')
    """
    try:
        host = (urllib.parse.urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return ""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host
