"""The storage interface and its backends."""

from belog.storage.factory import open_log
from belog.storage.interface import (
    Capabilities,
    ConditionalLog,
    CopiedRecord,
    EventLog,
    EventPage,
    LogEnd,
    LogIdentity,
    OrderedLog,
    Receipt,
    SendReport,
    Statistics,
    VacuumReport,
)

__all__ = [
    "Capabilities",
    "ConditionalLog",
    "CopiedRecord",
    "EventLog",
    "EventPage",
    "LogEnd",
    "LogIdentity",
    "OrderedLog",
    "Receipt",
    "SendReport",
    "Statistics",
    "VacuumReport",
    "open_log",
]
