"""Values from files: of the kinds they should be, and harmless where they are shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from unweave._core.kinds import check_fields, fits, shown
from unweave._core.text import printable


@dataclass(frozen=True)
class Inner:
    numbers: tuple[float, ...]


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner | None = None
    by_name: Mapping[str, int] | None = None


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (int, [0, -3, 2**62], [True, 1.0, "1", None, 2**63, 10**5000]),
        (float, [0, 1.5, -2], [True, "1", None, float("nan"), float("inf"), 10**400]),
        (str, ["", "x"], [b"x", 1, None]),
        (bool, [True], [1, "true"]),
        (str | None, ["x", None], [1]),
        (list[str], [[], ["x"]], ["x", [1], {"x": 1}]),
        (tuple[float, float], [(1, 2.0)], [(1,), (1, 2, 3), [1, 2]]),
        (tuple[int, ...], [(), (1, 2)], [(1, "x"), [1]]),
        (dict[str, float], [{}, {"a": 1}], [{1: 1}, {"a": "x"}, [("a", 1)]]),
        (Literal["a", "b"], ["a"], ["c", 1, ["a"]]),
        (Callable[[int], int], [len], [3]),
        (Inner, [Inner((1.0,))], [Inner(("x",)), Inner([1.0]), "x"]),  # type: ignore[arg-type]
        (Any, [1, None], []),
    ],
)
def test_what_fits(kind: Any, good: list[Any], bad: list[Any]) -> None:
    assert all(fits(value, kind) for value in good)
    assert not any(fits(value, kind) for value in bad)


def test_the_first_field_that_is_something_else_is_told_of() -> None:
    check_fields(Outer("x", Inner((1.0, 2)), {"a": 1}))
    with pytest.raises(TypeError, match="'inner' of Outer is Inner"):
        check_fields(Outer("x", Inner(("\x1b[2J",))))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'name' of Outer is 3"):
        check_fields(Outer(3))  # type: ignore[arg-type]


def test_what_is_shown_is_short_and_harmless() -> None:
    assert shown("\x1b[2J") == "'\\x1b[2J'"
    assert len(shown("x" * 1000)) < 80
    assert shown(10**5000) == "a int"


def test_a_terminal_is_left_alone() -> None:
    """Escape sequences, line breaks that forge a line, and marks that turn the direction of writing."""
    assert printable("a\x1b[31mb\r\n\u202ec\u2028d") == r"a\x1b[31mb\r\n\u202ec\u2028d"
    assert printable("one\ntwo\x07", lines=True) == "one\ntwo\\x07"
    assert printable("θ̂ → 3 nodes, ½‖x‖²") == "θ̂ → 3 nodes, ½‖x‖²"
