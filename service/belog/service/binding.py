"""Where a service may be bound, and whom it may ask. Pure."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from belog.schemas.errors import BelogError, InvalidConfiguration
from belog.schemas.filters import EventFilter, Matcher
from belog.service.configuration import FederationSection, ServerSection

__all__ = ["check_binding", "check_upstreams", "is_this_machine"]


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
