"""Expressions: read by a grammar, computed forward, differentiated back; the numbers of the lectures, and laws."""

import itertools
import json
import math
import random
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from operator import mul
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from pictures_common import SVG
from seqloom.cli import app
from seqloom.errors import DataError
from seqloom.inspect.graphs.diagram import THICKEST, THINNEST, BoxPlace, Size, layered
from seqloom.inspect.graphs.expression import FUNCTIONS, OPERATIONS, ExpressionGraph, expression_graph
from seqloom.inspect.graphs.grammar import Applied, Name, Number, parse
from seqloom.report.figures.markup import scale_of, width_of

LECTURE = {"a": 3.0, "b": 1.0, "c": -2.0}
NETWORK = """
h1 = x1*u11 + x2*u12 + b1
h2 = x1*u21 + x2*u22 + b2
z1 = sigmoid(h1)
z2 = sigmoid(h2)
out = z1*v1 + z2*v2 + c
loss = (out - y)^2
"""  # the two-layer network of deck D
TORCH = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "neg": torch.neg,
    "same": lambda x: x,
    **{name: getattr(torch, name) for name in ("exp", "log", "tanh", "sigmoid", "relu", "sin", "cos", "sqrt", "abs")},
    "max": lambda *xs: torch.stack(xs).amax(),
    "min": lambda *xs: torch.stack(xs).amin(),
    "softmax": lambda *xs: torch.stack(xs).softmax(0)[0],
}


def by_torch(text: str, values: dict[str, float]) -> tuple[float, dict[str, float]]:
    """The result and the gradients of the same text by torch's operations and its autograd."""
    leaves = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in values.items()}
    known: dict[str, Tensor] = dict(leaves)

    def value_of(term: Any) -> Tensor:
        if isinstance(term, Number):
            return torch.tensor(term.value, dtype=torch.float64)
        if isinstance(term, Name):
            return known[term.name]
        assert isinstance(term, Applied)
        found: Tensor = TORCH[term.operation](*map(value_of, term.inside))
        return found

    for statement in parse(text, FUNCTIONS):
        last = value_of(statement.term)
        if statement.name:
            known[statement.name] = last
    slopes = torch.autograd.grad(last, list(leaves.values()), allow_unused=True)
    return last.item(), {n: 0.0 if s is None else s.item() for n, s in zip(leaves, slopes, strict=True)}


def random_text(rng: random.Random, depth: int, functions: list[str]) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(["a", "b", "c", f"{rng.uniform(0.2, 3):.3f}"])
    inner = [random_text(rng, depth - 1, functions) for _ in range(3)]
    kind = rng.choice(["+", "-", "*", "/", "-x", "^", *functions])
    if kind in "+-*/":
        return f"({inner[0]}{kind}{inner[1]})"
    if kind == "-x":
        return f"(-{inner[0]})"
    if kind == "^":
        return f"({inner[0]})^{rng.choice([2, 3, 0.5, -1])}"
    count = 3 if FUNCTIONS[kind] is None else 1
    return f"{kind}({', '.join(inner[:count])})"


def random_graphs(count: int, functions: list[str]) -> list[ExpressionGraph]:
    """Graphs of expressions that have a value, of three inputs."""
    rng, found = random.Random(7), list[ExpressionGraph]()
    while len(found) < count:
        text = f"({random_text(rng, 4, functions)}) + 0*(a+b+c)"
        try:
            view = expression_graph(text, {name: rng.uniform(-2, 2) for name in "abc"})
        except DataError:
            continue  # a logarithm of a negative number, a division by zero
        if all(abs(node.value) < 1e4 and abs(node.gradient) < 1e4 for node in view.nodes):
            found.append(view)
    return found


# --- the lectures ----------------------------------------------------------------------------------------------------


def test_row_01_the_graph_of_c_times_a_plus_2b_has_every_number_of_deck_a() -> None:
    view = expression_graph("c*(a+2*b)", LECTURE)
    assert {node.name: node.value for node in view.nodes if node.operation != "number"} == {
        **LECTURE,
        "d": 2,
        "e": 5,
        "L": -10,
    }
    assert view.gradients == {"a": -2, "b": -4, "c": 5}
    assert {name: view[name].gradient for name in "deL"} == {"d": -2, "e": -2, "L": 1}
    local = {(node.name, view.nodes[edge.parent].name): edge.local for node in view.nodes for edge in node.edges}
    assert local == {("L", "c"): 5, ("L", "e"): -2, ("e", "a"): 1, ("e", "d"): 1, ("d", "b"): 2}
    named = expression_graph("d = 2*b; e = a + d; L = c*e", LECTURE)
    assert (named.gradients, named.result) == (view.gradients, -10)


