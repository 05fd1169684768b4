"""Which choices mean something together: one table, used by the configuration, the laws and the kernel tests.

position    where it acts                        with
none        nowhere                              everything
learned     added to (or beside) the inputs      everything
sinusoidal  added to (or beside) the inputs      everything
alibi       a bias on the scores                 softmax attention, any score
t5          a bias on the scores                 softmax attention, any score
shaw        vectors in keys and values           softmax attention, scores that are dot products
rotary      turns queries and keys               softmax attention, dot and scaled_dot
"""

from typing import Literal, get_args

Position = Literal["none", "learned", "sinusoidal", "shaw", "alibi", "rotary", "t5"]
Score = Literal["dot", "scaled_dot", "additive", "bilinear"]

POSITIONS: tuple[Position, ...] = get_args(Position)
SCORES: tuple[Score, ...] = get_args(Score)
RELATIVE: tuple[Position, ...] = ("shaw", "alibi", "rotary", "t5")

_REFUSALS: dict[tuple[str, str], str] = {
    ("linear-attention", "shaw"): "linear attention never forms the scores, so nothing can be added to one of them",
    ("linear-attention", "alibi"): "linear attention never forms the scores, so nothing can be added to one of them",
    ("linear-attention", "t5"): "linear attention never forms the scores, so nothing can be added to one of them",
    (
        "linear-attention",
        "rotary",
    ): "turned features are no longer positive, so the weights would not be a distribution",
    ("additive", "shaw"): "Shaw's key vectors enter by a dot product with the query, and an additive score has none",
    ("additive", "rotary"): "turning queries and keys makes a score relative only when it is their dot product",
    ("bilinear", "rotary"): "the matrix between query and key does not commute with the turning",
}


def refusal(mixer: str, *, score: Score = "scaled_dot", position: Position = "none") -> str | None:
    """Why a mixer, a score and a kind of position make no sense together, or None when they do.

    >>> refusal("lstm", position="rotary")
    "relative positions act on attention scores, and 'lstm' has none"
    >>> refusal("attention", score="additive", position="alibi") is None
    True
    """
    if position not in RELATIVE:
        return None
    if mixer == "cross-attention":
        return "source and target have no common distance"
    if reason := _REFUSALS.get((mixer, position)):
        return reason
    if mixer != "attention":
        return f"relative positions act on attention scores, and '{mixer}' has none"
    return _REFUSALS.get((score, position))
