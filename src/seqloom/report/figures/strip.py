"""Strips: a sentence with each token on the color of its value, over as many lines as it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from seqloom.errors import DataError
from seqloom.report.figures.figure import MARGIN, NARROWEST, WIDTH, Figure, FigureBlock, Plot, checked_span
from seqloom.report.figures.frame import LEGEND_HEIGHT, alike, drawn_legend, legend_width, written_legend
from seqloom.report.figures.markup import (
    NO_VALUE,
    ColorScale,
    Markup,
    hatched,
    hover,
    label,
    look,
    scale_of,
    tag,
    together,
    width_of,
)
from seqloom.report.labels import cell, columns, edged, fit, reads_right_to_left, typeset
from seqloom.report.numbers import number as brief

MOST_TOKENS = 10_000
NUMBERED_TOKENS = 100  # more are drawn without numbers, which tooltips still show
DESCRIBED_TOKENS = 200
SIZE, NUMBER_SIZE = 14.0, 10.0
CHIP_HEIGHT, GAP = 24.0, 4.0


@dataclass(frozen=True, kw_only=True)
class Strip(Figure, kind="strip"):
    """Tokens in reading order, each on the color of its value: attributions, gates, surprisals.

    Spaces at the ends of a token are shown as `␣`, an empty token as `∅`. A picture runs from the right if most
    tokens are in a right-to-left script. A terminal always runs from the left, because its support for such text is
    unknown.

    >>> print(Strip(title="Attribution", tokens=["not", " bad"], values=[-0.4, 0.8]).text(40))
    Attribution
    not     ␣bad
    ~ -0.40 █ 0.80
    -0.8 [#=~- ░▒▓█] 0.8
    """

    tokens: Sequence[str]
    values: Sequence[float | None]
    value_label: str = ""
    marked: Sequence[int] = ()  # tokens with a dashed frame, in a terminal in square brackets
    mark_label: str = ""  # what the frame means
    span: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_labels("tokens", largest=MOST_TOKENS)
        self._check_numbers("values", others="tokens", gaps=True)
        object.__setattr__(self, "span", checked_span(self.span, [tuple(self.values)]))
        object.__setattr__(self, "marked", tuple(self.marked))
        for index in self.marked:
            if not 0 <= index < len(self.tokens):
                raise DataError(f"marked has token {index} of {len(self.tokens)}", fix="give numbers of tokens, from 0")

    @cached_property
    def _numerals(self) -> list[str]:
        written = iter(alike([value for value in self.values if value is not None]))
        return [NO_VALUE if value is None else next(written) for value in self.values]

    @cached_property
    def _framed(self) -> frozenset[int]:
        return frozenset(self.marked)

    def _written(self, index: int) -> str:
        token = edged(self.tokens[index])
        return f"[{token}]" if index in self._framed else token

    def _plot(self) -> Plot:
        scale = scale_of(self.values, self.span)
        numbered, gaps = len(self.tokens) <= NUMBERED_TOKENS, None in self.values
        with_letters = [token for token in self.tokens if any(map(str.isalpha, token))]
        leftward = 2 * sum(map(reads_right_to_left, with_letters)) > len(with_letters)
        chips = self._chips(numbered)
        key = legend_width(self.value_label, gaps=gaps)
        width = min(WIDTH, max(NARROWEST, 2 * MARGIN + max(key, *(chip.x + chip.width for chip in chips))))
        starts = [width - MARGIN - chip.x - chip.width if leftward else MARGIN + chip.x for chip in chips]
        chips = [chip._replace(x=start) for chip, start in zip(chips, starts, strict=True)]
        pitch = CHIP_HEIGHT + (18 if numbered else 0) + GAP
        marks = [self._drawn(index, chip, chip.line * pitch, scale, numbered) for index, chip in enumerate(chips)]
        legend = drawn_legend(scale, self.value_label, MARGIN, room=width - 2 * MARGIN, gaps=gaps)
        body = tag("g", *marks, transform=f"translate(0 {LEGEND_HEIGHT:g})")
        notes = (f"Dashed frame: {self.mark_label}.",) if self.marked and self.mark_label else ()
        return Plot(together([legend, body]), width, LEGEND_HEIGHT + pitch * (chips[-1].line + 1) + 8, notes)

    def _chips(self, numbered: bool) -> list["_Chip"]:
        """Return the positions of the tokens, relative to the start of the lines."""
        room, chips = WIDTH - 2 * MARGIN, []
        x, line = 0.0, 0
        for token, numeral in zip(self.tokens, self._numerals, strict=True):
            number = width_of(typeset(numeral), NUMBER_SIZE) + 4 if numbered else 0.0
            width = min(room, max(width_of(edged(token), SIZE) + 12, number))
            if x and x + width > room:
                x, line = 0.0, line + 1
            chips.append(_Chip(x, width, line))
            x += width + GAP
        return chips

    def _drawn(self, index: int, chip: "_Chip", y: float, scale: ColorScale, numbered: bool) -> Markup:
        value, token = self.values[index], edged(self.tokens[index])
        what = f", {self.mark_label}" if index in self._framed and self.mark_label else ""
        note = hover(f"{token}: {'no value' if value is None else brief(value)} (token {index}{what})")
        box: dict[str, str | float] = {"x": chip.x, "y": y, "width": chip.width, "height": CHIP_HEIGHT, "rx": 3}
        middle = chip.x + chip.width / 2
        if value is None:
            ground = [tag("rect", note, fill="none", pointer_events="all", **box, **look("rule"))]
            ground += [hatched([(chip.x, y, chip.width, CHIP_HEIGHT)])]
            looks = look("ink")
        else:
            shade = scale.shade_of(value)
            ground, looks = [tag("rect", note, **box, **shade.fill())], shade.ink()
        if index in self._framed:
            inner = {"x": chip.x + 1.5, "y": y + 1.5, "width": chip.width - 3, "height": CHIP_HEIGHT - 3, "rx": 2}
            still = {"fill": "none", "pointer_events": "none"}  # dark on a light line: visible on every color
            ground.append(tag("rect", **inner, **still, stroke="#ffffff", stroke_width=3))
            ground.append(tag("rect", **inner, **still, stroke="#000000", stroke_width=1.5, stroke_dasharray="4 3"))
        word = label(token, middle, y + 17, size=SIZE, anchor="middle", room=chip.width - 8, looks=looks)
        numeral = typeset(self._numerals[index]) if numbered and value is not None else ""
        number = label(numeral, middle, y + CHIP_HEIGHT + 12, size=NUMBER_SIZE, anchor="middle", theme="soft")
        return together([*ground, word, number])

    def _summary(self) -> str:
        pairs = list(enumerate(self._numerals))[:DESCRIBED_TOKENS]
        said = ", ".join(f"{self._written(index)} {number}" for index, number in pairs)
        more = f", and {len(self.tokens) - len(pairs)} more" if len(self.tokens) > len(pairs) else ""
        return f"Tokens colored by {self.value_label or 'value'}: {said}{more}."

    def _block(self, width: int, color: bool) -> FigureBlock:
        scale = scale_of(self.values, self.span)
        pairs, used = [("", "")], 0
        for index, (value, numeral) in enumerate(zip(self.values, self._numerals, strict=True)):
            token = self._written(index)
            below = numeral if value is None else f"{scale.glyph(value)} {numeral}"
            each = min(width, max(columns(token), len(below)))
            if used and used + each > width:
                pairs.append(("", ""))
                used = 0
            word = cell(fit(token, each), each)
            if color and value is not None:
                word = scale.shade_of(value).behind(word)
            pairs[-1] = (f"{pairs[-1][0]}{word} ", f"{pairs[-1][1]}{below:<{each}} ")
            used += each + 1
        lines = [line.rstrip() for pair in pairs for line in pair]
        legend = written_legend(scale, self.value_label, width=width, color=color, gaps=None in self.values)
        notes = (f"In brackets: {self.mark_label}.",) if self.marked and self.mark_label else ()
        return FigureBlock([*lines, *legend], notes)


class _Chip(NamedTuple):
    x: float
    width: float
    line: int
