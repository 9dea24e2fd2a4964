"""Configuration and tokens in files: which file is found, what is read again, what is refused."""

import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from belog.schemas.errors import InvalidConfiguration, Unauthenticated
from belog.service import tokens
from belog.service.access import ANONYMOUS, Role, TokenEntry, hash_token
from belog.service.cli import app
from belog.service.configuration import AccessSection
from belog.service.configuration_files import (
    CONFIG_BYTES_MAX,
    configuration_file,
    read_configuration,
)
from belog.service.tokens import (
    LiveAccess,
    access_of,
    append_token,
    entry_text,
    new_token,
    read_token,
    read_tokens,
)
from tests.servers import eventually

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def entry(token: str, actor: str = "a", *patterns: str) -> TokenEntry:
    return TokenEntry(actor=actor, role="append", hash=hash_token(token), patterns=patterns)


# --- which file


def test_the_first_file_there_is_counts(tmp_path: Path) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    for folder in (here, home / ".config" / "belog", tmp_path / "xdg" / "belog"):
        folder.mkdir(parents=True)
    environ = {"HOME": str(home)}

    def found(named: str | None = None, **more: str) -> str | None:
        file = configuration_file(named, {**environ, **more}, here)
        return None if file is None else file.text

    assert found() is None
    assert found(XDG_CONFIG_HOME="relative") is None
    (home / ".config" / "belog" / "config.toml").write_text("# home")
    assert found() == "# home"
    (tmp_path / "xdg" / "belog" / "config.toml").write_text("# xdg")
    assert found(XDG_CONFIG_HOME=str(tmp_path / "xdg")) == "# xdg"
    (here / "belog.toml").write_text("# here")
    assert found(XDG_CONFIG_HOME=str(tmp_path / "xdg")) == "# here"
    (here / "other.toml").write_text("# other")
    assert found(BELOG_CONFIG="other.toml") == "# other"
    assert found("belog.toml", BELOG_CONFIG="other.toml") == "# here"
    assert configuration_file(None, {}, tmp_path) is None


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"#" * (CONFIG_BYTES_MAX + 1))
    (tmp_path / "latin").write_bytes(b"# \xe4")
    for name, said in (
        ("none", "No such file"),
        ("large", "larger"),
        ("latin", "no UTF-8"),
        (".", "directory"),
    ):
        with pytest.raises(InvalidConfiguration, match=said):
            configuration_file(name, {}, tmp_path)
    (tmp_path / "belog.toml").write_text("[log]\nuri = 'sqlite:///a.db'")
    read = read_configuration({}, {"BELOG__LOG__INSTANCE": "i"}, folder=tmp_path)
    assert (read.log.uri, read.log.instance) == ("sqlite:///a.db", "i")
    assert read.origin("log.uri").name == "belog.toml"


# --- tokens


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    odd = entry(new_token(), 'ü"\\ =#]', 'x/**"', "[a-c]?", "tab")
    entries = (entry(new_token()), odd)
    for one in entries:
        append_token(path, one)
    assert read_tokens(path) == entries
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidConfiguration, match="same token"):
        append_token(path, odd)
    assert read_tokens(path) == entries
    assert entry_text(odd, "access.tokens").startswith("[[access.tokens]]\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[tokens]]\nactor = 'a'", "missing required field"),
        ("[[access.tokens]]\nactor = 'a'", "unknown field `access`"),
        ("[[tokens]\n", "tokens.toml"),
        ("[[tokens]]\nactor='a'\nrole='read'\nhash='sha256:0'\n", "hash"),
        ("[[tokens]]\nactor='a'\nrole='read'\nhash='x'\nrole_s=1", "role_s|hash"),
    ],
)
def test_tokens_files_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(InvalidConfiguration, match=said):
        access_of(AccessSection(tokens_file=str(path)))
    before = path.read_bytes()
    with pytest.raises(InvalidConfiguration):
        append_token(path, entry(new_token()))
    assert path.read_bytes() == before


