"""Kafka: one KRaft node that is broker and controller."""

import base64
import socket
import struct
import uuid
from collections.abc import Mapping
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.servers.containers import CONTAINER_PORTS
from tests.servers.runner import Plan, Runner
from tests.servers.server import ROOT, Provider, Server, external, obtain, provider_of, runner_for
from tests.servers.wait import free_port

__all__ = ["QUICK_START", "Broker"]

ANSWER_S = 2.0
"""How long one look at the broker may take."""

INIT_PRODUCER_ID = struct.pack(">hhihhi", 22, 0, 7, -1, -1, 1_000)
"""Key and version of the request, our number for it, no client id; no transaction, its time-out."""

ID_GIVEN = struct.pack(">iiih", 4 + 4 + 2 + 8 + 2, 7, 0, 0)
"""How the answer starts: its length, our number, no throttling, no error."""

DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # There is one node.
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # Quick starts: 50 partitions for the offsets of a few groups are opened one by one.
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill the controller refuses the broker until its old session is over.
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    # Tests ask for compaction and wait for it; the cleaner looks every 15 s by default.
    "log.cleaner.backoff.ms": "500",
}

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a broker that is started often and serves little: half the time and two thirds of the
processor until it is ready, measured. One that is measured itself goes without."""

# $CONFIG and $CLUSTER come from the plan, $JARS too or from the image. Formatting an
# unformatted data directory is what makes the first start different from the others.
SCRIPT = """
printf '%s\\n' "$CONFIG" >"$DATA/server.properties"
kafka() { class=$1; shift; $exec java -Xmx512m $JVM "$LEVEL" -cp "$JARS" "$class" "$@"; }
LEVEL=-Dorg.slf4j.simpleLogger.defaultLogLevel=warn
exec=
[ -e "$DATA/log/meta.properties" ] ||
  kafka kafka.tools.StorageTool format --cluster-id="$CLUSTER" -c "$DATA/server.properties"
exec=exec
kafka kafka.Kafka "$DATA/server.properties"
"""


class Broker(Server):
    """A Kafka broker on 127.0.0.1."""

    def __init__(self, runner: Runner, port: int, bootstrap: str) -> None:
        """Use `create`."""
        super().__init__(runner, port)
        self.bootstrap = bootstrap
        """`host:port`, for `bootstrap.servers`."""

    @classmethod
    def create(
        cls,
        config: Mapping[str, str] | None = None,
        *,
        provider: Provider | None = None,
        jvm: str = "",
    ) -> Self:
        """Make a broker of our own, not started.

        Args:
            config: Broker settings that go over `DEFAULTS`.
            provider: None for what the environment and the machine suggest.
            jvm: More options of the Java machine, such as `QUICK_START`.

        Raises:
            RuntimeError: It cannot be had here. Says what is missing.
        """
        port = free_port()
        provider = provider or provider_of("kafka")
        env = {"CLUSTER": base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")}
        env["JVM"] = jvm
        if provider == "local":
            obtain("kafka")
            inside, data = port, "."
            env["JARS"] = (ROOT / ".cache" / "kafka.classpath").read_text().strip()
        else:
            inside, data = CONTAINER_PORTS["kafka"], "."
            env["JARS"] = "/opt/kafka/libs/*"
        control = free_port()
        bind = "127.0.0.1" if provider == "local" else ""
        settings = {
            **DEFAULTS,
            "controller.quorum.voters": f"1@127.0.0.1:{control}",
            "listeners": f"PLAINTEXT://{bind}:{inside},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": f"{data}/log",
            **(config or {}),
        }
        env["CONFIG"] = "\n".join(f"{key}={value}" for key, value in settings.items())
        plan = Plan(name="kafka", port=port, script=SCRIPT, env=env)
        return cls(runner_for(plan, provider), port, f"127.0.0.1:{port}")

    @classmethod
    def shared(cls) -> Self:
        """Return the broker that `BELOG_TEST_KAFKA=host:port` names, else a new one."""
        named = external("kafka")
        if not named:
            return cls.create()
        runner, address = named
        address = address.removeprefix("kafka://").rstrip("/")
        return cls(runner, int(address.rsplit(":", 1)[1]), address)

    @property
    def uri(self) -> str:
        """`kafka://host:port`; a log adds `/topic`."""
        return f"kafka://{self.bootstrap}"

    def is_ready(self) -> bool:
        """Ask for the cluster's metadata, and for the id that an idempotent producer needs."""
        # A quiet one: while the broker starts, every refused connection is a log line.
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=ANSWER_S).brokers) and self._gives_ids()
        except KafkaException:
            return False

    def _gives_ids(self) -> bool:
        # A broker answers COORDINATOR_LOAD_IN_PROGRESS until the controller gave it a block of
        # producer ids (KIP-730), seconds later on a busy machine: no producer can send before.
        host = self.bootstrap.rpartition(":")[0]
        try:
            with socket.create_connection((host, self.port), ANSWER_S) as connection:
                connection.sendall(struct.pack(">i", len(INIT_PRODUCER_ID)) + INIT_PRODUCER_ID)
                with connection.makefile("rb") as answers:
                    return answers.read(len(ID_GIVEN)) == ID_GIVEN
        except OSError:
            return False
