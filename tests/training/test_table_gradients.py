"""Tables of vectors whose gradients are rows.

AdamW by touched rows takes the steps of AdamW where there is a gradient and changes no bit where there is none; all
other optimizers take exactly the steps of dense gradients.
"""

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.testing import assert_close

from seqloom import recipes
from seqloom.config.inputs import NgramsConfig, SpelledConfig, TokensConfig, VectorsConfig
from seqloom.config.training import (
    AdamConfig,
    AdamWConfig,
    AnyOptimizer,
    MuonConfig,
    SgdConfig,
    SparseAdamWConfig,
    TrainingConfig,
)
from seqloom.errors import ConfigError
from seqloom.nn.inputs import Lookup
from seqloom.nn.types import Batch, Padded, Spelled
from seqloom.training import optimizers, table_gradients
from seqloom.training.devices import Alone
from seqloom.training.optimizers import apply, build_optimizer, gradients_of, moments_of, set_lr
from seqloom.training.state import TrainingState
from seqloom.training.step import Tally
from seqloom.training.table_gradients import each_row_once, give_rows, lookup_tables
from update_common import CASES, PLAIN, assert_same, batch_of, copied, drawn, take, updating

CONFIG = replace(PLAIN, optimizer=SparseAdamWConfig(weight_decay=0.1, beta2=0.98))
RATE, WORDS = 0.05, 40
TOKENS = TokensConfig(vocab_size=WORDS)

pytestmark = pytest.mark.skipif(torch.empty(0).device.type != "cpu", reason="sparse-adamw is for the CPU")


def built(inputs: TokensConfig = TOKENS) -> nn.Module:
    torch.manual_seed(0)
    return recipes.classifier("bag", inputs=inputs, num_classes=3, size="nano").build()


