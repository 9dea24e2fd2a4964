"""Laws of build orders and of the parser of DAG files."""

import itertools
from collections.abc import Mapping

import yaml
from hypothesis import given
from hypothesis import strategies as st

from belog.producers.dag import build_order, parse_graph
from belog.schemas.errors import InvalidInput

NAMES = st.sampled_from([f"n{n}" for n in range(12)])
ANY_GRAPH = st.dictionaries(NAMES, st.lists(NAMES, max_size=5).map(tuple), max_size=12)


@st.composite
def acyclic(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    order = draw(st.permutations([f"n{n}" for n in range(12)]))
    return {
        name: tuple(draw(st.lists(st.sampled_from(order[:place]), max_size=4)) if place else ())
        for place, name in enumerate(order)
        if draw(st.booleans())
    }


def reachable(wanted: list[str], steps: Mapping[str, tuple[str, ...]]) -> set[str]:
    found, open_ = set(wanted), list(wanted)
    while open_:
        for below in steps.get(open_.pop(), ()):
            if below not in found:
                found.add(below)
                open_.append(below)
    return found


def assert_ordered(
    order: list[str], wanted: list[str], steps: Mapping[str, tuple[str, ...]]
) -> None:
    assert len(order) == len(set(order))
    assert set(order) == reachable(wanted, steps)
    place = {step: n for n, step in enumerate(order)}
    for step in order:
        assert all(place[below] < place[step] for below in steps.get(step, ()))


@given(acyclic(), st.lists(NAMES, max_size=5))
def test_every_step_comes_after_its_dependencies(
    steps: dict[str, tuple[str, ...]], wanted: list[str]
) -> None:
    assert_ordered(build_order(wanted, steps), wanted, steps)


@given(ANY_GRAPH, st.lists(NAMES, min_size=1, max_size=5))
def test_a_circle_is_found_if_and_only_if_there_is_one(
    steps: dict[str, tuple[str, ...]], wanted: list[str]
) -> None:
    has_circle = any(
        step in reachable(list(steps.get(step, ())), steps) for step in reachable(wanted, steps)
    )
    try:
        order = build_order(wanted, steps)
    except InvalidInput as error:
        assert has_circle
        circle = error.message.split(": ")[1].split(" → ")
        assert circle[0] == circle[-1]
        for step, below in itertools.pairwise(circle):
            assert below in steps[step], "what is shown is a circle of this graph"
    else:
        assert not has_circle
        assert_ordered(order, wanted, steps)


TREES: st.SearchStrategy[object] = st.recursive(
    st.one_of(st.none(), NAMES, st.integers(), st.dates(), st.floats(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(NAMES, st.integers()), inner)
    ),
)


@given(st.dictionaries(NAMES, TREES, max_size=5))
def test_any_yaml_is_a_graph_or_refused(tree: dict[str, object]) -> None:
    try:
        graph = parse_graph("g", yaml.safe_dump({"steps": tree}))
    except InvalidInput:
        return
    assert set(tree) <= set(graph.steps)


@given(st.text(st.sampled_from("steps:{}[]&*!<>|-?,a \n\"'0"), max_size=60))
def test_any_text_is_a_graph_or_refused(text: str) -> None:
    for start in ("", "steps: ", "steps: {a: "):
        try:
            parse_graph("g", start + text)
        except InvalidInput:
            continue


@given(acyclic())
def test_what_is_written_is_read(steps: dict[str, tuple[str, ...]]) -> None:
    text = yaml.safe_dump({"steps": {name: list(below) for name, below in steps.items()}})
    expected = {name: tuple(dict.fromkeys(below)) for name, below in steps.items()}
    assert dict(parse_graph("g", text).steps) == expected
