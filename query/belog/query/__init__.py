"""Questions answered from the tables and the log."""

from belog.query.answers import Answer, EventList, Listing, Shown
from belog.query.cancel import Cancelled, cancel_build, cancel_job, cancel_task
from belog.query.engine import QueryEngine
from belog.query.log_events import PartitionEventQuery
from belog.query.log_queries import AuditQuery, LogQueries
from belog.query.refusals import Refusals
from belog.query.repositories import Repositories

__all__ = [
    "Answer",
    "AuditQuery",
    "Cancelled",
    "EventList",
    "Listing",
    "LogQueries",
    "PartitionEventQuery",
    "QueryEngine",
    "Refusals",
    "Repositories",
    "Shown",
    "cancel_build",
    "cancel_job",
    "cancel_task",
]
