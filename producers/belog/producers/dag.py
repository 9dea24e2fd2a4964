"""Graphs of data builds read from DAG files. Pure but for `read_dag_files`.

A DAG file is YAML: under `steps` a map from step to what it depends on. A dependency is a step's
name, or a map with one entry that defines the step on the spot, with its own dependencies, to any
depth. Each file is one graph, named after the file.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

import yaml
from msgspec import Struct

from belog.schemas.errors import InvalidInput, LimitExceeded

__all__ = ["DAG_FILE_BYTES_MAX", "Graph", "build_order", "parse_graph", "read_dag_files"]

DAG_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest DAG file, bytes: thirty times the largest of the real ones; YAML is slow to read."""

DEPTH_MAX: Final = 64
"""Deepest nesting of steps defined on the spot; the real files reach 5."""

YAML_DEPTH_MAX: Final = 200
"""Deepest nesting of the YAML itself: two collections a step, and some. Thousands would overflow
the stack of the YAML library, and with it end the process."""

DEPENDENCIES_MAX: Final = 1_000_000
"""Dependencies of one file, written out: 200 times those of all real files together. An alias
(`*name`) stands for all that its anchor holds, so a small file can mean a great many."""


class Graph(Struct, frozen=True):
    """One graph: the steps it makes, each with what it depends on."""

    name: str
    steps: Mapping[str, tuple[str, ...]]
    """In the order of the file."""


def parse_graph(name: str, text: str) -> Graph:
    """Read the text of a DAG file.

    Raises:
        InvalidInput: It is not YAML, or not of the form above; the message names file and step.
    """
    found = _fields(name, text).get("steps")
    if not isinstance(found, Mapping):
        msg = f"DAG {name} has no map of steps"
        raise InvalidInput(msg, hint="a DAG file has a top-level key `steps`")
    reading = _Reading(name)
    for step, dependencies in cast("Mapping[object, object]", found).items():
        reading.define(step, dependencies, 0)
    return Graph(name, {step: tuple(below) for step, below in reading.steps.items()})


# The C loader where PyYAML was built with it: ten times faster, the same result.
_SAFE_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _fields(name: str, text: str) -> Mapping[object, object]:
    try:
        _check_yaml(name, text)
        document: object = yaml.load(text, Loader=_SAFE_LOADER)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # PyYAML lets the errors of its own conversions out: a month 13, `!!bool x`.
        msg = f"DAG {name} is not YAML: {' '.join(str(error).split())}"
        raise InvalidInput(msg) from error
    return cast("Mapping[object, object]", document) if isinstance(document, Mapping) else {}


