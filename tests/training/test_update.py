"""One step: the numbers of a bare loop, nothing changed by what is not finite, and memory that runs out."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.testing import assert_close

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.training import AdamWConfig, PacksConfig, SgdConfig
from seqloom.errors import DurableError
from seqloom.nn.ops import attention_fast
from seqloom.nn.types import Batch, Loss, Padded, Pair, count_rows
from seqloom.recipes.families import Dimensions
from seqloom.training import loss as loss_module
from seqloom.training import step as scaling
from seqloom.training import step as tallying
from seqloom.training.devices import Alone, HalvedError, OutOfMemoryError, choose_device, ran_out
from seqloom.training.state import TrainingState
from seqloom.training.step import Update, moved, rows_of
from update_common import CASES, HERE, PLAIN, Asked, Continued, assert_same, batch_of, copied, drawn, take, updating

CASE = CASES["classify, cnn"]
READING = CASES["lm, lstm"]
SMALLEST = Dimensions("nano", width=8, layers=1, heads=2)
EVERYTHING = replace(PLAIN, ema=0.9, clip_norm=0.5)
NAN, INFINITE = float("nan"), float("inf")


class Spoilt(Asked):
    """A task whose loss is spoilt when asked for."""

    def __init__(self) -> None:
        self.spoil: Any = None

    def loss(self, model: nn.Module, batch: Batch, state: Any) -> tuple[Loss, Any]:
        loss, after = (
            model.continued_loss(batch, state) if hasattr(model, "initial_state") else (model.loss(batch), None)
        )
        return (loss if self.spoil is None else self.spoil(model, loss)), after


def lost(model: nn.Module, loss: Loss) -> Loss:
    return Loss(loss.total * NAN, loss.weight)


def endless(model: nn.Module, loss: Loss) -> Loss:
    return Loss(loss.total + INFINITE, loss.weight)


def one_bad_slope(model: nn.Module, loss: Loss) -> Loss:
    """A loss that is finite, and a gradient that is not, in one entry: the root has no slope at 0."""
    entry = next(model.parameters()).flatten()[0]
    return Loss(loss.total + (entry - entry.detach()).clamp(min=0).sqrt(), loss.weight)


def weightless(model: nn.Module, loss: Loss) -> Loss:
    return Loss(loss.total, loss.weight * NAN)


SPOILT = [lost, endless, one_bad_slope, weightless]


# --- the numbers of a bare loop --------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_ten_steps_equal_a_bare_loop(clip: float) -> None:
    model, bare = drawn(CASE), drawn(CASE)
    update, run_state = (
        updating(model, replace(PLAIN, clip_norm=clip, optimizer=AdamWConfig(weight_decay=0.0))),
        TrainingState(),
    )
    optimizer = torch.optim.AdamW(bare.parameters(), weight_decay=0.0, foreach=False)
    for step in range(10):
        batch, lr = batch_of(CASE, 6, seed=step), 0.01 / (step + 1)
        take(update, batch, run_state, lr=lr)
        optimizer.zero_grad()
        optimizer.param_groups[0]["lr"] = lr
        loss = bare.loss(moved(batch, HERE)).mean
        loss.backward()
        norm = nn.utils.clip_grad_norm_(bare.parameters(), clip or INFINITE)
        optimizer.step()
        tally = update.read()
        assert tally.loss / tally.weight == pytest.approx(loss.item(), rel=1e-5)
        assert (tally.norm, tally.largest) == pytest.approx((norm.item(), norm.item()), rel=1e-4)
        assert tally.clipped == (norm.item() > clip > 0)
    assert_close(list(model.parameters()), list(bare.parameters()), rtol=1e-3, atol=1e-5)


def test_a_clipped_gradient_has_the_norm_that_is_allowed_and_its_direction() -> None:
    model, free = drawn(CASE), drawn(CASE)
    batch = batch_of(CASE, 6)
    take(updating(model, replace(PLAIN, clip_norm=0.01)), batch, TrainingState())
    take(updating(free), batch, TrainingState())
    short, long = (torch.cat([one.grad.flatten() for one in each.parameters()]) for each in (model, free))
    assert short.norm().item() == pytest.approx(0.01, rel=1e-5)
    assert_close(short / short.norm(), long / long.norm())


def test_a_tally_adds_up_the_steps_since_the_last_look() -> None:
    one, all_ = updating(drawn(CASE)), updating(drawn(CASE))
    run_state, other, seen = TrainingState(), TrainingState(), []
    for step in range(4):
        batch = batch_of(CASE, 3 + step, seed=step)
        take(one, batch, run_state)
        take(all_, batch, other)
        seen.append(one.read())
    total = all_.read()
    assert total.steps == 4 and [tally.steps for tally in seen] == [1] * 4
    for field in ("loss", "weight", "norm", "elements", "tokens"):
        assert getattr(total, field) == pytest.approx(sum(getattr(tally, field) for tally in seen))
    assert total.largest == max(tally.largest for tally in seen)
    assert total.weight == 3 + 4 + 5 + 6 and 0 < total.tokens < total.elements == 7 * (3 + 4 + 5 + 6)
    assert all_.read() == (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, False, 0, 0)


def test_a_long_time_without_a_look_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen() -> Any:
        update, run_state = updating(drawn(CASE)), TrainingState()
        for step in range(7):
            take(update, batch_of(CASE, 3, seed=step), run_state)
        return update.read()

    plain = seen()
    monkeypatch.setattr(tallying, "HELD", 2)
    assert seen() == plain and plain.steps == 7


def test_a_wish_to_stop_is_heard_at_the_next_look_and_then_forgotten() -> None:
    update = updating(drawn(CASE))
    update.step(batch_of(CASE, 2), carried=False, run_state=TrainingState(), lr=0.0, stop=True)
    update.step(batch_of(CASE, 2), carried=False, run_state=TrainingState(), lr=0.0)
    assert update.read().stop and not update.read().stop


# --- not finite ------------------------------------------------------------------------------------------------------


def begun(case: Any = CASE, config: Any = EVERYTHING) -> tuple[Update, Spoilt, TrainingState]:
    """A run after two good steps."""
    task, run_state = Spoilt(), TrainingState()
    update = updating(drawn(case), config, task=task)
    for step in range(2):
        take(update, batch_of(case, 4, seed=step), run_state, carried=step > 0)
    update.read()
    return update, task, run_state


@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("optimizer", [AdamWConfig(), SgdConfig()], ids=["adamw", "sgd"])
@pytest.mark.parametrize("case", [CASE, READING], ids=["classify", "lm"])
def test_a_step_that_is_not_finite_leaves_every_tensor_bit_for_bit(case: Any, optimizer: Any, spoil: Any) -> None:
    update, task, run_state = begun(case, replace(EVERYTHING, optimizer=optimizer))
    before = copied(update)
    assert ("carried" in before) == (case is READING)
    task.spoil = spoil
    take(update, batch_of(case, 4), run_state, carried=True)
    tally = update.read()
    assert (tally.steps, tally.skipped, tally.not_finite, tally.loss, tally.norm) == (1, 1, 1, 0.0, 0.0)
    assert tally.tokens > 0
    assert_same(copied(update), before)
    assert update.finite() == []
    task.spoil = None
    take(update, batch_of(case, 4), run_state, carried=True)
    assert update.read().not_finite == 0
    assert not torch.equal(next(iter(update.tensors()["model"].values())), next(iter(before["model"].values())))


@pytest.mark.parametrize("spoil", [lost, one_bad_slope, weightless])
def test_without_the_guard_the_weights_would_be_lost(spoil: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallying.Tallies, "hold", lambda *_: torch.zeros(()))
    update, task, run_state = begun()
    task.spoil = spoil
    take(update, batch_of(CASE, 4), run_state)
    assert any(name.startswith("model.") for name in update.finite())


def test_a_first_step_that_is_not_finite_leaves_a_run_as_if_it_had_not_been() -> None:
    task = Spoilt()
    update, run_state = updating(drawn(READING), EVERYTHING, task=task), TrainingState()
    before = copied(update)
    task.spoil = lost
    take(update, batch_of(READING, 4), run_state)
    after = copied(update)
    for leaf, fresh in zip(
        after.pop("carried").values(), update._model.initial_state(count_rows(update._carried))[1:], strict=False
    ):
        assert leaf.isfinite().all() and fresh is not None
    assert_same(after, before)
    task.spoil = None
    clean = updating(drawn(READING), EVERYTHING, task=Spoilt())
    take(update, batch_of(READING, 4), run_state, carried=True)
    take(clean, batch_of(READING, 4), TrainingState(step=1))
    assert_same(copied(update), copied(clean))


def test_three_in_a_row_are_the_end_and_two_are_not() -> None:
    update, task, run_state = begun()
    for bad in (True, True, False, True, True, True):
        task.spoil = lost if bad else None
        take(update, batch_of(CASE, 4), run_state)
    before = copied(update)
    task.spoil = None
    for _ in range(2):  # on a device steps go on until somebody looks
        take(update, batch_of(CASE, 4), run_state)
    tally = update.read()
    assert (tally.not_finite, tally.skipped) == (3, 7)
    assert_same(copied(update), before)


def test_without_the_latch_training_would_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallying, "LATCH", 10**6)
    with pytest.raises(AssertionError):
        test_three_in_a_row_are_the_end_and_two_are_not()


def test_steps_in_a_row_are_counted_across_a_stop() -> None:
    update, task, run_state = begun()
    task.spoil = lost
    for _ in range(2):
        take(update, batch_of(CASE, 4), run_state)
    run_state.not_finite = update.read().not_finite
    other = updating(drawn(CASE), EVERYTHING, task=task)
    other.load(copied(update), run_state)
    take(other, batch_of(CASE, 4), run_state)
    assert other.read().not_finite == 3


class Two(Alone):
    """This process and another one, of which only its loss is known."""

    count = 2

    def __init__(self, other: float) -> None:
        self.other = other

    def sum(self, tensor: Tensor) -> Tensor:
        if tensor.shape == (2,):  # total and weight
            tensor += torch.tensor([self.other, 1.0])
        return tensor


@pytest.mark.parametrize(("other", "skipped"), [(1.0, 0), (NAN, 1), (INFINITE, 1)])
def test_what_is_not_finite_on_one_rank_holds_back_all(other: float, skipped: int) -> None:
    update = updating(drawn(CASE), ranks=Two(other))
    take(update, batch_of(CASE, 4), TrainingState())
    assert update.read().skipped == skipped


def test_a_rank_without_a_batch_takes_part_with_gradients_of_zero() -> None:
    model = drawn(CASE)
    update = updating(model)
    take(update, None, TrainingState())
    assert all(weight.grad is not None and not weight.grad.any() for weight in model.parameters())
    tally = update.read()
    assert (tally.weight, tally.elements, tally.skipped) == (0, 0, 0) and update.finite() == []


def test_finite_names_what_is_not() -> None:
    update = updating(drawn(CASE), EVERYTHING)
    for part, all_ in update.tensors().items():
        name, tensor = next(iter(all_.items()))
        with torch.no_grad():
            tensor.flatten()[0] = INFINITE
        assert f"{part}.{name}" in update.finite()


# --- fp16 ------------------------------------------------------------------------------------------------------------


def test_a_step_that_is_not_finite_halves_the_scale_and_is_no_error_above_one() -> None:
    task = Spoilt()
    update, run_state = updating(drawn(CASE), task=task, precision="fp16"), TrainingState(loss_scale=4.0)
    update.load(copied(update), run_state)
    before = copied(update)
    task.spoil, found = lost, []
    for _ in range(5):
        take(update, batch_of(CASE, 4), run_state)
        tally = update.read()
        found.append((tally.scale, tally.not_finite, tally.skipped))
    assert found == [(2.0, 0, 1), (1.0, 0, 1), (1.0, 1, 1), (1.0, 2, 1), (1.0, 3, 1)]
    assert_same(copied(update), before)


@pytest.mark.slow
def test_the_scale_begins_at_65536_doubles_after_2000_good_steps_and_is_kept() -> None:
    scale, good = scaling.LossScale(HERE), torch.zeros(())
    assert scale.read() == (65_536.0, 0)
    for _ in range(1_999):
        scale.follow(good)
    assert scale.read() == (65_536.0, 1_999)
    again = scaling.LossScale(HERE)
    again.load(*scale.read())
    again.follow(good)
    assert again.read() == (131_072.0, 0)
    again.follow(torch.ones(()))
    assert again.read() == (65_536.0, 0)


def test_fp16_gives_the_gradients_of_float32_up_to_its_rounding() -> None:
    found = {}
    for precision in ("float32", "fp16", "bf16"):
        model = drawn(CASES["classify, lstm"])
        update = updating(model, precision=precision)
        take(update, batch_of(CASES["classify, lstm"], 8), TrainingState(micro_batches=2))
        assert update.read().skipped == 0
        found[precision] = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    for precision, most in (("fp16", 0.02), ("bf16", 0.1)):
        assert (found[precision] - found["float32"]).norm() < most * found["float32"].norm(), precision


# --- memory ----------------------------------------------------------------------------------------------------------


class Small(Asked):
    """A task for which memory ends beyond so many rows."""

    def __init__(self, most: int, error: Exception) -> None:
        self.most, self.error = most, error

    def loss(self, model: nn.Module, batch: Batch, state: Any) -> tuple[Loss, Any]:
        if rows_of(batch) > self.most:
            raise self.error
        return super().loss(model, batch, state)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory: you tried to "),
]


@pytest.mark.parametrize("error", ERRORS, ids=["device", "python", "host"])
def test_a_step_redone_in_halves_is_bit_for_bit_the_step_that_began_so(error: Exception) -> None:
    batch, ended = batch_of(CASE, 16), []
    for pieces, most in ((1, 4), (4, 4)):
        run_state = TrainingState(micro_batches=pieces)
        update = updating(drawn(CASE, dropout=0.5), task=Small(most, error))
        for _ in range(2):
            take(update, batch, run_state)
        assert run_state.micro_batches == 4
        ended.append(copied(update))
    assert_same(*ended)


def test_without_halving_the_run_would_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "ran_out", lambda _: False)
    with pytest.raises(torch.OutOfMemoryError):
        take(updating(drawn(CASE), task=Small(4, ERRORS[0])), batch_of(CASE, 16), TrainingState())


def test_other_errors_are_not_about_memory() -> None:
    assert not ran_out(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) and not ran_out(ValueError())
    with pytest.raises(RuntimeError, match="shapes"):
        take(updating(drawn(CASE), task=Small(4, RuntimeError("shapes"))), batch_of(CASE, 16), TrainingState())


def test_the_hosts_own_allocator_is_understood() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**48, dtype=torch.uint8, device="cpu")
    assert ran_out(caught.value)


def test_when_one_row_is_too_large_an_error_says_what_to_do() -> None:
    run_state = TrainingState()
    with pytest.raises(OutOfMemoryError, match=r"one row at a time\. Fix: use a smaller --size"):
        take(updating(drawn(CASE), task=Small(0, ERRORS[0])), batch_of(CASE, 3), run_state)
    assert run_state.micro_batches == 4


def test_with_several_ranks_an_error_says_how_to_go_on() -> None:
    with pytest.raises(
        HalvedError, match=r"on rank 0\. Fix: run the same command again: it resumes with 2 micro-batches"
    ) as caught:
        take(updating(drawn(CASE), task=Small(4, ERRORS[0]), ranks=Two(0.0)), batch_of(CASE, 16), TrainingState())
    assert caught.value.micro_batches == 2


# --- stopped and taken up again --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASE, READING], ids=["classify", "lm"])
def test_a_run_taken_up_again_goes_on_bit_for_bit(case: Any) -> None:
    task = Spoilt()
    update, run_state = (
        updating(drawn(case, dropout=0.3), EVERYTHING, task=task),
        TrainingState(seed=7, micro_batches=2),
    )
    for step in range(3):
        take(update, batch_of(case, 4, seed=step), run_state, carried=step > 0)
    kept, other = copied(update), updating(drawn(case), EVERYTHING, task=task)
    for module, given in zip(other._model.modules(), update._model.modules(), strict=True):
        if isinstance(module, nn.Dropout) and isinstance(given, nn.Dropout):
            module.p = given.p
    resumed = TrainingState(seed=7, micro_batches=2, step=3)
    other.load(kept, resumed)
    for one, where in ((update, run_state), (other, resumed)):
        for step in range(3, 5):
            take(one, batch_of(case, 4, seed=step), where, carried=True)
    assert_same(copied(other), copied(update))


@pytest.mark.parametrize("part", ["model", "optimizer", "ema"])
def test_a_part_that_is_missing_or_different_is_refused(part: str) -> None:
    update = updating(drawn(CASE), EVERYTHING)
    kept = copied(update)
    name = next(iter(kept[part]))
    for wrong in ({}, kept[part] | {"more": torch.zeros(1)}, kept[part] | {name: torch.zeros(9, 9, 9)}):
        with pytest.raises(DurableError, match=f"the checkpoint does not fit this run: its {part} tensors"):
            update.load(kept | {part: wrong}, TrainingState())


# --- compiled --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize(
    "compiler",
    [
        "aot_eager",
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.soak,
                pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler"),
            ],
        ),
    ],
)
def test_a_compiled_step_equals_a_plain_one(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "COMPILER", compiler)
    case, ended = CASES["labels, gru"], []
    torch.manual_seed(0)
    tokens, labels = torch.randint(11, (3, 4, 7)), torch.randint(2, (3, 4, 3)).float()
    for compiled in (False, True):
        config = replace(PLAIN, compile=compiled, batching=PacksConfig())
        update, run_state = updating(drawn(case), config), TrainingState()
        for step in range(3):
            take(update, Batch(Padded.of(tokens[step]), labels[step]), run_state)
        ended.append([weight.clone() for weight in update.tensors()["model"].values()])
    assert_close(*ended, rtol=1e-3, atol=1e-4)


def test_a_loss_is_compiled_once_for_packed_batches_with_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU gets the layout of each packed batch with it; the compiled loss must not be one of that layout."""
    made: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda run, **_: made.append(run) or run)
    update = updating(drawn(CASES["lm, gpt"]), replace(PLAIN, compile=True, batching=PacksConfig()))
    for step in range(3):
        tokens, segments = torch.full((2, 6), step), torch.arange(6).repeat(2, 1) // (step + 2)
        x = Padded.of(tokens, segments=segments)
        take(update, Batch(x._replace(shared=x.layout), tokens), TrainingState())
    assert len(made) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["gpt", "translator"])
