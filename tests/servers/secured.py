"""Kafka and Redis as they are secured in production: TLS, and who one is."""

from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from redis import Redis as Client
from redis import RedisError

from tests.servers.broker import ANSWER_S, Broker
from tests.servers.containers import CONTAINER_PORTS
from tests.servers.redis import Redis
from tests.servers.runner import Plan
from tests.servers.server import obtain, provider_of, runner_for
from tests.servers.wait import free_port

__all__ = ["PASSWORD", "USER", "SecuredBroker", "SecuredRedis"]

USER = "graph"
PASSWORD = "s3cret/&:@"  # noqa: S105 - of servers that live for one test


def _property(pem: str) -> str:
    """A PEM file as the value of a property: on one line."""
    return pem.strip().replace("\n", "\\n")


class SecuredBroker(Broker):
    """A broker that takes SASL over TLS only."""

    ca_file: str

    @classmethod
    def of(cls, *, cert: str, key: str, ca_file: Path) -> Self:
        """Make one, not started.

        Args:
            cert: Its certificate for `localhost` and `127.0.0.1`, PEM.
            key: The key of it, PEM in PKCS 8.
            ca_file: The CA of the certificate.
        """
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        made = cls.create(
            {
                # The listener's name stays that of the plain ones; what it speaks does not.
                "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.plaintext.plain.sasl.jaas.config": (
                    f'{login} username="broker" password="broker" user_broker="broker" '
                    f'user_{USER}="{PASSWORD}";'
                ),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": _property(cert),
                "ssl.keystore.key": _property(key),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": _property(ca_file.read_text(encoding="utf-8")),
            }
        )
        made.ca_file = str(ca_file)
        return made

    def is_ready(self) -> bool:
        """Ask for the cluster's metadata."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **self.client()})
        try:
            return bool(admin.list_topics(timeout=ANSWER_S).brokers)
        except KafkaException:
            return False

    def client(self) -> dict[str, str]:
        """Return the settings of a client that is let in."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": self.ca_file,
        }


class SecuredRedis(Redis):
    """A server that takes one user over TLS only."""

    ca_file: str

    @classmethod
    def of(cls, *, cert: str, key: str, ca_file: Path) -> Self:
        """Make one, not started; arguments as of `SecuredBroker.of`."""
        port, provider = free_port(), provider_of("redis")
        if provider == "local":
            obtain("redis")
        inside = port if provider == "local" else CONTAINER_PORTS["redis"]
        script = (
            'for name in CERT KEY CA; do eval "printf %s \\"\\$$name\\"" >"$DATA/$name.pem"; done\n'
            f'exec redis-server --port 0 --tls-port {inside} --bind "$BIND" --dir "$DATA" '
            '--save "" --appendonly no --tls-auth-clients no --tls-cert-file "$DATA/CERT.pem" '
            '--tls-key-file "$DATA/KEY.pem" --tls-ca-cert-file "$DATA/CA.pem" '
            f"--user {USER} on '>{PASSWORD}' '~*' '&*' +@all --user default off"
        )
        env = {"CERT": cert, "KEY": key, "CA": ca_file.read_text(encoding="utf-8")}
        plan = Plan(name="redis", port=port, script=script, env=env)
        made = cls(runner_for(plan, provider), port, f"rediss://127.0.0.1:{port}/0")
        made.ca_file = str(ca_file)
        return made

    def connect(self) -> Client:
        """Return a new client that is let in; the caller closes it."""
        return Client.from_url(
            self.uri,
            username=USER,
            password=PASSWORD,
            ssl_ca_certs=self.ca_file,
            socket_timeout=ANSWER_S,
        )

    def is_ready(self) -> bool:
        """Ask for a pong."""
        with self.connect() as redis:
            try:
                return bool(redis.ping())
            except RedisError:
                return False
