"""Every option of every view is of the kind that its signature says, or is refused in one sentence."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, get_type_hints

import numpy as np
import pytest

from inspection_common import subject_of, task_on
from seqloom.errors import ConfigError
from seqloom.inspect.inspector import VIEWS, Inspection, fits, kind_name

CASES = [
    (name, option) for name, look in VIEWS.items() for option in [*inspect.signature(look.function).parameters][2:]
]


class Strange:
    """A value of no kind that a view knows."""

    def __repr__(self) -> str:
        return "<strange>"


@pytest.fixture(scope="module")
def inspection(tmp_path_factory: pytest.TempPathFactory) -> Inspection:
    subject = subject_of(task_on(tmp_path_factory.mktemp("translate"), "translate"), "transformer")
    return Inspection(subject, "the big cat", target="le grand chat")


def test_a_strange_value_of_any_option_of_any_view_is_refused_by_its_name(inspection: Inspection) -> None:
    seen = 0
    for name, option in CASES:
        look = VIEWS[name].function
        if get_type_hints(look)[option] is Any:
            continue
        needed = [one for one, kind in inspect.signature(look).parameters.items() if kind.default is kind.empty]
        others = {one: _some(get_type_hints(look)[one]) for one in needed[2:] if one != option}
        with pytest.raises(ConfigError, match=rf"view {name}: {option} is <strange>.*Fix: give "):
            inspection.view(name, **{**others, option: Strange()})
        seen += 1
    assert seen > 90


def _some(kind: Any) -> Any:
    return next((one for one in ("x", 0, 0.5, nullcontext()) if fits(one, kind)), None)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("alignment", {"gold": [1, 2]}, "give a string, a list of pairs of integers or a Gold"),
        ("alignment", {"gold": 5}, "gold is 5"),
        ("alignment", {"gold": None}, "gold is None"),
        ("alignment", {"gold": [(True, False)]}, "gold is"),
        ("logit_lens", {"window": (3,)}, "give two integers or None"),
        ("logit_lens", {"window": 5}, "window is 5"),
        ("logit_lens", {"window": (0, 2.5)}, r"window is \(0, 2.5\)"),
        ("attention", {"layer": [1]}, "give an integer, a string or None"),
        ("attention", {"head": "1"}, "head is '1'.*give an integer or None"),
        ("attention", {"words": 1}, "give True or False"),
        ("swap", {"old": "big", "new": "small", "at": "0"}, "at is '0'"),
        ("swap", {"old": "big", "new": "small", "views": "attention"}, "give a list of strings or None"),
        ("faithfulness", {"tolerance": "x"}, "tolerance is 'x'.*give a number"),
        ("edits", {"edit": 3}, "give an edit"),
    ],
)
def test_what_is_not_of_its_kind_is_told_with_what_is(
    inspection: Inspection, name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        inspection.view(name, **options)


def test_numbers_of_numpy_and_lists_do_as_well(inspection: Inspection) -> None:
    plain = inspection.alignment(head=0, gold=[(0, 0), (1, 2)])
    same = inspection.alignment(head=np.int64(0), gold=np.array([[0, 0], [1, 2]]))  # type: ignore[arg-type]
    assert plain.to_json() == same.to_json()
    assert inspection.logit_lens(window=[0, 2]).tokens == inspection.logit_lens(window=(0, 2)).tokens  # type: ignore[arg-type]
    assert inspection.attention(layer=0, token=np.int64(1)).rows == inspection.attention(layer=0, token=1).rows  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        (1, float, True),
        (np.float32(0.5), float, True),
        (True, float, False),
        (np.bool_(True), bool, True),
        ("ab", Sequence[str], False),
        (["a", "b"], Sequence[str], True),
        (["a", 1], Sequence[str], False),
        ((), Sequence[int], True),
        (len, Callable[[Any], int], True),
        (3, Callable[[Any], int] | None, False),
    ],
)
def test_a_kind_is_what_its_annotation_says(value: Any, kind: Any, found: bool) -> None:
    assert fits(value, kind) is found
    assert kind_name(kind)
