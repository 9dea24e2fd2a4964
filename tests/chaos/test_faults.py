"""Every fault is described for operators, and has a plain test that shows what users see.

======================  ===========================================================================
fault                   where its test is
======================  ===========================================================================
writer-killed           tests/chaos/test_producer_kill.py::test_killed_producers_lose_and_double_nothing
writer-frozen           tests/chaos/test_producer_kill.py::test_a_paused_producer_comes_back_into_another_world
reader-killed           tests/chaos/test_service_race.py::test_followers_that_are_cut_off_at_random_see_every_match_once_in_order
reader-frozen           tests/integration/test_http_wire.py::test_a_reader_that_takes_nothing_is_cut_off
worker-killed           tests/integration/test_worker.py::test_killed_in_the_stream_a_worker_goes_on_where_the_tables_are
worker-frozen           tests/chaos/test_faults_kafka.py::test_tables_behind_their_log
sink-killed             tests/integration/test_sink.py::test_a_killed_sink_loses_and_doubles_nothing
sink-frozen             tests/chaos/test_runs.py
service-killed          tests/chaos/test_faults_service.py::test_a_service_that_is_killed
service-frozen          tests/chaos/test_faults_service.py::test_a_service_that_is_killed
redis-killed            tests/integration/test_worker.py::test_redis_may_die_and_come_back_older
redis-frozen            tests/chaos/test_faults_kafka.py::test_redis_away_or_silent_or_flushed
broker-killed           tests/chaos/test_producer_kill.py::test_a_killed_broker_loses_and_doubles_nothing
broker-frozen           tests/integration/test_kafka_outage.py::test_silent_broker_makes_outcomes_unknown_within_the_bound
postgres-killed         tests/integration/test_postgres_chaos.py
postgres-frozen         tests/chaos/test_faults_stores.py::test_postgres_away_or_silent
connections-cut         tests/chaos/test_faults_stores.py::test_postgres_away_or_silent
connections-refused     tests/chaos/test_faults_kafka.py::test_a_broker_away_or_silent
connections-delayed     tests/chaos/test_faults_kafka.py::test_a_slow_network_only_slows
connections-throttled   tests/chaos/test_faults_kafka.py::test_a_slow_network_only_slows
connections-half-open   tests/chaos/test_faults_kafka.py::test_an_answer_that_is_lost_is_unknown_and_a_retry_tells
redis-flushed           tests/chaos/test_faults_kafka.py::test_redis_away_or_silent_or_flushed
redis-older             tests/chaos/test_faults_kafka.py::test_tables_behind_their_log
two-workers             tests/integration/test_worker.py::test_a_frozen_worker_that_wakes_changes_nothing
broker-older            tests/chaos/test_faults_kafka.py::test_a_broker_with_an_older_data_directory
topic-recreated         tests/chaos/test_faults_kafka.py::test_a_topic_deleted_and_made_anew
compaction-fast         tests/chaos/test_faults_kafka.py::test_a_record_of_newer_software_and_compaction
disk-full               tests/chaos/test_faults_stores.py::test_a_full_disk_is_said_and_reading_goes_on
clocks-off              tests/chaos/test_faults_stores.py::test_clocks_of_writers_that_are_hours_off
garbage-records         tests/chaos/test_faults_kafka.py::test_records_of_others
oversize-records        tests/chaos/test_faults_kafka.py::test_records_of_others
newer-record            tests/chaos/test_faults_kafka.py::test_a_record_of_newer_software_and_compaction
======================  ===========================================================================

What `/readyz` and `/metrics` say of a worker that stands still, of Redis, of a log that cannot be read
and of newer records is in `tests/integration/test_readiness.py`.
"""  # noqa: E501 - a table of names

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.faults import FAULTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations" / "faults.md"

ROW = re.compile(r"^([a-z]+(?:-[a-z]+)+) +(tests/\S+\.py)(?:::(\w+))?$", re.MULTILINE)


def texts(path: Path) -> Iterator[str]:
    """The texts of a module, as their parts come together, with … for what is put in."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = (str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_fault_has_its_test() -> None:
    rows = {name: (path, test) for name, path, test in ROW.findall(__doc__ or "")}
    assert set(rows) == set(FAULTS)
    for path, test in rows.values():
        assert f"def {test}" in (ROOT / path).read_text(), (path, test)


def test_every_fault_says_what_it_is() -> None:
    for name, make in FAULTS.items():
        fault = make()
        assert fault.name == name
        assert fault.does
        shortest_s, longest_s = fault.hold_s
        assert 0 <= shortest_s <= longest_s


def test_operators_are_told_what_is_seen() -> None:
    known = "\n".join(
        text for path in Path(__file__).parent.glob("test_faults_*.py") for text in texts(path)
    )
    quoted = re.findall(r"^    (\S.+)$", PAGE.read_text(), re.MULTILINE)
    assert len(quoted) > 12
    for line in quoted:
        for part in re.split(r" ?… ?", line):
            assert part.strip() in known, f"no test sees {part!r} of {line!r}"
