"""The page about gRPC: its command and its programs are run, its tables compared."""

import re
import subprocess
import sys
from pathlib import Path

from belog.service.grpc_api.rules import RULES
from belog.service.grpc_api.settings import GrpcSettings
from tests.e2e.program import environment, running
from tests.servers import eventually

PAGE = Path(__file__).parents[2] / "docs" / "grpc.md"
TEXT = PAGE.read_text()

EXPECTED = """\
1 False
FAILED_PRECONDITION illegal_transition nightly-7 [
1 v1.partition.requested nightly-7
2
delegated nightly-7
UNKNOWN nightly-7
REQUESTED nightly-7
3 True
"""


def test_the_programs_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    (command,) = re.findall(r"^    (belog serve .*)$", TEXT, re.MULTILINE)
    arguments = command.replace("50051", "0").split()[1:]
    program = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    with running([*arguments, "--port", "0"], cwd=tmp_path):
        said = tmp_path / "serve.stderr"
        found = eventually(lambda: re.search(r"gRPC at .*:(\d+)$", said.read_text(), re.MULTILINE))
        script = tmp_path / "program.py"
        script.write_text(program.replace("50051", found[1] if found else ""))
        done = subprocess.run(
            [sys.executable, script],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(),
        )
    assert done.returncode == 0, done.stderr
    for line, wanted in zip(done.stdout.splitlines(), EXPECTED.splitlines(), strict=True):
        assert line.startswith(wanted), done.stdout


def test_every_rpc_is_in_the_table_with_its_role() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (read|append) \|", TEXT, re.MULTILINE)
    told = {name: role for names, role in rows for name in re.findall(r"\w+", names)}
    assert told == {
        name.rpartition("/")[2]: rule.role.label
        for name, rule in RULES.items()
        if rule.role is not None
    }


def test_the_limits_are_those_of_the_service() -> None:
    limits = GrpcSettings()
    for told in (
        f"| a request | {limits.message_bytes_max // 1024**2} MiB |",
        f"| {limits.page_events_max:,} |",
        f"| `wait_ms` | {limits.wait_s_max * 1_000:,.0f};",
        f"| {limits.rpcs_max:,}, {limits.streams_max:,}, {limits.connection_streams_max:,} |",
    ):
        assert told in TEXT
    assert limits.page_events_max == limits.batch_events_max
    assert limits.request_wait_s_max == 3_600