def test_row_01_x_plus_y_times_z_has_the_gradients_z_z_and_x_plus_y() -> None:
    view = expression_graph("(x+y)*z", {"x": -2, "y": 5, "z": -4})
    assert (view.result, view.gradients) == (-12, {"x": -4, "y": -4, "z": 3})


def test_row_01_linear_regression_has_the_gradients_minus_2r_and_minus_2r_x() -> None:
    values = {"w1": 0.5, "x1": 2.0, "w2": -1.5, "x2": 0.25, "b": 0.125, "y": 3.0}
    view = expression_graph("p = w1*x1 + w2*x2 + b; r = y - p; l = r^2", values)
    r = view["r"].value
    assert [view.gradients[name] for name in ("b", "w1", "w2")] == [-2 * r, -2 * r * 2.0, -2 * r * 0.25]


def test_row_01_one_update_moves_against_the_gradient_and_lowers_the_loss() -> None:
    values = dict.fromkeys(["x1", "x2", "u11", "u12", "b1", "u21", "u22", "b2", "v1", "v2", "c", "y"], 0.3)
    before = expression_graph(NETWORK, values | {"y": 2.0})
    after = before.stepped(0.01)
    assert after.inputs == {name: value - 0.01 * before.gradients[name] for name, value in before.inputs.items()}
    assert after.result < before.result


def test_row_01_the_slope_of_relu_at_zero_is_0_and_it_is_said() -> None:
    view = expression_graph("relu(z)", {"z": 0})
    assert view.gradients == {"z": 0} and "some lectures print 1" in view.text()


@pytest.mark.parametrize("y", [0.0, 1.0, 0.25])
def test_row_02_the_graph_of_the_logistic_loss_shows_a_minus_y(y: float) -> None:
    view = expression_graph("a = sigmoid(z); L = -(y*log(a) + (1-y)*log(1-a))", {"z": 0.7, "y": y})
    assert math.isclose(view.gradients["z"], view["a"].value - y, rel_tol=1e-14, abs_tol=1e-15)


def test_row_02_the_graph_of_cross_entropy_shows_the_shares_less_the_right_class() -> None:
    scores = {"z1": 0.3, "z2": -1.2, "z3": 2.0}
    view = expression_graph("-log(softmax(z1, z2, z3))", scores)
    shares = torch.tensor(list(scores.values()), dtype=torch.float64).softmax(0).tolist()
    for found, wanted in zip(view.gradients.values(), [shares[0] - 1, *shares[1:]], strict=True):
        assert math.isclose(found, wanted, rel_tol=1e-14)


def test_row_19_each_score_of_attention_is_an_expression_with_the_gradients_of_autograd() -> None:
    values = {"q1": 0.5, "q2": -1.0, "k1": 2.0, "k2": 0.25, "u": 1.5, "w": -0.5, "v": 0.75}
    texts = [
        "q1*k1 + q2*k2",
        "(q1*k1 + q2*k2)/sqrt(2)",
        "u*tanh(w*q1 + v*k1)",
        "q1*w*k1 + q1*u*k2 + q2*v*k1",
    ]
    for text in texts:
        read = {name: value for name, value in values.items() if re.search(rf"\b{name}\b", text)}
        assert expression_graph(text, read).gradients == pytest.approx(by_torch(text, read)[1], rel=1e-14)


def test_row_21_scores_of_112_and_96_become_88_and_12_percent() -> None:
    view = expression_graph("s = s1/8; t = s2/8; softmax(s, t)", {"s1": 112, "s2": 96})
    assert (view["s"].value, view["t"].value) == (14, 12)
    assert f"{view.result:.2f} {1 - view.result:.2f}" == "0.88 0.12"


# --- laws of the engine ----------------------------------------------------------------------------------------------


def test_values_and_gradients_equal_those_of_torch_for_any_expression() -> None:
    for view in random_graphs(80, list(FUNCTIONS)):
        result, slopes = by_torch(view.expression, view.inputs)
        assert math.isclose(view.result, result, rel_tol=1e-12, abs_tol=1e-12), view.expression
        assert view.gradients == pytest.approx(slopes, rel=1e-9, abs=1e-9), view.expression


