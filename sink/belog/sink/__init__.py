"""Replication of a log to other instances, change feeds and archives."""

from belog.sink.dead_letters import DeadLetterFile, DeadLetters
from belog.sink.replicate import Progress, Replication, SinkStatus
from belog.sink.run import run_sink
from belog.sink.verify import ReplicaCheck, root_at, verify_replica

__all__ = [
    "DeadLetterFile",
    "DeadLetters",
    "Progress",
    "ReplicaCheck",
    "Replication",
    "SinkStatus",
    "root_at",
    "run_sink",
    "verify_replica",
]
