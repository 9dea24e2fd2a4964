"""Replication of a log to other instances, change feeds and archives."""

from belog.sink.dead_letters import DeadLetterFile, DeadLetters
from belog.sink.migrate import MigrationProgress, MigrationReport, migrate_log, run_migration
from belog.sink.migration import Bound
from belog.sink.replicate import Progress, Replication, SinkStatus
from belog.sink.run import run_sink
from belog.sink.verify import ReplicaCheck, root_at, verify_replica

__all__ = [
    "Bound",
    "DeadLetterFile",
    "DeadLetters",
    "MigrationProgress",
    "MigrationReport",
    "Progress",
    "ReplicaCheck",
    "Replication",
    "SinkStatus",
    "migrate_log",
    "root_at",
    "run_migration",
    "run_sink",
    "verify_replica",
]
