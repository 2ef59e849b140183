"""YAML from outside: the one door through which it comes in, whatever it is.

What is read is YAML's core: mappings, lists, texts, numbers, bools and nothing. What would take the
process's time, memory or stack is refused while it is parsed, before anything is built of it.
"""

from __future__ import annotations

import copy
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import UserError
from orchestrator.files import require_file

SIZE = 1_000_000
"""Most bytes of a file, or characters of a text."""
LEVELS = 50
"""Most mappings and lists within one another."""
VALUES = 20_000
"""Most values, with those of an anchor counted wherever it is named."""
DIGITS = 64
"""Most characters of a number."""
INTEGERS = range(-(2**63), 2**63)
"""Those that arrays can hold."""

TAG = "tag:yaml.org,2002:"
NUMBERS = (TAG + "int", TAG + "float", TAG + "bool")
Problem = (
    yaml.YAMLError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError,
    RecursionError,
)  # fmt: skip
"""What YAML raises for odd texts, and not only by its own name."""


def parse(text: str, what: str) -> Any:
    """The value of a YAML text; ``what`` it is, for the sentence of the UserError."""
    try:
        if len(text) > SIZE:
            raise ValueError(f"it has more than {SIZE:,} characters")
        return yaml.load(text, _Loader)
    except Problem as error:
        raise UserError(f"{what} is not YAML: {_reason(error)}") from error


def parse_file(path: Path) -> Any:
    """The value in a YAML file; raises UserError with one sentence."""
    try:
        require_file(path)
        with path.open("rb") as file:
            # a byte more than is allowed: a device may have no end
            text = file.read(SIZE + 1)
        if len(text) > SIZE:
            raise ValueError(f"it has more than {SIZE:,} bytes")
        # whoever reads it may change it
        return copy.deepcopy(_loaded(text.decode("utf-8")))
    except (OSError, *Problem) as error:
        raise UserError(f"cannot read {path}: {_reason(error)}") from error


@lru_cache(maxsize=1000)
def _loaded(text: str) -> Any:
    """The value of a file's text, which takes milliseconds: whoever compares runs asks for their
    configs many times.
    """
    return yaml.load(text, _Loader)


def _reason(error: Exception) -> str:
    """Without the lines that YAML quotes, which may be long."""
    text = str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        at = error.problem_mark
        text = f"{error.problem} in line {at.line + 1}, column {at.column + 1}"
    return " ".join(text.split())


AMBIGUOUS = re.compile(r"[-+]?(0[0-7_]+|[0-9_]+(:[0-9_]+)+)")
"""Integers such as 010, which is 8 to YAML 1.1, and 1:30, which is 90."""


class _Loader(yaml.SafeLoader):
    """YAML's own loader knows no limits, and takes the last of two equal keys in silence."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.level = self.values = 0
        self.measured: dict[int, tuple[int, int]] = {}
        """id of a complete mapping or list -> values and levels in it."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        named = self.check_event(yaml.AliasEvent)
        self.level += 1
        self.values += 1
        self._require(self.values, self.level, self.peek_event())
        node = super().compose_node(parent, index)
        self.level -= 1
        if isinstance(node, yaml.CollectionNode):
            self._measure(node, named)
        return node

    def _measure(self, node: yaml.CollectionNode, named: bool) -> None:
        """Note what is in a mapping or list, whose own are noted by now."""
        if named and id(node) not in self.measured:
            raise _problem("an anchor holds itself", node)
        inner = [self.measured.get(id(one), (1, 0)) for one in _inside(node)]
        values = 1 + sum(many for many, _ in inner)
        levels = 1 + max((deep for _, deep in inner), default=0)
        self._require(values, levels, node)
        self.measured[id(node)] = values, levels

    def _require(self, values: int, levels: int, at: Any) -> None:
        if values > VALUES:
            raise _problem(f"there are more than {VALUES:,} values, with those of anchors", at)
        if levels > LEVELS:
            raise _problem(f"there are more than {LEVELS} levels", at)

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _problem("a mapping or list is a key", key)
            # YAML allows several merges in one mapping
            # 1 and 0x1 are one key
            name = key.value if key.tag not in NUMBERS else str(self.construct_object(key))
            if name in seen and name != "<<":
                raise _problem(f"the key {name!r} is there twice", key)
            seen.add(name)
        return node

    def bool_(self, node: Any) -> bool:
        """A bool, which a tag may claim of any text."""
        return bool(_as(self.construct_yaml_bool, node, "bool"))

    def integer(self, node: Any) -> int:
        """An integer that arrays can hold, written as everybody reads it."""
        value = int(_as(self.construct_yaml_int, node, "integer"))
        if value not in INTEGERS:
            raise _problem("an integer has more than 64 bits", node)
        if AMBIGUOUS.fullmatch(node.value):
            raise _problem(
                f"{node.value!r} is a number in base 8 or 60 to YAML; write it in base 10, or as "
                "text in quotes",
                node,
            )
        return value

    def real(self, node: Any) -> float:
        """Any other number."""
        return float(_as(self.construct_yaml_float, node, "number"))


def _inside(node: yaml.CollectionNode) -> list[yaml.Node]:
    """The values of a list; keys and values of a mapping."""
    pairs = isinstance(node, yaml.MappingNode)
    return [one for pair in node.value for one in pair] if pairs else list(node.value)


def _as(construct: Any, node: Any, what: str) -> Any:
    # those in base 60 take a time that grows with the square of their length
    if len(node.value) > DIGITS:
        raise _problem(f"a number has more than {DIGITS} digits", node)
    try:
        return construct(node)
    except (ValueError, LookupError, OverflowError) as error:
        raise _problem(f"{node.value!r} is no {what}", node) from error


def _problem(text: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=at.start_mark)


def _restrict() -> None:
    """Dates, bytes, sets and the value "=" are texts: what no config has cannot go wrong there."""
    others = (TAG + "timestamp", TAG + "value")
    _Loader.yaml_implicit_resolvers = {
        first: [one for one in found if one[0] not in others]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    kept = {TAG + kind for kind in ("null", "str", "seq", "map")} | {None}
    _Loader.yaml_constructors = {
        tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in kept
    }
    _Loader.add_constructor(TAG + "bool", _Loader.bool_)
    _Loader.add_constructor(TAG + "int", _Loader.integer)
    _Loader.add_constructor(TAG + "float", _Loader.real)


_restrict()