def test_gradients_equal_finite_differences_where_everything_is_smooth() -> None:
    smooth = ["exp", "tanh", "sigmoid", "sin", "cos", "softmax"]
    for view in [*random_graphs(25, smooth), expression_graph(NETWORK, _weights())]:
        if max(abs(node.value) for node in view.nodes) > 50:
            continue  # a difference of large numbers says little
        for name, slope in view.gradients.items():
            ends = [
                expression_graph(view.expression, view.inputs | {name: view.inputs[name] + h}) for h in (1e-6, -1e-6)
            ]
            assert (ends[0].result - ends[1].result) / 2e-6 == pytest.approx(slope, rel=1e-4, abs=1e-4), view.expression


def _weights() -> dict[str, float]:
    rng = random.Random(3)
    names = sorted(set(re.findall(r"\b(?:x\d|u\d\d|b\d|v\d|c|y)\b", NETWORK)))
    return {name: rng.uniform(-1, 1) for name in names}


def test_a_gradient_is_the_sum_over_paths_of_the_products_over_edges() -> None:
    for view in random_graphs(20, ["tanh", "max"]):

        def paths(at: int, view: ExpressionGraph = view) -> float:
            """The sum over all paths from the result to this node."""
            if at == view.target:
                return 1.0
            edges = [(up, edge) for up, node in enumerate(view.nodes) for edge in node.edges if edge.parent == at]
            return math.fsum(paths(up) * edge.local for up, edge in edges)

        for at, node in enumerate(view.nodes):
            if node.operation != "number":
                assert node.gradient == pytest.approx(paths(at), rel=1e-9, abs=1e-12)


def test_nodes_stand_in_topological_order_and_every_gradient_is_what_its_readers_pass_on() -> None:
    for view in random_graphs(30, list(FUNCTIONS)):
        for at, node in enumerate(view.nodes):
            assert all(parent < at for parent in node.parents)
            readers = [edge for reader in view.nodes for edge in reader.edges if edge.parent == at]
            assert all(edge.passed == edge.local * node_of(view, edge).gradient for edge in readers)
            if at != view.target:
                assert node.gradient == pytest.approx(math.fsum(edge.passed for edge in readers), rel=1e-12, abs=1e-12)


def node_of(view: ExpressionGraph, edge: Any) -> Any:
    return next(node for node in view.nodes if any(one is edge for one in node.edges))


def test_the_table_of_operations_is_the_one_that_torch_was_asked_for() -> None:
    assert set(OPERATIONS) == set(TORCH)


# --- the grammar -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-2^2", -4),
        ("2^3^2", 512),
        ("2**-1", 0.5),
        ("1-2-3", -4),
        ("8/4/2", 1),
        ("2*-3", -6),
        ("--2", 2),
        ("1 + 2*3", 7),
        ("(1 + 2)*3", 9),
        (".5e1 + 1.", 6),
        ("d = 2\n\ne = d*d; ; e + 1", 5),
        ("max(1, 3, 2) - min(4, 2)", 1),
        ("x = 2; y = x; y", 2),
        ("lambda = 2; in = 3; lambda*in", 6),  # words of Python, names here
        ("007 + (1) - ((2))", 6),
    ],
)
def test_signs_bind_as_on_the_blackboard(text: str, value: float) -> None:
    assert expression_graph(text, {}).result == value


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("2b", 2, "an operator is missing before 'b'"),
        ("c(b)", 1, "there is no function 'c'"),
        ("tnah(b)", 1, "Did you mean 'tanh'"),
        ("(b + 1", 1, "never closed"),
        ("b) + 1", 2, "no opening one"),
        ("b + ", 5, "is missing before the end"),
        ("b ** * 2", 6, "is missing before '*'"),
        ("b = 1 = 2", 7, "only a name is allowed before ="),
        ("b, 1", 2, "a comma is only allowed between arguments of a function"),
        ("max(b)", 1, "two or more"),
        ("exp(b, b)", 1, "one argument"),
        ("log(b - b)", 1, "log(0) is not a number"),
        ("1/(b - b)", 2, "is not a number"),
        ("(-b)^0.5", 5, "is not a number"),
        ("exp(1000*b)", 1, "too large"),
        ("1e999*b", 1, "too large"),
        ("exp = b", 1, "exp is a function"),
        ("b*exp", 3, "write exp(...)"),
        ("b*q", 3, "q has no value"),
        ("d = b; d = 2*b", 8, "defined twice"),
        ("b # 1", 3, "'#' is not allowed"),
    ],
)
def test_a_fault_is_marked_at_its_place(text: str, column: int, says: str) -> None:
    with pytest.raises(DataError) as caught:
        expression_graph(text, {"b": 1.0})
    _, line, mark, message, *_ = str(caught.value).splitlines()
    assert line == f"  {text}" and mark == " " * (column + 1) + "^"
    assert f"column {column}:" in message and says in message