def test_access_is_open_only_where_nothing_is_configured(tmp_path: Path) -> None:
    assert access_of(AccessSection()).authenticate(None).actor == ANONYMOUS
    path = tmp_path / "tokens.toml"
    with pytest.raises(InvalidConfiguration, match="No such file"):
        access_of(AccessSection(tokens_file=str(path)))
    path.write_text("")
    access = access_of(AccessSection(tokens_file=str(path)))
    assert not access.is_open
    with pytest.raises(Unauthenticated):
        access.authenticate(new_token())
    inline, filed = new_token(), new_token()
    append_token(path, entry(filed, "filed", "x/*"))
    both = access_of(AccessSection(tokens_file=str(path), tokens=(entry(inline, "inline"),)))
    assert both.authenticate(inline).actor == "inline"
    assert both.authenticate(filed).patterns == ("x/*",)


def test_a_client_reads_its_token_from_a_file(tmp_path: Path) -> None:
    path, token = tmp_path / "token", new_token()
    path.write_text(token + "\n")
    assert read_token(None, str(path)) == token
    assert read_token(token, None) == token
    assert read_token(None, None) is None
    with pytest.raises(InvalidConfiguration):
        read_token(None, str(tmp_path / "none"))


def test_tokens_are_added_and_removed_while_a_service_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tokens, "RELOAD_S", 0.01)
    path, first, second = tmp_path / "tokens.toml", new_token(), new_token()
    append_token(path, entry(first))
    access = LiveAccess(AccessSection(tokens_file=str(path)))

    def known(token: str) -> bool:
        try:
            access.authenticate(token)
        except Unauthenticated:
            return False
        return True

    assert known(first)
    assert not known(second)
    append_token(path, entry(second))
    eventually(lambda: known(second), "the token that was added is known", timeout_s=5)

    def replace(text: str) -> None:
        other = tmp_path / "other"
        other.write_text(text)
        os.replace(other, path)  # noqa: PTH105 - what editors do

    replace("[[tokens]")
    eventually(lambda: not known("x") and bool(caplog.records), "it is reported", timeout_s=5)
    assert "tokens stay as they were" in caplog.text
    assert known(second)
    replace(entry_text(entry(second)))
    eventually(lambda: not known(first), "the token that was removed is not known", timeout_s=5)
    path.unlink()
    assert known(second)
    replace("")
    eventually(lambda: not known(second), "a file without tokens lets nobody in", timeout_s=5)
    assert not access.is_open


# --- commands, in this process


@pytest.fixture(name="here")
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BELOG_CONFIG", raising=False)
    return tmp_path


def run(*arguments: str, stdin: str | None = None, **env: str) -> str:
    return CliRunner().invoke(app, arguments, input=stdin, env=env, catch_exceptions=False).stdout


@pytest.mark.usefixtures("here")
def test_a_made_token_is_good_for_what_it_says() -> None:
    token = run(
        "token", "create", "--actor", "me", "--role", "append", "--pattern", "x/*", "--file", "t"
    ).strip()
    grant = access_of(AccessSection(tokens_file="t")).authenticate(token)
    assert (grant.actor, grant.role, grant.patterns) == ("me", Role.APPEND, ("x/*",))
    assert run("token", "hash", stdin=token + "\n").strip() == hash_token(token)
    shown, _, printed = run("token", "create", "--actor", "me", "--role", "read").partition("\n\n")
    Path("t").write_text(printed)
    assert access_of(AccessSection(tokens_file="t")).authenticate(shown).role is Role.READ
    for wrong in (["--role", "admin", "--pattern", "x"], ["--role", "read", "--pattern", "["]):
        with pytest.raises(InvalidConfiguration, match=r"admin|bracket"):
            run("token", "create", "--actor", "me", *wrong)


