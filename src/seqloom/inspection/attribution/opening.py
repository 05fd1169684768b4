"""A long text on a page: every sentence with its total, which opens to its tokens on their colours."""

from collections.abc import Sequence

from seqloom.figures.colours import Scale, code, ink_on, scale_of
from seqloom.figures.markup import Markup, tag
from seqloom.inspection.attribution.parts import Part, Stretch

RULES = (
    ".opening{margin:16px 20px}.opening h2{font-size:18px}.opening summary{cursor:pointer;padding:2px 0}"
    ".opening p{line-height:1.9}.opening mark{padding:2px 4px;margin:1px;border-radius:3px;unicode-bidi:isolate}"
    ".opening .none{background:none;border:1px dashed #9aa2ad;color:inherit}"
)


def opening(title: str, part: Part, span: tuple[float, float] | None) -> Markup:
    """The section of a page; it needs no script, for a browser opens and closes `details` by itself."""
    scale = scale_of(part.numbers, span)
    chips = [_chip(at, *each, scale) for at, each in enumerate(zip(part.texts, part.numbers, strict=True))]
    lines = (_sentence(each, chips) for each in part.stretches)
    return tag("section", tag("h2", title), *lines, class_="opening")


def _sentence(stretch: Stretch, chips: Sequence[Markup]) -> Markup:
    total = tag("b", f"{stretch.total:+.4g}")
    summary = tag("summary", total, f" {stretch.start}: ", tag("bdi", stretch.beginning))
    return tag("details", summary, tag("p", *chips[stretch.start : stretch.stop], dir="auto"))


def _chip(at: int, text: str, value: float | None, scale: Scale) -> Markup:
    if value is None:
        return tag("mark", text, class_="none", title=f"{text}: no value (token {at})")
    ground = scale.shade(scale.level(value)).light
    style = f"background:{code(ground)};color:{code(ink_on(ground))}"
    return tag("mark", text, style=style, title=f"{text}: {value:.4g} (token {at})")
