"""The badge: each picture of attention, and each attribution, says in one sentence how far it may be believed.

What was measured by `faithfulness` on the same inspection is said with its numbers and with what it was measured of;
where nothing was, that is said, and how to ask. So a view tells more once a report was asked for, by design. A report
holds as long as the model stands as it did: while an edit lasts, and once its weights have changed, it is not told. A
report on an explanation of the caller's own says nothing about the library's, and is not told either. An n-gram's share
of a linear model is no estimate and needs none.
"""

from collections.abc import Mapping

from torch import nn

from seqloom.inspect.edits import ModelStanding, standing_of
from seqloom.inspect.faithfulness.measures import OWN
from seqloom.inspect.faithfulness.report import FaithfulnessView
from seqloom.inspect.substitution import ChangeView
from seqloom.inspect.view import View

ATTENTION, ATTRIBUTION = "attention", "attribution"  # what a picture is, and what a report is about

PICTURES: Mapping[str, str] = {
    "attention": ATTENTION,
    "heads": ATTENTION,
    "head_view": ATTENTION,
    "query_key": ATTENTION,
    "alignment": ATTENTION,
    "attribution": ATTRIBUTION,
    "attributions": ATTRIBUTION,
    "attribution_table": ATTRIBUTION,
    "similarity_pairs": ATTRIBUTION,
}
ASK: Mapping[str, str] = {
    ATTENTION: "how far to believe it: .faithfulness(), or --view faithfulness",
    ATTRIBUTION: "how far to believe it: .faithfulness(method=...), or --view faithfulness --method NAME",
}


def shown(name: str, view: View) -> tuple[str, ...]:
    """The pictures that the view of a name shows: itself, or those whose changes a trial has beside the answers."""
    return tuple(one.of for one in view.differences) if isinstance(view, ChangeView) else (name,)


class Beliefs:
    """What is known of how far the pictures of one input of a model may be believed."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known = dict[str, tuple[ModelStanding, str]]()  # by what a report was about, the latest

    def learn(self, view: View) -> None:
        """Nothing; a report of faithfulness on a picture of the library is remembered, any other view is not."""
        if isinstance(view, FaithfulnessView) and view.picture != OWN and view.level != "not measured":
            about = ATTRIBUTION if view.evidence.moved is None else ATTENTION
            picture = view.picture[0].lower() + view.picture[1:]
            said = f"{view.badge().text.capitalize()}; measured of {picture}."
            self._known[about] = standing_of(self._model), said

    def badge(self, name: str, missing: str | None) -> tuple[str, ...]:
        """The sentence that the view of a name carries, if it is such a picture; `missing` is why none can be asked."""
        if (about := PICTURES.get(name)) is None:
            return ()
        if missing is not None:
            return (f"Faithfulness cannot be measured: {missing}.",)
        standing, said = self._known.get(about, (None, ""))
        if standing == standing_of(self._model):
            return (said,)
        changed = "" if standing is None else " of the model as it is now, edited or trained since the report"
        return (f"Faithfulness not measured{changed}; {ASK[about]}.",)
