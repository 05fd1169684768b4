"""The engine gives the answers of `seqloom.load(...).predict`, whoever asks at the same time."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import seqloom
from search_common import last, write_documents
from seqloom.config.serving import MAX_HITS, ServingConfig
from seqloom.errors import ConfigError
from seqloom.inference.model import LoadedModel
from seqloom.search.build import build_index
from seqloom.search.documents import Collection
from seqloom.search.index import open_index
from seqloom.search.search import searcher
from seqloom.search.store import TextDocument
from seqloom.serve import worker
from seqloom.serve.calls import checked_options
from seqloom.serve.messages import ItemAnswer
from seqloom.serve.refusals import BadItem, ModelFailed, Refusal, Unable, UnknownModel
from seqloom.serve.served import answers_of, open_served
from serve_common import RunningEngine, SharedForks, close_to, sentence, serving

pytestmark = pytest.mark.slow
TEXTS = [sentence(number, 1 + number % 12) for number in range(9)]
SAMPLED = {"temperature": 0.8, "top_k": 12, "seed": 5, "num_samples": 2, "max_new_tokens": 12}


def predicted(model: LoadedModel, items: list[Any]) -> list[Any]:
    return [one.to_json() for one in model.predict(items)]


CASES: dict[str, tuple[str, str, list[Any], dict[str, Any], Callable[[LoadedModel, list[Any]], list[Any]]]] = {
    "classify": ("reviews", "classify", TEXTS, {}, predicted),
    "pairs": ("pairs", "classify", [[text, text[:5]] for text in TEXTS], {}, predicted),
    "regress": ("scores", "regress", TEXTS, {}, predicted),
    "tag": ("tags", "tag", ["Ada saw Bo.", "went home", "Bo"], {}, predicted),
    "tag words": ("tags", "tag", [["Ada", "saw", "Bo", "."]], {}, predicted),
    "fill": ("masked", "fill", ["the [MASK] man", "[MASK] saw [MASK]", "the"], {}, predicted),
    "embed": ("reviews", "embed", TEXTS, {}, lambda m, items: [{"vector": row.tolist()} for row in m.embed(items)]),
    "translate": (
        "translator",
        "translate",
        TEXTS[:4],
        {},
        lambda m, items: [one.to_json() for one in m.translate(items)],
    ),
    "translate greedily": (
        *("translator", "translate", TEXTS[:4], {"beam_size": 1, "max_new_tokens": 5}),
        lambda m, items: [one.to_json() for one in m.translate(items, beam_size=1, max_new_tokens=5)],
    ),
    "generate": (
        *("lm", "generate", TEXTS, {}),
        lambda m, items: [[one.to_json() for one in some] for some in m.generate(items)],
    ),
    "sample": (
        *("gru", "generate", TEXTS, SAMPLED),
        lambda m, items: [[one.to_json() for one in some] for some in m.generate(items, **SAMPLED)],
    ),
    "beam": (
        *("lm", "generate", TEXTS[:3], {"beam_size": 3, "n_best": 2, "max_new_tokens": 6}),
        lambda m, items: [
            [one.to_json() for one in some] for some in m.generate(items, beam_size=3, n_best=2, max_new_tokens=6)
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_the_loaded_model(case: str, engine: RunningEngine, models: dict[str, Path]) -> None:
    name, verb, items, options, expected = CASES[case]
    close_to(engine.ask(name, verb, items, options), expected(seqloom.load(models[name]), items))


def test_tags_have_the_offsets_of_the_raw_text(engine: RunningEngine) -> None:
    (found,) = engine.ask("tags", "tag", ["Ada  saw Bo."])
    assert [(one["text"], one["start"], one["end"]) for one in found["words"]] == [
        ("Ada", 0, 3),
        ("saw", 5, 8),
        ("Bo", 9, 11),
        (".", 11, 12),
    ]


def test_hits_are_those_of_the_index(engine: RunningEngine, models: dict[str, Path]) -> None:
    expected = searcher(open_index(models["index"])).search("kado lofi", top_k=3, where=["year>=1990"])
    found = engine.ask("index", "search", ["kado lofi"], {"top_k": 3, "where": ["year>=1990"]})
    assert found == [[hit.to_json() for hit in expected]] and found[0]


def test_mates_in_a_batch_change_no_answer(engine: RunningEngine, models: dict[str, Path]) -> None:
    """S16, a short version: requests of all verbs at the same time, alone within 1e-5."""
    asked = [(CASES[case], item) for case in CASES for item in CASES[case][2]] * 2
    queries, few = ["kado lofi", "mido", "pegu kaba"] * 2, {"top_k": 3}
    before = dict(engine.engine.counters)

    async def all_at_once() -> list[list[Any]]:
        work = [engine.engine.ask(case[0], case[1], [item], case[3]) for case, item in asked]  # type: ignore[arg-type]
        return await asyncio.gather(*work, *(engine.engine.ask("index", "search", [query], few) for query in queries))

    every = engine.wait(all_at_once())
    found, searched = every[: len(asked)], every[len(asked) :]
    index = searcher(open_index(models["index"]))
    for query, (hits,) in zip(queries, searched, strict=True):
        close_to(hits, [hit.to_json() for hit in index.search(query, **few)])
    loaded = {case[0]: seqloom.load(models[case[0]]) for case, _ in asked}
    for (case, item), (answer,) in zip(asked, found, strict=True):
        close_to(answer, case[4](loaded[case[0]], [item])[0])
    batches, items = (engine.engine.counters[name] - before[name] for name in ("batches_total", "batch_items_total"))
    assert items > 100 and batches < items / 3, "they have to share batches, or this shows nothing"


def test_prompts_that_run_together_change_no_text(engine: RunningEngine, models: dict[str, Path]) -> None:
    options = [{"max_new_tokens": 4 + number, **(SAMPLED_ALONE if number % 2 else {})} for number in range(12)]
    before = dict(engine.engine.counters)

    async def all_at_once() -> list[list[Any]]:
        work = [engine.engine.ask("lm", "generate", [TEXTS[n % 9]], one) for n, one in enumerate(options)]
        return await asyncio.gather(*work)

    found, model = engine.wait(all_at_once()), seqloom.load(models["lm"])
    for number, (answer,) in enumerate(found):
        (expected,) = model.generate([TEXTS[number % 9]], **options[number])
        close_to(answer, [one.to_json() for one in expected])
    after = engine.engine.counters
    steps, tokens = (after[name] - before[name] for name in ("steps_total", "tokens_total"))
    assert tokens > 2 * steps, "they have to run together, or this shows nothing"


SAMPLED_ALONE = {"temperature": 1.2, "seed": 9}


def test_a_stream_is_the_text_of_the_answer(engine: RunningEngine) -> None:
    options = {"max_new_tokens": 15}

    async def parts() -> list[Any]:
        return [part async for part in engine.engine.stream("lm", TEXTS[1], options)]

    found = engine.wait(parts())
    ((answer,),) = engine.ask("lm", "generate", [TEXTS[1]], options)
    assert "".join(part.text for part in found) == answer["text"]
    assert [part.finish_reason for part in found] == [None] * (len(found) - 1) + [answer["finish_reason"]]
    assert len(found) > 5


def test_tokens_are_counted_as_the_model_reads_and_generates_them(
    engine: RunningEngine, models: dict[str, Path]
) -> None:
    def usage(*asked: Any) -> tuple[int, int]:
        return engine.wait(engine.engine.ask_counted(*asked)).usage

    tokenizer = seqloom.load(models["gru"]).spec.tokenizer
    assert tokenizer is not None
    prompts = [tokenizer.encode([text]).values for text in TEXTS[:2]]
    read = sum(1 + len(tokens) for tokens in prompts)  # BEGIN is read too
    assert usage("gru", "generate", TEXTS[:2], {"max_new_tokens": 4}) == (read, 8)
    assert usage("gru", "generate", TEXTS[:2], {"max_new_tokens": 4, "temperature": 1.0, "num_samples": 3})[0] == read
    ((one,),) = engine.ask("gru", "generate", TEXTS[:1], {"max_new_tokens": 200, "temperature": 2.0, "seed": 3})
    assert one["finish_reason"] == "end", "else this shows nothing"
    written = len(tokenizer.encode([one["text"]]).values) + 1  # and END is generated
    asked = {"max_new_tokens": 200, "temperature": 2.0, "seed": 3}
    assert usage("gru", "generate", TEXTS[:1], asked) == (1 + len(prompts[0]), written)
    reviews = seqloom.load(models["reviews"])
    assert reviews.spec.tokenizer is not None
    counts = reviews.count_tokens(TEXTS)
    assert counts == reviews.spec.tokenizer.encode(TEXTS).lengths.tolist()
    assert usage("reviews", "embed", TEXTS) == (sum(counts), 0)

    async def last() -> Any:
        return [part async for part in engine.engine.stream("gru", TEXTS[0], {"max_new_tokens": 4})][-1]

    assert engine.wait(last()).usage == (1 + len(prompts[0]), 4)


def test_a_request_of_more_items_than_a_batch_is_answered_in_order(engine: RunningEngine) -> None:
    many = [sentence(number, 1 + number % 5) for number in range(40)]
    close_to(engine.ask("reviews", "classify", many), [engine.ask("reviews", "classify", [one])[0] for one in many])


def test_only_the_request_with_a_bad_item_is_refused(engine: RunningEngine) -> None:
    async def together() -> list[Any]:
        asked = [["good film"], ["bad", "", "good"], ["bad film"]]
        work = [engine.engine.ask("reviews", "classify", items) for items in asked]
        return await asyncio.gather(*work, return_exceptions=True)

    first, bad, last = engine.wait(together())
    assert isinstance(first, list) and isinstance(last, list)
    assert isinstance(bad, BadItem) and bad.index == 1 and "empty" in str(bad)


@pytest.mark.parametrize(
    ("model", "verb", "good", "bad"),
    [
        ("reviews", "classify", "good film", ("", 7, None, ["x"], "a " * 51)),
        ("reviews", "embed", "good film", ("", "a " * 51)),
        ("pairs", "classify", ["good", "film"], (["good"], "good", ["", "film"])),
        ("tags", "tag", "Ada saw Bo.", ("", {"a": 1})),
        ("index", "search", "kado", ("", 7)),
        ("lm", "generate", "the", (7, "the " * 51)),
    ],
)
def test_bad_items_of_a_batch_are_dropped_and_the_others_are_computed_together(
    model: str, verb: Any, good: Any, bad: tuple[Any, ...], models: dict[str, Path]
) -> None:
    served = open_served(model, str(models[model]), "cpu", 50)
    options = {"beam_size": 2, "max_new_tokens": 1} if verb == "generate" else {}
    sizes: list[int] = []

    def compute(items: Sequence[Any]) -> list[ItemAnswer]:
        sizes.append(len(items))
        return served.compute(verb, items, options)

    def answers(items: list[Any]) -> list[ItemAnswer]:
        return answers_of(compute, items, lambda item: served.require_usable(verb, item))

    items = [bad[0], good, good, *bad[1:], good]
    found = answers(items)
    assert sizes == [len(items), 3]
    assert [answer.served for answer in found] == [item is good for item in items]
    alone = [answers([item])[0] for item in items]
    assert [(one.problem, one.fix, one.fault) for one in found] == [(one.problem, one.fix, one.fault) for one in alone]


def test_a_prompt_that_is_bad_is_refused_and_others_go_on(engine: RunningEngine) -> None:
    async def together() -> list[Any]:
        work = [engine.engine.ask("lm", "generate", [item], {"max_new_tokens": 3}) for item in ("the", 7, "old")]
        return await asyncio.gather(*work, return_exceptions=True)

    first, bad, last = engine.wait(together())
    assert isinstance(first, list) and isinstance(last, list) and isinstance(bad, BadItem)


def test_an_answer_that_cannot_be_sent_is_a_fault_of_its_item_alone(forks: SharedForks, tmp_path: Path) -> None:
    documents = [TextDocument(f"d{n}", f"{word} here", {"id": f"d{n}", "n": number}) for n, (word, number) in NUMBERED]
    last(build_index(tmp_path / "index", None, Collection(write_documents(tmp_path / "texts.jsonl", documents))))

    async def check() -> None:
        async with serving({"index": tmp_path / "index"}, forks) as engine:
            work = [engine.ask("index", "search", [word], {"top_k": 1}) for word in ("kado", "lofi", "kado", "lofi")]
            found = await asyncio.gather(*work, return_exceptions=True)
            assert [type(one) for one in found] == [list, ModelFailed] * 2
            assert engine.counters["worker_restarts_total"] == 0

    asyncio.run(check())


NUMBERED = [(0, ("kado", 1)), (1, ("lofi", 2**70))]


def test_a_worker_that_fails_logs_where_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def run(_: worker.ModelWorker) -> None:
        raise ValueError("text of a request")

    monkeypatch.setattr(worker.ModelWorker, "run", run)
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(worker.log, "critical", lambda text, *given: told.append(text % given))
    ours, theirs = socket.socketpair()
    with ours:
        assert worker.main(theirs.detach()) == 1
    (line,) = told
    assert line.startswith("a worker failed: ValueError at test_engine_answers.py") and "text of" not in line


@pytest.mark.parametrize(
    "item",
    [
        7,
        None,
        {"a": 1},
        "half \ud800",
        2**80,
        ["x", ["secret"]],
        ["it's secret", ['it\'s "secret"']],
        {"it's secret": 1},
    ],
)
def test_what_is_no_text_is_refused_without_repeating_it(item: Any, engine: RunningEngine) -> None:
    for model, verb in (("reviews", "classify"), ("tags", "tag"), ("lm", "generate"), ("index", "search")):
        with pytest.raises(BadItem) as refusal:
            engine.ask(model, verb, [item])
        assert refusal.value.index == 0 and "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("model", "verb", "options", "field"),
    [
        ("lm", "generate", {"temperature": -1}, "temperature"),
        ("lm", "generate", {"temprature": 1}, "options"),
        ("lm", "generate", {"max_new_tokens": 100_000}, "max_new_tokens"),
        ("lm", "generate", {"num_samples": 1_000}, "num_samples"),
        ("lm", "generate", {"max_new_tokens": True}, "max_new_tokens"),
        ("translator", "translate", {"beam_size": 99}, "beam_size"),
        ("translator", "translate", {"beam_size": 16, "max_new_tokens": 129}, "max_new_tokens"),
        ("translator", "translate", {"max_new_tokens": 410}, "max_new_tokens"),  # for each of 5 beams
        ("lm", "generate", {"num_samples": 5, "max_new_tokens": 410}, "max_new_tokens"),
        ("translator", "translate", {"replace_unknown": 1}, "replace_unknown"),
        ("index", "search", {"top_k": 0}, "top_k"),
        ("index", "search", {"where": 7}, "where"),
        ("reviews", "classify", {"top_k": 3}, "options"),
        ("index", "search", {"top_k": MAX_HITS + 1}, "top_k"),
        ("lm", "generate", {"stop": "it's secret"}, "stop"),
        ("lm", "generate", {"temperature": "it's secret"}, "temperature"),
        ("lm", "generate", {"it's secret": 1}, "options"),
        ("reviews", "classify", {"it's secret": 1}, "options"),
        ("lm", "generate", {"beam_size": 2, "coverage_penalty": 0.5}, "options"),
        ("index", "search", {"where": ["it's secret"]}, "where"),
        ("index", "search", {"where": ["it's secret = 'secret'"]}, "where"),
    ],
)
def test_a_bad_option_is_refused_by_name(
    model: str, verb: str, options: dict[str, Any], field: str, engine: RunningEngine
) -> None:
    with pytest.raises(BadItem) as refusal:
        engine.ask(model, verb, ["the"], options)
    assert (refusal.value.index, refusal.value.field) == (None, field)
    assert "secret" not in str(refusal.value) and refusal.value.fix


def test_tokens_that_are_not_asked_stay_within_the_limits() -> None:
    limits = ServingConfig(max_new_tokens=150, max_beam_tokens=160)
    cases = {
        ("generate", 1): 64,
        ("generate", 16): 10,
        ("translate", 1): 150,
        ("translate", 5): 32,
    }
    for (verb, count), tokens in cases.items():
        given = {"num_samples" if verb == "generate" else "beam_size": count}
        assert checked_options(verb, given, limits).values["max_new_tokens"] == tokens  # type: ignore[arg-type]
    for wrong in ({"max_new_tokens": 2_049}, {"max_beam_tokens": 8, "max_new_tokens": 4}):
        with pytest.raises(ConfigError, match="raise --max-beam-tokens"):
            ServingConfig(**wrong)


def test_what_no_model_can_do_is_refused(engine: RunningEngine) -> None:
    with pytest.raises(UnknownModel, match="Did you mean 'reviews'"):
        engine.ask("review", "classify", ["a"])
    with pytest.raises(Unable, match="it can classify, embed"):
        engine.ask("reviews", "generate", ["a"])
    with pytest.raises(BadItem, match="one text"):
        engine.engine.stream("lm", "a", {"num_samples": 2})
    assert engine.ask("reviews", "classify", []) == []


def test_cards_say_what_a_model_can_do(engine: RunningEngine, models: dict[str, Path]) -> None:
    cards = engine.engine.models
    assert {name: sorted(card.abilities) for name, card in cards.items()} == {
        "reviews": ["classify", "embed"],
        "pairs": ["classify", "embed"],
        "scores": ["embed", "regress"],
        "tags": ["tag"],
        "lm": ["generate"],
        "gru": ["generate"],
        "translator": ["translate"],
        "masked": ["fill"],
        "index": ["search"],
    }
    assert {card.field for card in cards.values()} == {"texts"}
    assert cards["reviews"].labels == ("bad", "good") and cards["reviews"].vector_size
    assert len({card.fingerprint for card in cards.values()}) == len(cards)


def test_the_listener_never_imports_torch() -> None:
    code = "import seqloom.serve.engine, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_refusal_has_a_status() -> None:
    kinds = {kind.__name__: kind.status for kind in Refusal.__subclasses__()}
    assert kinds == {
        "UnknownModel": 404,
        "Unable": 422,
        "BadItem": 422,
        "Overloaded": 429,
        "Draining": 503,
        "WaitedTooLong": 503,
        "WorkerLost": 503,
        "TimedOut": 504,
        "ModelFailed": 500,
    }
