"""Every extra has its importer: what can be installed is what some part of Seqloom asks for when it is missing."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = {"all", "dev", "soak"}  # made of the others, and of what the tests need


def test_every_extra_is_asked_for_and_every_one_that_is_asked_for_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.findall(r'needing\("(\w+)"\)', "".join(p.read_text() for p in (ROOT / "src").rglob("*.py")))
    assert set(asked) == set(extras) - TOOLS
    (whole,) = extras["all"]
    assert set(whole.removeprefix("seqloom[").removesuffix("]").split(",")) == set(extras) - TOOLS
