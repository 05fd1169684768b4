"""Graphs of functions and models: gradients are autograd's, parts collapse and open, loops become steps."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from inspection_common import subject_of, task_on
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.attribution.goals import chosen_goal
from seqloom.inspect.graphs.diagram import Diagram
from seqloom.inspect.graphs.model import ModelGraph, RepeatRun, answer_graph, graph, grid_of, runs
from seqloom.inspect.graphs.recording import summary
from seqloom.inspect.readings import read, scores
from seqloom.nn.ops.kernels import using

INPUTS = {"embed": ("the cat sat", "a dog ran"), "tag": ["the", "cat"]}


class Unrolled(nn.Module):
    """A recurrence as people write it: a loop over steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], 8)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        found: Tensor = self.head(state)
        return found


def stack(layers: int) -> nn.Module:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.3, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def gradients_of(view: ModelGraph) -> dict[str, Any]:
    return {weight.name: weight.gradient for weight in view.trace.weights}


# --- values and gradients --------------------------------------------------------------------------------------------


def test_the_lecture_as_a_function_of_tensors_has_its_local_derivatives_and_gradients() -> None:
    view = graph(lambda a, b, c: c * (a + 2 * b), {"a": 3.0, "b": 1.0, "c": -2.0})
    a, b, c, d, e, last = view.trace.ops
    assert [op.value.whole for op in (d, e, last)] == [(2,), (5,), (-10,)]
    assert [op.gradient and op.gradient.whole for op in (a, b, c, d, e, last)] == [
        (-2,),
        (-4,),
        (5,),
        (-2,),
        (-2,),
        (1,),
    ]
    assert [(op.parents, op.locals) for op in (d, e, last)] == [((1,), (2,)), ((0, 3), (1, 1)), ((2, 4), (5, -2))]
    assert "1 × -2 = -2" in view.steps()[-5].text


def test_between_numbers_every_gradient_is_what_its_readers_pass_on() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        z = torch.tanh(x * y) + x * x
        return torch.maximum(z, y) / torch.exp(-z)

    ops = graph(function, {"x": 0.7, "y": -1.3}).trace.ops
    for at, op in enumerate(ops[:-1]):
        passed = [
            reader.gradient.whole[0] * local
            for reader in ops
            for parent, local in zip(reader.parents, reader.locals, strict=True)
            if parent == at and local is not None and reader.gradient is not None and reader.gradient.whole is not None
        ]
        assert op.gradient is not None and op.gradient.whole is not None
        assert op.gradient.whole[0] == pytest.approx(sum(passed), rel=1e-12)


def test_every_value_and_gradient_on_the_way_is_that_of_autograd() -> None:
    weight, x = torch.randn(5, 4), torch.randn(3, 5)
    view = graph(lambda x, weight: torch.softmax(x @ weight, -1).log().sum(), (x, weight))
    x, weight = x.requires_grad_(), weight.requires_grad_()
    kept = [x @ weight]
    kept += [torch.softmax(kept[0], -1)]
    kept += [kept[1].log()]
    for one in kept:
        one.retain_grad()
    kept[-1].sum().backward()
    found = {op.name: op for op in view.trace.ops}
    for name, one in zip(("matmul", "softmax", "log"), kept, strict=True):
        assert_close(torch.tensor(found[name].value.whole), one.detach().flatten())
        assert_close(torch.tensor(found[name].gradient.whole), one.grad.flatten())  # type: ignore[union-attr]
    assert view.gradients == pytest.approx({"x": float(x.grad.norm()), "weight": float(weight.grad.norm())})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "recipe"),
    [
        *(
            ("classify", recipe)
            for recipe in ("rnn", "gru", "lstm", "cnn", "transformer", "self-attention", "linear", "mlp")
        ),
        ("tag", None),
        ("lm", None),
        ("translate", None),
        ("embed", None),
    ],
)
def test_the_gradients_of_every_family_are_those_of_autograd(tmp_path: Path, task: str, recipe: str | None) -> None:
    subject = subject_of(task_on(tmp_path, task), recipe)
    reading = read(subject, INPUTS.get(task, "the cat sat on the mat"))
    view = answer_graph(subject, reading)
    goal = chosen_goal(subject, reading, at=len(reading.rows) - 1)
    number = goal.of(scores(subject, reading.inputs))[0]
    assert view.result == pytest.approx(number.item(), rel=1e-6)
    weights = dict(subject.model.named_parameters())
    wanted = torch.autograd.grad(number, list(weights.values()), allow_unused=True)
    for name, slope, found in zip(weights, wanted, gradients_of(view).values(), strict=True):
        if slope is None:
            assert found is None, name
        else:
            assert_close(found.norm, float(slope.double().norm()), rtol=1e-5, atol=1e-9, msg=name)
    assert all(weight.grad is None for weight in weights.values())


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["lstm", "gru", "rnn"])
def test_the_plain_recurrence_becomes_steps_with_the_same_result(tmp_path: Path, recipe: str) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), recipe)
    reading = read(subject, "the cat sat on the mat")
    whole = answer_graph(subject, reading)
    with using(recurrence="plain"):
        view = answer_graph(subject, reading)
    assert view.result == pytest.approx(whole.result, rel=1e-5)
    mixer = view.open("encoder.layers.0.mixer")
    steps = [part for part in mixer.parts if ".step " in part]
    assert len(steps) == len(reading.sides[0].tokens)
    for name, slope in whole.gradients.items():
        assert view.gradients[name] == (None if slope is None else pytest.approx(slope, rel=1e-4, abs=1e-8)), name