@pytest.mark.parametrize(
    "text", ["__import__('os')", "a.b", "[1]", "a if a else a", "lambda: a", "a := 1", "{}", "a or a", '"a"', "a[0]"]
)
def test_nothing_of_python_is_understood(text: str) -> None:
    with pytest.raises(DataError):
        expression_graph(text, {"a": 1.0})


@pytest.mark.parametrize(
    "text",
    ["(" * 5000, "-" * 5000 + "a", "a^" * 5000 + "a", "a" + "+a" * 5000, "a" * 30_000, "exp(" * 900 + "a" + ")" * 900],
)
def test_what_is_too_deep_or_too_long_is_refused_and_not_tried(text: str) -> None:
    with pytest.raises(DataError):
        expression_graph(text, {"a": 1.0})


def test_values_that_do_not_fit_the_expression_are_refused() -> None:
    for text, values, says in [
        ("a", {"a": 1.0, "bb": 2.0}, "no input 'bb'"),
        ("d = a; d", {"a": 1.0, "d": 2.0}, "computed by the expression"),
        ("a", {"a": math.inf}, "finite"),
    ]:
        with pytest.raises(DataError, match=says):
            expression_graph(text, values)


def test_a_number_that_there_is_not_and_a_step_to_nowhere_are_refused() -> None:
    view = expression_graph("x^2", {"x": 1.0})
    with pytest.raises(DataError, match="no value 'zz'"):
        view["zz"]
    for rate in (math.nan, math.inf, 1.7e308):
        with pytest.raises(DataError, match=re.escape(f"one step with learning rate {rate} ")):
            view.stepped(rate)


@pytest.mark.parametrize(("x", "y"), [(1e-300, -0.03), (1e-200, -1.0), (-1e-200, -1.0), (-1e-150, -2.0)])
def test_a_derivative_that_is_too_large_for_a_number_is_infinite_as_in_torch(x: float, y: float) -> None:
    base = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    (wanted,) = torch.autograd.grad(base**y, base)
    view = expression_graph("x^y", {"x": x, "y": y})
    assert view.gradients["x"] == float(wanted) and math.isinf(view.gradients["x"])
    assert view.text() and view.html()


# --- pictures --------------------------------------------------------------------------------------------------------


