"""Objectives: what is asked of the vectors of texts, so that texts of one meaning come to lie together.

    contrast       the texts of a pair lie nearer than those of all other pairs of the batch
    cosine-score   the cosine of two texts is their score
    rank           pairs with a higher score have the higher cosine
    triplet        the anchor lies nearer to its positive than to its negative, by a margin
    views          contrast of a text with itself, read twice: dropout, and symbols left out, make the two differ

They read texts that stand together (see `seqloom.data.schema`); which objective can read which data is said here.
"""

from typing import TYPE_CHECKING, Annotated, get_args

from msgspec import Meta

from seqloom.config.base import Config, Rate
from seqloom.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from seqloom.nn.objectives import Objective

Temperature = Annotated[float, Meta(ge=1e-4, le=100.0, examples=[0.05])]
Margin = Annotated[float, Meta(ge=0.0, le=2.0, examples=[0.2])]
CosineScale = Annotated[float, Meta(ge=1e-2, le=1e4, examples=[20.0])]


class ObjectiveConfig(Config):
    """Base of the objectives."""

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        """What may stand together in a row that it reads: "text", "pair", "triple", or a "scored" pair."""
        raise NotImplementedError

    def build(self) -> "Objective":
        """The objective."""
        raise NotImplementedError


class ContrastConfig(ObjectiveConfig, tag="contrast", kw_only=True):
    """In-batch negatives, both directions (van den Oord et al. 2018); equal texts are no negatives of each other.

    The negative of a triple is one more for all anchors. A text alone is contrasted with its second reading.
    """

    temperature: Temperature = 0.05

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("pair", "triple", "text")

    def build(self) -> "Objective":
        from seqloom.nn.objectives import Contrast

        return Contrast(self)


class ScoredCosineConfig(ObjectiveConfig, tag="cosine-score", kw_only=True):
    """Squared error of the cosine; scores are scaled to 0..1 by the range of the training part."""

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("scored",)

    def build(self) -> "Objective":
        from seqloom.nn.objectives import ScoredCosine

        return ScoredCosine()


class RankConfig(ObjectiveConfig, tag="rank", kw_only=True):
    """log(1 + sum of exp(scale (cos_j - cos_i)) over pairs i with a higher score than j) (CoSENT, Su 2022)."""

    scale: CosineScale = 20.0

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("scored",)

    def build(self) -> "Objective":
        from seqloom.nn.objectives import Rank

        return Rank(self)


class TripletConfig(ObjectiveConfig, tag="triplet", kw_only=True):
    """A hinge on cosines: for its own negative, and for the nearest of all other texts of the batch (Faghri 2018)."""

    margin: Margin = 0.2

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("triple",)

    def build(self) -> "Objective":
        from seqloom.nn.objectives import Triplet

        return Triplet(self)


class ViewsConfig(ObjectiveConfig, tag="views", kw_only=True):
    """Contrast of two readings of one text (SimCSE, Gao et al. 2021), symbols left out of the second."""

    temperature: Temperature = 0.05
    left_out: Rate = 0.0  # the share of symbols

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("text",)

    def build(self) -> "Objective":
        from seqloom.nn.objectives import Views

        return Views(self)


AnyObjective = ContrastConfig | ScoredCosineConfig | RankConfig | TripletConfig | ViewsConfig
OBJECTIVES: dict[str, type[AnyObjective]] = {kind.kind(): kind for kind in get_args(AnyObjective)}


def objective_of(asked: str | AnyObjective) -> AnyObjective:
    """The objective itself, or the usual one of this name; ConfigError names the nearest."""
    if not isinstance(asked, str):
        return asked
    if asked not in OBJECTIVES:
        raise ConfigError(f"there is no objective '{asked}'", fix=did_you_mean(asked, OBJECTIVES))
    return OBJECTIVES[asked]()
