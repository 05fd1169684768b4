"""What a model would say next, how likely it found what was said, and what the settings of sampling make of it.

    p_t(v) = softmax(scores_t)_v        surprisal_t = -log p_t(said_t)        entropy_t = -sum_v p_t(v) log p_t(v)
    running perplexity at t = exp(mean of the surprisals up to t)

Row t of a language model is the symbol after token t; row t of a translation is symbol t of the target. The settings go
through `seqloom.decoding.decode.filtered`, so the second column of numbers is what a sample is drawn with; what is
not listed stands in a tail, whose mass is told; what the model gives to symbols that are never written is in it. Scores
are made for a block of rows at a time.
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
from seqloom.inspect.subject import Reading, Subject, said_in
from seqloom.inspect.view import MEDIUM, POINTS, View, blocks_of, script
from seqloom.nn.types import Padded
from seqloom.report.document import DocumentBlock, Interactive
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.markup import Markup, tag
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import number
from seqloom.text.special_tokens import END

SLIDERS: Mapping[str, tuple[float, float, float]] = {  # name: lowest, highest, step
    "temperature": (0.05, 3.0, 0.05),
    "top_k": (0, 100, 1),
    "top_p": (0.01, 1.0, 0.01),
    "min_p": (0.0, 1.0, 0.01),
}


@dataclass(frozen=True)
class SamplingSliders(Interactive):
    """Sliders for temperature, top-k, top-p and min-p that act at once, in the browser.

    All log-probabilities of the row travel with the page, four bytes each, so that what the browser sums up is the
    model's distribution and not a part of it. The scripts are files of their own (`pages/`), which the tests run too.
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
        options = [tag("option", f"{at} {place['said']}", value=str(at)) for at, place in enumerate(self.places)]
        columns = {"before": "as the model has it", "after": "as it is drawn"}  # each with the colour of its bar
        heads = (tag("th", tag("div", " ", class_=kind), name, scope="col") for kind, name in columns.items())
        head = tag("tr", tag("th", "symbol", scope="col"), tag("th", "probability", scope="col"), *heads)
        sliders = []
        for name, (low, high, step) in SLIDERS.items():
            value = float(getattr(self.how, name))
            slide = tag("input", id=name, type="range", min=low, max=high, step=step, value=value)
            output = tag("output", f"{value:g}", id=f"{name}_said")
            sliders.append(tag("label", f"{name.replace('_', '-')} ", slide, " ", output))
        told = "The distribution as the model has it (gray) and as it is drawn (blue)."
        inside = [
            *sliders,
            tag("p", told, id="kept", aria_live="polite"),
            tag("table", tag("thead", head), tag("tbody", " ", id="bars")),
            tag("label", "The likeliest at row ", tag("select", *(options or [tag("option", "none")]), id="place")),
            tag("p", " ", id="likeliest", aria_live="polite"),
        ]
        return [tag("div", *inside, class_="sampling")]

    def script(self) -> str:
        return script("sampling.js") + script("next_symbols.js")

    def data(self) -> Mapping[str, Any]:
        packed = base64.b64encode(self.logs.astype("<f4").tobytes()).decode()
        return {"logs": packed, "names": list(self.names), "places": list(self.places)}


TOP = 100  # symbols of the chosen row that are listed
LIKELIEST = 10  # of every other row
DRAWN_BARS = 15
WORST = 20
BLOCK = 128  # rows whose scores are held at once: all of a long text would not fit in memory


class TokenChoice(NamedTuple):
    """A symbol that could be said."""

    symbol: str
    model: float  # its probability as the model gives it
    drawn: float  # and as it is drawn with these settings