def test_looking_changes_nothing() -> None:
    model, x = stack(2), torch.randn(1, 5, 16)
    model.layers[0].eval()  # type: ignore[index]
    modes = [module.training for module in model.modules()]
    before, random = [weight.clone() for weight in model.parameters()], torch.get_rng_state()
    first, second = graph(model, x), graph(model, x)
    assert modes == [module.training for module in model.modules()]
    assert torch.equal(torch.get_rng_state(), random)
    assert first.result == second.result == pytest.approx(model.eval()(x).max().item(), rel=1e-6)  # no dropout
    assert all(weight.grad is None and not weight._backward_hooks for weight in model.parameters())
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    assert not x.requires_grad and not x._backward_hooks
    assert not torch.nn.modules.module._global_forward_hooks and not torch.nn.modules.module._global_forward_pre_hooks


def test_the_local_derivatives_of_numbers_draw_nothing_more() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x * 2, 0.5, True) + x

    torch.manual_seed(4)
    plain = function(torch.tensor(1.0, dtype=torch.float64)).item()
    after = torch.get_rng_state()
    torch.manual_seed(4)
    assert graph(function, {"x": 1.0}).result == plain
    assert torch.equal(torch.get_rng_state(), after)


def test_a_part_that_failed_and_was_caught_holds_nothing_that_came_after_it() -> None:
    wrong, right = nn.Linear(7, 7), nn.Linear(3, 2)

    def function(x: Tensor) -> Tensor:
        try:
            return wrong(x).sum()
        except RuntimeError:
            return torch.exp(right(x)).sum()

    ops = graph(function, torch.randn(2, 3)).trace.ops
    assert {op.name: op.path for op in ops} == {"input": (), "linear": ("Linear 2",), "exp": (), "sum": ()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_kind_of_float_and_a_sparse_gradient_are_recorded(dtype: torch.dtype) -> None:
    table = nn.Embedding(50, 4, sparse=True, dtype=dtype)
    (weight,) = graph(table, torch.tensor([3, 3, 7])).trace.weights
    assert weight.gradient is not None and (weight.gradient.total, weight.gradient.norm) == (200, 1)


def test_hooks_are_taken_back_when_the_model_fails() -> None:
    leaf = torch.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError):
        graph(lambda x: (leaf * 2) @ nn.Linear(3, 3)(x), torch.randn(7, 5))
    assert not leaf._backward_hooks and not torch.nn.modules.module._global_forward_hooks


# --- parts -----------------------------------------------------------------------------------------------------------


def test_a_model_collapses_to_its_parts_and_equal_layers_fold() -> None:
    view = graph(stack(4), torch.randn(1, 5, 16))
    names = [card.name for card in view.figures()[0].cards]  # type: ignore[attr-defined]
    assert names == ["src", "layers.0 to layers.3  × 4", "max"]
    assert view.parts == tuple(f"layers.{number}" for number in range(4))
    inner = view.open("layers.2")
    assert [box.calls for box in inner.inside.boxes if box.calls] == [
        (f"layers.2.{name}",) for name in ("self_attn", "norm1", "linear1", "linear2", "norm2")
    ]
    assert inner.inside.boxes[0].is_port
    assert inner.open("").parts == view.parts


