"""Tokens, roles and patterns: who may do what."""

import re
from itertools import product
from typing import get_args

import pytest

from belog.schemas.envelope import Event
from belog.schemas.errors import Forbidden, InvalidConfiguration, InvalidInput, Unauthenticated
from belog.schemas.events import new_event
from belog.schemas.filters import EventFilter, glob_regex
from belog.schemas.lifecycle import SubjectKind
from belog.service.access import (
    ANONYMOUS,
    GRANT_PATTERNS_MAX,
    TOKEN_CHARS_MAX,
    TOKENS_MAX,
    Access,
    Grant,
    Role,
    RoleName,
    TokenEntry,
    hash_token,
    token_text,
)

TOKEN = token_text(bytes(range(32)))
OTHER = token_text(bytes(range(1, 33)))
SALES = Grant("sales", Role.APPEND, ("sales/**", "shared/*", "log-?"))
FREE = Grant("free", Role.APPEND)


def entry(**fields: object) -> TokenEntry:
    given: dict[str, object] = {"actor": "a", "role": "append", "hash": hash_token(TOKEN), **fields}
    return TokenEntry(**given)  # type: ignore[arg-type]  # wrong ones are given on purpose


def event(event_type: str, subject: str, **body: object) -> Event:
    return new_event(
        event_type,
        subject,
        body,  # type: ignore[arg-type]  # JSON
        event_id=bytes(16),
        actor="sales",
        occurred_at=0,
    )


# --- tokens


def test_a_token_is_known_by_its_hash() -> None:
    access = Access([entry(patterns=("x/*",)), entry(actor="b", hash=hash_token(OTHER))])
    assert access.authenticate(TOKEN) == Grant("a", Role.APPEND, ("x/*",))
    assert access.authenticate(OTHER).actor == "b"
    assert not access.is_open


@pytest.mark.parametrize(
    "token",
    [None, "", "belog_", TOKEN[:-1], TOKEN + "A", TOKEN.upper(), OTHER, "\ud800", TOKEN + " ",
     hash_token(TOKEN), "x" * 10_000_000],
    ids=lambda token: repr(token)[:20],
)  # fmt: skip
def test_other_tokens_are_not(token: str | None) -> None:
    with pytest.raises(Unauthenticated) as raised:
        Access([entry()]).authenticate(token)
    assert TOKEN not in str(raised.value)
    with pytest.raises(Unauthenticated):
        Access([]).authenticate(token)


def test_a_token_over_the_bound_is_not_known_by_its_beginning() -> None:
    longest = "x" * TOKEN_CHARS_MAX
    access = Access([entry(hash=hash_token(longest))])
    assert access.authenticate(longest).actor == "a"
    with pytest.raises(Unauthenticated):
        access.authenticate(longest + "x")


@pytest.mark.parametrize("token", ["", "short", "x" * 21, "x" * 30 + " ", "ü" * 30, "x" * 1025])
def test_what_can_be_guessed_is_not_hashed(token: str) -> None:
    with pytest.raises(InvalidInput):
        hash_token(token)


