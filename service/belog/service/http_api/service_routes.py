"""The routes about the log and the service as such: status, statistics, activity, health."""

from belog.schemas.lifecycle import Lifecycle
from belog.schemas.wire_json import to_json
from belog.service.http_api.answers import Answer, json_answer
from belog.service.http_api.call import Call
from belog.service.instance import Instance, Readiness

__all__ = ["get_health", "get_readiness", "get_status"]


async def get_health(call: Call) -> Answer:
    """Answer `GET /healthz`."""
    del call
    return json_answer({"ok": True, "reasons": []})


async def get_readiness(call: Call) -> Answer:
    """Answer `GET /readyz`."""
    ready = await call.instance.calls.run(call.instance.readiness)
    # The reasons name servers and logs, which is nothing for those without a token.
    plain = {"ok": ready.is_ready, "reasons": list(ready.reasons)}
    status = 200 if ready.is_ready else 503
    return Answer(to_json(plain), max(ready.applied, 0), status, headers=_NO_STORE)


_NO_STORE = ((b"cache-control", b"no-store"),)


async def get_status(call: Call) -> Answer:
    """Answer `GET /status`."""
    await call.reach()
    return await call.instance.calls.run(_status, call.instance)


def _status(instance: Instance) -> Answer:
    end = instance.end()
    ready: Readiness = instance.readiness()
    lifecycle = _lifecycle(instance)
    return json_answer(
        {
            "next_idx": str(end.next_idx),
            "root": end.root,
            "log_id": str(end.log_id),
            "instance": instance.identity.instance,
            "applied": str(ready.applied),
            "lag_records": str(ready.lag_records),
            "is_replica": instance.identity.is_replica,
            "lifecycle_version": 0 if lifecycle is None else lifecycle.version,
        },
        end.next_idx,
    )


def _lifecycle(instance: Instance) -> Lifecycle | None:
    return None if instance.producer is None else instance.producer.lifecycle
