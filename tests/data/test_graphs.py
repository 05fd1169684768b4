"""Graphs from files: nodes with labels or vectors, edges in every form, and one clear error for each fault."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import seqloom
from seqloom.config.inputs import TokensConfig, VectorsConfig
from seqloom.data.kinds.graph import Graph, GraphInput, VectorGraphInput
from seqloom.data.loader import collate
from seqloom.data.synthetic.graphs import GRAPHS, LABELS, RED
from seqloom.errors import ConfigError, RejectedError
from seqloom.nn.types import NO_NODE
from seqloom.text.ragged import Ragged

Row = dict[str, Any]


def written(folder: Path, rows: list[Row], name: str = "graphs.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows(label: str = "label", times: int = 10) -> list[Row]:
    """A path, a pair with an arrow, and a node alone; often enough for a split."""
    return [
        {"nodes": ["C", "O", "H"], "edges": [[0, 1], [1, 2]], label: "a"},
        {"nodes": ["C", "carbon atom"], "edges": ["0>1"], label: "b"},
        {"nodes": ["N"], "edges": [], label: "b"},
    ] * times


def test_json_lines_become_tokens_and_edges(tmp_path: Path) -> None:
    data = seqloom.load_data(written(tmp_path, rows()))
    assert repr(data.schema) == "Schema(input='graph', target='label', labels=('a', 'b'))"
    assert [data.shown(row) for row in range(3)] == ["C O H; 0-1 1-2", "C carbon_atom; 0>1", "N;"]
    assert data.schema.input.layer((), data.tokenizer) == TokensConfig(vocab_size=11)  # 5 labels, 6 special tokens
    inputs = collate(data.schema, data.columns, np.arange(3)).inputs
    assert inputs.lengths.tolist() == [3, 2, 1] and inputs.values.shape == (3, 3)
    none = [NO_NODE] * 2
    assert inputs.edges.tolist() == [[[0, 1], [1, 0], [1, 2], [2, 1]], [[1, 0], none, none, none], [none] * 4]


CELLS = {
    "spaces": ("C O H", "0-1 1-2"),
    "commas": ("C O H", "0-1, 1-2,"),
    "json": ('["C", "O", "H"]', "[[0, 1], [1, 2]]"),
    "twice": ("C O H", "0-1 1-0 2-1 2-2"),
    "arrows": ("C O H", "0>1 1>0 1-2"),
    "texts": ('["C", "O", "H"]', '["0-1", "2-1"]'),
}


@pytest.mark.parametrize("form", CELLS)
def test_every_form_of_a_cell_gives_the_same_graph(form: str) -> None:
    (example,) = read(*CELLS[form])
    assert example.nodes == ("C", "O", "H") and example.edges.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert example.written() == ["0-1", "1-2"]


def read(nodes: Any, edges: Any, kind: GraphInput = GraphInput()) -> list[Graph]:  # noqa: B008
    from seqloom.data.inputs import given_inputs
    from seqloom.data.problems import Ledger

    ledger = Ledger()
    found = [example.input for example in given_inputs([{"nodes": nodes, "edges": edges}], kind, ledger)]
    ledger.close()
    return found  # type: ignore[return-value]


@given(data=st.data(), nodes=st.integers(1, 9))
def test_what_is_written_is_read_again(data: st.DataObject, nodes: int) -> None:
    pairs = data.draw(st.sets(st.tuples(*[st.integers(0, nodes - 1)] * 2)))
    edges = np.array(sorted(pair for pair in pairs if pair[0] != pair[1]), np.int32).reshape(-1, 2)
    graph = Graph(tuple("abcdefghi"[:nodes]), edges)
    for form in (graph.written(), " ".join(graph.written())):
        (again,) = read(graph.nodes, form)
        assert again == graph and hash(again) == hash(graph)
        assert again != Graph(("z", *graph.nodes[1:]), edges)
        assert not len(edges) or again != Graph(graph.nodes, edges[1:])


FAULTS: dict[str, tuple[Row, str]] = {
    "a node that is not there": (
        {"nodes": ["C", "O"], "edges": [[0, 2]]},
        "edges: the edge 0-2 contains node 2, but the nodes are 0 to 1. Fix: number the nodes from 0.",
    ),
    "a negative node": ({"nodes": ["C", "O"], "edges": [[0, -1]]}, "the edge 0--1 contains node -1"),
    "three ends": ({"nodes": ["C", "O"], "edges": [[0, 1, 1]]}, "edges: expected an edge, found '[0, 1, 1]'"),
    "a fraction": ({"nodes": ["C", "O"], "edges": [[0, 0.5]]}, "expected an edge, found '[0, 0.5]'"),
    "a word": ({"nodes": ["C", "O"], "edges": ["0-1", "C-O"]}, "expected an edge, found 'C-O'. Fix: write 0-1, or 0>1"),
    "no list": ({"nodes": ["C", "O"], "edges": 3}, "edges: expected a list of edges, found number. Fix: give a list"),
    "null": ({"nodes": ["C", "O"], "edges": None}, "expected a list of edges, found null"),
    "no nodes": ({"nodes": [], "edges": []}, "row.empty_text: the graph has no nodes"),
    "a blank label": ({"nodes": ["C", " "], "edges": []}, "nodes: expected the label of a node as text, found ' '"),
    "a vector among labels": ({"nodes": ["C", [1.0]], "edges": []}, "found '[1.0]'. Fix: write labels as texts"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_with_its_row_and_column(fault: str, tmp_path: Path) -> None:
    bad, message = FAULTS[fault]
    with pytest.raises(RejectedError) as caught:
        seqloom.load_data(written(tmp_path, [*rows(), bad | {"label": "a"}]))
    assert "graphs.jsonl:31" in str(caught.value) and message in str(caught.value)


def test_a_csv_file_tells_a_fault_by_line(tmp_path: Path) -> None:
    path = tmp_path / "graphs.csv"
    path.write_text("nodes,edges,label\nC O,0-1,a\nC O,0-1 1-4,b\n")
    with pytest.raises(RejectedError, match=r"graphs.csv:3.*the edge 1-4 contains node 4, but the nodes are 0 to 1"):
        seqloom.load_data(path)


@pytest.mark.parametrize(("column", "cells"), [("nodes", "{},0-1"), ("edges", "C O,{}")])
def test_a_cell_with_thousands_of_brackets_is_a_bad_value(column: str, cells: str, tmp_path: Path) -> None:
    path = tmp_path / "graphs.csv"
    path.write_text(f"nodes,edges,label\nC O,0-1,a\n{cells.format('[' * 100_000)},b\n")
    with pytest.raises(RejectedError, match=rf"graphs.csv:3.*{column}.*expected a list of {column} as a JSON list"):
        seqloom.load_data(path)


def test_csv_and_json_lines_give_the_same_columns(tmp_path: Path) -> None:
    path = tmp_path / "graphs.csv"
    kind = GraphInput()
    lines = [(kind.cells(row), row["label"]) for row in rows()]
    cells = [(" ".join(nodes).replace("carbon atom", "carbon_atom"), edges, label) for (nodes, edges), label in lines]
    shown = {0: "0-1 1-2", 1: "0>1", 2: ""}
    path.write_text("atoms,bonds,label\n" + "".join(f"{c[0]},{shown[i % 3]},{c[2]}\n" for i, c in enumerate(cells)))
    one, other = seqloom.load_data(path), seqloom.load_data(written(tmp_path, rows()))
    for name in ("input", "edges"):
        assert np.array_equal(one.columns[name].values, other.columns[name].values), name
        assert np.array_equal(one.columns[name].starts, other.columns[name].starts), name


def test_nodes_may_have_vectors(tmp_path: Path) -> None:
    some = [
        {"nodes": [[0.5, 1.0], [2.0, 3.0]], "edges": [[0, 1]], "score": 0.25},
        {"nodes": [[1, 1]], "edges": [], "score": 1.5},
    ]
    data = seqloom.load_data(written(tmp_path, some * 10))
    assert repr(data.schema) == "Schema(input='vector-graph', target='numbers', labels=())"
    assert data.tokenizer is None and data.schema.input.layer((2,), None) == VectorsConfig(size=2)
    inputs = collate(data.schema, data.columns, np.arange(2)).inputs
    assert inputs.values.tolist() == [[[0.5, 1.0], [2.0, 3.0]], [[1.0, 1.0], [0.0, 0.0]]]
    assert inputs.edges.tolist() == [[[0, 1], [1, 0]], [[-1, -1], [-1, -1]]]
    assert data.shown(0) == "2 nodes of 2 numbers; 0-1"
    wider = [*some, {"nodes": [[1.0]], "edges": [], "score": 1.0}]
    with pytest.raises(RejectedError, match=r"array.width.*vectors of 1 numbers; the first row has 2"):
        seqloom.load_data(written(tmp_path, wider))


@pytest.mark.parametrize("edges", [[[0, 0]], ["0-0"], "0-0", []], ids=repr)
def test_a_list_of_nodes_and_edges_are_a_graph_under_any_name(edges: Any, tmp_path: Path) -> None:
    renamed = [{"who": row["nodes"], "knows": edges, "label": row["label"]} for row in rows()]
    data = seqloom.load_data(written(tmp_path, renamed), input=["who", "knows"])
    assert data.schema.input == GraphInput()


def test_graphs_that_differ_in_edges_alone_are_no_duplicates(tmp_path: Path) -> None:
    some = [{"nodes": ["C"] * 4, "edges": [[i, j]], "label": "ab"[i % 2]} for i in range(4) for j in range(i)]
    vectors = [{**row, "nodes": [[1.0]] * 4} for row in some]
    for table in (some, vectors):
        report = seqloom.check_data(written(tmp_path, table), dev_size=0.2, test_size=0.2)
        assert all(repeats.exact == 0 for repeats in report.duplicates.within)
        again = seqloom.check_data(written(tmp_path, table * 2), dev_size=0.2, test_size=0.2)
        assert sum(repeats.exact for repeats in again.duplicates.within) + sum(
            leak.exact for leak in again.duplicates.between
        )


def test_the_report_counts_nodes_and_edges(tmp_path: Path) -> None:
    report = seqloom.check_data(written(tmp_path, rows()))
    assert [one.name for one in report.distributions][:2] == ["nodes per input", "edges per input"]


def test_a_graph_that_is_too_long_loses_its_last_nodes_with_their_edges() -> None:
    columns = {
        "input": Ragged.of([[6, 7, 8], [9]], np.int32),
        "edges": Ragged.of([np.array([[0, 1], [1, 0], [2, 1]]), np.empty((0, 2))], np.int32),
    }
    short = GraphInput().cut(columns, 2, framed=False)
    assert short["input"].values.tolist() == [6, 7, 9] and short["edges"].values.tolist() == [[0, 1], [1, 0]]
    assert short["edges"].starts.tolist() == [0, 2, 2]


@pytest.mark.parametrize("task", ["lm", "masked", "translate"])
def test_other_tasks_are_refused(task: str, tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match=r"does not read graphs|a language model reads text"):
        seqloom.load_data(written(tmp_path, rows()), task=task, target="label" if task == "translate" else None)


def test_a_tokenizer_that_cuts_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the label of a node must be one token, but the tokenizer 'bpe' splits it"):
        seqloom.load_data(written(tmp_path, rows()), tokenizer="bpe")


def test_labels_keep_their_marks(tmp_path: Path) -> None:
    some = [{"nodes": ["N+", "O-"], "edges": ["0-1"], "label": label} for label in "ab"] * 10
    data = seqloom.load_data(written(tmp_path, some))
    assert data.shown(0) == "N+ O-; 0-1"


def test_python_values_and_typed_texts_are_graphs() -> None:
    kind, vectors = GraphInput(), VectorGraphInput()
    graph = {"nodes": ["a", "b"], "edges": [[0, 1]]}
    assert kind.matches(graph) and not vectors.matches(graph) and not kind.matches("a b")
    assert vectors.matches({"nodes": [[0.5]], "edges": []}) and not kind.matches({"nodes": [[0.5]], "edges": []})
    (found,) = read(**graph)
    assert kind.plain(found) == {"nodes": ["a", "b"], "edges": ["0-1"]}
    assert kind.typed(["a b", "0-1"]) == {"nodes": "a b", "edges": "0-1"}
    (again,) = read(**kind.typed(["a b", "0-1"]))
    assert kind.plain(again) == kind.plain(found)


def test_in_the_embedded_set_nodes_and_their_numbers_of_edges_leave_the_label_open() -> None:
    examples = list(GRAPHS.examples("train", count=400))
    for one, other in zip(examples[::2], examples[1::2], strict=True):
        first, second = one.input, other.input
        assert isinstance(first, Graph) and isinstance(second, Graph)
        assert {one.target, other.target} == set(LABELS) and first.nodes == second.nodes
        degrees = [np.bincount(graph.edges[:, 0], minlength=len(graph.nodes)).tolist() for graph in (first, second)]
        assert degrees[0] == degrees[1]
    for example in examples:
        graph = example.input
        assert isinstance(graph, Graph)
        red = any(graph.nodes[reader] == graph.nodes[read] == RED for reader, read in graph.edges)
        assert example.target == LABELS[red]


@pytest.mark.slow
def test_no_graph_of_the_embedded_set_is_in_two_parts() -> None:
    seen: dict[str, str] = {}
    for part, count in (("train", 4_000), ("dev", 500), ("test", 500)):
        for example in GRAPHS.examples(part, count=count, nodes=6):  # small ones meet again soon
            key = " ".join(GraphInput().texts(example.input))
            assert seen.setdefault(key, part) == part


def tagged(count: int) -> list[Row]:
    """Nodes whose tag says whether the node or a neighbor is red."""
    draw, made = random.Random(0), []
    for _ in range(count):
        nodes = [draw.choice(["red", "blue"]) for _ in range(draw.randint(3, 8))]
        edges = [[i, j] for i in range(len(nodes)) for j in range(i) if draw.random() < 0.3]
        near = [
            any("red" in (nodes[i], nodes[sum(edge) - i]) for edge in [[i, i], *edges] if i in edge)
            for i in range(len(nodes))
        ]
        made.append({"nodes": nodes, "edges": edges, "tags": ["near" if one else "far" for one in near]})
    return made


@pytest.mark.slow
def test_a_tagger_learns_a_tag_for_each_node(tmp_path: Path) -> None:
    file = written(tmp_path, tagged(800))
    run = seqloom.train(file, out=tmp_path / "run", size="nano", steps=250, lr=0.01, seed=1, device="cpu")
    model = seqloom.load(run.folder)
    assert repr(model).startswith("LoadedModel(tag: graph to tags")
    assert model.evaluate(split="test").metrics["accuracy"] > 0.95
    (found,) = model.predict([{"nodes": "blue red blue", "edges": "0-1"}])
    assert found.tags == ("near", "near", "far")


@pytest.mark.slow
def test_a_regression_learns_a_number_of_each_graph_with_vectors(tmp_path: Path) -> None:
    made = []
    for row in tagged(800):  # the share of nodes that are a 1 or next to one
        nodes = [[float(node == "red"), 1.0] for node in row["nodes"]]
        made.append({"nodes": nodes, "edges": row["edges"], "score": row["tags"].count("near") / len(nodes)})
    file = written(tmp_path, made)
    run = seqloom.train(file, out=tmp_path / "run", size="nano", steps=300, lr=0.01, seed=1, device="cpu")
    model = seqloom.load(run.folder)
    assert repr(model).startswith("LoadedModel(regress: vector-graph to numbers")
    assert model.evaluate(split="test").metrics["r2"] > 0.9


@pytest.mark.slow
def test_answers_do_not_depend_on_neighbors_in_the_batch_or_on_the_numbering(tmp_path: Path) -> None:
    run = seqloom.train("graphs", out=tmp_path / "run", size="nano", steps=3, seed=1, device="cpu", accumulate=2)
    model, examples = seqloom.load(run.folder), list(GRAPHS.examples("test", count=12))
    together = model.predict([GraphInput().plain(example.input) for example in examples])
    for example, expected in zip(examples, together, strict=True):
        graph = example.input
        assert isinstance(graph, Graph)
        order = torch.randperm(len(graph.nodes)).tolist()
        place = {node: number for number, node in enumerate(order)}
        moved = {
            "nodes": [graph.nodes[node] for node in order],
            "edges": [[place[int(reader)], place[int(read)]] for reader, read in graph.edges],
        }
        (alone,) = model.predict([moved])
        assert alone.scores == pytest.approx(expected.scores, abs=1e-5)


@pytest.mark.slow
def test_views_of_a_graph_keep_its_edges_or_refuse(tmp_path: Path) -> None:
    run = seqloom.train("graphs", out=tmp_path / "run", size="nano", steps=3, seed=1, device="cpu")
    seen = seqloom.load(run.folder).inspect(GraphInput().typed(["red blue red", "0-1 1>2"]))
    allowed = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]], bool)
    assert np.array_equal(np.isfinite(seen.attention(layer=0).values), allowed)
    assert seen.attention(layer=0).rows == ("red", "blue", "red")
    assert len(seen.attribution().document().blocks) and len(seen.faithfulness().document().blocks)
    with pytest.raises(ConfigError, match="a node cannot be deleted without its edges"):
        seen.attribution(method="leave_one_out")
    with pytest.raises(ConfigError, match="a node cannot be deleted without its edges"):
        seen.faithfulness(removal="delete")
