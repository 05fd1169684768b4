"""On a CPU, the calls of torch for a token are recorded and replayed: every model generates the same as plainly."""

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from decoding_common import (
    LANGUAGE_MODELS,
    MOST,
    TRANSLATORS,
    continued,
    language_model,
    prompts,
    sources,
    translated,
    translator,
)
from seqloom.config.decoding import AnyDecoding, GreedyConfig, SampleConfig
from seqloom.decoding import decode, replayed
from seqloom.decoding.answers import GeneratedText
from seqloom.decoding.replayed import can_replay
from seqloom.nn.replay import Program, ReplayedCalls
from seqloom.nn.taps import recording

pytestmark = pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="only CPUs replay")
LONG = MOST + 8
WAIT, WORTHWHILE = 1, 3  # in the tests; several rows wait twice as long
CPU = torch.device("cpu")


class Replays:
    """Counts what is recorded and replayed."""

    def __init__(self) -> None:
        self.recorded, self.replays, self.refused = 0, 0, set[str]()


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Replays:
    """Steps are soon recorded, and buffers grow after a few tokens."""
    counted, record, run = Replays(), ReplayedCalls._record, Program.run

    def recorded(self: ReplayedCalls, run: Any) -> None:
        record(self, run)
        counted.recorded += 1
        counted.refused |= {self.refused} if self.refused else set()

    def replay(self: Program) -> None:
        counted.replays += 1
        run(self)

    monkeypatch.setattr(ReplayedCalls, "_record", recorded)
    monkeypatch.setattr(Program, "run", replay)
    for name, value in {"WAIT": WAIT, "WORTHWHILE": WORTHWHILE, "PART": 6}.items():
        monkeypatch.setattr(replayed, name, value)
    return counted


@pytest.fixture
def plainly(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that calls another one that generates the plain way."""

    def call(function: Any, *args: Any, **settings: Any) -> Any:
        with monkeypatch.context() as here:
            here.setattr(decode, "can_replay", lambda *_: False)
            return function(*args, **settings)

    return call


def check_alike(found: list[list[GeneratedText]], expected: list[list[GeneratedText]]) -> None:
    for row, other in zip(found, expected, strict=True):
        for one, two in zip(row, other, strict=True):
            assert (one.tokens, one.finish_reason) == (two.tokens, two.finish_reason)
            assert one.score == pytest.approx(two.score, abs=1e-7)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_every_language_model_replays_what_it_would_generate(name: str, replays: Replays, plainly: Any) -> None:
    model, how = language_model(name), GreedyConfig()
    expected = plainly(continued, model, prompts(), how, LONG)
    assert not replays.recorded
    found = continued(model, prompts(), how, LONG)
    check_alike(found, expected)
    assert replays.recorded > 1 and replays.replays > 1 and not replays.refused, replays.refused


@pytest.mark.parametrize("name", TRANSLATORS)
def test_every_translator_replays_what_it_would_generate(name: str, replays: Replays, plainly: Any) -> None:
    expected = plainly(translated, translator(name), sources(), GreedyConfig(), LONG)
    found = translated(translator(name), sources(), GreedyConfig(), LONG)
    check_alike(found, expected)
    assert replays.recorded > 1 and replays.replays > 1 and not replays.refused, replays.refused


HOWS: dict[str, AnyDecoding] = {
    "repetition": GreedyConfig(repetition_penalty=2.0),
    "sample": SampleConfig(temperature=1.5, top_k=9, top_p=0.95, min_p=0.01, num_samples=2, seed=4),
}


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
def test_samples_and_penalties_are_replayed(how: AnyDecoding, replays: Replays, plainly: Any) -> None:
    model, most = language_model("gpt"), MOST + 20
    expected = plainly(continued, model, prompts(), how, most)
    check_alike(continued(model, prompts(), how, most), expected)
    assert replays.replays and not replays.refused


def test_under_autocast_texts_are_generated_plainly(replays: Replays, plainly: Any) -> None:
    model = copy.deepcopy(language_model("gpt")).float()
    with torch.autocast("cpu", torch.bfloat16):
        expected = plainly(continued, model, prompts(), GreedyConfig(), LONG)
        check_alike(continued(model, prompts(), GreedyConfig(), LONG), expected)
    assert not replays.recorded


def test_rows_of_which_one_ends_every_few_tokens_are_not_recorded(replays: Replays, plainly: Any) -> None:
    model, most = language_model("gpt"), torch.arange(1, 7) * 2 * WAIT + 1
    expected = plainly(continued, model, prompts(), GreedyConfig(), most)
    check_alike(continued(model, prompts(), GreedyConfig(), most), expected)
    assert not replays.recorded


def test_after_a_row_has_ended_the_others_wait_twice_as_long(
    replays: Replays, plainly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayed, "PART", 100)  # buffers never grow
    first = 2 * WAIT + 5  # tokens
    for further, records in ((4 * WAIT, 1), (4 * WAIT + 1, 2)):
        most = torch.tensor([first, first + further, first + further + WORTHWHILE])
        expected = plainly(continued, language_model("gpt"), prompts(3), GreedyConfig(), most)
        replays.recorded = 0
        check_alike(continued(language_model("gpt"), prompts(3), GreedyConfig(), most), expected)
        assert replays.recorded == records, further


def test_the_last_few_tokens_are_not_recorded(replays: Replays) -> None:
    for most, records in ((WAIT + WORTHWHILE, 0), (WAIT + WORTHWHILE + 1, 1)):
        continued(language_model("gpt"), prompts(1), GreedyConfig(), torch.tensor([most]))
        assert replays.recorded == records, most


def test_nothing_is_kept_after_a_text(replays: Replays, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers would stay until Python searches for cycles."""
    made, begin = list[weakref.ref[Any]](), replayed.ReplayedSteps.__init__

    def begun(self: Any, *args: Any, **settings: Any) -> None:
        begin(self, *args, **settings)
        made.append(weakref.ref(self))

    monkeypatch.setattr(replayed.ReplayedSteps, "__init__", begun)
    collects = gc.isenabled()
    gc.disable()
    try:
        continued(language_model("gpt"), prompts(), GreedyConfig(), LONG)
        assert replays.replays and made and not any(one() for one in made)
    finally:
        if collects:
            gc.enable()


def test_only_what_python_adds_nothing_to_is_replayed() -> None:
    model = language_model("gpt")
    assert can_replay(model, CPU, 20)
    assert not can_replay(model, CPU, 4), "a short text takes longer to record"
    assert not can_replay(model, torch.device("cuda", 0), 20)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_replay(model, CPU, 20)
    assert not can_replay(object(), CPU, 20)  # type: ignore[arg-type]
    with recording(model, "decoder.layers.0.mixer.weights"):
        assert not can_replay(model, CPU, 20)
    hook = model.head.register_forward_hook(lambda *_: None)
    assert not can_replay(model, CPU, 20)
    hook.remove()
    everywhere = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert not can_replay(model, CPU, 20)
    everywhere.remove()
    assert can_replay(model, CPU, 20)