class Likely(NamedTuple):
    """One of the likeliest symbols of a row."""

    symbol: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class NextSymbolsView(View):
    """The distribution at one row, and the surprisal, the entropy and the rank of what was said at every row."""

    kind: ClassVar[str] = "next_symbols"
    said: tuple[str, ...]  # what was said in each row
    surprisal: np.ndarray  # [R] nats
    entropy: np.ndarray  # [R] nats
    rank: np.ndarray  # [R] of what was said: 1 is the likeliest
    likeliest: tuple[tuple[Likely, ...], ...]  # of each row; none beyond 512 rows
    at: int
    choices: tuple[TokenChoice, ...]  # of the chosen row, the likeliest first
    tail: TokenChoice  # what all others have together, those that are never written among them
    never: float  # the part of the model's probability that those have: UNKNOWN, BEGIN, padding
    kept: int  # symbols that can be drawn
    settings: SampleConfig
    left_out: int  # symbols of the text that the model does not read
    logs: np.ndarray = field(compare=False)  # [N] of the chosen row, of all that can be said, the likeliest first

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
        return {name: getattr(self.settings, name) for name in SLIDERS}

    def told_values(self, *, whole: bool) -> Mapping[str, Any]:
        told = {**super().told_values(whole=whole), "settings": self._settings, "perplexity": self.perplexity}
        if not whole:
            del told["logs"]  # of the whole vocabulary: `choices` and `tail` tell it
        return told

    def figures(self) -> tuple[Figure, ...]:
        usual = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        changed = [f"{name} {value:g}" for name, value in self._settings.items() if value != usual[name]]
        written = ", ".join(changed) or "no setting changed, without symbols that are never written"
        every = (*self.choices, self.tail)
        before = self._bars(f"{self.title}, as the model has it", [one.model for one in every])
        after = self._bars(f"As it is drawn: {written}", [one.drawn for one in every])
        if len(self.said) > MEDIUM:
            return before, after, self._lines(), self._bars_of_worst()
        title, losses = "How surprised the model was", self.surprisal.tolist()
        strip = Strip(title=title, tokens=self.said, values=losses, value_label="surprisal, nats")
        return before, after, strip, self._lines()

    def _sentences(self) -> tuple[str, ...]:
        row = self.at
        return (
            f"At row {row}, “{self.said[row]}” was said: rank {self.rank[row]}, probability "
            f"{number(np.exp(-self.surprisal[row]))}, entropy {number(self.entropy[row])} nats.",
            f"With these settings {self.kept:,} of {len(self.logs):,} symbols can be drawn; the {len(self.choices)} "
            f"listed have {number(sum(one.model for one in self.choices))} of the model's probability, and those that "
            f"are never written have {number(self.never)}.",
            f"Perplexity of all {len(self.said):,} symbols: {number(self.perplexity[-1])}.",
        )

    def _blocks(self) -> Sequence[DocumentBlock]:
        rows = [
            {"said": said, "rank": int(rank), "surprisal": float(loss), "likeliest": [list(one) for one in ten]}
            for said, rank, loss, ten in zip(self.said, self.rank, self.surprisal, self.likeliest, strict=False)
        ]
        sliders = SamplingSliders((), self.settings, self.logs, [one.symbol for one in self.choices], rows)
        return [sliders, *super()._blocks()]

    def _bars(self, title: str, told: Sequence[float]) -> Figure:
        labels = [one.symbol for one in self.choices[:DRAWN_BARS]]
        values = list(told[: len(labels)])
        if (others := len(self.logs) + len(NEVER) - len(labels)) > 0:
            labels, values = [*labels, f"all {others:,} others"], [*values, sum(told[len(labels) :])]
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
        return Line(title="Along the text", series=series, x_label="row", y_label="nats")

    def _bars_of_worst(self) -> Figure:
        return Bars(
            title="What surprised it most",
            labels=[f"{row} “{self.said[row]}”" for row in self.worst],
            values=[float(self.surprisal[row]) for row in self.worst],
            x_label="surprisal, nats",
        )


def next_symbols(
    subject: Subject,
    reading: Reading,
    *,
    at: int | str | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> NextSymbolsView:
    """What comes next at a row, the last if none is named, and how surprised the model was along the text."""
    requirements.next_symbols(subject, reading)
    how = SampleConfig(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    tokens = reading.sides[-1].tokens
    row = len(tokens) - 1 if at is None else chosen_token(tokens, at)
    told, scores = _told(subject, reading, row)
    logs = log_probabilities(scores, None, 1.0, NEVER)
    order = logs[0].argsort(descending=True, stable=True)[: int(logs[0].isfinite().sum())]
    model, drawn = logs[0].exp(), filtered(logs, how)[0]
    listed, rest = order[:TOP], order[TOP:]
    never = float(scores[0].softmax(dim=-1, dtype=logs.dtype)[list(NEVER)].sum())
    return NextSymbolsView(
        title=f"What comes next at “{reading.rows[row]}” ({row})",
        said=_said(subject, reading),
        **told,
        at=row,
        choices=tuple(TokenChoice(subject.name(int(one)), float(model[one]), float(drawn[one])) for one in listed),
        tail=TokenChoice("", never + float(model[rest].sum()), float(drawn[rest].sum())),
        never=never,
        kept=int((drawn > 0).sum()),
        settings=how,
        left_out=left_out(subject, reading),
        logs=logs[0][order].cpu().numpy(),
    )


def _said(subject: Subject, reading: Reading) -> tuple[str, ...]:
    """What was said in each row: the target itself, or of a running text the token after."""
    tokens = reading.sides[-1].tokens
    if tuple(token.symbol for token in tokens) == reading.said:
        return tuple(token.text for token in tokens)
    assert reading.said is not None, "it was asked for"
    last = reading.said[-1]
    return (*(token.text for token in tokens[1:]), "END" if last == END else subject.name(last))


@torch.no_grad()
def _told(subject: Subject, reading: Reading, row: int) -> tuple[dict[str, Any], Tensor]:
    """What is told of every row, and the scores [1,V] of the chosen one."""
    model: Any = subject.model
    said = torch.tensor(reading.said, device=subject.device)
    parts, chosen = [], None
    with still(model):
        vectors = model.features(reading.inputs).values
        for start in range(0, len(said), BLOCK):
            scores = model.head(Padded.of(vectors[:, start : start + BLOCK])).values[0]
            logs, mine, rank, entropy = said_in(scores, said[start : start + BLOCK])
            parts.append((-mine, entropy, rank, *logs.exp().topk(min(LIKELIEST, logs.shape[1]))))
            if start <= row < start + BLOCK:
                chosen = scores[row - start][None]
    assert chosen is not None, "the row is one of them"
    surprisal, entropies, ranks, chances, symbols = (
        torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)
    )
    pairs = zip(symbols.tolist(), chances.tolist(), strict=True) if len(said) <= MEDIUM else ()
    likeliest = tuple(tuple(map(Likely, map(subject.name, names), likely)) for names, likely in pairs)
    return {"surprisal": surprisal, "entropy": entropies, "rank": ranks, "likeliest": likeliest}, chosen
