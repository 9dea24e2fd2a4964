"""The routes of partitions."""

from belog.processors.rows import PartitionRow
from belog.schemas.wire_json import to_json
from belog.service.http_api.answers import Answer
from belog.service.http_api.call import Call
from belog.service.http_api.rows import partition_fields
from belog.service.instance import not_found

__all__ = ["get_partition"]


async def get_partition(call: Call) -> Answer:
    """Answer `GET /partitions/{ref}`."""
    await call.reach()
    ref = call.name("ref")
    found = await call.instance.calls.run(call.instance.queries.tables.get, PartitionRow, ref)
    if found.value is None:
        raise not_found("partition", ref, found.applied)
    return Answer(to_json(partition_fields(found.value)), found.applied)
