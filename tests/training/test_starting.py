"""Starting from another model, and weights that are held fast."""

import pytest
import torch
from torch import nn

from seqloom import recipes
from seqloom.bundle import Bundle
from seqloom.errors import ConfigError
from seqloom.training.run import freeze, start_from
from seqloom.training.state import TrainingState
from update_common import CASES, HERE, TOKENS, batch_of, drawn, take, updating

CASE = CASES["classify, lstm"]


def bundle_of(model: nn.Module) -> Bundle:
    return Bundle(config=model.config, spec=None, weights=dict(model.state_dict()), notes={})


def classifier(num_classes: int, recipe: str = "lstm") -> nn.Module:
    return recipes.classifier(recipe, inputs=TOKENS, num_classes=num_classes, size="nano").build().to(HERE)


def test_weights_that_fit_are_copied_and_those_that_do_not_are_named() -> None:
    torch.manual_seed(5)
    given, model = classifier(3), classifier(4)
    fresh = model.head.linear.weight.detach().clone()
    said = " ".join(start_from(model, bundle_of(given)))
    assert "from the model of --init" in said and "random: head.linear.weight (shape [3," in said
    for name, weight in model.encoder.named_parameters():
        assert torch.equal(weight, given.encoder.get_parameter(name)), name
    assert torch.equal(model.head.linear.weight, fresh)


def test_a_model_of_which_nothing_fits_is_refused_and_nothing_is_changed() -> None:
    model = CASES["regress, gru"].build().to(HERE)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    other = Bundle(config=None, spec=None, weights={"elsewhere": torch.zeros(3)}, notes={})
    with pytest.raises(ConfigError, match=r"none of the .* weights .* Fix: start from a model with the same recipe"):
        start_from(model, other)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_tied_weights_are_copied_once_and_stay_tied() -> None:
    case = CASES["lm, gpt"]
    torch.manual_seed(6)
    given, model = case.build().to(HERE), drawn(case)
    (said,) = start_from(model, bundle_of(given))
    assert torch.equal(model.head.table, given.head.table) and model.head.table is model.decoder.input.table
    weights = list(model.parameters())
    count, numbers = len(weights), sum(weight.numel() for weight in weights)
    assert (
        said
        == f"initialized {count} of {count} tensors ({numbers:,} of {numbers:,} parameters) from the model of --init"
    )


def test_a_model_that_is_almost_all_fresh_is_said_to_be() -> None:
    given, model = classifier(3, "gru"), classifier(3, "lstm")
    (said, _) = start_from(model, bundle_of(given))
    mine, theirs = dict(model.named_parameters()), dict(given.named_parameters())
    same = [name for name in mine if name in theirs and mine[name].shape == theirs[name].shape]
    taken, of = sum(mine[name].numel() for name in same), sum(weight.numel() for weight in mine.values())
    assert 2 * taken < of, "else the models are alike"
    assert said.startswith(f"initialized {len(same)} of {len(mine)} tensors ({taken:,} of {of:,} parameters) from")
    assert "; most parameters are random, because that model has another architecture" in said


def test_frozen_weights_are_bit_for_bit_the_same_after_training() -> None:
    model = drawn(CASE)
    (said,) = freeze(model, ["encoder.*"])
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    update, run_state = updating(model), TrainingState()
    for seed in range(3):
        take(update, batch_of(CASE, 5, seed=seed), run_state)
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert changed == {name for name in before if not name.startswith("encoder.")} and changed
    assert "tensors (encoder." in said


def test_without_freezing_they_change() -> None:
    model = drawn(CASE)
    before = {name: weight.detach().clone() for name, weight in model.encoder.named_parameters()}
    take(updating(model), batch_of(CASE, 5), TrainingState())
    assert all(not torch.equal(weight, before[name]) for name, weight in model.encoder.named_parameters())


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["encodr.*"], r"--freeze 'encodr\.\*'.*encoder\."),
        (["zzz"], "--freeze 'zzz'"),
        (["*"], "freezes all"),
        (["encoder.*", "head.*", "pooler.*"], "--freeze 'pooler|freezes all"),
    ],
)
def test_patterns_that_fit_nothing_or_everything_are_refused(patterns: list[str], message: str) -> None:
    model = drawn(CASE)
    with pytest.raises(ConfigError, match=message):
        freeze(model, patterns)
    assert all(weight.requires_grad for weight in model.parameters())


def test_no_patterns_freeze_nothing() -> None:
    model = drawn(CASE)
    assert freeze(model, ()) == () and all(weight.requires_grad for weight in model.parameters())
