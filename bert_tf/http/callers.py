"""Refuses requests by the hosts in their headers Host and Origin.

A page of another site, in a browser on this machine, can send requests to a server here. Their
Origin is the other site; where that site's name is resolved to this machine (DNS rebinding), their
Host is the other site, too.
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
    """The callers that a server answers.

    Attributes:
      names: hosts that a request may name; None: any.
    """

    def __init__(self, address: Address, allowed: Iterable[str] = ()):
        """Collects the names of hosts.

        Args:
          address: the address of the server. On a loopback address its names are accepted; on
            others any name is, unless `allowed` has some.
          allowed: further names.

        Raises:
          InputError: one is not the name of a host.
        """
        names = {host_named(name) for name in allowed}
        if address.is_loopback:
            names |= {"localhost", str(address)}
        self.names = names if names else None

    def check(self, headers: Mapping[str, str]) -> None:
        """Checks the headers of a request.

        Raises:
          HTTPException: 421 for another Host, 403 for another Origin.
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
    """The host in a name or address, with a port or without; spelled as `host_of` does.

    >>> host_named("Models.Example:80"), host_named("::2"), host_named("[::2]:80")
    ('models.example', '::2', '::2')

    Raises:
      InputError: it is not the name or address of a host.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name))
    host = host_of(f"//{name}")
    if not host or not re.fullmatch(r"[\w.-]+(:\d+)?|\[[\w:.]+\](:\d+)?", name):
        expected = "names of hosts, such as models.example or 10.0.0.7"
        raise InputError(f"--allow_host={name}", expected, "correct it")
    return host


def host_of(url: str) -> str:
    """The host of a URL, in its normal spelling; "" if there is none.

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
