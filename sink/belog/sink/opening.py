"""Opening the two ends of a replication: what may be replicated into what.

The identity of a log is its `log_id`, so loops are refused by it and not by names: a log is
replicated into a replica of itself and into nothing else, whatever the route.
"""

from belog.schemas.errors import LogReplaced, ReplicaRefused
from belog.storage.interface import EventLog, LogIdentity

__all__ = ["open_target"]


def open_target(target: EventLog, origin: EventLog, identity: LogIdentity) -> LogIdentity:
    """Open the replica of an opened origin, making it where its backend makes logs (not on Kafka).

    Raises:
        ReplicaRefused: It is the origin itself, or a primary log.
        LogReplaced: It is a replica of another log.
        NotFound: There is none and its backend does not make it; the hint says what does.
        Unavailable: It cannot be reached.
    """
    if target is origin or target.name == origin.name != "memory:":
        msg = "a log is not replicated into itself"
        raise ReplicaRefused(msg, log=target.name)
    found = target.identify()
    if found is not None:
        if not found.is_replica:
            msg = "the target is a primary log"
            if found.log_id == identity.log_id:
                msg = f"the target is the log {found.log_id} itself, not a replica of it"
            raise ReplicaRefused(msg, log=target.name, hint="name a new log as the target")
        if found.log_id != identity.log_id:
            msg = f"the target is a replica of {found.log_id}, the origin is {identity.log_id}"
            hint = "was the origin recreated? A replica of a new log is a new replica"
            raise LogReplaced(msg, log=target.name, hint=hint)
    return target.initialize(instance=identity.instance, log_id=identity.log_id, replica=True)
