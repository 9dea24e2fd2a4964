"""All other instances that own partitions, as they are configured."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

from belog.schemas.errors import InvalidConfiguration, WrongLog
from belog.service.configuration import FederationSection
from belog.service.instance import Instance
from belog.service.tokens import read_token
from belog.service.upstream import Upstream
from belog.service.upstream_answers import UpstreamSettings

__all__ = ["Federation", "federated", "upstream_settings"]


def upstream_settings(section: FederationSection) -> list[UpstreamSettings]:
    """Return what is configured of other instances; reads the files of their tokens.

    Raises:
        InvalidConfiguration: Such a file cannot be read.
    """
    return [
        UpstreamSettings(
            name=name,
            url=one.url,
            patterns=one.patterns,
            token=read_token(one.token, one.token_file),
            ca_file=one.ca_file,
            cert_file=one.cert_file,
            key_file=one.key_file,
        )
        for name, one in section.upstreams.items()
    ]


class Federation:
    """All other instances of the configuration."""

    def __init__(self, instance: Instance, settings: Sequence[UpstreamSettings]) -> None:
        """Make them; `running` follows them."""
        self.upstreams: Mapping[str, Upstream] = {
            one.name: Upstream(instance, one) for one in settings
        }

    def owner_of(self, ref: str) -> Upstream | None:
        """Return the first one whose patterns match a partition, None where none does."""
        return next((one for one in self.upstreams.values() if one.owns(ref)), None)

    def flaws(self) -> Iterator[str]:
        """Give what makes this instance not ready: an upstream with another log.

        One that is away is none of it: what is asked of others is answered all the same.
        """
        for upstream in self.upstreams.values():
            if isinstance(upstream.error, WrongLog):
                yield f"upstream {upstream.name}: {upstream.error}"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Follow all of them for as long as it lasts."""
        tasks = [asyncio.ensure_future(one.follow()) for one in self.upstreams.values()]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for upstream in self.upstreams.values():
                await upstream.close()


@asynccontextmanager
async def federated(instance: Instance, section: FederationSection) -> AsyncGenerator[None]:
    """Let an open instance know the others that are configured, and follow them.

    Raises:
        InvalidConfiguration: The instance is a replica, or a token cannot be read.
        InvalidUri: A URL is none of a service.
    """
    if not section.upstreams:
        yield
        return
    if instance.producer is None:
        msg = "a replica has no upstreams: nothing is asked of it, and nothing written to it"
        raise InvalidConfiguration(msg, hint="take federation.upstreams out of its configuration")
    federation = Federation(instance, upstream_settings(section))
    instance.upstreams = federation
    try:
        async with federation.running():
            yield
    finally:
        instance.upstreams = None
