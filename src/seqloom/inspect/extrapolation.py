"""What becomes of a language model beyond the length that it was trained on: the loss on texts of growing length.

The symbols of all texts are laid end to end and cut into windows of each length, every one read from its own BEGIN, so
that all lengths see the same text. Positions that generalise give a curve that goes on falling, as more is known of
what came before; others rise behind the trained length (Press et al. 2022).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from seqloom.errors import ConfigError, DataError
from seqloom.inspect.flow import still
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Subject
from seqloom.inspect.view import View
from seqloom.nn.models import LanguageModel
from seqloom.nn.types import Padded
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.numbers import number
from seqloom.text.special_tokens import BEGIN

ROWS = 16  # windows of each length, at most


@dataclass(frozen=True, kw_only=True)
class ExtrapolationView(View):
    """The loss against the length."""

    kind: ClassVar[str] = "extrapolation"
    lengths: tuple[int, ...]
    loss: np.ndarray  # [N] nats for each symbol
    beyond: np.ndarray  # [N] the same of symbols behind the trained length alone; NaN where there are none
    windows: tuple[int, ...]
    trained: int | None

    def figures(self) -> tuple[Figure, ...]:
        series = [Series(name="all symbols", x=self.lengths, y=self.loss.tolist())]
        if not np.isnan(self.beyond).all():
            gaps = [None if np.isnan(value) else float(value) for value in self.beyond]
            series.append(Series(name="symbols behind the trained length", x=self.lengths, y=gaps))
        if self.trained and self.lengths[0] <= self.trained <= self.lengths[-1]:
            known = np.concatenate([self.loss, self.beyond])
            ends = [float(np.nanmin(known)), float(np.nanmax(known))]
            series.append(Series(name="longest in training", x=[self.trained, self.trained], y=ends))
        return (Line(title=self.title, series=series, x_label="symbols that are read at once", y_label="loss, nats"),)

    def _sentences(self) -> tuple[str, ...]:
        inside = [at for at, length in enumerate(self.lengths) if self.trained and length <= self.trained]
        outside = [at for at, length in enumerate(self.lengths) if self.trained and length > self.trained]
        if not inside or not outside:
            return (f"Loss at {self.lengths[-1]:,} symbols: {number(self.loss[-1])}.",)
        best, last = float(self.loss[inside].min()), float(self.loss[outside[-1]])
        word = "rises" if last > best else "does not rise"
        return (f"Beyond the trained {self.trained:,} symbols the loss {word}: {number(best)} to {number(last)}.",)


@torch.no_grad()
def extrapolation(subject: Subject, texts: Sequence[str], *, lengths: Sequence[int]) -> ExtrapolationView:
    """The loss of a language model on windows of each of these lengths."""
    model = subject.model
    if not isinstance(model, LanguageModel):
        raise ConfigError(f"a model for {subject.task.name} reads no running text", fix="choose a language model")
    wanted = tuple(sorted(set(lengths)))
    symbols = torch.cat([read(subject, text).inputs.values[0, 1:] for text in texts]) if texts else torch.empty(0)
    _require(wanted, len(symbols), model.config.decoder.limit())
    trained = subject.task.meaning.longest or None
    losses, behind, counts = [], [], []
    with still(model):
        for length in wanted:
            found = _losses(subject, symbols, length)
            losses.append(float(found.mean()))
            late = found[:, trained:] if trained else found[:, :0]
            behind.append(float(late.mean()) if late.size else np.nan)
            counts.append(len(found))
    return ExtrapolationView(
        title="Loss against length",
        lengths=wanted,
        loss=np.array(losses),
        beyond=np.array(behind),
        windows=tuple(counts),
        trained=trained,
    )


def _losses(subject: Subject, symbols: torch.Tensor, length: int) -> np.ndarray:
    """[windows,length] the surprisal of every symbol; one window after another, as memory is what it is."""
    starts = range(0, len(symbols) - length + 1, length)
    step = max(1, -(-len(starts) // ROWS))
    return np.stack([_loss(subject, symbols[start : start + length]) for start in starts[::step]])


def _loss(subject: Subject, window: torch.Tensor) -> np.ndarray:
    begin = torch.full_like(window[:1], BEGIN)
    found = scores(subject, Padded.of(torch.cat([begin, window[:-1]])[None]))[0]
    losses: np.ndarray = torch.nn.functional.cross_entropy(found.float(), window, reduction="none").cpu().numpy()
    return losses


def _require(lengths: Sequence[int], known: int, limit: int | None) -> None:
    if not lengths or lengths[0] < 2:
        raise DataError(f"the lengths {list(lengths)}", fix="give lengths of two symbols or more")
    if lengths[-1] > known:
        raise DataError(f"a window of {lengths[-1]:,} symbols, and the texts have {known:,}", fix="give more text")
    if limit is not None and lengths[-1] > limit:
        raise DataError(
            f"a window of {lengths[-1]:,} symbols, and the learned positions of the model end at {limit:,}",
            fix=f"ask for {limit:,} at most; sinusoidal, rotary and alibi positions have no end",
        )