def _check_yaml(name: str, text: str) -> None:
    """Refuse what would cost more to load than it is long."""
    depth = 0
    for event in cast("Iterator[object]", yaml.parse(text, Loader=_SAFE_LOADER)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > YAML_DEPTH_MAX:
                raise LimitExceeded(
                    f"nesting of DAG {name}",
                    limit="YAML_DEPTH_MAX",
                    limit_value=YAML_DEPTH_MAX,
                    value=depth,
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and event.value == "<<":
            # Merging copies, and copies of copies grow without bound.
            msg = f"DAG {name} has a merge key (<<)"
            raise InvalidInput(msg, hint="write out what it stands for")


def _shown(value: object) -> str:
    """Describe what is no text; a collection of aliases may be endless when written out."""
    if isinstance(value, (Mapping, list, set, tuple)):
        return f"a {type(cast('object', value)).__name__}"
    return f"{value!r:.80}"


class _Reading:
    """One file being read."""

    def __init__(self, graph: str) -> None:
        self.graph = graph
        self.steps: dict[str, dict[str, None]] = {}
        self.count = 0

    def define(self, step: object, dependencies: object, depth: int) -> str:
        if not isinstance(step, str) or not step:
            msg = f"DAG {self.graph} has a step that is not text: {_shown(step)}"
            raise InvalidInput(msg)
        if depth > DEPTH_MAX:
            raise LimitExceeded(
                f"nesting of step {step!r:.80} in DAG {self.graph}",
                limit="DEPTH_MAX",
                limit_value=DEPTH_MAX,
                value=depth,
            )
        below: list[str] = []
        for dependency in _items(self.graph, step, dependencies):
            self._count()
            if isinstance(dependency, Mapping):
                for inner, its in cast("Mapping[object, object]", dependency).items():
                    below.append(self.define(inner, its, depth + 1))
            elif isinstance(dependency, str) and dependency:
                below.append(dependency)
            else:
                msg = f"DAG {self.graph}: step {step!r:.80} has a dependency that is not text: "
                raise InvalidInput(msg + _shown(dependency))
        # A step may be defined several times; what it depends on is all of that.
        self.steps.setdefault(step, {}).update(dict.fromkeys(below))
        return step

    def _count(self) -> None:
        self.count += 1
        if self.count > DEPENDENCIES_MAX:
            raise LimitExceeded(
                f"dependencies of DAG {self.graph}, aliases written out",
                limit="DEPENDENCIES_MAX",
                limit_value=DEPENDENCIES_MAX,
                value=self.count,
            )


def _items(graph: str, step: str, dependencies: object) -> Iterable[object]:
    if dependencies is None:
        return ()
    if isinstance(dependencies, list):
        return cast("Iterable[object]", dependencies)
    if isinstance(dependencies, set):
        # A `!!set` has no order; one that differs from run to run would make runs differ.
        return sorted(cast("set[object]", dependencies), key=repr)
    if isinstance(dependencies, Mapping):
        # A map where a list was meant: its keys are the dependencies.
        return ({k: v} if v is not None else k for k, v in _pairs(cast("object", dependencies)))
    msg = f"DAG {graph}: the dependencies of step {step!r} are no list"
    raise InvalidInput(msg)


def _pairs(node: object) -> Iterator[tuple[object, object]]:
    return iter(cast("Mapping[object, object]", node).items())


def read_dag_files(paths: Iterable[Path]) -> list[Graph]:
    """Read DAG files; the graphs are named after the files, without their endings.

    Raises:
        InvalidInput: A file that cannot be read, is too large or not of the form, or two files of
            one name.
    """
    graphs: dict[str, Graph] = {}
    for path in paths:
        try:
            if (size := path.stat().st_size) > DAG_FILE_BYTES_MAX:
                raise LimitExceeded(
                    f"DAG file {path}",
                    limit="DAG_FILE_BYTES_MAX",
                    limit_value=DAG_FILE_BYTES_MAX,
                    value=size,
                )
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"DAG file {path} cannot be read: {error}"
            raise InvalidInput(msg) from error
        if path.stem in graphs:
            msg = f"two DAG files are named {path.stem}"
            raise InvalidInput(msg)
        graphs[path.stem] = parse_graph(path.stem, text)
    return list(graphs.values())


def build_order(wanted: Iterable[str], steps: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the wanted steps and all they depend on, each after its dependencies.

    Names that no graph makes are in it too, since somebody has to find them there.

    Raises:
        InvalidInput: Steps that depend on each other in a circle; the message shows it.

    >>> build_order(["c"], {"c": ("a", "b"), "b": ("a",)})
    ['a', 'b', 'c']
    """
    order: dict[str, None] = {}
    for start in wanted:
        path: dict[str, Iterator[str]] = {}
        step: str | None = start
        while step is not None:
            if step in path:
                circle = [*list(path)[list(path).index(step) :], step]
                msg = "steps depend on each other in a circle: " + " → ".join(circle)
                raise InvalidInput(msg)
            if step not in order:
                path[step] = iter(steps.get(step, ()))
            step = _next_step(path, order)
    return list(order)


def _next_step(path: dict[str, Iterator[str]], order: dict[str, None]) -> str | None:
    """Move on to the next step below the deepest open one, closing those that are through."""
    while path:
        deepest = next(reversed(path))
        for below in path[deepest]:
            if below not in order:
                return below
        order[deepest] = None
        path.popitem()  # the deepest; unlike `del` it leaves no gap to be passed over each time
    return None
