"""TLS of both sides over real sockets: who is let in, who is refused, what cannot be used."""

import socket
import ssl
import threading
from collections.abc import Generator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import grpc
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer

from belog.client import Client
from belog.schemas.errors import InvalidConfiguration, Unavailable
from belog.service.configuration import TlsSection
from belog.service.tls import client_context, client_pems, server_context, server_pems
from belog.service.tls_grpc import channel_credentials, server_credentials

WAIT_S = 10


@dataclass(frozen=True)
class Files:
    """A CA, a server's certificate of it, and a client's; and another CA with a client's."""

    ca: str
    cert: str
    key: str
    client_cert: str
    client_key: str
    other_ca: str
    other_cert: str
    other_key: str


@pytest.fixture(scope="module", name="files")
def _files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")

    def written(name: str, *blobs: trustme.Blob) -> str:
        path = folder / name
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
        return str(path)

    def issued(ca: trustme.CA, name: str, *of: str) -> tuple[str, str]:
        cert = ca.issue_cert(*of)
        chain = written(f"{name}.pem", *cert.cert_chain_pems)
        return chain, written(f"{name}.key", cert.private_key_pem)

    ca, other = trustme.CA(), trustme.CA()
    server = issued(ca, "server", "localhost", "127.0.0.1")
    client = issued(ca, "client", "client@belog.example")
    stranger = issued(other, "stranger", "stranger@belog.example")
    return Files(
        written("ca.pem", ca.cert_pem),
        *server,
        *client,
        written("other.pem", other.cert_pem),
        *stranger,
    )


@contextmanager
def greeting(context: ssl.SSLContext) -> Generator[int]:
    """Serve a greeting over TLS, to one after the other; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(WAIT_S)
                    try:
                        with context.wrap_socket(connection, server_side=True) as secured:
                            secured.sendall(b"hello")
                    except OSError:
                        # Clients that are refused, or that refuse: what they see is what is tested.
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)


def greeted(port: int, context: ssl.SSLContext, name: str = "localhost") -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port), WAIT_S) as connection,
        context.wrap_socket(connection, server_hostname=name) as secured,
    ):
        return secured.recv(10)


def test_who_takes_a_service_for_one_with_tls_or_without_is_told(files: Files) -> None:
    def asked(url: str, **options: str) -> Unavailable:
        with Client(url, retry_s=0, **options) as client, pytest.raises(Unavailable) as caught:  # type: ignore[arg-type]
            client.status()
        return caught.value

    context = server_context(TlsSection(cert_file=files.cert, key_file=files.key))
    assert context is not None
    with greeting(context) as port:
        assert "https://" in asked(f"http://127.0.0.1:{port}").hint
        # Not one of the CAs that a system trusts.
        assert "client.ca_file" in asked(f"https://127.0.0.1:{port}").hint
    plain = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=plain.serve_forever)
    thread.start()
    try:
        port = plain.server_port
        assert "http://" in asked(f"https://127.0.0.1:{port}", ca_file=files.ca).hint
    finally:
        plain.shutdown()
        thread.join(WAIT_S)
        plain.server_close()
    assert asked(f"http://127.0.0.1:{port}").hint == "is the service running?"


def test_without_files_there_is_no_tls() -> None:
    assert server_context(TlsSection()) is None
    assert server_pems(TlsSection()) is None
    assert server_credentials(TlsSection()) is None


def test_a_client_checks_the_service(files: Files) -> None:
    context = server_context(TlsSection(cert_file=files.cert, key_file=files.key))
    assert context is not None
    with greeting(context) as port:
        trusting = client_context(ca_file=files.ca)
        assert greeted(port, trusting) == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError):
            greeted(port, trusting, "belog.example")
        for wrong in (client_context(), client_context(ca_file=files.other_ca)):
            with pytest.raises(ssl.SSLCertVerificationError):
                greeted(port, wrong)
        old = client_context(ca_file=files.ca)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            greeted(port, old)


def test_a_service_checks_its_clients(files: Files) -> None:
    tls = TlsSection(cert_file=files.cert, key_file=files.key, client_ca_file=files.ca)
    context = server_context(tls)
    assert context is not None
    with greeting(context) as port:
        known = client_context(
            ca_file=files.ca, cert_file=files.client_cert, key_file=files.client_key
        )
        assert greeted(port, known) == b"hello"
        stranger = client_context(
            ca_file=files.ca, cert_file=files.other_cert, key_file=files.other_key
        )
        for refused in (client_context(ca_file=files.ca), stranger):
            # With TLS 1.3 the refusal comes with the first thing that is read.
            with pytest.raises((ssl.SSLError, ConnectionError)):
                greeted(port, refused)


def test_grpc_takes_the_same_files(files: Files) -> None:
    tls = TlsSection(cert_file=files.cert, key_file=files.key, client_ca_file=files.ca)
    credentials = server_credentials(tls)
    assert credentials is not None
    server = grpc.server(futures.ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(), server)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()

    def status(of: grpc.ChannelCredentials) -> object:
        with grpc.secure_channel(f"localhost:{port}", of) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            return stub.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S).status

    try:
        known = channel_credentials(
            ca_file=files.ca, cert_file=files.client_cert, key_file=files.client_key
        )
        assert status(known) == health_pb2.HealthCheckResponse.SERVING
        stranger = channel_credentials(
            ca_file=files.ca, cert_file=files.other_cert, key_file=files.other_key
        )
        for refused in (
            channel_credentials(ca_file=files.ca),
            stranger,
            channel_credentials(ca_file=files.other_ca),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                status(refused)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        server.stop(None).wait(WAIT_S)


def test_files_that_cannot_be_used(files: Files, tmp_path: Path) -> None:
    broken, locked = tmp_path / "broken.pem", tmp_path / "locked.key"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    private = load_pem_private_key(Path(files.key).read_bytes(), None)
    password = BestAvailableEncryption(b"password")
    locked.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, password))
    none = str(tmp_path / "none.pem")
    for cert, key, ca, said in (
        (none, files.key, None, r"none\.pem.* cannot be used: No such file"),
        (files.cert, none, None, r"none\.pem.* cannot be used: No such file"),
        (str(broken), files.key, None, r"broken\.pem.* cannot be used"),
        (files.cert, files.client_key, None, "KEY_VALUES_MISMATCH"),
        (files.cert, str(locked), None, "asks for a password"),
        (files.cert, files.key, str(broken), r"CAs .*broken\.pem cannot be used"),
        (files.cert, files.key, none, r"CAs .*none\.pem cannot be used: No such file"),
    ):
        tls = TlsSection(cert_file=cert, key_file=key, client_ca_file=ca)
        for make in (server_context, server_pems, server_credentials):
            with pytest.raises(InvalidConfiguration, match=said):
                make(tls)
    with pytest.raises(InvalidConfiguration):
        client_pems(ca_file=none)


def test_no_key_is_shown(files: Files) -> None:
    pems = client_pems(ca_file=files.ca, cert_file=files.client_cert, key_file=files.client_key)
    assert repr(pems) == "Pems(ca, cert, key)"
    assert pems.key == Path(files.client_key).read_bytes()
