"""All routes: who may call them, what they take, what they answer. Pure data.

What a route does is elsewhere; `belog.service.http_api.app` puts both together.
"""

from typing import Final

from belog.schemas.lifecycle import KINDS, LIFECYCLE_1, SubjectKind
from belog.service.access import Role
from belog.service.http_api.parameters import Parameter
from belog.service.http_api.route_table import Reach, RouteEntry

__all__ = ["FILTER", "ROUTES"]


MIN_INDEX: Final = Parameter(
    "min_index", "int", "Answer once the tables hold the event at this index.", low=-1
)
WAIT_S: Final = Parameter("wait_s", "seconds", "Longest wait, seconds; bounded by the server.")
_WAIT: Final = (MIN_INDEX, WAIT_S)


def _texts(name: str, about: str) -> Parameter:
    return Parameter(name, "texts", f"{about}; may be repeated, any one will do.")


FILTER: Final = (
    _texts("partition_ref", "Events that concern this partition"),
    _texts("partition_pattern", "Events that concern a partition which this glob matches"),
    _texts("job_label", "Events of runs of this job"),
    _texts("job_run_id", "Events that concern this job run"),
    _texts("build_request_id", "Events that concern this build"),
    _texts("task_id", "Events that concern this task"),
    _texts("event_type", "Events of this type"),
    Parameter("subject_kind", "choices", "Events of this kind.", choices=KINDS),
    _texts("actor", "Events of this writer"),
    *(
        Parameter(f"{time}_{end}", "int", f"{about}, microseconds since the epoch, UTC.")
        for time, what in (("created", "Ingested"), ("occurred", "Occurred"))
        for end, about in (("from", f"{what} at or after"), ("to", f"{what} before"))
    ),
)
"""The parameters that make an `EventFilter`."""

SINCE: Final = Parameter("since", "int", "First index wanted; 0 is the beginning.", low=0)
LIMIT: Final = Parameter("limit", "int", "Most items of the page.", low=1)
CURSOR: Final = Parameter("cursor", "text", "`next_page_token` of the page before.")
ORDER: Final = Parameter(
    "order", "choice", "The last changed first, or by id.", choices=("recent", "id")
)
NEWEST_FIRST: Final = Parameter(
    "order", "choice", "By index, which way.", choices=("ascending", "descending")
)
OFFSET: Final = Parameter("offset", "int", "How many to pass over.", low=0)
_BUILD: Final = Parameter("build_request_id", "text", "Of this build.")
_PARTITION: Final = Parameter("partition_ref", "text", "That has to do with this partition.")
_ACTIVE: Final = Parameter("active", "choice", "Whether not ended.", choices=("true", "false"))
_LABEL: Final = Parameter("job_label", "text", "Of this job.")
_PREFIX: Final = Parameter("prefix", "text", "Whose id starts so.")
_CLIENT: Final = Parameter("client_id", "text", "That this client asked for.")
_SINCE_TIME: Final = Parameter(
    "since_time", "int", "Whose last event was ingested at or after, microseconds since the epoch."
)
_UNTIL_TIME: Final = Parameter("until_time", "int", "Before.")


def _states(kind: SubjectKind) -> Parameter:
    states = LIFECYCLE_1.states(kind)
    return Parameter("state", "choices", "In this state; may be repeated.", choices=states)


VIEW: Final = Parameter(
    "view", "choice", "`row`: with `row`, the row as the tables keep it.", choices=("row",)
)
_LIST: Final = (_ACTIVE, _PREFIX, _SINCE_TIME, _UNTIL_TIME, ORDER, CURSOR, LIMIT, VIEW, *_WAIT)

_EVENTS: Final = (
    RouteEntry(
        method="POST",
        path="/events",
        reach=Reach.NARROWED,
        role=Role.APPEND,
        summary="Append one event, or a batch",
        about="An event as such is answered with its receipt, or with a problem. A batch "
        "(`events`) is answered with a result for each, in order; `atomic` and `at` make it all or "
        "none. Safe to repeat with the same `event_id`. Where `event_id`, `occurred_at` or `actor` "
        "is missing the server gives it; then it is not safe to repeat.",
        body="AppendBody",
        answer="AppendAnswer",
    ),
    RouteEntry(
        method="GET",
        path="/events",
        reach=Reach.NARROWED,
        summary="A page of events, at once or as soon as there is one",
        about="Pass `next_idx` of the answer as `since` of the next call. A page without events "
        "carries the cursor on. Behind the vacuum horizon the answer is 410, with the snapshot.",
        parameters=(SINCE, LIMIT, *_WAIT, *FILTER),
        answer="EventPage",
    ),
    RouteEntry(
        method="GET",
        path="/events/stream",
        reach=Reach.NARROWED,
        summary="Events as they come, as server-sent events",
        about="Each message has one event as its data, and as its id the index that follows it, "
        "which `Last-Event-ID` (first) or `since` goes on from; without either the stream starts "
        "with what comes next. Messages of the type `cursor` move the cursor on where nothing "
        "matched, comments break the silence, and one of the type `problem` says why the stream "
        "ends.",
        parameters=(SINCE, *FILTER),
        answer="BuildEvent",
        media_type="text/event-stream",
        is_stream=True,
    ),
    RouteEntry(
        method="GET",
        path="/events/{index}",
        reach=Reach.NARROWED,
        summary="One event, by its index or its event_id",
        parameters=_WAIT,
        answer="BuildEvent",
    ),
)