def test_every_operation_is_inside_exactly_one_box_and_lines_follow_the_data() -> None:
    view = graph(stack(2), torch.randn(1, 5, 16))
    for part in ("", "layers.0", "layers.1.linear1"):
        opened = view.open(part)
        own = [at for box in opened.inside.boxes if not box.is_port for at in box.ops]
        assert sorted(own) == own == sorted(set(own))
        home = {at: number for number, box in enumerate(opened.inside.boxes) for at in box.ops}
        lines = {(one.source, one.target) for one in opened.inside.joints}
        for at in own:
            for parent in view.trace.ops[at].parents:
                assert home[parent] == home[at] or (home[parent], home[at]) in lines
        assert all(one.source < one.target for one in opened.inside.joints)


def test_a_box_stands_for_what_is_read_of_it_and_not_for_what_it_did_last() -> None:
    class Aside(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found = torch.tanh(x)
            torch.exp(x)  # nobody reads it
            return found

    view = graph(nn.Sequential(Aside(), nn.Flatten()), torch.randn(2, 3))
    (aside,) = (box for box in view.inside.boxes if box.calls == ("0",))
    assert view.trace.ops[aside.result].name == "tanh"


def test_a_part_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'layers.1'"):
        graph(stack(2), torch.randn(1, 5, 16)).open("layers.9")


def test_a_loop_becomes_steps_and_a_grid_of_time() -> None:
    torch.manual_seed(2)
    model, x = Unrolled(), torch.randn(2, 9, 4)
    view = graph(model, x)
    assert view.parts == (*(f"step {number}" for number in range(9)), "head")
    (box,) = (box for box in view.inside.boxes if len(box.items) > 1)
    grid = grid_of(view.trace, box, "steps")
    assert (len(grid.values), len(grid.values[0])) == (2, 9)  # type: ignore[attr-defined]
    # the gradient of each state, by hand
    states = [torch.zeros(2, 8, requires_grad=True)]
    for step in range(9):
        states.append(model.cell(x[:, step], states[-1]))
    slopes = torch.autograd.grad(model.head(states[-1]).max(), states[1:])
    logs = torch.tensor([slope.norm().item() for slope in slopes]).log10()
    assert_close(torch.tensor(grid.values[1]), logs - logs.max(), rtol=1e-4, atol=1e-4)  # type: ignore[attr-defined]
    assert any("From step 8 back to step 0, the gradient norm becomes" in sentence for sentence in view.sentences())


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ("xababababy", [RepeatRun(1, 2, 4)]),
        ("abcabcabc", [RepeatRun(0, 3, 3)]),
        ("abab", []),  # twice may be chance
        ("aaaaaaa", []),  # one thing again and again is no loop of several
        ("ababab-cdcdcd", [RepeatRun(0, 2, 3), RepeatRun(7, 2, 3)]),
        ("", []),
    ],
)
def test_runs_are_found_where_they_are(keys: str, found: list[RepeatRun]) -> None:
    assert list(runs(keys)) == found


# --- what torch may do -----------------------------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    """An operation that no mode hears of."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return slopes[0] * 2


def test_an_operation_of_ones_own_is_found_by_what_autograd_knows() -> None:
    weight = torch.tensor([1.5], requires_grad=True)
    view = graph(lambda x: (Doubled.apply(x + weight) * 3).sum(), {"x": torch.tensor([1.0])})
    ops = {op.name: op for op in view.trace.ops}
    assert view.result == 15 and ops["Doubled"].gradient.whole == (3,)  # type: ignore[union-attr]
    assert [view.trace.ops[at].name for at in ops["mul"].parents] == ["Doubled"]
    assert [view.trace.ops[at].name for at in ops["Doubled"].parents] == ["add"]


def test_changes_in_place_views_and_several_results_keep_their_gradients() -> None:
    def function(x: Tensor) -> Tensor:
        left, right = (x * 1).chunk(2)
        left = left.clone()
        left *= 3
        left[0] = right[1]
        return (left.T.contiguous() + right.mT).square().sum()

    x = torch.randn(4, 2, dtype=torch.float64)
    view = graph(function, x)
    leaf = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(function(leaf), leaf)
    assert view.trace.ops[0].gradient is not None
    assert view.trace.ops[0].gradient.whole == pytest.approx(tuple(wanted.flatten().tolist()))
    names = [op.name for op in view.trace.ops]
    assert names.count("chunk") == 1
    transposed = view.trace.ops[names.index("T")]
    assert [names[at] for at in transposed.parents] == ["index_put"]  # the last change, not what stood there before


