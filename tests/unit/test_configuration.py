"""Configuration: what weighs more, where a value comes from, what is refused, what is hidden."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from belog.processors.redis_client import parse_redis_uri
from belog.schemas.errors import InvalidConfiguration
from belog.service.access import hash_token, token_text
from belog.service.binding import check_binding
from belog.service.configuration import Configuration, Origin, ServerSection
from belog.service.configuration_merge import (
    ConfigurationFile,
    keys,
    load_configuration,
    settings_of,
    variable_of,
)
from belog.service.configuration_reference import HEADING, every_key
from belog.service.uris import connected_uri, log_uri_of, tables_uri_of
from belog.storage.kafka_target import parse_uri

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
HASH = hash_token(token_text(bytes(32)))
SECRET = "hunter2-hunter2"  # noqa: S105 - made up


def load(
    text: str = "", environ: Mapping[str, str] | None = None, **flags: object
) -> Configuration:
    by_key = {name.replace("__", "."): value for name, value in flags.items()}
    return load_configuration(by_key, environ or {}, [ConfigurationFile("belog.toml", text)])


# --- merging


def test_nothing_given_is_all_defaults() -> None:
    found = load_configuration({}, {"PATH": "/bin", "BELOG_CONFIG": "x", "BELOG__LOG__URI": ""})
    assert found == Configuration()
    assert found.origin("server.port") == Origin("default")
    assert {s.origin.source for s in settings_of(found)} == {"default"}


def test_flags_go_before_the_environment_and_that_before_the_file() -> None:
    text = '[server]\nhost = "file"\nport = 1\nwait_s_max = 1\n'
    environ = {"BELOG__SERVER__HOST": "env", "BELOG__SERVER__PORT": "2"}
    found = load(text, environ, server__host="flag", server__grpc_port=3, server__drain_s=None)
    server = found.server
    assert (server.host, server.port, server.grpc_port) == ("flag", 2, 3)
    assert (server.wait_s_max, server.drain_s) == (1.0, ServerSection().drain_s)
    assert str(found.origin("server.host")) == "flag server.host"
    assert str(found.origin("server.port")) == "environment BELOG__SERVER__PORT"
    assert str(found.origin("server.wait_s_max")) == "file belog.toml"
    assert str(found.origin("server.drain_s")) == "default"


def test_of_two_files_the_later_weighs_more() -> None:
    files = [
        ConfigurationFile("a", '[server]\nport = 1\nhost = "a"\n'),
        ConfigurationFile("b", "[server]\nport = 2\n"),
    ]
    found = load_configuration({}, {}, files)
    assert (found.server.host, found.server.port) == ("a", 2)
    assert found.origin("server.port").name == "b"


def test_tables_are_merged_by_entry_and_lists_are_replaced() -> None:
    text = """
        [kafka.settings]
        "security.protocol" = "SSL"
        ssl.ca.location = "ca.pem"
        linger.ms = 5
        socket.keepalive.enable = true
        [federation.upstreams.east]
        url = "https://east"
        patterns = ["a/**", "b"]
    """
    environ = {
        "BELOG__KAFKA__SETTINGS__SSL_CA_LOCATION": "other.pem",
        "BELOG__KAFKA__SETTINGS__SASL__USERNAME": "me",
        "BELOG__FEDERATION__UPSTREAMS__EAST__PATTERNS": "c/*, d",
        "BELOG__FEDERATION__UPSTREAMS__WEST": "",
        "BELOG__FEDERATION__UPSTREAMS__NORTH__URL": "https://north",
    }
    found = load(text, environ)
    assert found.kafka.settings == {
        "security.protocol": "SSL",
        "ssl.ca.location": "other.pem",
        "linger.ms": "5",
        "socket.keepalive.enable": "true",
        "sasl.username": "me",
    }
    upstreams = found.federation.upstreams
    assert upstreams["east"].patterns == ("c/*", "d")
    assert upstreams["east"].url == "https://east"
    assert set(upstreams) == {"east", "north"}
    assert found.origin("federation.upstreams.east.url").source == "file"


def test_variables_hold_lists_and_tables_as_json() -> None:
    tokens = [{"actor": "a,b", "role": "read", "hash": HASH, "patterns": ["x/*"]}]
    environ = {
        "BELOG__ACCESS__TOKENS": json.dumps(tokens),
        "BELOG__KAFKA__SETTINGS": '{"sasl.password": "p"}',
        "BELOG__FEDERATION__UPSTREAMS": '{"east": {"url": "u", "patterns": ["a,b"]}}',
        "BELOG__SERVER__ALLOW_OPEN": "True",
        "BELOG__SERVER__WAIT_S_MAX": "2.5",
    }
    found = load("", environ)
    assert found.access.tokens[0].actor == "a,b"
    assert found.kafka.settings == {"sasl.password": "p"}
    assert found.federation.upstreams["east"].patterns == ("a,b",)
    assert found.server.allow_open
    assert found.server.wait_s_max == 2.5
    assert load("", {"BELOG__SERVER__ALLOW_OPEN": "0"}).server.allow_open is False


def test_every_key_can_be_set_by_file_and_by_variable() -> None:
    """So that no type is one that only one of them can say."""
    samples: dict[str, object] = {
        "access.tokens": [{"actor": "a", "role": "read", "hash": HASH}],
        "kafka.settings": {"client.id": "x"},
        "observability.log_format": "json",
        "observability.log_level": "debug",
    }
    # Of two that exclude each other one is enough here.
    left_out = {key.name for key in keys() if key.path[-1] == "token_file"}
    by_type: dict[str, object] = {"int": 2_000, "float": 2.5, "bool": True, "tuple": ["x"]}
    for key in keys():
        if key.name in left_out:
            continue
        kind = next((k for k in by_type if k in str(key.hint).split("Meta")[0]), "")
        samples.setdefault(key.name, by_type.get(kind, "x"))
    lines = {name.replace("NAME", "n"): value for name, value in samples.items()}
    by_file = load("\n".join(f"{name} = {_toml(value)}" for name, value in lines.items()))
    variables = {
        variable_of(name): value if isinstance(value, str) else json.dumps(value)
        for name, value in lines.items()
    }
    by_variable = load("", variables)
    assert {s.key: s.value for s in settings_of(by_file)} == {
        s.key: s.value for s in settings_of(by_variable)
    }
    defaults = [s.key for s in settings_of(by_file) if s.origin.source == "default"]
    assert [name for name in defaults if not name.endswith("token_file")] == []


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


# --- what is refused

REFUSED = [
    ("[sever]\nport = 1", {}, "unknown section sever (file belog.toml) — did you mean server?"),
    ("[server]\nprot = 1", {}, "unknown key server.prot .* did you mean server.port?"),
    ("[log]\nport = 1", {}, "unknown key log.port .* did you mean server.port?"),
    ("[log]\nxyzzy = 1", {}, "unknown key log.xyzzy .* known: uri, instance"),
    ("origins = 1", {}, "unknown section origins"),
    ("server = 1", {}, "server is a table"),
    ("[server]\nport = 'x'", {}, "server.port: Expected `int`, got `str` .file belog.toml."),
    ("[server]\nport = '1'", {}, "server.port: Expected `int`, got `str`"),
    ("[server]\nport = 65536", {}, "server.port: Expected `int` <= 65535"),
    ("[server]\nallow_open = 'yes'", {}, "server.allow_open: Expected `bool`"),
    ("[server]\npage_events_max = 10001", {}, "page_events_max: Expected `int` <= 10000"),
    ("[federation]\nupstreams = 1", {}, "federation.upstreams is a table"),
    ("[federation.upstreams]\neast = 1", {}, "federation.upstreams.east is a table"),
    ("[federation.upstreams.east]\npatterns = []", {}, "upstreams.east.url is missing"),
    ("[federation.upstreams.east]\nulr = 'x'", {}, "did you mean federation.upstreams.east.url"),
    ("[[access.tokens]]\nactor = 'a'", {}, "access.tokens: Object missing required field"),
    ("[kafka.settings]\nsasl.pasword = 'x'", {}, "kafka.settings.sasl.pasword .*sasl.password"),
    ("[kafka.settings]\nenable.idempotence = false", {}, "unknown key kafka.settings.enable"),
    ("[tls]\ncert_file = 'x'", {}, "tls.cert_file and tls.key_file need each other"),
    ("[tls]\nclient_ca_file = 'x'", {}, "tls.client_ca_file needs tls.cert_file"),
    ("[client]\ntoken = 'x'\ntoken_file = 'x'", {}, "client has both"),
    ("[observability]\nlog_level = 'loud'", {}, "observability.log_level: Invalid enum value"),
    ("[server", {}, "belog.toml is no TOML"),
    ("", {"BELOG__SERVER__PRT": "1"}, "BELOG__SERVER__PRT.* did you mean BELOG__SERVER__PORT?"),
    ("", {"BELOG__LGO__URI": "x"}, "did you mean BELOG__LOG__URI?"),
    ("", {"BELOG__SERVER": "x"}, "BELOG__SERVER is a section, not a key"),
    ("", {"BELOG__": "x"}, "unknown section"),
    ("", {"BELOG__SERVER__PORT__X": "x"}, "unknown key server.port.x"),
    ("", {"BELOG__SERVER__PORT": "1x"}, "server.port: Expected `int`, got `str` .environment"),
    ("", {"BELOG__SERVER__ALLOW_OPEN": "maybe"}, "server.allow_open: Expected `bool`"),
    ("", {"BELOG__ACCESS__TOKENS": "[{"}, "access.tokens is no JSON"),
    ("", {"BELOG__KAFKA__SETTINGS": "[]"}, "kafka.settings is no JSON object"),
]


@pytest.mark.parametrize(("text", "environ", "said"), REFUSED, ids=[said for *_, said in REFUSED])
def test_what_is_refused_is_named(text: str, environ: dict[str, str], said: str) -> None:
    pattern = said.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")
    with pytest.raises(InvalidConfiguration, match=pattern):
        load(text, environ)


def test_flags_are_refused_as_well() -> None:
    with pytest.raises(InvalidConfiguration, match=r"unknown key server.prot \(flag server.prot\)"):
        load(server__prot=1)
    with pytest.raises(InvalidConfiguration, match=r"server.port: .*flag"):
        load(server__port="x")


# --- what is hidden


def test_no_secret_is_shown() -> None:
    text = f"""
        log.uri = "kafka://b:9092/t?sasl.password={SECRET}"
        tables.uri = "redis://me:{SECRET}@r:6379/0"
        kafka.settings."sasl.password" = "{SECRET}"
        kafka.settings."sasl.oauthbearer.client.secret" = "{SECRET}"
        kafka.settings."sasl.username" = "me"
        redis.password = "{SECRET}"
        client.token = "{SECRET}"
        client.url = "https://me:{SECRET}@s"
        federation.upstreams.east.url = "https://me:{SECRET}@e/"
        federation.upstreams.east.token = "{SECRET}"
        observability.otlp_endpoint = "http://me:{SECRET}@o:4318/?key={SECRET}"
        access.tokens = [{{ actor = "a", role = "read", hash = "{HASH}" }}]
    """
    shown = {s.key: s.value for s in settings_of(load(text))}
    assert SECRET not in str(shown)
    assert HASH not in str(shown)
    assert shown["log.uri"] == "kafka://b:9092/t?***"
    assert shown["tables.uri"] == "redis://me:***@r:6379/0"
    assert shown["kafka.settings.sasl.password"] == "***"
    assert shown["kafka.settings.sasl.username"] == "me"
    assert shown["redis.password"] == shown["client.token"] == "***"
    assert shown["federation.upstreams.east.token"] == "***"
    assert shown["access.tokens"] == [{"actor": "a", "role": "read", "hash": "***", "patterns": ()}]
    assert shown["redis.username"] is None


@pytest.mark.parametrize(
    "environ",
    [
        {"BELOG__KAFKA__SETTINGS": f'{{"sasl.password": "{SECRET}"'},
        {"BELOG__KAFKA__SETTINGS": f'{{"sasl.password": ["{SECRET}"]}}'},
        {"BELOG__ACCESS__TOKENS": f"[{SECRET}"},
        {"BELOG__CLIENT__TOKEN__X": SECRET},
    ],
)
def test_errors_show_no_secret(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        load("", environ)
    assert SECRET not in str(raised.value)


# --- URIs


def test_settings_of_kafka_are_put_into_uris_and_those_of_the_uri_go_before() -> None:
    text = f"""
        log.uri = "kafka://b:9092/t?sasl.username=other&index=/i.db"
        [kafka.settings]
        security.protocol = "SASL_SSL"
        sasl.username = "me"
        sasl.password = "a&b=c/{SECRET} %"
    """
    uri = log_uri_of(load(text))
    assert uri is not None
    target = parse_uri(uri)
    assert target.settings == {
        "sasl.username": "other",
        "security.protocol": "SASL_SSL",
        "sasl.password": f"a&b=c/{SECRET} %",
    }
    assert target.index_path == "/i.db"
    bare = parse_uri(connected_uri("kafka://b:9092/t", load(text)))
    assert bare.settings["sasl.username"] == "me"
    for other in ("sqlite:///a.db", "memory:", "no uri", "postgresql://u:p@h/d"):
        assert connected_uri(other, load(text)) == other
    assert log_uri_of(Configuration()) is None
    assert tables_uri_of(Configuration()) == "memory:"


def test_settings_of_redis_are_put_into_uris_and_those_of_the_uri_go_before() -> None:
    text = """
        tables.uri = "rediss://r:6379/2?prefix=p"
        [redis]
        username = "me@home"
        password = "p/w:%@"
        ca_file = "/ca file.pem"
        cert_file = "/c.pem"
        key_file = "/k.pem"
    """
    found = load(text)
    uri = parse_redis_uri(tables_uri_of(found))
    assert (uri.host, uri.port, uri.db, uri.prefix) == ("r", 6379, 2, "p")
    assert (uri.username, uri.password) == ("me@home", "p/w:%@")
    assert uri.tls_settings == {
        "ssl_ca_certs": "/ca file.pem",
        "ssl_certfile": "/c.pem",
        "ssl_keyfile": "/k.pem",
    }
    own = parse_redis_uri(connected_uri("rediss://a:b@r/0?ssl_ca_certs=x", found))
    assert (own.username, own.password) == ("a", "b")
    assert own.tls_settings["ssl_ca_certs"] == "x"
    plain = parse_redis_uri(connected_uri("redis://r", found))
    assert (plain.username, plain.tls_settings) == ("me@home", {})
    alone = load('redis.password = "p"')
    assert connected_uri("redis://r:1/0", alone) == "redis://:p@r:1/0"


# --- binding


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1", "::ffff:127.0.0.1"])
def test_without_tokens_this_machine_is_served_and_told(host: str) -> None:
    server = ServerSection(host=host)
    assert f"({host})" in (check_binding(server, is_open=True) or "")
    assert check_binding(server, is_open=False) is None


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.168.1.2", "belog.example", "::ffff:1.2.3.4", "", "localhost."],  # noqa: S104 - refused
)
def test_without_tokens_others_are_refused_unless_asked_for(host: str) -> None:
    with pytest.raises(InvalidConfiguration, match="without tokens"):
        check_binding(ServerSection(host=host), is_open=True)
    assert check_binding(ServerSection(host=host), is_open=False) is None
    assert "everyone" in (
        check_binding(ServerSection(host=host, allow_open=True), is_open=True) or ""
    )


# --- documentation


def test_the_page_lists_every_key() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text[text.index(HEADING) :] == every_key(), (
        "python -m belog.service.configuration_reference prints what has to stand there"
    )
    for key in keys():
        assert f"| `{key.path[-1]}` | " in text
        assert key.meta.description, key.name


def test_the_example_of_the_page_can_be_used() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found = load(example)
    assert tomllib.loads(example).keys() == {o.split(".")[0] for o in found.origins}
    assert found.kafka.settings["ssl.ca.location"] == "ca.pem"
