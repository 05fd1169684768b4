"""A buffer is a state: whatever is appended, dropped or copied; and recorded steps generate what plain ones do."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from decoding_common import (
    LANGUAGE_MODELS,
    MOST,
    TRANSLATORS,
    VOCABULARY,
    continued,
    language_model,
    prompts,
    sources,
    translated,
    translator,
)
from recording_common import Recorder
from seqloom.config.decoding import AnyDecoding, GreedyConfig, SampleConfig, decoding
from seqloom.decoding import buffered, decode
from seqloom.decoding.answers import begins
from seqloom.decoding.buffered import require_buffers
from seqloom.errors import ConfigError
from seqloom.nn.capture import fill
from seqloom.nn.mixers.attention import Heads
from seqloom.nn.mixers.contract import StateStanding
from seqloom.nn.ops.kernels import is_recorded, observing
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded, count_rows, first_columns, once_each, select_rows
from seqloom.text.special_tokens import COUNT

MOST_MOVES = 12


def begun(name: str, *, translates: bool) -> tuple[Any, Any]:
    """A model and a state of six rows that have read different numbers of tokens."""
    if translates:
        model, prompt = translator(name), begins(6, torch.device("cpu"))
        state = model.initial_state(sources())
    else:
        model, prompt = language_model(name), prompts()
        state = model.initial_state(6)
    return model, model.step(prompt, state)[1]


def check_schedule(model: Any, state: Any, moves: list[tuple[str, int]]) -> None:
    """Let a state and a buffer, which grows, read the same tokens and lose, repeat and reorder the same rows."""
    inner = state.inner if isinstance(state, StateStanding) else state
    buffer, read = model.buffer(inner, 1, once_each()), 4
    room = 1
    draw = torch.Generator().manual_seed(0)
    for kind, number in moves:
        rows = count_rows(state)
        assert rows is not None
        if kind == "rows":  # some rows, in another order, some of them twice
            chosen = torch.randint(rows, (1 + number % 6,), generator=draw)
            state, buffer = select_rows(state, chosen), select_rows(buffer, chosen)
            continue
        tokens = torch.randint(COUNT, VOCABULARY, (rows, 1), generator=draw)
        x = Padded.of(tokens)
        if kind == "some":  # not every row reads one
            x = Padded.of(tokens, torch.randint(2, (rows,), generator=draw))
        expected, state = model.step(x, state)
        if not room:
            room = 1 + number % 3
            buffer = model.buffer(buffer, room, once_each())
        read, room = read + 1, room - 1
        view = first_columns(buffer, read + number % 2)
        found, after = model.extend(x, view)
        fill(view, after)
        torch.testing.assert_close(found.values, expected.values, rtol=1e-9, atol=1e-9)


MOVES = st.lists(st.tuples(st.sampled_from(["all", "all", "some", "rows"]), st.integers(0, 99)), max_size=MOST_MOVES)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@settings(max_examples=4, deadline=None)
@given(moves=MOVES)
@torch.no_grad()
def test_a_buffer_of_a_language_model_equals_its_state_on_any_schedule(name: str, moves: list[Any]) -> None:
    check_schedule(*begun(name, translates=False), moves)


@pytest.mark.parametrize("name", TRANSLATORS)
@settings(max_examples=3, deadline=None)
@given(moves=MOVES)
@torch.no_grad()
def test_a_buffer_of_a_translator_equals_its_state_on_any_schedule(name: str, moves: list[Any]) -> None:
    check_schedule(*begun(name, translates=True), moves)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """With `cuda_graphs`, texts are recorded without a GPU; attention reads as few columns as it needs."""
    record = Recorder()
    monkeypatch.setattr(decode, "require_buffers", lambda *_: None)
    monkeypatch.setattr(decode, "can_replay", lambda *_: False)  # what is expected is the plain way
    monkeypatch.setattr(decode, "GraphRecorder", lambda _: record)
    monkeypatch.setattr(buffered, "FEWEST_COLUMNS", 4)
    return record


HOWS: dict[str, AnyDecoding] = {
    "greedy": GreedyConfig(),
    "repetition": GreedyConfig(repetition_penalty=2.0),
    "sample": SampleConfig(temperature=1.5, top_k=9, top_p=0.95, num_samples=2, seed=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_recorded_steps_continue_a_text_as_plain_ones(name: str, how: AnyDecoding, recorder: Recorder) -> None:
    model, most = language_model(name), MOST + 8
    expected = continued(model, prompts(), how, most)
    assert recorder.recorded == 0, "only those who ask get CUDA graphs"
    found = continued(model, prompts(), replace(how, cuda_graphs=True), most)
    assert recorder.replays > recorder.recorded > 0
    assert_alike(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seq2seq-dot", "window-full"])
def test_recorded_steps_translate_as_plain_ones(name: str, recorder: Recorder) -> None:
    expected = translated(translator(name), sources(), GreedyConfig(), MOST + 8)
    found = translated(translator(name), sources(), GreedyConfig(cuda_graphs=True), MOST + 8)
    assert recorder.replays > 0
    assert_alike(found, expected)


@pytest.mark.slow
def test_kernels_for_one_row_are_compiled_and_recorded_only_for_graphs(recorder: Recorder) -> None:
    model, seen = language_model("gpt"), list[tuple[bool, int]]()
    with observing(lambda *_: seen.append((is_recorded(), recorder.recorded))):
        continued(model, prompts(), GreedyConfig())
        assert {free for free, _ in seen} == {False}
        continued(model, prompts(), GreedyConfig(cuda_graphs=True))
    layers = sum(isinstance(module, Heads) for module in model.modules())
    assert seen.count((True, 0)) >= 2 * layers, "kernels run once before the first graph is recorded"


def assert_alike(found: Any, expected: Any) -> None:
    for row, other in zip(found, expected, strict=True):
        for one, two in zip(row, other, strict=True):
            assert (one.tokens, one.finish_reason) == (two.tokens, two.finish_reason)
            assert one.score == pytest.approx(two.score, abs=1e-7)


def test_without_a_graph_tokens_are_the_same_and_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(run: Any) -> Any:
        raise RuntimeError("operation not permitted\nmore")

    expected = continued(language_model("gpt"), prompts(), GreedyConfig())
    monkeypatch.setattr(decode, "require_buffers", lambda *_: None)
    monkeypatch.setattr(decode, "GraphRecorder", lambda _: fails)
    free = list[bool]()
    with (
        pytest.warns(RuntimeWarning, match="without a CUDA graph: operation not permitted$"),
        observing(lambda *_: free.append(is_recorded())),
    ):
        found = continued(language_model("gpt"), prompts(), GreedyConfig(cuda_graphs=True))
    assert_alike(found, expected)
    assert any(free) and not free[-1], "without a graph, launches cost time"


def test_what_cannot_be_generated_on_buffers_is_refused() -> None:
    model, gpu = language_model("gpt"), torch.device("cuda", 0)
    require_buffers(model, gpu)
    with recording(model, "decoder.layers.0.mixer.weights"), pytest.raises(ConfigError, match="cannot be recorded"):
        require_buffers(model, gpu)
    with pytest.raises(ConfigError, match="a model with buffers"):
        require_buffers(object(), gpu)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot be used with beam search"):
        decoding({"beam_size": 2, "cuda_graphs": True})


@pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="a GPU has graphs")
def test_a_cpu_has_no_graphs() -> None:
    with pytest.raises(ConfigError, match="cuda_graphs needs a CUDA GPU, found cpu"):
        continued(language_model("gpt"), prompts(), GreedyConfig(cuda_graphs=True))


@torch.no_grad()
def test_attention_reads_weights_in_one_chunk_of_memory_as_apart() -> None:
    model = language_model("gpt")
    expected = model.step(prompts(), model.initial_state(6))[0].values
    heads = [one for one in model.modules() if isinstance(one, Heads)]
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    for one in heads:
        one.lay_together()
        assert one.key.weight.untyped_storage().data_ptr() == one.query.weight.untyped_storage().data_ptr()
    assert heads and all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    found = model.step(prompts(), model.initial_state(6))[0].values
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