_PARTITIONS: Final = (
    RouteEntry(
        method="GET",
        path="/partitions/{ref}",
        reach=Reach.PARTITION,
        summary="A partition as it is now",
        about="Refs are percent-encoded. One whose slashes are not is taken as far as it goes: but "
        "what ends in `/events`, `/explain`, `/graph` or `/request` means the route of that name, "
        "so a ref that ends so must be encoded. The refs `.` and `..`, which programs take out of "
        "paths, are asked for by `GET /partitions?ref=`.",
        parameters=(VIEW, *_WAIT),
        answer="Partition",
        tag="partitions",
    ),
    RouteEntry(
        method="GET",
        path="/partitions",
        reach=Reach.NARROWED,
        summary="Partitions",
        about="With `ref` exactly these, those never seen left out; otherwise a page of those that "
        "meet all conditions. A page may be short, and still have a next one.",
        parameters=(
            Parameter("ref", "texts", "These partitions; may be repeated."),
            _states("partition"),
            Parameter("pattern", "texts", "That this glob matches; may be repeated."),
            _BUILD,
            _LABEL,
            Parameter("upstream", "text", "That were made from this partition."),
            *_LIST,
        ),
        answer="ListPartitionsResponse",
        tag="partitions",
    ),
    RouteEntry(
        method="GET",
        path="/partitions/{ref}/events",
        reach=Reach.PARTITION,
        summary="The events that concern a partition",
        parameters=(
            SINCE,
            NEWEST_FIRST,
            OFFSET,
            LIMIT,
            _states("partition"),
            Parameter("created_from", "int", "Ingested at or after, microseconds."),
            Parameter("created_to", "int", "Ingested before, microseconds."),
            *_WAIT,
        ),
        answer="EventPage",
        tag="partitions",
    ),
    RouteEntry(
        method="POST",
        path="/partitions/{ref}/request",
        reach=Reach.PARTITION,
        role=Role.APPEND,
        summary="Ask for a partition",
        about="Answers that it is available, that another build is making it, or the caller's own "
        "new build request, which then has to make it. Of any number of callers at once exactly "
        "one gets the last.",
        body="HttpRequestPartition",
        body_is_optional=True,
        answer="RequestResult",
        tag="partitions",
    ),
    RouteEntry(
        method="GET",
        path="/partitions/{ref}/explain",
        reach=Reach.PARTITION,
        summary="Why a partition is in its state",
        parameters=(VIEW, *_WAIT),
        answer="Explanation",
        tag="partitions",
    ),
    RouteEntry(
        method="GET",
        path="/partitions/{ref}/graph",
        reach=Reach.PARTITION,
        summary="What a partition is made from, and what is made from it",
        parameters=(
            Parameter("depth", "int", "Edges from the partition outwards.", low=0),
            *_WAIT,
        ),
        answer="DependencyGraph",
        tag="partitions",
    ),
)