def test_tokens_look_the_same_and_are_all_random() -> None:
    assert TOKEN.startswith("belog_")
    assert len(TOKEN) == len("belog_") + 43
    assert len({token_text(bytes([n]) * 32) for n in range(256)}) == 256
    with pytest.raises(InvalidInput):
        token_text(bytes(16))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"actor": "a\n"}, "control character"),
        ({"actor": "a" * 257}, "ACTOR_BYTES_MAX"),
        ({"patterns": ("[",)}, "bracket"),
        ({"patterns": ("x",) * (GRANT_PATTERNS_MAX + 1)}, "GRANT_PATTERNS_MAX"),
        ({"patterns": ("x",), "role": "admin"}, "not restricted"),
        ({"hash": "sha256:00"}, "the role or the hash"),
        ({"role": "owner"}, "the role or the hash"),
    ],
)
def test_entries_that_cannot_be_used(fields: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        Access([entry(**fields)])


def test_one_token_has_one_entry() -> None:
    with pytest.raises(InvalidConfiguration, match="same token"):
        Access([entry(), entry(actor="b")])
    many = [entry(hash=hash_token(f"{n:030}")) for n in range(TOKENS_MAX + 1)]
    assert Access(many[1:]).authenticate(f"{TOKENS_MAX:030}").actor == "a"
    with pytest.raises(InvalidConfiguration, match="TOKENS_MAX"):
        Access(many)


def test_open_access_keeps_whom_the_client_names() -> None:
    access = Access.open()
    assert access.is_open
    for token in (None, "whatever"):
        grant = access.authenticate(token)
        grant.require(Role.ADMIN)
        assert grant.actor_for(None) == grant.actor_for("") == ANONYMOUS
        assert grant.actor_for("jane") == "jane"
    assert Access.open("cli").authenticate(None).actor_for("") == "cli"


# --- roles


def test_roles_are_ordered_and_named() -> None:
    assert Role.READ < Role.APPEND < Role.ADMIN
    assert tuple(role.label for role in Role) == get_args(RoleName)


@pytest.mark.parametrize("has", Role)
@pytest.mark.parametrize("needs", Role)
def test_a_role_may_what_lesser_ones_may(has: Role, needs: Role) -> None:
    grant = Grant("a", has)
    if has >= needs:
        grant.require(needs)
        return
    with pytest.raises(Forbidden, match=f"role {has.label}, this needs {needs.label}"):
        grant.require(needs)


# --- what it may write


@pytest.mark.parametrize(
    "allowed",
    [
        event("v1.partition.requested", "sales/a/b", build_request_id="b"),
        event("v1.partition.requested", "shared/x", build_request_id="b"),
        event("v1.job.scheduled", "j", build_request_id="b", outputs=["sales/x", "log-1"]),
        event("v1.job.scheduled", "j", build_request_id="b", outputs=["sales/x"], inputs=["raw/y"]),
        event("v1.build.received", "b", requested_partitions=["sales/x"]),
        event("v1.build.received", "b"),
        event("v1.job.running", "j"),
    ],
    ids=lambda e: f"{e.event_type} {e.subject_id}",
)
def test_events_within_the_patterns(allowed: Event) -> None:
    SALES.check_event(allowed)


@pytest.mark.parametrize(
    "outside",
    [
        event("v1.partition.requested", "raw/a", build_request_id="b"),
        event("v1.partition.requested", "shared/x/y", build_request_id="b"),
        event("v1.partition.requested", "log-", build_request_id="b"),
        event("v1.job.scheduled", "j", build_request_id="b", outputs=["sales/x", "raw/x"]),
        event("v1.job.skipped", "j", build_request_id="b", outputs=["raw/x"]),
        event("v1.build.received", "b", requested_partitions=["sales/x", "raw/x"]),
        event("v1.system.lifecycle_adopted", "l", lifecycle_version=2),
        event("v2.partition.moved", "raw/a"),
    ],
    ids=lambda e: f"{e.event_type} {e.subject_id}",
)
def test_events_outside_the_patterns(outside: Event) -> None:
    with pytest.raises(Forbidden):
        SALES.check_event(outside)
    if outside.subject_kind != "system":
        FREE.check_event(outside)


def test_later_events_of_a_job_run_count_by_what_the_tables_know() -> None:
    def refs_of(kind: SubjectKind, subject_id: str) -> list[str] | None:
        return {("job_run", "theirs"): ["raw/x"], ("job_run", "ours"): ["sales/x"],
                ("build", "theirs"): ["sales/x", "raw/x"]}.get((kind, subject_id))  # fmt: skip

    SALES.check_event(event("v1.job.completed", "ours"), refs_of)
    SALES.check_event(event("v1.job.completed", "never seen"), refs_of)
    FREE.check_event(event("v1.job.completed", "theirs"), refs_of)
    skipped = event("v1.job.skipped", "theirs", build_request_id="b", outputs=["sales/x"])
    for refused in (
        event("v1.job.completed", "theirs"),
        skipped,
        event("v1.build.cancelled", "theirs"),
    ):
        with pytest.raises(Forbidden):
            SALES.check_event(refused, refs_of)


def test_events_need_a_role() -> None:
    adopted = event("v1.system.lifecycle_adopted", "l", lifecycle_version=2)
    running = event("v1.job.running", "j")
    Grant("a", Role.ADMIN).check_event(adopted)
    FREE.check_event(running)
    for role, refused in ((Role.APPEND, adopted), (Role.READ, running), (Role.READ, adopted)):
        with pytest.raises(Forbidden):
            Grant("a", role).check_event(refused)


def test_the_actor_is_the_authenticated_one() -> None:
    mine = event("v1.job.running", "j")
    assert SALES.sign(mine) is mine
    assert FREE.actor_for(None) == "free"
    unsigned = Event(
        **{name: getattr(mine, name) for name in mine.__struct_fields__} | {"actor": ""}
    )
    assert SALES.sign(unsigned) == mine
    with pytest.raises(Forbidden, match=r"'sales'.*'free'"):
        FREE.sign(mine)
    assert Access.open().authenticate(None).sign(mine) is mine
    assert Access.open().authenticate(None).sign(unsigned).actor == ANONYMOUS


# --- what it may read


def test_refs_within_and_outside() -> None:
    SALES.check_refs(["sales/a", "sales/a/b", "shared/x", "log-1"])
    FREE.check_refs(["anything"])
    assert SALES.covers("sales/x")
    assert not SALES.covers("sales")
    assert SALES.sees(["raw/x", "sales/x"])
    assert not SALES.sees(["raw/x"])
    assert not SALES.sees([])
    assert FREE.sees([])
    with pytest.raises(Forbidden) as raised:
        SALES.check_refs(["sales/a", "raw/b"])
    assert raised.value.subject == "partition:raw/b"


def test_a_filter_gets_the_patterns_where_it_has_none() -> None:
    wanted = EventFilter(actors=("a",), partition_refs=("sales/x",), created_from=5)
    narrowed = SALES.narrow(wanted)
    assert narrowed == EventFilter(
        actors=("a",),
        partition_refs=("sales/x",),
        created_from=5,
        partition_patterns=SALES.patterns,
    )
    assert FREE.narrow(wanted) is wanted
    with pytest.raises(Forbidden):
        SALES.narrow(EventFilter(partition_refs=("sales/x", "raw/x")))


@pytest.mark.parametrize(
    "pattern",
    ["sales/**", "sales/*", "sales/2026-*", "sales/[ab]/**", "sales/x", "shared/x*", "shared/?",
     "shared/[a-c]*", "log-?", "log-7"],
)  # fmt: skip
def test_patterns_within(pattern: str) -> None:
    wanted = EventFilter(partition_patterns=(pattern,))
    assert SALES.narrow(wanted) is wanted


@pytest.mark.parametrize(
    "pattern",
    ["**", "*", "sales*", "s*/x", "[s]ales/x", "shared/**", "shared/*/x", "shared/x**", "raw/x",
     "shared/x/y", "log-*", "log-[12]", "", "sales"],
)  # fmt: skip
def test_patterns_that_are_not_evidently_within(pattern: str) -> None:
    with pytest.raises(Forbidden):
        SALES.narrow(EventFilter(partition_patterns=("sales/x", pattern)))


def test_no_pattern_is_let_through_that_matches_more() -> None:
    """All short patterns against all others, on all short refs."""
    pieces = ("a", "/", "*", "?", "[a]", "[!a]")
    patterns = ["".join(p) for n in (1, 2, 3) for p in product(pieces, repeat=n)]
    refs = ["".join(r) for n in (1, 2, 3) for r in product("ab/*", repeat=n)]
    matched = {p: {r for r in refs if re.fullmatch(glob_regex(p), r, re.DOTALL)} for p in patterns}
    let_through = 0
    for own in patterns:
        grant = Grant("a", Role.READ, (own,))
        for pattern in patterns:
            try:
                grant.narrow(EventFilter(partition_patterns=(pattern,)))
            except Forbidden:
                continue
            let_through += 1
            assert matched[pattern] <= matched[own], (pattern, own)
    assert let_through > 1_000