def along(start: BoxPlace, end: BoxPlace) -> list[tuple[float, float]]:
    """Points of the curve that leaves one place and meets the other straight down."""
    middle, parts = (start.y + end.y) / 2, (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    weights = [((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3) for t in parts]
    xs, ys = (start.x, start.x, end.x, end.x), (start.y, middle, middle, end.y)
    return [(sum(map(mul, w, xs)), sum(map(mul, w, ys))) for w in weights]


def test_boxes_never_touch_and_no_line_passes_through_one() -> None:
    rng = random.Random(5)
    for _ in range(40):
        count = rng.randint(1, 30)
        edges = sorted({(a, b) for b in range(1, count) for a in rng.sample(range(b), min(b, rng.randint(0, 3)))})
        sizes = [Size(rng.uniform(60, 200), rng.uniform(20, 80)) for _ in range(count)]
        plan = layered(sizes, edges, gap=40)
        boxes = [
            (p.x - s.width / 2, p.x + s.width / 2, p.y, p.y + s.height) for p, s in zip(plan.boxes, sizes, strict=True)
        ]
        ends = [(BoxPlace(plan.boxes[a].x, boxes[a][3]), plan.boxes[b]) for a, b in edges]
        drawn = [
            point
            for (start, end), between in zip(ends, plan.lines, strict=True)
            for upper, lower in itertools.pairwise([start, *between, end])
            for point in along(upper, lower)
        ]
        for one, other in itertools.combinations(boxes, 2):
            apart = one[1] < other[0] or other[1] < one[0] or one[3] < other[2] or other[3] < one[2]
            assert apart
        for left, right, top, bottom in boxes:
            assert left >= -1e-6 and right <= plan.width + 1e-6 and top >= 0 and bottom <= plan.height + 1e-6
            assert not any(left < x < right and top + 1e-6 < y < bottom - 1e-6 for x, y in drawn)
        assert all(boxes[a][3] < boxes[b][2] for a, b in edges)


def test_labels_lie_inside_their_boxes_and_a_legend_is_there() -> None:
    drawn = ElementTree.fromstring(expression_graph(NETWORK, _weights()).svg())
    name = "{http://www.w3.org/2000/svg}"
    cards = [one for one in drawn.iter(f"{name}g") if "data-card" in one.attrib]
    assert len(cards) == 12 + 16
    for card in cards:
        box = card.find(f"{name}rect")
        assert box is not None
        left, width = float(box.attrib["x"]), float(box.attrib["width"])
        for text in card.iter(f"{name}text"):
            end = float(text.attrib["x"]) + width_of(text.text or "", float(text.attrib["font-size"]))
            assert left < float(text.attrib["x"]) and end <= left + width
            assert "…" not in (text.text or "")
    assert any(text.text == "gradient norm" for text in drawn.iter(f"{name}text"))


def test_the_color_of_a_box_is_that_of_the_legend_for_its_gradient() -> None:
    drawn = expression_graph("c*(a+2*b)", LECTURE).svg()
    shade = dict(re.findall(r'<rect[^>]*class="(sl-s\d+)"[^>]*><title>(\w+)[^<]*: ', drawn))
    # the largest gradient, that of c, has the last shade; zero would have the first
    assert {name: level for level, name in shade.items()}["c"] == "sl-s63"


def test_the_page_walks_over_every_value_and_back_over_every_gradient() -> None:
    view = expression_graph("c*(a+2*b)", LECTURE)
    page = view.html()
    found = json.loads(re.findall(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)[0])
    (part,) = found["parts"]
    assert [step["shows"] for step in part["steps"]] == ["value"] * 6 + ["slope"] * 6
    assert [step["card"] for step in part["steps"]] == [*range(6), *reversed(range(6))]
    assert 'type="range"' in page and 'max="12"' in page
    assert not re.findall(r'(?:src|href)="|https?://(?!www\.w3\.org/2000/svg)', page)


def test_a_text_of_markup_stays_text() -> None:
    with pytest.raises(DataError, match="is not allowed"):
        expression_graph("<script>", {})


@pytest.mark.slow
def test_every_kind_of_file_is_written_and_read_back(tmp_path: Path) -> None:
    view = expression_graph("c*(a+2*b)", LECTURE)
    for ending in ("html", "svg", "png", "json", "txt"):
        assert view.save(tmp_path / f"x.{ending}").stat().st_size > 500
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["result"] == -10 and [node["gradient"] for node in found["nodes"]][:3] == [-2, -4, 5]


def test_a_derivative_that_is_not_defined_is_said_and_is_null_in_json() -> None:
    view = expression_graph("a^b", {"a": -2.0, "b": 2.0})
    assert view.gradients["a"] == -4 and math.isnan(view.gradients["b"])
    assert "with respect to b is undefined" in view.text()
    assert json.loads(json.dumps(view.to_json(), allow_nan=False))["nodes"][1]["gradient"] is None
    assert view.html()


def test_inputs_that_tie_share_the_slope_in_words_and_numbers_as_in_torch() -> None:
    values = {"a": 1.0, "b": 1.0, "c": 0.5}
    view = expression_graph("max(a, b, c)", values)
    assert view.gradients == by_torch("max(a, b, c)", values)[1] == {"a": 0.5, "b": 0.5, "c": 0.0}
    formulas = [edge.formula for edge in view["L"].edges]
    assert formulas == ["1/2: 2 inputs are the maximum"] * 2 + ["1 if c is the maximum, else 0"]
    assert "L is most sensitive to a and b." in view.sentences()
    assert any("share the gradient" in sentence for sentence in view.sentences())
    alike = expression_graph("max(a, b)", {"a": 1.0, "b": 1.0})
    assert "L is equally sensitive to a and b." in alike.sentences()


def test_a_name_that_is_given_to_something_is_shown_whatever_it_is_given_to() -> None:
    view = expression_graph("L = a; k = 3; L*k", {"a": 3.0})
    shown = [step.text for step in view.steps() if step.shows == "value"]
    assert shown == ["a = 3", "L = a = 3", "k = 3", "d = L*k = 3*3 = 9"]
    assert view["L"].gradient == 3 and view.gradients == {"a": 3.0}
    assert any(step.text.startswith("k is a constant") for step in view.steps())
    assert len(view.figures()[0].cards) == 4  # type: ignore[attr-defined]


def test_an_infinite_derivative_is_said_and_no_bracket_stands_in_a_bracket() -> None:
    view = expression_graph("sqrt(a)", {"a": 0.0})
    assert view.gradients == {"a": math.inf} and "The derivative with respect to a is infinite" in view.text()
    assert "exp(-1)" in expression_graph("exp(a)", {"a": -1.0}).text()
    with pytest.raises(DataError, match=re.escape(": log(-1) is not a number")):
        expression_graph("log(a)", {"a": -1.0})


def test_text_keeps_to_its_width() -> None:
    view = expression_graph(NETWORK, _weights())
    assert all(len(line) <= 60 for line in view.text(60).splitlines() if not line.startswith("Back"))


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_the_walk_and_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    done = CliRunner().invoke(app, ["graph", "c*(a+2*b)", "a=3", "b=1", "c=-2", "--lr", "0.1", "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "L = c*e = (-2)*5 = -10" in done.output and "∂L/∂a = -2, ∂L/∂b = -4, ∂L/∂c = 5" in done.output
    assert "L: -10 before, -15 after" in done.output and page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_picture_shows_the_graph_before_and_after_a_step(tmp_path: Path) -> None:
    for name, options in (("plain.svg", []), ("step.svg", ["--lr", "0.1"])):
        asked = ["graph", "c*(a+2*b)", "a=3", "b=1", "c=-2", "--out", str(tmp_path / name), *options]
        assert CliRunner().invoke(app, asked).exit_code == 0
    plain, step = ((tmp_path / name).read_text(encoding="utf-8") for name in ("plain.svg", "step.svg"))
    assert "value −15" in step and "value −15" not in plain
    text = " ".join("".join(one.itertext()) for one in ElementTree.fromstring(step).iter())
    assert "After one step" in text and "L: −10 before, −15 after." in text and "to keep one fixed" not in text


def test_the_graphs_before_and_after_a_step_have_one_scale() -> None:
    view = replace(expression_graph("p = w*2 + b; (3 - p)^2", {"w": 0.5, "b": 0.0}), lr=0.05)
    for figure in view.figures():
        drawn = ElementTree.fromstring(figure.svg())
        shades = {at.text: rect.get("fill") for rect in drawn.iter(f"{SVG}rect") for at in rect.iter(f"{SVG}title")}
        assert shades["L = e^2: 1"] == scale_of((), (0.0, 8.0)).shade_of(1.0).fill()["fill"]
        widths = [float(path.get("stroke-width", "")) for path in drawn.iter(f"{SVG}path") if path.get("data-link")]
        shares = [((width - THINNEST) / (THICKEST - THINNEST)) ** 2 for width in widths]
        assert [8 * share for share in shares] == pytest.approx([link.size for link in figure.links], abs=0.05)


@pytest.mark.parametrize(
    ("written", "rule"),
    [("x^2", "2*x = 6"), ("x**3", "3*x^2 = 27"), ("x^1", "1"), ("x^0", "0"), ("n = 2; x^n", "n*x^(n - 1) = 6")],
)
def test_the_derivative_of_a_power_is_written_as_on_a_blackboard(written: str, rule: str) -> None:
    assert expression_graph(written, {"x": 3.0}).steps()[-1].text == f"∂L/∂x = {rule}"


def test_the_command_prints_json_and_takes_a_leading_minus() -> None:
    done = CliRunner().invoke(app, ["graph", "-x^2", "x=3", "--json"])
    assert json.loads(done.output)["result"] == -9


@pytest.mark.parametrize(("given", "says"), [("b", "NAME=NUMBER"), ("b=two", "not a number"), ("a=2", "twice")])
def test_the_command_refuses_what_is_no_value(given: str, says: str) -> None:
    done = CliRunner().invoke(app, ["graph", "a*b", "a=1", given])
    assert isinstance(done.exception, DataError) and says in str(done.exception)
