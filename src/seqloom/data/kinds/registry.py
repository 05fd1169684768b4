"""All kinds, by their names: what a file or a person calls a kind is looked up here."""

from typing import TypeVar

from seqloom.data.kinds.inputs.pair import PairInput
from seqloom.data.kinds.inputs.picture import PictureInput
from seqloom.data.kinds.inputs.text import TextInput
from seqloom.data.kinds.inputs.triple import TripleInput
from seqloom.data.kinds.inputs.vectors import VectorsInput
from seqloom.data.kinds.inputs.words import WordsInput
from seqloom.data.kinds.kind import InputKind, Kind, TargetKind
from seqloom.data.kinds.targets.label import LabelTarget
from seqloom.data.kinds.targets.labels import LabelsTarget
from seqloom.data.kinds.targets.masked import MaskedTarget
from seqloom.data.kinds.targets.nothing import NoTarget
from seqloom.data.kinds.targets.numbers import NumbersTarget
from seqloom.data.kinds.targets.related import RelatedTarget
from seqloom.data.kinds.targets.series import SeriesTarget
from seqloom.data.kinds.targets.similarity import SimilarityTarget
from seqloom.data.kinds.targets.tags import TagsTarget
from seqloom.data.kinds.targets.text import TextTarget
from seqloom.errors import DataError, did_you_mean

# In the order in which the usual names of their columns are looked for.
INPUT_KINDS: dict[str, InputKind] = {
    kind.name: kind for kind in (WordsInput(), VectorsInput(), PictureInput(), TextInput(), PairInput(), TripleInput())
}
TARGET_KINDS: dict[str, TargetKind] = {
    kind.name: kind
    for kind in (
        LabelTarget(),
        LabelsTarget(),
        NumbersTarget(),
        TagsTarget(),
        SeriesTarget(),
        TextTarget(),
        NoTarget(),
        MaskedTarget(),
        RelatedTarget(),
        SimilarityTarget(),
    )
}

AnyKind = TypeVar("AnyKind", bound=Kind)


def kind_named(name: str, kinds: dict[str, AnyKind]) -> AnyKind:
    """The kind of a name; DataError for a name that no kind has."""
    if name not in kinds:
        raise DataError(f"no kind of data is called '{name[:40]}'", fix=did_you_mean(name, kinds))
    return kinds[name]
