"""Graphs: nodes with labels or with vectors, and the edges between them.

    {"nodes": ["C", "O", "H"], "edges": [[0, 1], [1, 2]], "label": "polar"}       jsonl
    C O H,0-1 1-2,polar                                                          csv

Nodes are numbered from 0. The edge `0-1` or [0, 1] goes in both directions: each of the two nodes reads the other. With
`0>1`, node 1 reads node 0, but node 0 does not read node 1. Each label is one token. Duplicate edges count once. An
edge from a node to itself has no effect, because every node reads itself anyway.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from seqloom.config.inputs import AnyInput, TokensConfig, VectorsConfig
from seqloom.config.tokenizers import AnyTokenizer, WordsConfig
from seqloom.data.kinds.kind import Columns, CommonShape, InputKind, filled, padded, tensor, tokens
from seqloom.data.kinds.text import cut_short, fitted
from seqloom.data.problems import EMPTY_FIX
from seqloom.data.values import (
    BadValue,
    Content,
    Read,
    Remarks,
    floats_of,
    kind_name,
    remark_rounding,
    shown,
    to_float32,
)
from seqloom.errors import ConfigError
from seqloom.text.ragged import Ragged, starts_of
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from seqloom.data.roles import Roles
    from seqloom.nn.types import Padded

EDGES = "edges"  # the column with the edges of each graph
EDGE = re.compile(r"(\d{1,9})([->])(\d{1,9})")
WRITTEN = "write 0-1, or 0>1 for one direction, with spaces between edges"


@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes of a graph, and its edges as pairs: the node that reads and the node that is read."""

    nodes: tuple[str, ...] | np.ndarray  # labels, or vectors [N,D] of float32
    edges: np.ndarray  # [E,2] int32, each pair once, sorted; an edge without a direction is two pairs

    def written(self) -> list[str]:
        """The edges in the notation of files.

        >>> Graph(("a", "b", "c"), np.array([[0, 1], [1, 0], [2, 1]])).written()
        ['0-1', '1>2']
        """
        pairs = [(int(reader), int(read)) for reader, read in self.edges]
        both = set(pairs)
        return [
            f"{reader}-{read}" if (read, reader) in both else f"{read}>{reader}"
            for reader, read in pairs
            if reader < read or (read, reader) not in both
        ]

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Graph) and np.array_equal(self.edges, other.edges)
        return same and np.array_equal(np.asarray(self.nodes), np.asarray(other.nodes))  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.edges.tobytes())

    def __str__(self) -> str:
        return f"{' '.join(map(str, self.nodes))}, {' '.join(self.written())}"

    @property
    def nbytes(self) -> int:
        """The approximate size in memory."""
        nodes = self.nodes.nbytes if isinstance(self.nodes, np.ndarray) else sum(map(len, self.nodes))
        return nodes + self.edges.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The graph as one row of numbers: the number of edges, the edges, then the vectors."""
        parts = [[len(self.edges)], self.edges.ravel(), np.asarray(self.nodes).ravel()]
        return np.concatenate([np.asarray(part, np.float64) for part in parts]).astype(dtype or np.float64)


class GraphInput(InputKind):
    """Columns: "input" has one token per node, EDGES has pairs [E,2]. A batch is a Padded [B,T] with edges."""

    name = "graph"
    noun = "graphs: nodes and edges"
    column_names = (("nodes", "edges"), ("atoms", "bonds"))
    num_columns = 2
    reads_tokens = True
    has_steps = True
    has_edges = True
    nodes_are: ClassVar[tuple[Content, ...]] = ("text", "texts", "nothing")

    def holds_together(self, names: tuple[str, ...], contents: tuple[Content, ...]) -> bool:
        """Whether two columns have the names of graphs, or contain a list of nodes and edges under any names."""
        if len(names) != self.num_columns or contents[0] not in self.nodes_are:
            return False
        listed = contents[0] in ("texts", "vectors") and contents[1] in ("text", "texts", "vectors", "nothing")
        return listed or names in self.column_names

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the nodes and the edges of a row."""
        nodes, edges = roles.input
        read_nodes = self.node_reader(nodes, remarks)

        def read(values: tuple[Any, ...]) -> Graph:
            found = read_nodes(values[nodes])
            return Graph(found, _edges(values[edges], len(found), edges))

        return read

    def node_reader(self, column: int, remarks: Remarks) -> Any:
        """A function that reads the labels of nodes, from a list or from a cell with spaces between them."""
        return lambda value: _labels(value, column)

    def matches(self, value: Any) -> bool:
        """Whether a value is a dict with labeled nodes and edges."""
        return isinstance(value, dict) and {"nodes", "edges"} <= value.keys() and not _has_vectors(value["nodes"])

    def cells(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, Graph):
            return value.nodes, value.written()
        if isinstance(value, dict):
            return value.get("nodes"), value.get("edges")
        return value, None

    def plain(self, value: Any) -> Any:
        nodes = value.nodes if isinstance(value.nodes, np.ndarray) else list(value.nodes)
        return {"nodes": nodes, "edges": value.written()}

    def typed(self, texts: list[str]) -> Any:
        """A dict with the nodes and the edges, from two texts on the command line."""
        return dict(zip(("nodes", "edges"), texts, strict=False))

    def texts(self, value: Any) -> tuple[str, ...]:
        """The labels and the edges, so that graphs with the same nodes but other edges count as different inputs."""
        return " ".join(map(_token, value.nodes)), " ".join(value.written())

    def steps(self, value: Any) -> int:
        return len(value.nodes)

    def tokenizer(self, requested: AnyTokenizer) -> AnyTokenizer:
        """A tokenizer that splits only at spaces, so that each label is one token."""
        if not isinstance(requested, WordsConfig):
            raise ConfigError(
                f"the label of a node must be one token, but the tokenizer '{requested.kind()}' splits it into several",
                fix="leave out --tokenizer, or give nodes vectors",
            )
        return msgspec.structs.replace(requested, word_split="space", keep_characters=False)

    def fitting_texts(self, value: Any, tokenizer: AnyTokenizer) -> tuple[str, ...]:
        return (self.texts(value)[0],)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        """The number of nodes and edges of each graph."""
        counts = [(len(value.nodes), len(value.written())) for value in values]
        nodes, edges = np.array(counts, np.int64).reshape(-1, 2).T
        return {"nodes per input": nodes, "edges per input": edges}

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        labels, _ = fitted(tokenizer).encode_words([list(map(_token, value.nodes)) for value in values])
        return {"input": labels, EDGES: _column(values)}

    def cut(self, columns: Columns, most: int, *, framed: bool) -> dict[str, Ragged]:
        """Keep the first `most` nodes and the edges between them."""
        edges = columns[EDGES]
        of_row = np.repeat(np.arange(edges.rows), edges.lengths)
        kept = (edges.values < most).all(axis=1)
        counts = np.bincount(of_row[kept], minlength=edges.rows)
        short = columns["input"].shorten(np.full(columns["input"].rows, most))
        return {**columns, "input": short, EDGES: Ragged(edges.values[kept], starts_of(counts))}

    def collate(self, columns: Columns) -> Any:
        return _with_edges(tokens(columns["input"]), columns[EDGES])

    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        return TokensConfig(vocab_size=fitted(tokenizer).vocab_size)

    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        labels = tuple(fitted(tokenizer).piece(int(token)) for token in columns["input"].row(row))
        return cut_short("; ".join(self.texts(Graph(labels, columns[EDGES].row(row)))))


