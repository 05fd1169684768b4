"""A configuration written and read back is the same one, whatever it holds."""

from collections import Counter
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.configurations import Made, models, of_recipes, records
from seqloom.config.base import Config, _fields, from_data, from_json, from_toml
from seqloom.config.data import DataConfig
from seqloom.config.models import AnyModel, model_from_json, model_from_toml, read_model
from seqloom.config.stacks import StackConfig
from seqloom.config.training import RangeConfig, RunConfig, SpaceConfig, TrainingConfig

drawing = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def kinds(base: type[Config] = Config) -> list[type[Config]]:
    """Every configuration that a file can hold."""
    below = [kind for child in base.__subclasses__() for kind in kinds(child)]
    ours = base.__module__.startswith("seqloom.")  # a test may define one of its own
    return [base, *below] if ours and base.__struct_config__.tag else below


# Parts of parts that are drawn by themselves, or would hardly ever go together.
GIVEN: dict[type[Config], dict[str, Any]] = {
    RunConfig: {"data": DataConfig(train=("a",)), "model": next(of_recipes()).config, "training": TrainingConfig()},
    SpaceConfig: {name: RangeConfig(low=0.1, high=0.3) for name in ("lr", "dropout", "weight_decay", "warmup")},
}
PARTS = [kind for kind in kinds() if kind not in get_args(AnyModel) and not issubclass(kind, StackConfig)]


@pytest.mark.parametrize("made", list(of_recipes()), ids=lambda made: made.name)
def test_a_recipe_reads_back_from_toml_and_json(made: Made) -> None:
    assert model_from_toml(made.config.to_toml()) == made.config
    assert model_from_json(made.config.to_json()) == made.config


@pytest.mark.slow
@drawing
@given(models())
def test_a_drawn_model_reads_back_from_toml_and_json(config: Any) -> None:
    assert model_from_toml(config.to_toml()) == config
    assert model_from_json(config.to_json()) == config
    assert hash(model_from_json(config.to_json())) == hash(config)


@pytest.mark.sampled(20)
@pytest.mark.slow
@settings(drawing, max_examples=25)
@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.kind())
@given(data=st.data())
def test_a_part_with_numbers_from_their_whole_range_reads_back(kind: type[Config], data: st.DataObject) -> None:
    config = data.draw(records(kind, wide=True, **GIVEN.get(kind, {})))
    assert from_toml(config.to_toml(), kind) == config
    assert from_json(config.to_json(), kind) == config


def test_a_file_of_either_form_reads_back(tmp_path: Any) -> None:
    made = next(of_recipes(("nano",)))
    for suffix, text in (
        (".toml", made.config.to_toml()),
        (".json", made.config.to_json()),
        (".TOML", made.config.to_toml()),
    ):
        path = tmp_path / f"model{suffix}"
        path.write_text(text, encoding="utf-8-sig")  # with the mark that some editors put in front
        assert read_model(path) == made.config
        assert read_model(str(path)) == made.config


def test_kinds_have_different_names() -> None:
    names = Counter(kind.kind() for kind in kinds())
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) > 30


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.kind())
def test_kinds_that_one_field_may_hold_have_different_names(kind: type[Config]) -> None:
    for name, annotation in _fields(kind).items():
        held = [one.kind() for one in get_args(annotation) if isinstance(one, type) and issubclass(one, Config)]
        assert len(set(held)) == len(held), f"{kind.kind()}.{name}"


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.kind())
def test_what_may_be_none_is_none_when_left_out(kind: type[Config]) -> None:
    """TOML has no null: `to_toml` leaves None out, so it must be what reading puts back."""
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    for name, annotation in _fields(kind).items():
        if type(None) in get_args(annotation):
            assert defaults[name] is None, f"{kind.kind()}.{name}"


def test_plain_data_reads_back_without_the_kind_where_only_one_can_stand() -> None:
    text = {
        "kind": "language-model",
        "decoder": {"width": 8, "input": {"kind": "tokens", "vocab_size": 5}, "layers": [{"mixer": {"kind": "gru"}}]},
        "head": {"vocab_size": 5},
    }
    assert from_data(text, AnyModel).decoder.layers[0].mixer.kind() == "gru"