_BUILDS: Final = (
    RouteEntry(
        method="GET",
        path="/builds",
        reach=Reach.NARROWED,
        summary="Build requests",
        parameters=(_states("build"), _PARTITION, _CLIENT, *_LIST),
        answer="ListBuildsResponse",
        tag="builds",
    ),
    RouteEntry(
        method="GET",
        path="/builds/{build_request_id}",
        reach=Reach.SUBJECT,
        summary="A build request, with what became of its parts",
        parameters=(VIEW, *_WAIT),
        answer="BuildSummary",
        tag="builds",
    ),
    RouteEntry(
        method="POST",
        path="/builds/{build_request_id}/cancel",
        reach=Reach.SUBJECT,
        role=Role.APPEND,
        summary="Call a build off, with all it has under way",
        body="CancelRequest",
        body_is_optional=True,
        answer="CancelResponse",
        tag="builds",
    ),
    RouteEntry(
        method="GET",
        path="/jobs",
        reach=Reach.NARROWED,
        summary="Job runs",
        parameters=(_states("job_run"), _BUILD, _LABEL, _PARTITION, *_LIST),
        answer="ListJobRunsResponse",
        tag="jobs",
    ),
    RouteEntry(
        method="GET",
        path="/jobs/{job_run_id}",
        reach=Reach.SUBJECT,
        summary="A job run",
        parameters=(VIEW, *_WAIT),
        answer="JobRun",
        tag="jobs",
    ),
    RouteEntry(
        method="POST",
        path="/jobs/{job_run_id}/cancel",
        reach=Reach.SUBJECT,
        role=Role.APPEND,
        summary="Call a job run off; its partitions go back to its build",
        body="CancelRequest",
        body_is_optional=True,
        answer="CancelResponse",
        tag="jobs",
    ),
    RouteEntry(
        method="GET",
        path="/jobs/labels",
        reach=Reach.WHOLE,
        summary="How the newest runs of all jobs went, by label",
        parameters=(_SINCE_TIME, *_WAIT),
        answer="ListJobMetricsResponse",
        tag="jobs",
    ),
    RouteEntry(
        method="GET",
        path="/jobs/labels/{label}/metrics",
        reach=Reach.WHOLE,
        summary="How the newest runs of a job went",
        parameters=(_SINCE_TIME, *_WAIT),
        answer="JobMetrics",
        tag="jobs",
    ),
    RouteEntry(
        method="GET",
        path="/tasks",
        reach=Reach.NARROWED,
        summary="Tasks",
        parameters=(_states("job_run"), _BUILD, _LABEL, _PARTITION, *_LIST),
        answer="ListTasksResponse",
        tag="tasks",
    ),
    RouteEntry(
        method="GET",
        path="/tasks/{build_request_id}/{task_id}",
        reach=Reach.SUBJECT,
        summary="A task of a build",
        parameters=(VIEW, *_WAIT),
        answer="Task",
        tag="tasks",
    ),
    RouteEntry(
        method="POST",
        path="/tasks/{build_request_id}/{task_id}/cancel",
        reach=Reach.SUBJECT,
        role=Role.APPEND,
        summary="Call the unfinished runs of a task off",
        body="CancelRequest",
        body_is_optional=True,
        answer="CancelTaskResponse",
        tag="tasks",
    ),
)

_WHOLE: Final = (
    RouteEntry(
        method="GET",
        path="/active-builds",
        reach=Reach.NARROWED,
        summary="Who makes what now",
        about="With `partition_ref` also who waits for it and who will want it; otherwise a page.",
        parameters=(_PARTITION, CURSOR, LIMIT, *_WAIT),
        answer="ListActiveBuildsResponse",
        tag="builds",
    ),
    RouteEntry(
        method="GET",
        path="/activity",
        reach=Reach.WHOLE,
        summary="What goes on: counts, what runs, what failed lately, rates, lag",
        parameters=(Parameter("window_s", "seconds", "How far back, seconds."), VIEW, *_WAIT),
        answer="Activity",
    ),
    RouteEntry(
        method="GET",
        path="/statistics",
        reach=Reach.WHOLE,
        summary="What the log holds",
        parameters=_WAIT,
        answer="LogStatistics",
    ),
    RouteEntry(
        method="GET",
        path="/audit",
        reach=Reach.WHOLE,
        summary="Who did what, when, with what result; refused attempts too",
        parameters=(
            Parameter("subject_kind", "choice", "With `subject_id`: what concerns it.", 0, KINDS),
            Parameter("subject_id", "text", "The subject."),
            _texts("actor", "Of this writer"),
            _texts("event_type", "Of this type"),
            Parameter("created_from", "int", "At or after, microseconds."),
            Parameter("created_to", "int", "Before, microseconds."),
            NEWEST_FIRST,
            OFFSET,
            LIMIT,
            *_WAIT,
        ),
        answer="AuditResponse",
    ),
    RouteEntry(
        method="GET",
        path="/status",
        reach=Reach.LOG,
        summary="Where the log ends and how far its tables are",
        parameters=_WAIT,
        answer="LogStatus",
    ),
    RouteEntry(
        method="GET",
        path="/healthz",
        reach=Reach.OPEN,
        summary="Whether the process answers",
        answer="Health",
        tag="service",
    ),
    RouteEntry(
        method="GET",
        path="/readyz",
        reach=Reach.OPEN,
        summary="Whether the service can do its work; 503 where not",
        answer="Health",
        tag="service",
    ),
)

_PAGES: Final = (
    RouteEntry(
        method="GET",
        path="/openapi.json",
        reach=Reach.OPEN,
        summary="This document",
        tag="service",
    ),
    RouteEntry(
        method="GET",
        path="/docs",
        reach=Reach.OPEN,
        summary="This document, for people",
        media_type="text/html",
        tag="service",
    ),
)

ROUTES: Final = (*_EVENTS, *_PARTITIONS, *_BUILDS, *_WHOLE, *_PAGES)
"""Every route of the service but those that are added to an application."""
