"""Row 37: attention along edges solves what nodes alone leave open; over all pairs of nodes it stays at chance.

Recipes as they are shipped, through `seqloom.train` on the embedded set `graphs`. `transformer` is here the same stack
as `graph-attention`, with the same number of weights: only the pattern of its attention is another one.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

import seqloom
from seqloom import Padded, recipes
from seqloom.config.heads import ClassHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import AttentionConfig, EdgesConfig, FullConfig
from seqloom.config.models import SequenceModelConfig
from seqloom.config.stacks import BlockConfig, DecoderBlockConfig, DecoderConfig
from seqloom.errors import ConfigError, DataError
from seqloom.nn.types import on_device
from tolerances import assert_equal_up_to_rounding

ALONG_EDGES = AttentionConfig(num_heads=2, pattern=EdgesConfig())


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """In place of the fixture of the worked numbers: models here are trained as users train them, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def accuracy(folder: Path, model: str) -> float:
    """The accuracy of a run on the test set, 1,000 graphs."""
    seqloom.train("graphs", out=folder, model=model, size="nano", steps=350, seed=1, device="cpu")
    return seqloom.load(folder).evaluate(split="test").metrics["accuracy"]


@pytest.mark.slow
def test_row_37_attention_along_edges_solves_what_nodes_alone_leave_open(tmp_path: Path) -> None:
    assert accuracy(tmp_path, "graph-attention") > 0.95


@pytest.mark.slow
def test_row_37_attention_over_all_pairs_of_nodes_stays_at_chance(tmp_path: Path) -> None:
    assert abs(accuracy(tmp_path, "transformer") - 0.5) < 0.05


def test_row_37_both_models_differ_in_the_pattern_alone() -> None:
    def made(name: str) -> SequenceModelConfig:
        head = ClassHeadConfig(num_classes=2)
        return recipes.graph_model(name, inputs=TokensConfig(vocab_size=9), head=head, size="nano")

    along, change = made("graph-attention"), msgspec.structs.replace
    (layer,) = along.encoder.layers
    assert isinstance(layer.mixer, AttentionConfig) and layer.mixer.pattern == EdgesConfig()
    full = change(layer, mixer=change(layer.mixer, pattern=FullConfig()))
    assert change(along, encoder=change(along.encoder, layers=(full,))) == made("transformer")


def test_row_37_attention_along_all_edges_is_full_attention() -> None:
    torch.manual_seed(0)
    along, full = ALONG_EDGES.build(8), AttentionConfig(num_heads=2).build(8)
    full.load_state_dict(along.state_dict())
    x = Padded.of(torch.randn(2, 4, 8), torch.tensor([4, 3]))
    pairs = [[[i, j] for i in range(n) for j in range(n)] for n in (4, 3)]
    every = torch.tensor([pairs[0], [*pairs[1], *[[-1, -1]] * 7]])
    assert_equal_up_to_rounding(along(x._replace(edges=every)).values, full(x).values, "all edges")


def test_row_37_a_node_reads_along_an_arrow_and_not_against_it() -> None:
    torch.manual_seed(0)
    mixer = ALONG_EDGES.build(8).eval()
    edges = torch.tensor([[[1, 0]]])  # 0>1: node 1 reads node 0
    values = torch.randn(1, 3, 8)
    before = mixer(Padded.of(values, edges=edges)).values[0]
    values[0, 0] += 1
    after = mixer(Padded.of(values, edges=edges)).values[0]
    changed = (before - after).abs().sum(dim=1) > 1e-4
    assert changed.tolist() == [True, True, False]


def test_an_input_without_edges_is_refused() -> None:
    with pytest.raises(DataError, match="attention along edges needs a graph, but this input has no edges"):
        ALONG_EDGES.build(8)(Padded.of(torch.randn(1, 3, 8)))


def test_edges_that_do_not_fit_a_batch_are_refused() -> None:
    values = torch.randn(2, 3, 8)
    with pytest.raises(DataError, match=r"edges of 2 rows are a tensor \[2, edges, 2\], found \[1, 2\]"):
        Padded.of(values, edges=torch.tensor([[0, 1]]))
    with pytest.raises(DataError, match="an edge contains a node that its row does not have"):
        Padded.of(values, torch.tensor([3, 2]), edges=torch.tensor([[[0, 2]], [[0, 2]]]))


def test_rows_are_selected_and_moved_together_with_their_edges() -> None:
    edges = torch.tensor([[[0, 1]], [[2, 0]]])
    x = Padded.of(torch.randn(2, 3, 8), torch.tensor([2, 3]), edges=edges)
    assert x.select(torch.tensor([1, 1, 0])).edges.tolist() == [[[2, 0]], [[2, 0]], [[0, 1]]]  # type: ignore[union-attr]
    for moved in (x.to("meta"), on_device(x, torch.device("meta"))):
        assert moved.edges is not None and moved.edges.device.type == "meta"
    assert x.with_values(x.values + 1).edges is edges and x.reverse().edges is None


def test_a_model_that_reads_from_left_to_right_cannot_have_edges() -> None:
    with pytest.raises(ConfigError, match="the pattern 'edges' needs the complete graph, so it cannot run"):
        DecoderConfig(input=TokensConfig(vocab_size=9), width=8, layers=(BlockConfig(mixer=ALONG_EDGES),))
    with pytest.raises(ConfigError, match="the pattern 'edges' needs the complete graph, so it cannot run"):
        DecoderBlockConfig(mixer=ALONG_EDGES, num_heads=2).fit(8)
    with pytest.raises(ConfigError, match="nodes of a graph have no order"):
        ALONG_EDGES.fit(8, "alibi")


def test_a_model_along_edges_is_refused_for_text_and_a_recipe_of_text_for_graphs(tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    file.write_text("text,label\n" + "".join(f"word{n % 7} here,{'ab'[n % 2]}\n" for n in range(40)))
    with pytest.raises(ConfigError, match="'graph-attention' cannot make a classifier, only: graph-classifier"):
        seqloom.train(file, out=tmp_path / "run", model="graph-attention", steps=1)
    size = seqloom.load_data(file).tokenizer.vocab_size  # type: ignore[union-attr]
    head = ClassHeadConfig(num_classes=2)
    own = recipes.graph_model("graph-attention", inputs=TokensConfig(vocab_size=size), head=head, size="nano")
    with pytest.raises(ConfigError, match="the model attends along the edges of a graph, but the input is text"):
        seqloom.train(file, out=tmp_path / "run", model=own, steps=1)
    with pytest.raises(ConfigError, match="'lstm' cannot make a graph-classifier"):
        seqloom.train("graphs", out=tmp_path / "run", model="lstm", steps=1)
