"""DAG files: what they mean, and what is refused before it costs anything."""

from pathlib import Path

import pytest

from belog.producers import dag
from belog.producers.dag import build_order, parse_graph, read_dag_files
from belog.schemas.errors import InvalidInput, LimitExceeded


def steps(text: str) -> dict[str, tuple[str, ...]]:
    return dict(parse_graph("g", text).steps)


def test_a_dependency_is_a_name_or_a_step_of_its_own() -> None:
    text = """
    steps:
      a:
        - b:
            - c:
                - d
                - e
            - d
        - e
      f:
      g: []
    """
    assert steps(text) == {"c": ("d", "e"), "b": ("c", "d"), "a": ("b", "e"), "f": (), "g": ()}


def test_a_set_and_a_map_of_dependencies() -> None:
    text = """
    steps:
      a: !!set {b, c}
      d: {e: , f: [g]}
      h: !!set {}
    """
    assert steps(text) == {"a": ("b", "c"), "f": ("g",), "d": ("e", "f"), "h": ()}


def test_a_step_defined_twice_depends_on_both() -> None:
    assert steps("steps: {a: [b: [c], d: [b: [e, c]]], b: [f]}")["b"] == ("c", "e", "f")
    assert steps("steps: {a: [b: [c]], b: }")["b"] == ("c",), "an empty one takes nothing away"


def test_an_alias_stands_for_what_it_names() -> None:
    assert steps("steps: {a: &x [c, d], b: *x}") == {"a": ("c", "d"), "b": ("c", "d")}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no map of steps"),
        ("[1, 2]", "no map of steps"),
        ("stages: {a: }", "no map of steps"),
        ("steps: [a, b]", "no map of steps"),
        ("steps:", "no map of steps"),
        ("steps: {a: b}", "are no list"),
        ("steps: {a: 3}", "are no list"),
        ("steps: {a: [3]}", "not text: 3"),
        ("steps: {a: [[b]]}", "not text: a list"),
        ("steps: {a: [null]}", "not text: None"),
        ("steps: {1: [b]}", "not text: 1"),
        ('steps: {"": [b]}', "not text: ''"),
        ("steps: {a: [{2024-01-01: [b]}]}", "not text: datetime"),
        ("steps: {a: [b", "not YAML"),
        ("steps: {a: *nowhere}", "not YAML"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("steps: {a: [2024-13-45]}", "not YAML: month"),
        ("steps: {a: [!!timestamp x]}", "not YAML"),
        ("steps: {a: [!!bool x]}", "not YAML"),
        ("steps: {a: [!!int x]}", "not YAML"),
        ("steps: {a: !!python/object/apply:os.getcwd []}", "not YAML"),
        ("steps: {? [a]: b}", "not YAML"),
        ("steps: {a: [\x00]}", "not YAML"),
        ("b: &b {c: }\nsteps: {<<: *b}", "merge key"),
    ],
)
def test_what_is_no_graph_is_named(text: str, what: str) -> None:
    with pytest.raises(InvalidInput, match=what) as caught:
        parse_graph("sales", text)
    assert "DAG sales" in caught.value.message


def test_nesting_has_a_bound() -> None:
    def nested(depth: int) -> str:
        return "steps: {s: " + "".join(f"[s{n}: " for n in range(depth)) + "[x]" + "]" * depth + "}"

    assert len(steps(nested(dag.DEPTH_MAX))) == dag.DEPTH_MAX + 1
    with pytest.raises(LimitExceeded, match=r"step 's64'.*DEPTH_MAX"):
        steps(nested(dag.DEPTH_MAX + 1))


@pytest.mark.parametrize("depth", [201, 1_000, 50_000, 1_000_000])
def test_deep_yaml_does_not_overflow_the_stack(depth: int) -> None:
    # Where it is not ours, it is a bound that the YAML library has by itself.
    with pytest.raises(InvalidInput, match="nesting"):
        steps("steps: " + "[" * depth + "]" * depth)
    with pytest.raises(InvalidInput):
        steps("steps: " + "{a: " * depth)


def bomb(level: str, top: str) -> str:
    lines = [
        "x0: &x0 [a, b]",
        *(f"x{n}: &x{n} {level.replace('@', f'*x{n - 1}')}" for n in range(1, 40)),
    ]
    return "\n".join(lines) + f"\nsteps: {{s: {top}}}"


def test_a_small_file_does_not_mean_endless_work() -> None:
    with pytest.raises(LimitExceeded, match="DEPENDENCIES_MAX"):
        steps(bomb("[{s: @}, {t: @}]", "*x39"))
    with pytest.raises(InvalidInput, match="not text: a list"):
        steps(bomb("[@, @]", "*x39"))
    with pytest.raises(InvalidInput, match="not text: a list"):
        steps(bomb("[@, @]", "[*x39]"))
    with pytest.raises(InvalidInput, match="merge key"):
        steps(bomb("{<<: [@, @], a: }", "*x39"))
    with pytest.raises(LimitExceeded, match="DEPTH_MAX"):
        steps("steps: &x {a: *x}")
    with pytest.raises(InvalidInput, match="not text: a list"):
        steps("steps: {a: &x [*x]}")


def test_files_are_graphs_named_after_them(tmp_path: Path) -> None:
    (tmp_path / "one.yml").write_text("steps: {ä: [b]}", encoding="utf-8")
    (tmp_path / "two.yaml").write_text("steps: {c: [ä]}", encoding="utf-8")
    graphs = read_dag_files([tmp_path / "one.yml", tmp_path / "two.yaml"])
    assert [(g.name, dict(g.steps)) for g in graphs] == [
        ("one", {"ä": ("b",)}),
        ("two", {"c": ("ä",)}),
    ]


def test_files_that_cannot_be_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latin.yml").write_bytes("steps: {ä: }".encode("latin-1"))
    (tmp_path / "a.yml").write_text("steps: {b: }")
    (tmp_path / "a.yaml").write_text("steps: {b: }")
    for paths, what in (
        (["nowhere.yml"], "cannot be read"),
        (["."], "cannot be read"),
        (["latin.yml"], "cannot be read"),
        (["a.yml", "a.yaml"], "two DAG files are named a"),
    ):
        with pytest.raises(InvalidInput, match=what):
            read_dag_files([tmp_path / path for path in paths])
    monkeypatch.setattr(dag, "DAG_FILE_BYTES_MAX", 10)
    with pytest.raises(LimitExceeded, match="DAG_FILE_BYTES_MAX"):
        read_dag_files([tmp_path / "a.yml"])


def test_a_circle_is_shown() -> None:
    with pytest.raises(InvalidInput, match=r"circle: b → c → b$"):
        build_order(["a"], {"a": ("b",), "b": ("x", "c"), "c": ("b",)})
    with pytest.raises(InvalidInput, match=r"circle: a → a$"):
        build_order(["a"], {"a": ("a",)})


def test_a_long_chain_needs_no_stack() -> None:
    chain = {str(n): (str(n + 1),) for n in range(100_000)}
    assert build_order(["0"], chain) == [str(n) for n in range(100_000, -1, -1)]