def test_a_layer_that_changes_its_input_in_place_is_there_as_any_other() -> None:
    first, last, x = nn.Linear(2, 2), nn.Linear(2, 1), torch.ones(1, 2)
    in_place, apart = (
        graph(nn.Sequential(first, nn.ReLU(inplace=inplace), last), x).trace.ops for inplace in (True, False)
    )
    assert [op.name for op in in_place] == ["input", "linear", "relu", "linear"]
    assert [(op.parents, op.value, op.gradient) for op in in_place] == [
        (op.parents, op.value, op.gradient) for op in apart
    ]
    dead = graph(lambda x: nn.functional.relu(x - 9, inplace=True).sum(), x).trace.ops
    assert [op.name for op in dead if op.is_dead] == ["relu"]


def test_a_change_of_a_view_is_one_of_its_whole_tensor_and_of_its_other_views() -> None:
    def function(x: Tensor) -> Tensor:
        whole = x * 1
        other = whole[:1]
        whole[0].mul_(3)
        return whole.sum() + other.sum()

    ops = graph(function, torch.tensor([1.0, 2.0])).trace.ops
    at = [op.name for op in ops].index("mul_")
    assert ops[at].value.whole == (3, 2)
    assert ops[at].gradient is not None and ops[at].gradient.whole == (2, 1)
    first, second = (op for op in ops if op.name == "sum")
    assert first.parents == (at,) and first.value.whole == (5,)
    assert second.value.whole == (3,) and ops[second.parents[0]].value.whole == (3,)
    assert ops[second.parents[0]].parents == (at,)


def test_numbers_that_are_results_of_one_operation_have_no_local_derivative_to_be_multiplied() -> None:
    def function(x: Tensor) -> Tensor:
        first, second = x.chunk(2)
        return (first * second).sum()

    view = graph(function, torch.tensor([3.0, 5.0]))
    (product,) = (op for op in view.trace.ops if op.name == "mul")
    assert product.locals == () and [view.trace.ops[at].name for at in product.parents] == ["chunk"]
    assert not any("1 × 3" in step.text for step in view.steps())


def test_summaries_equal_those_of_torch_small_and_large_with_and_without_nan() -> None:
    for size in (1, 3, 64, 65, 1000):
        x = torch.randn(size, dtype=torch.float64)
        x[::3] = 0.0
        for spoiled in (x, torch.cat([x, torch.tensor([torch.nan, torch.inf, -torch.inf, torch.nan])])):
            found, finite = summary([spoiled]), spoiled[spoiled.isfinite()]
            assert (found.low, found.high) == (finite.min(), finite.max())
            assert (found.mean, found.norm) == pytest.approx((float(finite.mean()), float(finite.norm())))
            counted = [(finite == 0).sum(), spoiled.isnan().sum(), spoiled.isinf().sum(), spoiled.numel()]
            assert [found.zeros, found.nans, found.infinities, found.total] == counted
    spoiled = summary([torch.tensor([1.0, torch.nan]), torch.tensor([torch.inf, torch.nan])])
    assert (spoiled.nans, spoiled.infinities, spoiled.mean, spoiled.total) == (2, 1, 1.0, 4)
    parts = [torch.randn(70), torch.randn(5)]
    both = summary(parts)
    whole = torch.cat(parts)
    assert (both.norm, both.mean) == pytest.approx((float(whole.norm()), float(whole.mean())), rel=1e-5)


# --- what is said ----------------------------------------------------------------------------------------------------


def test_the_first_nan_the_largest_gradient_and_what_is_dead_are_named() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    net[0].bias.data -= 100
    said = " ".join(graph(net, torch.randn(2, 3)).sentences())
    assert "Dead: all values are zero at 1 relu." in said
    assert "These weights get no gradient: 0.weight, 0.bias, 2.weight." in said
    view = graph(lambda x: torch.sqrt(x - 2).sum() + (5 * x).sum(), torch.tensor([1.0, 3.0]))
    said = " ".join(view.sentences())
    assert "First NaN: 1 of 2 numbers at sqrt." in said and "First NaN in the backward pass: at sub." in said
    assert json.dumps(view.to_json(), allow_nan=False) and view.html()
    fine = " ".join(graph(lambda x: (5 * x).sum(), torch.ones(4)).sentences())
    assert "Largest gradient: norm 10 at x." in fine and "No NaN in the forward or backward pass." in fine


