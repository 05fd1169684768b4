"""Models that read pictures: pixels, 2-D filters or patches."""

from seqloom.config.heads import ClassHeadConfig
from seqloom.config.inputs import FiltersConfig, FlatConfig, PatchesConfig
from seqloom.config.models import SequenceModelConfig
from seqloom.errors import ConfigError
from seqloom.recipes.bodies import Body
from seqloom.recipes.families import recipe_of
from seqloom.recipes.parts import answering
from seqloom.recipes.sizes import FILTERS, Size

_LEAST_PATCHES, _MOST_PATCHES = 16, 4096  # so many make a picture of patches worth attending to


def picture_classifier(
    name: str, *, height: int, width: int, channels: int = 1, num_classes: int, size: Size = "small"
) -> SequenceModelConfig:
    """A model that names one class for each picture."""
    recipe = recipe_of(name, "picture-classifier", size)
    shape, head = {"height": height, "width": width, "channels": channels}, ClassHeadConfig(num_classes=num_classes)
    if name == "conv2d":
        scale = FILTERS[size]
        counts: tuple[int, ...] = (max(4, scale.width // 8), max(8, scale.width // 4))
        if min(height, width) < 8:  # a second layer would not fit
            counts = counts[1:]
        return answering(Body(scale.width, pooling="max"), FiltersConfig(**shape, filters=counts), head)
    assert recipe.body is not None
    flat, body = FlatConfig(**shape), recipe.body(size)  # whichever is wanted, the sizes are checked here
    if name == "mlp":
        return answering(body, flat, head)
    tiling = (side for side in range(1, 17) if height % side == 0 and width % side == 0)
    patch = max((side for side in tiling if height * width >= _LEAST_PATCHES * side**2), default=1)
    if (count := height * width // patch**2) > _MOST_PATCHES:
        raise ConfigError(
            f"no square of at most 16 x 16 tiles {height} x {width} pixels into {_MOST_PATCHES:,} patches or fewer",
            fix="crop or pad the pictures, for example to multiples of 16",
        )
    # patches lie in a plane, so their place is learned, not a distance along the reading order
    body = body._replace(position="learned", max_length=count)
    return answering(body, PatchesConfig(**shape, patch=patch), head)
