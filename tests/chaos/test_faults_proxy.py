"""The proxy itself: what passes it, and what does not, seen by a plain server and by Redis."""

import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.faults.proxy import Proxy
from tests.servers import eventually, free_port

SOON_S = 5.0
QUIET_S = 0.15
"""So long nothing may come where nothing flows."""


class Echo(socketserver.BaseRequestHandler):
    """Gives back what it gets; notes how each connection ended."""

    ends: list[str]

    def handle(self) -> None:
        try:
            while data := self.request.recv(65_536):
                self.request.sendall(data)
            self.server.ends.append("fin")  # type: ignore[attr-defined]
        except ConnectionResetError:
            self.server.ends.append("rst")  # type: ignore[attr-defined]


@pytest.fixture
def echo() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", free_port()), Echo) as server:
        server.ends = []  # type: ignore[attr-defined]
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        yield server
        server.shutdown()
        serving.join()


@pytest.fixture
def proxy(echo: socketserver.ThreadingTCPServer) -> Iterator[Proxy]:
    with Proxy(echo.server_address[1]) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", proxy.port), SOON_S)
    made.settimeout(SOON_S)
    return made


def read(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = client.recv(size - len(found))
        assert more, "the connection ended"
        found += more
    return found


def told(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return read(client, len(data))


def is_quiet(client: socket.socket) -> bool:
    client.settimeout(QUIET_S)
    try:
        client.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        client.settimeout(SOON_S)
    return False


def test_bytes_pass_whole_and_in_order(proxy: Proxy) -> None:
    data = b"".join(n.to_bytes(4, "big") for n in range(500_000))
    found: list[bytes] = []
    with connect(proxy) as client:
        reading = threading.Thread(target=lambda: found.append(read(client, len(data))))
        reading.start()
        client.sendall(data)
        reading.join(SOON_S)
    assert found == [data]
    eventually(lambda: proxy.bytes_passed == {"up": len(data), "down": len(data)})


def test_an_end_passes_and_leaves_the_other_way_open(
    proxy: Proxy, echo: socketserver.ThreadingTCPServer
) -> None:
    with connect(proxy) as client:
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert read(client, 4) == b"last"
        assert client.recv(1) == b""
    eventually(lambda: echo.ends == ["fin"])  # type: ignore[attr-defined]
    eventually(lambda: proxy.connections == 0)


def test_a_reset_passes(proxy: Proxy, echo: socketserver.ThreadingTCPServer) -> None:
    client = connect(proxy)
    assert told(client, b"x") == b"x"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    eventually(lambda: echo.ends == ["rst"])  # type: ignore[attr-defined]


def test_cut_ends_what_is_open_and_takes_what_is_new(proxy: Proxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        assert told(first, b"a") == told(second, b"a") == b"a"
        assert proxy.cut("rst") == 2
        for client in (first, second):
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    with connect(proxy) as third:
        assert told(third, b"b") == b"b"
        assert proxy.cut("fin") == 1
        assert third.recv(1) == b""
    assert (proxy.accepted, proxy.connections) == (3, 0)


def test_refused_until_healed(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert told(client, b"a") == b"a"
        proxy.refuse()
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    proxy.heal()
    with connect(proxy) as client:
        assert told(client, b"b") == b"b"


def test_delayed_each_way(proxy: Proxy) -> None:
    with connect(proxy) as client:
        told(client, b"a")
        proxy.delay(0.15)
        started = time.monotonic()
        assert told(client, b"pipelined") == b"pipelined"
        assert 0.3 <= time.monotonic() - started < 2
        client.sendall(b"b")
        proxy.delay(60)
        client.sendall(b"c")
        assert is_quiet(client)
        proxy.heal()
        assert read(client, 2) == b"bc"


def test_throttled(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.throttle(100_000)
        started = time.monotonic()
        told(client, bytes(50_000))
        assert time.monotonic() - started > 0.25


@pytest.mark.parametrize("ways", [("up",), ("down",), ("up", "down")], ids="-".join)
def test_half_open_until_healed(proxy: Proxy, ways: tuple[str, ...]) -> None:
    with connect(proxy) as client:
        told(client, b"a")
        proxy.hold(*ways)  # type: ignore[arg-type]
        client.sendall(b"held")
        with connect(proxy) as new:
            new.sendall(b"new")
            assert is_quiet(client)
            assert is_quiet(new)
            passed = dict(proxy.bytes_passed)
            assert passed == {"up": 1 if "up" in ways else 8, "down": 1}
            proxy.heal()
            assert read(new, 3) == b"new"
        assert read(client, 4) == b"held"


def test_a_held_connection_can_be_cut(proxy: Proxy) -> None:
    with connect(proxy) as client:
        told(client, b"a")
        proxy.hold()
        client.sendall(b"lost")
        assert is_quiet(client)
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_server_that_is_not_there_resets() -> None:
    with Proxy(free_port()) as proxy:
        # It may come before the client has seen that it is connected.
        with pytest.raises(ConnectionResetError), connect(proxy) as client:
            client.recv(1)
        assert (proxy.accepted, proxy.connections) == (1, 0)