def batch(number: int) -> Batch[Padded, Tensor]:
    """Some words, most of them more than once; the same ones for the same number."""
    generator = torch.Generator().manual_seed(number)
    words = torch.randint(WORDS // 2, (4, 5), generator=generator) * 2 % 15  # many words never
    return Batch(Padded.of(words, torch.tensor([5, 3, 5, 1])), torch.randint(3, (4,), generator=generator))


def restored(model: nn.Module, steps: int) -> nn.Module:
    """The model after steps of torch's AdamW, each of which is taken back in rows without a gradient."""
    table = model.encoder.input.table
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    groups = [{"params": decayed}, {"params": [w for w in model.parameters() if w.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=0.1, betas=(0.9, 0.98), foreach=False)
    for number in range(steps):
        optimizer.zero_grad()
        loss = model.loss(batch(number))
        (loss.total / loss.weight).backward()
        kept = [table, *(optimizer.state.get(table, {}).get(name) for name in ("exp_avg", "exp_avg_sq"))]
        kept = [torch.zeros_like(table) if one is None else one.detach().clone() for one in kept]
        optimizer.step()
        still = (table.grad == 0).all(dim=1)
        assert 0 < int(still.sum()) < WORDS
        with torch.no_grad():
            for tensor, before in zip(
                (table, optimizer.state[table]["exp_avg"], optimizer.state[table]["exp_avg_sq"]), kept, strict=True
            ):
                tensor[still] = before[still]
    return model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_gradient_as_rows_has_the_numbers_of_a_dense_one_in_every_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    tokens, lookup = torch.randint(WORDS // 2, (30, 20)) * 2, Lookup()  # each of them about thirty times
    table, upstream = nn.Parameter(torch.randn(WORDS, 8, dtype=dtype)), torch.randn(30, 20, 8, dtype=dtype)
    found = []
    for lookup.sparse in (True, False):
        lookup.table, lookup.training, table.grad = table, True, None
        lookup.look_up(tokens).backward(upstream)
        assert table.grad is not None and table.grad.is_sparse is lookup.sparse
        found.append(each_row_once(table.grad).to_dense() if lookup.sparse else table.grad)
    assert torch.equal(*found)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [("cpu",), ()], ids=["fused", "plain"])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse gradient", "dense gradient"])
def test_six_steps_equal_those_of_adamw_taken_back_where_there_is_no_gradient(
    sparse: bool, fused: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "FUSED", fused)
    mine = built()
    optimizer = build_optimizer(CONFIG, mine, sparse=sparse)
    for number in range(6):
        optimizer.zero_grad()
        mine.loss(batch(number)).total.backward()
        assert mine.encoder.input.table.grad.is_sparse == sparse
        set_lr(optimizer, RATE)
        gradients_of(optimizer)
        apply(optimizer, torch.tensor(4.0), torch.tensor(0.0))
    assert_close(list(mine.parameters()), list(restored(built(), 6).parameters()), rtol=1e-5, atol=1e-6)


def test_rows_of_words_that_were_not_read_keep_every_bit_and_so_do_all_when_a_step_is_held_back() -> None:
    model = built()
    optimizer = build_optimizer(CONFIG, model, sparse=True)

    def step(number: int, hold: float) -> None:
        optimizer.zero_grad()
        model.loss(batch(number)).total.backward()
        set_lr(optimizer, RATE)
        apply(optimizer, torch.tensor(1.0), torch.tensor(hold))

    def state() -> list[Tensor]:
        return [tensor.detach().clone() for tensor in [*model.parameters(), *moments_of(optimizer, model).values()]]

    step(0, 0.0)
    before = state()
    step(1, 1.0)
    assert all(torch.equal(one, two) for one, two in zip(before, state(), strict=True))
    read = set(batch(1).inputs.values.flatten().tolist())
    table, moments = model.encoder.input.table, moments_of(optimizer, model)
    rows = {"w": table, **{name: moments[f"encoder.input.table.{name}"] for name in ("exp_avg", "exp_avg_sq")}}
    old = {name: tensor.detach().clone() for name, tensor in rows.items()}
    step(1, 0.0)
    for name, tensor in rows.items():
        changed = (tensor != old[name]).any(dim=1).nonzero().flatten().tolist()
        assert changed and set(changed) <= read, name


def steps(case: str, config: TrainingConfig, micro_batches: int) -> tuple[Tally, dict[str, dict[str, Tensor]]]:
    """The statistics and all tensors after four steps."""
    update, state = updating(drawn(CASES[case]), config), TrainingState()
    state.micro_batches = micro_batches
    for number in range(4):
        take(update, batch_of(CASES[case], 5, seed=number), state)
    return update.read(), copied(update)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["classify, cnn", "translate, seq2seq", "tag, crf"])
def test_clipping_accumulation_averages_and_statistics_are_those_of_dense_gradients(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`case` has a table of its own; with seq2seq only that of the source, as the other is the output layer too."""
    config = replace(CONFIG, clip_norm=0.05, ema=0.9)
    sums, tensors = steps(case, config, 2)
    monkeypatch.setattr(optimizers, "give_rows", lambda *_: None)
    dense_sums, dense_tensors = steps(case, config, 2)
    assert sums.clipped == dense_sums.clipped == 4
    assert_close(sums.norm, dense_sums.norm, rtol=1e-5, atol=1e-6)
    assert_close(tensors, dense_tensors, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "optimizer",
    [SgdConfig(weight_decay=0.1), SgdConfig(momentum=0.0), AdamConfig(weight_decay=0.1), AdamWConfig(), MuonConfig()],
    ids=["momentum", "sgd", "adam", "adamw", "muon"],
)
def test_other_optimizers_take_exactly_the_same_steps_by_rows(
    optimizer: AnyOptimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(PLAIN, optimizer=optimizer, ema=0.9)
    _, dense = steps("classify, lstm", config, 1)  # of several micro-batches, the sums are rounded in another order
    monkeypatch.setattr(table_gradients, "LARGE", 0)
    assert_same(steps("classify, lstm", config, 1)[1], dense)


def test_large_tables_give_their_gradients_as_rows_and_the_memory_of_a_step_is_clean_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_gradients, "LARGE", WORDS)
    model = built()
    optimizer = build_optimizer(PLAIN, model, sparse=True)
    seen = list[Tensor]()
    optimizer.register_step_pre_hook(lambda *_: seen.append(model.encoder.input.table.grad.clone()))
    for _ in range(2):
        model.loss(batch(0)).total.backward()
        assert model.encoder.input.table.grad.is_sparse
        apply(optimizer, torch.tensor(1.0), torch.tensor(0.0))
        assert model.encoder.input.table.grad is None
        model.load_state_dict(built().state_dict())
    assert torch.equal(*seen) and not seen[0].is_sparse and bool((seen[0] != 0).any())
    monkeypatch.setattr(table_gradients, "LARGE", 2**40)
    build_optimizer(PLAIN, model, sparse=True)
    assert not model.encoder.input.sparse


def test_a_resumed_run_takes_the_same_steps() -> None:
    case = CASES["classify, cnn"]
    whole, state = updating(drawn(case), CONFIG), TrainingState()
    for number in range(2):
        take(whole, batch_of(case, 5, seed=number), state)
    later, again = updating(drawn(case), CONFIG), TrainingState(step=2)
    later.load(copied(whole), again)
    for update, run_state in ((whole, state), (later, again)):
        take(update, batch_of(case, 5, seed=2), run_state)
    assert_same(copied(later), copied(whole))


class Two(Alone):
    """One of two processes, as far as a step can tell."""

    count = 2


def test_gradients_are_dense_where_processes_exchange_them_and_in_evaluation() -> None:
    model = built()
    updating(model, CONFIG, ranks=Two())
    assert not model.encoder.input.sparse
    updating(model, CONFIG)
    assert model.encoder.input.sparse
    model.eval()
    model.loss(batch(0)).total.backward()
    assert not model.encoder.input.table.grad.is_sparse


def test_every_input_with_a_table_looks_its_rows_up() -> None:
    letters = torch.randint(1, 9, (4, 5, 3), dtype=torch.uint8)
    for inputs, raw in (
        (TOKENS, batch(0).inputs),
        (NgramsConfig(vocab_size=WORDS, order=2, buckets=50), batch(0).inputs),
        (SpelledConfig(vocab_size=WORDS), Spelled(batch(0).inputs, letters)),
    ):
        model = recipes.classifier("bag", inputs=inputs, num_classes=3, size="nano").build()
        (table,) = lookup_tables(model)
        give_rows(model, [table])
        model.loss(Batch(raw, batch(0).targets)).total.backward()
        assert isinstance(model.encoder.input, Lookup) and table.grad.is_sparse


def test_it_is_refused_where_no_table_can_be_trained_by_rows() -> None:
    frozen = built()
    frozen.encoder.input.table.requires_grad_(False)
    vectors = recipes.classifier("bag", inputs=VectorsConfig(size=4), num_classes=3, size="nano").build()
    tied = recipes.language_model("lstm", vocab_size=WORDS, size="nano").build()
    for model in (frozen, vectors, tied):
        with pytest.raises(ConfigError, match="no table that is trained and not used by its output layer too"):
            build_optimizer(CONFIG, model)
    with pytest.raises(ConfigError, match="sparse-adamw is for the CPU, found meta"):
        build_optimizer(CONFIG, built().to("meta"))
