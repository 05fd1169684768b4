"""Stop strings end an answer wherever they stand, and a stream shows nothing that it would have to take back."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding_common import continued, language_model, prompts, row_of
from seqloom.config.decoding import AnyDecoding, BeamConfig, GreedyConfig, SampleConfig
from seqloom.config.tokenizers import (
    BpeConfig,
    BytesConfig,
    CharactersConfig,
    UnigramConfig,
    WordpieceConfig,
    WordsConfig,
)
from seqloom.decoding.answers import Draft, GrowingText, Stops
from seqloom.decoding.decode import stream, write
from seqloom.errors import ConfigError
from seqloom.nn.types import Padded
from seqloom.text.special_tokens import BEGIN, COUNT, END, UNKNOWN
from seqloom.text.subwords import WordpieceData, WordpieceSegmenter
from seqloom.text.tokenizer import Tokenizer, fit

TEXTS = [
    "the cat sat. THE END. naïve café 😀 once more",
    "once upon a time. THE END.",
    "a\nb\nc €5",
    'a well-known "so-so", isn\'t (it)? 3.50',
]
TOKENIZERS = {
    config.kind(): fit(config, TEXTS)
    for config in (WordsConfig(), CharactersConfig(), BytesConfig(), BpeConfig(vocab_size=300))
}


class Reciter:
    """A model that says the tokens it was given, whatever it reads; its state is how many it has said, [B,1]."""

    def __init__(self, tokens: list[int], vocab_size: int) -> None:
        self.tokens, self.vocab_size = [*tokens, END], vocab_size

    def step(self, x: Padded, state: Any) -> tuple[Padded, Any]:
        scores = torch.zeros(*x.values.shape, self.vocab_size)
        for row, said in enumerate(state[0][:, 0].tolist()):
            scores[row, :, self.tokens[min(said, len(self.tokens) - 1)]] = 9.0
        return x.with_values(scores), (state[0] + 1,)


def recited(
    tokenizer: Tokenizer,
    text: str,
    how: AnyDecoding,
    prompt: str = "",
    most: int = 200,
    ask: Callable[..., Any] = write,
) -> Any:
    said, before = (tokenizer.encode([one]).row(0).tolist() for one in (text, prompt))
    model, state = Reciter(said, tokenizer.vocab_size), (torch.zeros(1, 1, dtype=torch.int64),)
    read = Padded.of(torch.tensor([[BEGIN, *before]]))
    return ask(model, state, read, torch.tensor([most]), how, decode=tokenizer.decode)


@pytest.mark.parametrize("how", [GreedyConfig, BeamConfig], ids=lambda how: how.kind())
@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe"])
@pytest.mark.parametrize("stop", ["THE END.", "END", "café", "😀", "\n"])
def test_a_stop_string_is_found_across_borders_of_tokens_and_cut_off(kind: str, stop: str, how: Any) -> None:
    text = f"once upon a time {stop} and more"
    ((answer,),) = recited(TOKENIZERS[kind], text, how(stop=("nothing", stop)))
    assert answer.text == "once upon a time "
    assert answer.finish_reason == "stop"
    assert text.startswith(TOKENIZERS[kind].decode(answer.tokens))
    assert len(TOKENIZERS[kind].decode(answer.tokens)) <= len(answer.text)


def test_the_first_of_several_stop_strings_ends_the_answer() -> None:
    ((answer,),) = recited(TOKENIZERS["characters"], "once upon a time", GreedyConfig(stop=("time", "a", "upon a")))
    assert answer.text == "once "


def test_a_stop_string_in_the_prompt_does_not_end_the_answer() -> None:
    ((answer,),) = recited(TOKENIZERS["words"], "sat once more", GreedyConfig(stop=("cat",)), prompt="the cat")
    assert (answer.text, answer.finish_reason) == (" sat once more", "end")


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_text_of_an_answer_put_behind_its_prompt_is_the_whole(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    whole = tokenizer.encode(["the cat sat once"]).row(0).tolist()
    for border in range(1, len(whole)):
        model, state = Reciter(whole[border:], tokenizer.vocab_size), (torch.zeros(1, 1, dtype=torch.int64),)
        read = Padded.of(torch.tensor([[BEGIN, *whole[:border]]]))
        ((answer,),) = write(model, state, read, torch.tensor([99]), GreedyConfig(), decode=tokenizer.decode)
        assert tokenizer.decode(whole[:border]) + answer.text == "the cat sat once"


def test_a_prompt_that_would_end_otherwise_with_what_follows_keeps_its_end() -> None:
    ((answer,),) = recited(TOKENIZERS["words"], "known", GreedyConfig(), prompt="a well -")
    assert answer.text == "known"  # together they are "a well-known"


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("stops", [(), ("THE END.",), ("\n", "nap", "-so")])
def test_the_pieces_of_a_stream_are_the_text_of_the_whole_answer(kind: str, stops: tuple[str, ...]) -> None:
    for text in TEXTS:
        how = GreedyConfig(stop=stops)
        ((answer,),) = recited(TOKENIZERS[kind], text, how)
        pieces = list(recited(TOKENIZERS[kind], text, how, ask=stream))
        assert "".join(pieces) == answer.text
        assert all(pieces)
        assert len(pieces) > 1 or len(text) < 9


def test_a_stream_never_shows_a_part_of_a_stop_string_or_of_a_character() -> None:
    text = "naïve café 😀 THE E THE EN THE END. more"
    shown = ""
    for piece in recited(TOKENIZERS["bytes"], text, GreedyConfig(stop=("THE END.",)), ask=stream):
        assert "\\x" not in piece
        shown += piece
        assert text.startswith(shown)
    assert shown == "naïve café 😀 THE E THE EN "


def test_where_the_longest_cuts_a_character_in_two_the_rest_is_shown_as_write_gives_it() -> None:
    ((answer,),) = recited(TOKENIZERS["bytes"], "a😀", GreedyConfig(), most=3)
    pieces = list(recited(TOKENIZERS["bytes"], "a😀", GreedyConfig(), most=3, ask=stream))
    assert "".join(pieces) == answer.text == "a\\xf0\\x9f"
    assert pieces[0] == "a"


@settings(max_examples=15, deadline=None)
@given(data=st.binary(max_size=12), stop=st.sampled_from(["\n", "ab", "aab", "\\x", "é"]))
def test_what_is_settled_never_changes_whatever_bytes_follow(data: bytes, stop: str) -> None:
    decode, stops = TOKENIZERS["bytes"].decode, Stops([stop], TOKENIZERS["bytes"].decode)
    tokens = [byte + COUNT for byte in data]
    whole = decode(tokens)
    end = stops.place(whole)
    for count in range(len(tokens)):
        text = decode(tokens[:count])
        if stops.place(text) is not None:
            break
        shown = text[: stops.settled(text, decode(tokens[: count - 1]) if count else "")]
        assert whole.startswith(shown)
        assert end is None or len(shown) <= end


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(text=st.text("ab ü\n", max_size=14), stops=st.lists(st.text("ab ü\n", min_size=1, max_size=4), max_size=3))
def test_a_stop_is_reached_exactly_when_the_text_holds_one(text: str, stops: list[str]) -> None:
    for kind in ("bytes", "characters", "bpe"):
        tokenizer = fit(CharactersConfig(), ["ab ü\n"]) if kind == "characters" else TOKENIZERS[kind]
        draft = Draft([BEGIN], 99, Stops(stops, tokenizer.decode))
        for count, token in enumerate(tokenizer.encode([text]).row(0).tolist(), 1):
            draft.add(token, 0.0)
            said = tokenizer.decode(tokenizer.encode([text]).row(0)[:count])
            assert (draft.finish_reason == "stop") == any(stop in said for stop in stops)
            if draft.finish_reason == "stop":
                break


QUOTED = "he said \"it 's 3.50, or 12:30\" and “well-known„ (or 'so') – naïve 😀 e\u0301 a\nb 5 . 5 , 000"
ODD = [word for word in QUOTED.split(" ") * 3 if word]
KINDS = [WordsConfig(), CharactersConfig(), BytesConfig(), BpeConfig(vocab_size=320), UnigramConfig(vocab_size=320)]
EVERY = {config.kind(): fit(config, [QUOTED, *TEXTS]) for config in KINDS}
LETTERS = "".join(sorted(set(QUOTED.replace(" ", "").replace("\n", ""))))
PIECES = (*LETTERS, *(f"##{letter}" for letter in LETTERS), "he", "said", "well", "##known", "50")
WRITING = frozenset(EVERY)  # models that write text; a wordpiece tokenizer is that of an imported encoder
EVERY["wordpiece"] = Tokenizer(WordpieceConfig(), WordpieceSegmenter(WordpieceConfig(), WordpieceData(PIECES)))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(draws=st.randoms(use_true_random=False), stop=st.sampled_from([(), ("\n",), ("so", "“w"), ('" ' * 20,)]))
@pytest.mark.parametrize("kind", EVERY)
def test_a_long_stream_of_any_tokens_is_the_text_of_the_whole(kind: str, draws: Any, stop: tuple[str, ...]) -> None:
    tokenizer = EVERY[kind]
    written = [*[UNKNOWN] * tokenizer.has_unknown, *range(COUNT, tokenizer.vocab_size)]  # no other special tokens
    usual = [token for token in tokenizer.encode(draws.sample(ODD, 8)).values.tolist() if token >= COUNT]
    some = [draws.choice(usual) for _ in range(6)]  # repeated, so that quotes open and close

    def any_tokens(most: int) -> list[int]:
        return [draws.choice(some if draws.random() < 0.6 else written) for _ in range(draws.randrange(most))]

    def decode(tokens: list[int]) -> str:
        return tokenizer.decode_copying(tokens, ["x"] * len(tokens))

    before, tokens = [BEGIN, *any_tokens(60)], any_tokens(250)
    draft, whole = (Draft(before, len(tokens), Stops(stop, decode, *more)) for more in ((tokenizer.context,), ()))
    growing, parts = GrowingText(), list[str]()
    for token in tokens:
        for one in (draft, whole):
            one.add(token, 0.0)
        parts.append(growing.further(draft))
        assert draft.written() == whole.written()
        if draft.finish_reason:
            break
    assert draft.finish_reason == whole.finish_reason
    if kind in WRITING:
        assert "".join(parts) == (whole.written().text if tokens else "")


@pytest.mark.parametrize("kind", EVERY)
def test_each_token_of_a_stream_is_written_with_a_few_others(kind: str) -> None:
    tokenizer, decoded = EVERY[kind], list[int]()

    def decode(tokens: list[int]) -> str:
        decoded.append(len(tokens))
        return tokenizer.decode(tokens)

    tokens = [token for token in tokenizer.encode([QUOTED]).values.tolist() if token >= COUNT]
    tokens = [tokens[number % len(tokens)] for number in range(700)]
    draft, growing = Draft([BEGIN, *tokens * 6], 700, Stops((), decode, tokenizer.context)), GrowingText()
    for token in tokens[:-1]:
        draft.add(token, 0.0)
        growing.further(draft)
    assert max(decoded) < 150 and len(decoded) < 3 * 700


class Constant:
    """A model that finds token after token of the vocabulary less likely; it remembers how many rows it was asked."""

    def __init__(self, vocab_size: int) -> None:
        self.scores = torch.arange(vocab_size, 0, -1, dtype=torch.float64) / 8
        self.scores[END] = -20.0
        self.rows: list[int] = []

    def step(self, x: Padded, state: Any) -> tuple[Padded, Any]:
        self.rows.append(len(x.lengths))
        return x.with_values(self.scores.expand(*x.values.shape, -1)), state


def letters(tokens: list[int]) -> str:
    return "".join(chr(ord("a") + token - COUNT) for token in tokens if token >= COUNT)


@pytest.mark.parametrize("stops", [5, 15, 19])
def test_a_beam_stays_full_however_many_candidates_a_stop_string_ends(stops: int) -> None:
    model, width, most = Constant(COUNT + 20), 2, 4
    how = BeamConfig(beam_size=width, n_best=2, length_penalty=0.0, stop=tuple("abcdefghijklmnopqrst"[:stops]))
    state, begin = (torch.zeros(1, 1),), Padded.of(torch.tensor([[BEGIN]]))
    write(model, state, begin, torch.tensor([most]), how, decode=letters)
    assert model.rows[1:] and model.rows[1] == min(width, 20 - stops)


def test_a_text_that_goes_on_wins_over_stops_though_it_is_not_among_the_first_candidates() -> None:
    # the five likeliest tokens end the text at once, and with this length penalty the longest texts are the best
    model, stop = Constant(COUNT + 8), tuple("abcde")
    how = BeamConfig(beam_size=2, n_best=1, length_penalty=6.0, stop=stop)
    state, begin = (torch.zeros(1, 1),), Padded.of(torch.tensor([[BEGIN]]))
    ((answer,),) = write(model, state, begin, torch.tensor([6]), how, decode=letters)
    assert (answer.text, answer.finish_reason) == ("fffff", "stop")  # the sixth token is the likeliest, "a"


def every_stopped(model: Constant, how: BeamConfig, most: int) -> dict[str, float]:
    """All texts that there are with the best score of each, the best first."""
    logs, found = model.scores.clone(), dict[str, float]()
    logs = (logs - logs.logsumexp(dim=0)).tolist()
    going: list[tuple[str, float]] = [("", 0.0)]
    for length in range(1, most + 1):
        worth = ((5 + length) / 6) ** how.length_penalty
        said = [(text + letters([n]), log + logs[n]) for text, log in going for n in range(COUNT, len(logs))]
        ended = [(text, log + logs[END]) for text, log in going]
        ended += [(text[:-1], log) for text, log in said if text[-1] in how.stop]
        going = [one for one in said if one[0][-1] not in how.stop]
        for text, log in ended + (going if length == most else []):
            found[text] = max(found.get(text, -math.inf), log / worth)
    return dict(sorted(found.items(), key=lambda one: -one[1]))


@pytest.mark.parametrize("alpha", [0.0, 1.0, 5.0])
def test_with_stop_strings_a_wide_beam_finds_the_best_of_all_texts_each_once(alpha: float) -> None:
    model, most = Constant(COUNT + 6), 3
    how = BeamConfig(beam_size=120, n_best=9, length_penalty=alpha, stop=("b", "a", "d"))
    state, begin = (torch.zeros(1, 1),), Padded.of(torch.tensor([[BEGIN]]))
    (found,) = write(model, state, begin, torch.tensor([most]), how, decode=letters)
    expected = every_stopped(model, how, most)
    assert len({one.text for one in found}) == 9
    assert [one.score for one in found] == pytest.approx(list(expected.values())[:9])
    assert [one.score for one in found] == pytest.approx([expected[one.text] for one in found])


def test_a_stream_of_a_model_is_what_it_writes() -> None:
    model, prompt = language_model("lstm", size=0.3), prompts()

    def decode(tokens: list[int]) -> str:
        return "".join(chr(ord("a") + token) for token in tokens if token >= COUNT)

    for how in (GreedyConfig(stop=("hh", "k")), SampleConfig(seed=4, stop=("p",))):
        for row, (answer,) in enumerate(continued(model, prompt, how, decode=decode)):
            alone, most = row_of(prompt, row), torch.tensor([[9, 5, 12, 7, 3, 10][row]])
            pieces = stream(model, model.initial_state(1), alone, most, how, decode=decode, numbers=[row])
            assert "".join(pieces) == answer.text


def test_stop_strings_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(ConfigError, match="need a tokenizer"):
        continued(language_model("lstm"), prompts(), GreedyConfig(stop=("a",)))


@pytest.mark.parametrize("how", [BeamConfig(), SampleConfig(num_samples=2)], ids=["beam", "several"])
def test_what_is_no_single_answer_in_its_order_cannot_be_streamed(how: AnyDecoding) -> None:
    with pytest.raises(ConfigError, match=r"best text is known only at the end|one prompt and one text"):
        list(recited(TOKENIZERS["words"], "the cat", how, ask=stream))


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ConfigError, match="a stop string is empty"):
        GreedyConfig(stop=("",))