class VectorGraphInput(GraphInput):
    """Columns: "input" has vectors of nodes [N,D], EDGES has pairs [E,2].

    A batch is a Padded of float32 vectors [B,T,D] with edges.
    """

    name = "vector-graph"
    noun = "graphs: nodes with vectors, and edges"
    reads_tokens = False
    nodes_are = ("vectors",)

    def node_reader(self, column: int, remarks: Remarks) -> Any:
        """A function that reads the vectors of nodes; the vectors of all rows must have the same size."""
        width = 0

        def read(value: Any) -> np.ndarray:
            nonlocal width
            numbers = _numbers(value, column)
            vectors = to_float32(numbers)
            if vectors is None:
                raise BadValue(column, "array.nonfinite", "a number is NaN, infinite or too large for float32")
            width = width or vectors.shape[1]
            if vectors.shape[1] != width:
                text = f"vectors of {vectors.shape[1]} numbers; the first row has {width}"
                raise BadValue(column, "array.width", text)
            remark_rounding(numbers, column, remarks)
            return vectors

        return read

    def matches(self, value: Any) -> bool:
        """Whether a value is a dict with edges and nodes that have vectors."""
        return isinstance(value, dict) and {"nodes", "edges"} <= value.keys() and _has_vectors(value["nodes"])

    def texts(self, value: Any) -> tuple[str, ...]:
        return ()

    def tokenizer(self, requested: AnyTokenizer) -> AnyTokenizer:
        return requested

    def common_shape(self, value: Any) -> CommonShape | None:
        return "array.width", value.nodes.shape[1:]

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        return {"input": Ragged.of([value.nodes for value in values], np.float32), EDGES: _column(values)}

    def collate(self, columns: Columns) -> Any:
        nodes = padded(filled(columns["input"], np.float32), columns["input"].lengths)
        return _with_edges(nodes, columns[EDGES])

    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        return VectorsConfig(size=sizes[0])

    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        nodes = columns["input"].row(row)
        edges = " ".join(Graph(nodes, columns[EDGES].row(row)).written())
        return cut_short(f"{len(nodes)} nodes of {nodes.shape[1]} numbers; {edges}")


