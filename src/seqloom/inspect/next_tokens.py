"""Next-token probabilities, the surprisal of the actual tokens, and the effect of sampling settings.

    p_t(v) = softmax(scores_t)_v        surprisal_t = -log p_t(target_t)      entropy_t = -sum_v p_t(v) log p_t(v)
    running perplexity at t = exp(mean of the surprisals up to t)

Row t of a language model is the token after token t; row t of a translation is token t of the target. The settings go
through `seqloom.decoding.decode.filtered`, so the second column has the probabilities that sampling uses. Tokens that
are not listed are summed up in a tail, including tokens that are never generated. Scores are computed for a block of
rows at a time.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.config.decoding import SampleConfig
from seqloom.decoding.answers import NEVER, log_probabilities
from seqloom.decoding.decode import filtered
from seqloom.inspect import requirements
from seqloom.inspect.attention_weights import chosen_token
from seqloom.inspect.flow import still
from seqloom.inspect.readings import left_out
from seqloom.inspect.subject import Reading, Subject, target_statistics
from seqloom.inspect.view import MEDIUM, POINTS, View, blocks_of, script
from seqloom.nn.types import Padded
from seqloom.report.document import DocumentBlock, Interactive
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.markup import Markup, tag
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import counted, number
from seqloom.text.special_tokens import END, NAMES

SLIDERS: Mapping[str, tuple[float, float, float]] = {  # name: lowest, highest, step
    "temperature": (0.05, 3.0, 0.05),
    "top_k": (0, 100, 1),
    "top_p": (0.01, 1.0, 0.01),
    "min_p": (0.0, 1.0, 0.01),
}


@dataclass(frozen=True)
class SamplingSliders(Interactive):
    """Sliders for temperature, top-k, top-p and min-p that work in the browser.

    The page has all log-probabilities of the row, four bytes each, so that the browser sums the complete distribution.
    The scripts are files in `pages/`, which the tests run too.
    """

    rules: ClassVar[str] = (
        ".sampling{margin:16px 0}"
        ".sampling label{display:inline-block;margin-right:20px}.sampling table{width:auto;margin:8px 0}"
        ".sampling th,.sampling td{border:0;padding:1px 6px;vertical-align:middle}#bars th{text-align:right;"
        "white-space:pre}#bars td{font-variant-numeric:tabular-nums}#bars td:nth-child(2){width:460px}"
        ".before,.after{height:7px}thead .after,thead .before{height:4px}"
        ".before{background:#737b87}.after{background:#336d9c}"
    )
    how: SampleConfig
    logs: np.ndarray
    names: Sequence[str]
    places: Sequence[Mapping[str, Any]]

    def markup(self) -> list[Markup]:
        options = [tag("option", f"{at}: {place['target']}", value=str(at)) for at, place in enumerate(self.places)]
        columns = {"before": "model", "after": "with sampling settings"}  # each with the color of its bar
        heads = (tag("th", tag("div", " ", class_=kind), name, scope="col") for kind, name in columns.items())
        head = tag("tr", tag("th", "token", scope="col"), tag("th", "probability", scope="col"), *heads)
        sliders = []
        for name, (low, high, step) in SLIDERS.items():
            value = float(getattr(self.how, name))
            slide = tag("input", id=name, type="range", min=low, max=high, step=step, value=value)
            output = tag("output", f"{value:g}", id=f"{name}_said")
            sliders.append(tag("label", f"{name.replace('_', '-')} ", slide, " ", output))
        caption = "The distribution of the model (gray) and with these sampling settings (blue)."
        inside = [
            *sliders,
            tag("p", caption, id="kept", aria_live="polite"),
            tag("table", tag("thead", head), tag("tbody", " ", id="bars")),
            tag("label", "Top tokens at position ", tag("select", *(options or [tag("option", "none")]), id="place")),
            tag("p", " ", id="likeliest", aria_live="polite"),
        ]
        return [tag("div", *inside, class_="sampling")]

    def script(self) -> str:
        return script("sampling.js") + script("next_tokens.js")

    def data(self) -> Mapping[str, Any]:
        packed = base64.b64encode(self.logs.astype("<f4").tobytes()).decode()
        return {"logs": packed, "names": list(self.names), "places": list(self.places)}


TOP = 100  # tokens of the chosen row that are listed
LIKELIEST = 10  # for every other row
DRAWN_BARS = 15
WORST = 20
BLOCK = 128  # rows whose scores are in memory at a time: all of a long text would not fit


class TokenChoice(NamedTuple):
    """A candidate for the next token."""

    token: str
    probability: float  # of the model
    sampling_probability: float  # with the sampling settings


class Likely(NamedTuple):
    """One of the most probable tokens of a row."""

    token: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class NextTokensView(View):
    """The distribution at one position, and surprisal, entropy and rank of the actual token at every position."""

    kind: ClassVar[str] = "next_tokens"
    targets: tuple[str, ...]  # the actual next token of each row
    surprisal: np.ndarray  # [R] nats
    entropy: np.ndarray  # [R] nats
    rank: np.ndarray  # [R] of the actual token; 1 is the most probable
    top_tokens: tuple[tuple[Likely, ...], ...]  # the most probable ones of each row; empty beyond 512 rows
    at: int
    choices: tuple[TokenChoice, ...]  # of the chosen row, the most probable first
    tail: TokenChoice  # all others together, including those that are never generated
    excluded_probability: float  # the probability of tokens that are never generated: UNKNOWN, BEGIN, padding
    num_candidates: int  # tokens that can be sampled
    sampling: SampleConfig
    left_out: int  # truncated tokens of the text
    log_probs: np.ndarray = field(compare=False)  # [N] of the chosen row, all candidates, the most probable first

    @property
    def perplexity(self) -> np.ndarray:
        """[R] exp of the mean surprisal so far."""
        return np.exp(np.cumsum(self.surprisal) / np.arange(1, len(self.surprisal) + 1))

    @property
    def worst(self) -> tuple[int, ...]:
        """The rows with the highest surprisal, the highest first."""
        return tuple(int(row) for row in np.argsort(-self.surprisal, kind="stable")[:WORST])

    @property
    def _settings(self) -> dict[str, float]:
        return {name: getattr(self.sampling, name) for name in SLIDERS}

    def json_values(self, *, full: bool) -> Mapping[str, Any]:
        values = {**super().json_values(full=full), "sampling": self._settings, "perplexity": self.perplexity}
        if not full:
            del values["log_probs"]  # of the whole vocabulary: `choices` and `tail` summarize it
        return values

    def figures(self) -> tuple[Figure, ...]:
        defaults = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        changed = [f"{name} {value:g}" for name, value in self._settings.items() if value != defaults[name]]
        written = ", ".join(changed) or "default settings, without tokens that are never generated"
        every = (*self.choices, self.tail)
        before = self._bars(f"{self.title}: model probabilities", [one.probability for one in every])
        after = self._bars(f"With sampling settings: {written}", [one.sampling_probability for one in every])
        if len(self.targets) > MEDIUM:
            return before, after, self._lines(), self._bars_of_worst()
        title, losses = "Surprisal of each token", self.surprisal.tolist()
        strip = Strip(title=title, tokens=self.targets, values=losses, value_label="surprisal, nats")
        return before, after, strip, self._lines()

    def _sentences(self) -> tuple[str, ...]:
        row, last = self.at, len(self.targets) - 1
        ends = self.targets[last] == NAMES[END]  # a prompt is read as a complete text, and a truncated one has no end
        found = f"rank {self.rank[row]}, probability {number(np.exp(-self.surprisal[row]))}"
        told = f"the next token is “{self.targets[row]}”, {found}"
        if ends and row == last:
            best = f"the most probable next token is “{self.choices[0].token}” ({number(self.choices[0].probability)})"
            told = f"the text ends here ({self.targets[row]}: {found}); {best}"
        without = f"; without {self.targets[last]}: {number(self.perplexity[-2])}" if ends and last else ""
        return (
            f"Position {row}: {told}, entropy {number(self.entropy[row])} nats.",
            f"With these settings {self.num_candidates:,} of {len(self.log_probs):,} tokens can be sampled. "
            f"The {len(self.choices)} listed tokens have {number(sum(one.probability for one in self.choices))} of the "
            f"probability; tokens that are never generated have {number(self.excluded_probability)}.",
            f"Perplexity of the text ({counted(len(self.targets), 'token')}): {number(self.perplexity[-1])}{without}.",
        )

    def _blocks(self) -> Sequence[DocumentBlock]:
        rows = [
            {"target": target, "rank": int(rank), "surprisal": float(loss), "top_tokens": [list(one) for one in ten]}
            for target, rank, loss, ten in zip(self.targets, self.rank, self.surprisal, self.top_tokens, strict=False)
        ]
        sliders = SamplingSliders((), self.sampling, self.log_probs, [one.token for one in self.choices], rows)
        return [sliders, *super()._blocks()]

    def _bars(self, title: str, probabilities: Sequence[float]) -> Figure:
        labels = [one.token for one in self.choices[:DRAWN_BARS]]
        values = list(probabilities[: len(labels)])
        if (others := len(self.log_probs) + len(NEVER) - len(labels)) > 0:
            labels, values = [*labels, f"all {others:,} others"], [*values, sum(probabilities[len(labels) :])]
        return Bars(title=title, labels=labels, values=values, x_label="probability")

    def _lines(self) -> Figure:
        """Surprisal with its blocks' maxima, entropy and running perplexity's logarithm."""
        curves = {
            "surprisal": self.surprisal,
            "entropy": self.entropy,
            "log of running perplexity": np.log(self.perplexity),
        }
        series = []
        for name, values in curves.items():
            blocks = blocks_of(values, POINTS)
            mean = "" if blocks.size == 1 else f", mean of {blocks.size}"
            series.append(Series(name=name + mean, x=blocks.starts, y=blocks.mean))
            if name == "surprisal" and blocks.size > 1:
                series.append(Series(name=f"{name}, maximum of {blocks.size}", x=blocks.starts, y=blocks.maximum))
        return Line(title="Along the text", series=series, x_label="position", y_label="nats")

    def _bars_of_worst(self) -> Figure:
        return Bars(
            title="Tokens with the highest surprisal",
            labels=[f"{row} “{self.targets[row]}”" for row in self.worst],
            values=[float(self.surprisal[row]) for row in self.worst],
            x_label="surprisal, nats",
        )


def next_tokens(
    subject: Subject,
    reading: Reading,
    *,
    at: int | str | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> NextTokensView:
    """The next-token distribution at one position, and the surprisal of every token of the text.

    Args:
        at: The position, by its number or its token (default: the last).
        temperature: Sampling temperature; 1 leaves the probabilities as they are.
        top_k: Sample from the k most probable tokens only; 0 means all.
        top_p: Sample from the fewest tokens that together have this probability.
        min_p: Leave out tokens with less than this share of the largest probability.
    """
    requirements.next_tokens(subject, reading)
    how = SampleConfig(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    tokens = reading.sides[-1].tokens
    row = len(tokens) - 1 if at is None else chosen_token(tokens, at)
    rows, scores = _rows(subject, reading, row)
    logs = log_probabilities(scores, None, 1.0, NEVER)
    order = logs[0].argsort(descending=True, stable=True)[: int(logs[0].isfinite().sum())]
    model, drawn = logs[0].exp(), filtered(logs, how)[0]
    listed, rest = order[:TOP], order[TOP:]
    never = float(scores[0].softmax(dim=-1, dtype=logs.dtype)[list(NEVER)].sum())
    return NextTokensView(
        title=f"Next token after “{reading.rows[row]}” ({row})",
        targets=_targets(subject, reading),
        **rows,
        at=row,
        choices=tuple(TokenChoice(subject.name(int(one)), float(model[one]), float(drawn[one])) for one in listed),
        tail=TokenChoice("", never + float(model[rest].sum()), float(drawn[rest].sum())),
        excluded_probability=never,
        num_candidates=int((drawn > 0).sum()),
        sampling=how,
        left_out=left_out(subject, reading),
        log_probs=logs[0][order].cpu().numpy(),
    )


def _targets(subject: Subject, reading: Reading) -> tuple[str, ...]:
    """The target of each row: the token itself in a translation, the token after it in a running text."""
    tokens = reading.sides[-1].tokens
    if tuple(token.id for token in tokens) == reading.targets:
        return tuple(token.text for token in tokens)
    assert reading.targets is not None, "it was asked for"
    last = reading.targets[-1]
    return (*(token.text for token in tokens[1:]), subject.name(last))


@torch.no_grad()
def _rows(subject: Subject, reading: Reading, row: int) -> tuple[dict[str, Any], Tensor]:
    """Surprisal, entropy, rank and top tokens of every row, and the scores [1,V] of the chosen one."""
    model: Any = subject.model
    targets = torch.tensor(reading.targets, device=subject.device)
    parts, chosen = [], None
    with still(model):
        vectors = model.features(reading.inputs).values
        for start in range(0, len(targets), BLOCK):
            scores = model.head(Padded.of(vectors[:, start : start + BLOCK])).values[0]
            logs, mine, rank, entropy = target_statistics(scores, targets[start : start + BLOCK])
            parts.append((-mine, entropy, rank, *logs.exp().topk(min(LIKELIEST, logs.shape[1]))))
            if start <= row < start + BLOCK:
                chosen = scores[row - start][None]
    assert chosen is not None, "the row is one of them"
    surprisal, entropies, ranks, chances, tokens = (
        torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)
    )
    pairs = zip(tokens.tolist(), chances.tolist(), strict=True) if len(targets) <= MEDIUM else ()
    likeliest = tuple(tuple(map(Likely, map(subject.name, names), likely)) for names, likely in pairs)
    return {"surprisal": surprisal, "entropy": entropies, "rank": ranks, "top_tokens": likeliest}, chosen