def test_the_commands_of_the_page_run(here: Path) -> None:
    (here / "production.toml").write_text("[server]\nhost = '::1'\n")
    (here / "dashboard.token").write_text(new_token())
    commands = re.findall(r"^    belog (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        words, _, source = command.partition(" < ")
        stdin = (here / source).read_text(encoding="utf-8") if source else None
        assert run(*shlex.split(words), stdin=stdin), command


def test_commands_take_their_defaults_from_the_file(here: Path) -> None:
    (here / "belog.toml").write_text(
        "[log]\nuri = 'sqlite:///b.db'\ninstance = 'one'\n[producer]\nactor = 'me'\n"
    )
    run("append", "v1.partition.observed", "x/1")
    assert "[me]" in run("events")
    assert '"instance":"one"' in run("status", "--json")
    # The environment goes before the file, a flag before both.
    run("append", "v1.partition.removed", "x/1", BELOG__PRODUCER__ACTOR="you")
    run("append", "v1.partition.observed", "x/1", "--actor", "she", BELOG__PRODUCER__ACTOR="you")
    actors = [line.split("[")[1].split("]")[0] for line in run("events").splitlines()]
    assert actors[1:] == ["me", "you", "she"]
    assert "x/1" in run("partition", "list")
    (here / "other.toml").write_text("[log]\nuri = 'sqlite:///none.db'")
    with pytest.raises(Exception, match="no log"):
        run("--config", "other.toml", "events")
    assert "x/1" in run("--config", "other.toml", "events", "--log", "sqlite:///b.db")


def test_config_shows_and_checks(here: Path) -> None:
    (here / "belog.toml").write_text("[tls]\ncert_file = 'c.pem'\nkey_file = 'k.pem'\n")
    assert "file belog.toml" in next(x for x in run("config").splitlines() if "tls.cert" in x)
    shown = run("config", "--json", BELOG__SERVER__PORT="9")
    assert '{"key":"server.port","value":9,"from":{"source":"environment",' in shown
    with pytest.raises(InvalidConfiguration, match=r"c\.pem"):
        run("config", "check")
    (here / "belog.toml").write_text("[server]\nhost = '0.0.0.0'\n")
    with pytest.raises(InvalidConfiguration, match=r"0\.0\.0\.0"):
        run("config", "check")
    assert run("config", "check", BELOG__SERVER__ALLOW_OPEN="true") == "ok\n"
    for wrong in ("url = 'lake'", "url = 'http://lake:1'\npatterns = ['[']"):
        (here / "belog.toml").write_text(f"[federation.upstreams.lake]\n{wrong}\n")
        with pytest.raises(InvalidConfiguration, match=r"federation\.upstreams\.lake"):
            run("config", "check")
        with pytest.raises(InvalidConfiguration, match=r"federation\.upstreams\.lake"):
            run("serve", "--log", "sqlite:///never.db", "--port", "0")
        assert not (here / "never.db").exists()


def test_a_wrong_configuration_stops_every_command_but_help(here: Path) -> None:
    (here / "belog.toml").write_text("[lgo]\nuri = 'x'")
    for command in (
        ("events",),
        ("config",),
        ("token", "create", "--actor", "a", "--role", "read"),
    ):
        with pytest.raises(InvalidConfiguration, match=r"unknown section lgo \(file belog.toml\)"):
            run(*command)
    assert "belog" in run("--version")
    assert list(here.iterdir()) == [here / "belog.toml"]


def test_help_shows_no_configured_password(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "belog.toml").write_text(
        "[log]\nuri = 'postgresql://me:hunter2@h/d'\n[tables]\nuri = 'redis://me:hunter2@h/0'"
    )
    for command in ("events", "worker", "status", "activity"):
        monkeypatch.setattr("sys.argv", ["belog", command, "--help"])
        assert "hunter2" not in run(command, "--help", COLUMNS="300")
        # Usage errors show no default either.
        monkeypatch.setattr("sys.argv", ["belog", command])
        result = CliRunner().invoke(app, [command, "--no-such-option"])
        assert result.exit_code == 2
        assert "hunter2" not in result.output