def _column(graphs: Sequence[Graph]) -> Ragged:
    return Ragged.of([graph.edges for graph in graphs], np.int32)


def _with_edges(nodes: "Padded", edges: Ragged) -> "Padded":
    from seqloom.nn.types import NO_NODE

    shifted = filled(Ragged(edges.values - NO_NODE, edges.starts), np.int64)  # the filling value 0 becomes NO_NODE
    return nodes._replace(edges=tensor(shifted + NO_NODE))


def _token(label: str) -> str:
    """A label as one token: white space inside it becomes `_`."""
    return "_".join(label.split())


def _has_vectors(nodes: Any) -> bool:
    return isinstance(nodes, list | tuple | np.ndarray) and len(nodes) > 0 and not isinstance(nodes[0], str)


def _listed(value: Any, column: int, code: str, what: str) -> list[Any]:
    """The items of a list, or of a cell that contains a JSON list or items with spaces between them."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):  # RecursionError: too many brackets
            raise BadValue(column, code, f"expected {what} as a JSON list, found {shown(value)}") from None
    if isinstance(value, str):
        return value.split()
    if isinstance(value, np.ndarray):
        return list(value.tolist())
    if not isinstance(value, list | tuple):
        raise BadValue(column, code, f"expected {what}, found {kind_name(value)}", "give a list")
    return list(value)


def _labels(value: Any, column: int) -> tuple[str, ...]:
    labels = _listed(value, column, "graph.nodes", "a list of nodes")
    if not labels:
        raise BadValue(column, "row.empty_text", "the graph has no nodes", EMPTY_FIX)
    for label in labels:
        if type(label) is not str or not label.strip():
            text = f"expected the label of a node as text, found {shown(label)}"
            raise BadValue(
                column, "graph.nodes", text, "write labels as texts, or give vectors in every row of a JSON lines file"
            )
    return tuple(labels)


def _numbers(value: Any, column: int) -> np.ndarray:
    """[N,D] the vectors of nodes; in a flat list, each node has one number."""
    try:
        numbers = floats_of(_listed(value, column, "graph.nodes", "a list of vectors"))
    except ValueError:
        raise BadValue(
            column, "graph.nodes", "expected a vector of numbers for each node, all with the same size"
        ) from None
    if numbers.ndim == 1:
        numbers = numbers[:, None]
    if not numbers.size:
        raise BadValue(column, "row.empty_text", "the graph has no nodes", EMPTY_FIX)
    if numbers.ndim != 2:
        raise BadValue(column, "graph.nodes", f"expected vectors [nodes, size], found {numbers.ndim} axes")
    return numbers


def _edges(value: Any, nodes: int, column: int) -> np.ndarray:
    """[E,2] pairs of the node that reads and the node that is read, without duplicates."""
    pairs = set[tuple[int, int]]()
    for item in _listed(value, column, "graph.edges", "a list of edges"):
        start, arrow, stop = _edge(item, column)
        for node in (start, stop):
            if not 0 <= node < nodes:
                text = f"the edge {start}{arrow}{stop} contains node {node}, but the nodes are 0 to {nodes - 1}"
                raise BadValue(column, "graph.edges", text, "number the nodes from 0")
        pairs |= {(stop, start)} if arrow == ">" else {(start, stop), (stop, start)}
    kept = sorted((reader, read) for reader, read in pairs if reader != read)
    return np.array(kept, np.int32).reshape(-1, 2)


def _edge(item: Any, column: int) -> tuple[int, str, int]:
    """The first node of an edge, the character between the nodes, and the second node."""
    if isinstance(item, str) and (found := EDGE.fullmatch(item.strip().rstrip(",;"))):
        return int(found[1]), found[2], int(found[3])
    if isinstance(item, list | tuple) and len(item) == 2 and {int}.issuperset(map(type, item)):
        return item[0], "-", item[1]
    raise BadValue(column, "graph.edges", f"expected an edge, found {shown(item)}", WRITTEN)