@pytest.mark.parametrize(
    ("of", "inputs", "says"),
    [
        (3, None, "cannot make a graph of int"),
        (lambda x: x > 0, torch.ones(2), "without a float tensor"),
        (lambda _: torch.ones(3), torch.ones(2), "does not depend on anything"),
        (lambda x: x.detach() * 2, torch.ones(2), "does not depend on anything"),
    ],
)
def test_what_has_no_gradient_is_refused(of: Any, inputs: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        graph(of, inputs)
    with pytest.raises(DataError, match="a single number"):
        graph(lambda x: x, torch.ones(2), number=lambda result: result)


def test_an_answer_that_there_is_not_is_refused(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "cnn")
    reading = read(subject, "the cat")
    with pytest.raises(DataError):
        answer_graph(subject, reading, at=3)
    with pytest.raises(DataError, match="no answer 'maybe'"):
        answer_graph(subject, reading, answer="maybe")
    assert "Graph of “no”" in answer_graph(subject, reading, answer="no").title


# --- pages and sizes -------------------------------------------------------------------------------------------------


def test_a_page_opens_every_part_that_it_names_and_asks_nobody() -> None:
    page = graph(stack(2), torch.randn(1, 5, 16)).html()
    data = json.loads(re.findall(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)[0])
    names = [part["name"] for part in data["parts"]]
    assert {"", "layers.0", "layers.1", "layers.0.linear1"} <= set(names)
    assert set(re.findall(r'data-opens="([^"]*)"', page)) <= set(names)
    assert page.count("<section>") == len(names)
    assert not re.findall(r'(?:src|href)="|https?://(?!www\.w3\.org/2000/svg)', page)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("steps", [10, 200, 1200])
def test_what_is_written_stays_small_whatever_is_computed(tmp_path: Path, steps: int) -> None:
    torch.manual_seed(0)
    view = graph(Unrolled(), torch.randn(1, steps, 4))
    assert len(view.trace.ops) >= 2 * steps and len(view.parts) == steps + 1
    found = view.to_json()
    assert (found["operations"] is None) == (found["num_operations"] > 2000)
    for ending in ("html", "svg", "png", "json", "txt"):
        assert 500 < view.save(tmp_path / f"x.{ending}").stat().st_size < 2_000_000, ending
    assert (tmp_path / "x.html").read_text(encoding="utf-8").count("<section>") <= 10
    assert view.open(f"step {steps - 1}").inside.boxes


@pytest.mark.slow
def test_a_function_of_very_many_operations_is_a_curve_and_not_a_diagram() -> None:
    def long(x: Tensor) -> Tensor:
        for step in range(500):  # no two in a row alike: no loop
            x = x[: 900 - step] * 1.001
        return x.sum()

    view = graph(long, torch.ones(900))
    assert [figure.kind for figure in view.figures()] == ["line"]
    assert "too many for a diagram" in view.text() and view.html()


def test_lengths_that_no_line_leaves_have_no_box_and_taking_a_part_of_a_tensor_is_called_index(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "lstm")
    view = answer_graph(subject, read(subject, "the cat"))
    assert "lengths" in view.gradients, "it is an input of the model"
    drawn = view.figures()[0]
    assert isinstance(drawn, Diagram)
    assert [card.name for card in drawn.cards] == ["values", "encoder", "pooler", "index", "head", "answer"]
    assert {at for link in drawn.links for at in (link.source, link.target)} == set(range(6))
    unread = graph(lambda x, _scale: x.sum(), (torch.ones(2), torch.ones(2))).figures()[0]
    assert isinstance(unread, Diagram) and len(unread.cards) == 3, (
        "a number that has no gradient for no reason is shown"
    )


@pytest.mark.parametrize(("task", "given"), [("classify", "the cat"), ("tag", ["the", "cat"])])
def test_how_a_number_is_taken_out_of_the_scores_is_one_box_behind_the_model(
    tmp_path: Path, task: str, given: Any
) -> None:
    subject = subject_of(task_on(tmp_path, task), "lstm")
    view = answer_graph(subject, read(subject, given))
    names = [view._name(box) for box in view.inside.boxes]
    assert names[-2:] == ["head", "answer"]
    assert view.trace.ops[view.inside.boxes[-1].result].value.whole == pytest.approx((view.result,))
    assert all(box.result in range(len(view.trace.ops)) for box in view.open("answer").inside.boxes)
