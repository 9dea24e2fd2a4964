"""What nobody can open, on every backend: a clear error in time, and nothing created or changed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from belog.schemas.errors import (
    BelogError,
    InvalidConfiguration,
    InvalidUri,
    NewerFormat,
    NotFound,
    Unavailable,
)
from belog.storage import open_log
from belog.storage.kafka_topic import create_topic
from tests.servers import Broker, free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

CLEAR_ERROR_S = 10.0
SECRET = "s3cret-value"  # noqa: S105 - what must not be shown
NOBODY = 65_534
"""A user that owns nothing."""

MALFORMED = (
    *("", "log.db", "/var/log.db", "nothing:///log", "://log", "sqlite", "mysql://u@host/db"),
    *("sqlite:", "sqlite://", "sqlite://host/log.db", f"sqlite:///a?password={SECRET}"),
    *("file:", "file://host/log", f"file:///log?password={SECRET}", "file:///log#x"),
    *("delta:", "delta://host/log", f"delta:///log?x={SECRET}", "delta+ftp://host/log"),
    *(f"delta+s3://me:{SECRET}@bucket/log", f"delta+s3://bucket/log?{SECRET}", "delta+s3:///log"),
    *(f"postgresql://u:{SECRET}@[host/db", f"postgresql://u:{SECRET}@host:x/db"),
    *(f"postgresql://u:{SECRET}%zz@host/db", f"postgres://u:{SECRET}@host/db?tabel=x"),
    *("kafka:", "kafka://", "kafka://host", "kafka://host:9092/", "kafka://host:99999/builds"),
    *(f"kafka://u:{SECRET}@host:9092/builds", f"kafka://host:9092/builds?sasl.pasword={SECRET}"),
    *("kafka://host:9092/a/b", "memory:x", "memory://", "stdout:x", "stdout://file"),
)


def refused(uri: str, *errors: type[BelogError]) -> BelogError:
    """Open what cannot be opened; return the error that said so, in time and without secrets."""
    started = time.monotonic()
    with pytest.raises(errors) as caught, open_log(uri) as log:
        log.initialize()
    assert time.monotonic() - started < CLEAR_ERROR_S
    error: BelogError = caught.value
    assert error.message
    cause: BaseException | None = error
    while cause is not None:
        assert SECRET not in f"{cause} {cause!r}"
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return error


@pytest.mark.parametrize("uri", MALFORMED)
def test_malformed_uris(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(uri, InvalidUri)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


S3 = "delta+s3://bucket/log?aws_allow_http=true&aws_region=x&aws_access_key_id=u"
SASL = "security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.username=u"
ABSENT = {
    "kafka": "kafka://127.0.0.1:{port}/builds",
    "sasl": f"kafka://127.0.0.1:{{port}}/builds?{SASL}&sasl.password={SECRET}",
    "postgresql": f"postgresql://u:{SECRET}@127.0.0.1:{{port}}/db",
    "s3": f"{S3}&aws_secret_access_key={SECRET}&aws_endpoint_url=http://127.0.0.1:{{port}}",
}


@pytest.mark.parametrize("uri", ABSENT.values(), ids=ABSENT)
def test_servers_that_are_not_there(uri: str) -> None:
    assert refused(uri.format(port=free_port()), Unavailable).retriable


@pytest.mark.parametrize(
    ("client", "uri", "extra"),
    [
        ("confluent_kafka", "kafka://127.0.0.1:1/builds", "kafka"),
        ("psycopg", "postgresql://127.0.0.1:1/db", "postgres"),
        ("deltalake", "delta:///nowhere/log", "delta"),
    ],
)
def test_clients_that_are_not_installed(client: str, uri: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules[{client!r}] = None\n"
        "from belog.schemas.errors import InvalidUri\n"
        "from belog.storage import open_log\n"
        f"try: open_log({uri!r})\n"
        "except InvalidUri as error: print(error.hint)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"pip install 'belog[{extra}]'\n", "")


@contextmanager
def closed_folder() -> Generator[Path]:
    """A folder that this process may look into, and may not write to."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o555)
        if os.geteuid() != 0:
            yield folder
            return
        os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(0)


@contextmanager
def read_only_disk() -> Generator[Path]:
    """A disk that is mounted for reading only; for root."""
    with TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


PLACES = [closed_folder, *([read_only_disk] if os.geteuid() == 0 else [])]
PATHS = ["sqlite:///{}/log.db", "file://{}/log", "delta://{}/log"]


@pytest.mark.parametrize("uri", PATHS)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_paths_without_rights(uri: str, place: Callable[[], AbstractContextManager[Path]]) -> None:
    with place() as folder:
        error = refused(uri.format(folder), Unavailable, InvalidUri, InvalidConfiguration)
        assert str(folder) in str(error)
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("uri", PATHS)
@pytest.mark.parametrize("content", [b"mine", bytes(10_000)], ids=["text", "zeros"])
def test_files_of_the_same_name(tmp_path: Path, uri: str, content: bytes) -> None:
    path = Path(uri.format(tmp_path).partition("://")[2].replace("//", "/"))
    path.write_bytes(content)
    refused(uri.format(tmp_path), InvalidUri)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("uri", PATHS)
def test_folders_of_something_else(tmp_path: Path, uri: str) -> None:
    path = Path(uri.format(tmp_path).partition("://")[2].replace("//", "/"))
    path.mkdir()
    (path / "letter.txt").write_text("mine")
    refused(uri.format(tmp_path), InvalidUri, Unavailable)
    assert sorted(tmp_path.rglob("*")) == [path, path / "letter.txt"]
    assert (path / "letter.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"an order of somebody else", InvalidUri),
        (b"\xc3\x01" + bytes(8) + b"of an envelope that is not known here", NewerFormat),
    ],
    ids=["foreign", "newer"],
)
def test_topics_of_the_same_name(
    broker: Broker, topic_name: str, value: bytes, error: type[BelogError]
) -> None:
    uri = f"{broker.uri}/{topic_name}"
    create_topic(uri)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic_name, value, b"k")
    assert producer.flush(CLEAR_ERROR_S) == 0
    refused(uri, error)
    refused(f"{uri}-of-nobody", NotFound)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic_name})
    with closing(consumer):
        ends = consumer.get_watermark_offsets(TopicPartition(topic_name, 0), timeout=CLEAR_ERROR_S)
        assert ends == (0, 1)
        topics = consumer.list_topics(timeout=CLEAR_ERROR_S).topics
        assert f"{topic_name}-of-nobody" not in topics