def test_the_loss_of_attention_compiles_as_one_graph_with_the_kernels_of_a_gpu(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(attention_fast.ORDERS, "cpu", attention_fast.ORDERS["cuda"])
    monkeypatch.setattr(loss_module, "COMPILER", "eager")
    compiler = torch.compile  # it refuses to split the graph
    monkeypatch.setattr(torch, "compile", lambda run, **more: compiler(run, fullgraph=True, **more))
    torch.manual_seed(0)
    tokens = torch.randint(5, 30, (2, 3, 9))
    whole, ragged = Padded.of(tokens[0]), Padded.of(tokens[0], torch.tensor([9, 4, 2]))
    if kind == "gpt":
        model = recipes.language_model("gpt", vocab_size=30, size=SMALLEST).build()
        batch = Batch(whole, tokens[1])
    else:
        source = TokensConfig(vocab_size=30)
        model = recipes.translator("transformer", source=source, target_vocab_size=30, size=SMALLEST).build()
        batch = Batch(Pair(ragged, ragged), tokens[1] * ragged.valid)
    task, plain = Asked(), loss_module.LossOf(model.eval(), choose_device("cpu", "float32"))
    compiled = loss_module.CompiledLoss(plain, task, dynamic=kind == "translator")
    found, expected = (run(task, batch, None)[0] for run in (compiled, plain))
    assert_close(found, expected)


# --- no waiting for the device ---------------------------------------------------------------------------------------


@contextmanager
def refusing_to_wait() -> Iterator[None]:
    """Inside the `with`, whatever makes the host wait for the device raises."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(HERE.type != "cuda", reason="SEQLOOM_TEST_DEVICE=cuda runs it")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_no_step_waits_for_the_device(precision: str) -> None:
    update, run_state = (
        updating(drawn(READING), EVERYTHING, task=Continued(), precision=precision),
        TrainingState(micro_batches=2),
    )
    torch.manual_seed(0)
    tokens = torch.randint(11, (4, 8), device="cpu")
    with torch.device("cpu"):
        batch = Batch(Padded.of(tokens), tokens)
    take(update, batch, run_state)
    with refusing_to_wait():
        for _ in range(5):
            take(update, batch, run_state, carried=True)
    assert update.read().steps == 6


@pytest.mark.skipif(HERE.type != "cuda", reason="SEQLOOM_TEST_DEVICE=cuda runs it")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("name", [name for name in CASES if "crf" not in name])  # a CRF looks at its gold paths
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_no_step_over_ragged_rows_waits_for_the_device(name: str, precision: str) -> None:
    update, run_state = updating(drawn(CASES[name]), EVERYTHING, precision=precision), TrainingState(micro_batches=2)
    with torch.device("cpu"):
        batch = batch_of(CASES[name], 6)
    take(update, batch, run_state)
    with refusing_to_wait():
        for _ in range(5):
            take(update, batch, run_state)
    assert update.read().steps == 6
