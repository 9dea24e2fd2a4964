"""Where a service may be bound, and whom it may ask. Pure."""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from belog.schemas.errors import BelogError, InvalidConfiguration
from belog.schemas.filters import EventFilter, Matcher
from belog.service.configuration import FederationSection, ServerSection

__all__ = ["check_binding", "check_upstreams", "is_own_host", "is_this_machine", "own_hosts"]


def is_this_machine(host: str) -> bool:
    """Whether only programs on this machine reach an address.

    >>> is_this_machine("127.0.0.1"), is_this_machine("localhost"), is_this_machine("0.0.0.0")
    (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        # A name may be resolved to anything.
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def check_binding(server: ServerSection, *, is_open: bool) -> str | None:
    """Refuse to let everyone in from other machines, unless that was asked for.

    Args:
        server: Where it is to be bound.
        is_open: Whether everyone is let in.

    Returns:
        What the operator is told; None where there is nothing to tell.

    Raises:
        InvalidConfiguration: Without tokens, on an address that other machines reach, and
            `server.allow_open` is not set.
    """
    if not is_open:
        return None
    if is_this_machine(server.host):
        return (
            f"no tokens are configured: everyone on this machine may do everything, "
            f"and nobody else is let in ({server.host})"
        )
    if server.allow_open:
        return f"no tokens are configured: everyone who reaches {server.host} may do everything"
    msg = f"without tokens the service is not bound to {server.host}: everyone could do everything"
    raise InvalidConfiguration(
        msg, hint="configure access.tokens_file (belog token create), or set server.allow_open"
    )


def own_hosts(server: ServerSection) -> frozenset[str] | None:
    """Return the names that a service without tokens answers to, None for any.

    A page of another site may give its own name this machine's address (DNS rebinding), and a
    browser then lets it read the answers. Where other machines are let in, anyone may read anyway,
    so names count there only if some are configured.
    """
    if not server.hosts and not is_this_machine(server.host):
        return None
    return frozenset(name.lower().rstrip(".") for name in ("localhost", server.host, *server.hosts))


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Whether the `Host` of a request is one that a service answers to.

    Args:
        host: As it was sent, with or without a port.
        names: From `own_hosts`. Addresses need not be there: no other site has one for its name.

    >>> own = {"localhost", "belog.example"}
    >>> [is_own_host(h, own) for h in ("localhost:8000", "Belog.Example", "127.0.0.1:80", "[::1]")]
    [True, True, True, True]
    >>> is_own_host("evil.example:8000", own), is_own_host("", own)
    (False, False)
    """
    bare = host.strip().lower()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    else:
        bare = bare.partition(":")[0].rstrip(".")
    if bare in names or bare.endswith(".localhost"):
        return True
    try:
        ip_address(bare)
    except ValueError:
        return False
    return True


def check_upstreams(section: FederationSection) -> None:
    """Refuse instances that cannot be asked; opens nothing.

    Raises:
        InvalidConfiguration: A URL or a pattern is malformed; names the upstream.
    """
    for name, one in section.upstreams.items():
        parts = urlsplit(one.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            msg = f"federation.upstreams.{name}.url is no URL of a service"
            raise InvalidConfiguration(msg, hint="such as http://host:8000")
        try:
            Matcher(EventFilter(partition_patterns=one.patterns))
        except BelogError as error:
            msg = f"federation.upstreams.{name}.patterns: {error.message}"
            raise InvalidConfiguration(msg) from error
