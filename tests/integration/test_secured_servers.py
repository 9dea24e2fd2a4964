"""A log on Kafka with SASL over TLS and tables in Redis with a user over TLS, by configuration."""

from collections.abc import Generator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.e2e.program import Done, belog, running
from tests.servers import eventually
from tests.servers.secured import PASSWORD, USER, SecuredBroker, SecuredRedis

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(name="servers")
def _servers(tmp_path: Path) -> Generator[tuple[SecuredBroker, SecuredRedis]]:
    ca = trustme.CA()
    cert = ca.issue_cert("localhost", "127.0.0.1")
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    chain = b"".join(blob.bytes() for blob in cert.cert_chain_pems).decode()
    private = load_pem_private_key(cert.private_key_pem.bytes(), None)
    # Java knows no other form.
    key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    with (
        SecuredBroker.of(cert=chain, key=key, ca_file=tmp_path / "ca.pem") as broker,
        SecuredRedis.of(cert=chain, key=key, ca_file=tmp_path / "ca.pem") as redis,
    ):
        yield broker, redis


def test_commands_reach_secured_servers_by_their_configuration(
    servers: tuple[SecuredBroker, SecuredRedis], tmp_path: Path
) -> None:
    broker, redis = servers
    settings = "\n".join(f'{name} = "{value}"' for name, value in broker.client().items())
    (tmp_path / "belog.toml").write_text(
        f"""
        [log]
        uri = "{broker.uri}/builds"
        [tables]
        uri = "{redis.uri}"
        [kafka.settings]
        {settings.replace(PASSWORD, "wrong")}
        [redis]
        username = "{USER}"
        password = "{PASSWORD}"
        ca_file = "{redis.ca_file}"
        """
    )
    password = {"BELOG__KAFKA__SETTINGS__SASL_PASSWORD": PASSWORD}

    def run(*arguments: str) -> Done:
        return belog(*arguments, cwd=tmp_path, env=password).ok()

    run("topic", "create")
    run("append", "v1.partition.observed", "sales/1")
    with running(["worker"], cwd=tmp_path, env=password):

        def caught_up() -> bool:
            done = belog("status", "--json", cwd=tmp_path, env=password)
            return done.code == 0 and done.json()[0]["lag_records"] == 0

        eventually(caught_up, "the worker caught up", timeout_s=60)
        assert "sales/1" in run("partition", "list").out
    no_user = {**password, "BELOG__REDIS__PASSWORD": "wrong"}
    refused = belog("partition", "list", cwd=tmp_path, env=no_user)
    assert refused.code != 0
    assert "Redis refuses the user" in refused.err
