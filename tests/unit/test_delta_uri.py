from pathlib import Path

import pytest

from belog.schemas.errors import InvalidUri
from belog.storage.delta_uri import parse_delta_uri


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("delta:///data/log", "/data/log"),
        ("delta:////data/log", "/data/log"),
        ("delta:///data/a%20b", "/data/a b"),
        ("delta:log", str(Path.cwd() / "log")),
    ],
)
def test_local_paths(uri: str, folder: str) -> None:
    found = parse_delta_uri(uri)
    assert (str(found.folder), found.table_uri) == (folder, folder)


def test_options_are_taken_and_never_named() -> None:
    found = parse_delta_uri("delta+s3://bucket/a/log?aws_region=x&aws_secret_access_key=a%2Fb%3D")
    assert found.table_uri == "s3://bucket/a/log"
    assert found.name == "delta+s3://bucket/a/log"
    assert found.options == {"aws_region": "x", "aws_secret_access_key": "a/b="}
    assert found.folder is None


@pytest.mark.parametrize(
    "uri",
    [
        "delta:",
        "delta://host/log",
        "delta:///log?x=secret",
        "delta:///log#secret",
        "delta+ftp://host/log",
        "delta+s3:///log",
        "delta+s3://me:secret@bucket/log",
        "delta+abfss://me:secret@account/log",
        "delta+s3://bucket/log?secret",
        "delta+s3://bucket/log?AWS_S3_ALLOW_UNSAFE_RENAME=secret",
    ],
)
def test_malformed_uris_are_refused_without_secrets(uri: str) -> None:
    with pytest.raises(InvalidUri) as error:
        parse_delta_uri(uri)
    assert "secret" not in str(error.value)
