"""The sizes that a recipe comes in, and the numbers behind them."""

from typing import Literal, NamedTuple, get_args

Size = Literal["tiny", "small", "base", "big"]
SIZES: tuple[Size, ...] = get_args(Size)


class Scale(NamedTuple):
    """The numbers behind a size."""

    width: int
    layers: int
    heads: int
    hidden: int


# base and big are those of Vaswani et al. 2017, recurrent ones of Zaremba et al. 2014, 3 x 100 filters of Kim 2014
ATTENTION = {
    "tiny": Scale(12, 2, 2, 24),
    "small": Scale(192, 3, 4, 768),
    "base": Scale(512, 6, 8, 2048),
    "big": Scale(1024, 6, 16, 4096),
}
RECURRENT = {
    "tiny": Scale(12, 2, 1, 0),
    "small": Scale(200, 2, 1, 0),
    "base": Scale(650, 2, 1, 0),
    "big": Scale(1500, 2, 1, 0),
}
FILTERS = {
    "tiny": Scale(12, 1, 1, 0),
    "small": Scale(300, 1, 1, 0),
    "base": Scale(600, 2, 1, 0),
    "big": Scale(1200, 2, 1, 0),
}
