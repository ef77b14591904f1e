"""Configurations from plain values: what fits is taken over exactly, what does not is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from worldplan.errors import ConfigError
from worldplan.models.settings import check, parse


@dataclass(frozen=True)
class Recipe:
    count: int = 3
    rate: float = 0.5
    name: str = "a"
    on: bool = True
    widths: tuple[int, ...] = (1, 2)

    def __post_init__(self) -> None:
        check(self, count=(self.count >= 1, "at least 1"), rate=(self.rate >= 0, "0 or more"))


def test_plain_values_become_a_configuration_and_lists_tuples() -> None:
    found = parse(Recipe, {"count": 4, "rate": 2, "name": "b", "on": False, "widths": [5]})
    assert found == Recipe(4, 2.0, "b", False, (5,))
    # equality would let an integer pass for a float, and a checkpoint would then be written differently
    assert type(found.rate) is float and type(found.widths) is tuple
    assert parse(Recipe, {"widths": ()}).widths == ()


def test_what_is_left_out_keeps_its_default_and_what_is_built_is_returned() -> None:
    assert parse(Recipe, {"name": "b"}) == Recipe(name="b")
    built = Recipe(count=9)
    assert parse(Recipe, built) is built


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 3.0), ("count", "3"), ("count", True), ("count", None),
        ("rate", "0.5"), ("rate", True),
        ("name", 3),
        ("on", 1), ("on", "true"),
        ("widths", 3), ("widths", "12"), ("widths", [1.5]), ("widths", [True]), ("widths", None),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_and_named(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{field} of Recipe has the wrong type") as caught:
        parse(Recipe, {field: value})
    assert repr(value) in str(caught.value)


def test_an_unknown_name_is_refused_with_one_that_comes_close() -> None:
    with pytest.raises(ConfigError, match="Recipe has no field 'width'") as caught:
        parse(Recipe, {"width": [1]})
    assert "did you mean widths" in str(caught.value)


def test_a_value_out_of_range_is_refused_by_the_configuration_itself() -> None:
    with pytest.raises(ConfigError, match="count of Recipe is out of range") as caught:
        parse(Recipe, {"count": 0, "rate": -1})
    assert "at least 1" in str(caught.value) and "found:    0" in str(caught.value)
    with pytest.raises(ConfigError, match="rate of Recipe"):
        Recipe(rate=-1)
