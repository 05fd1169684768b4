"""The badge: each picture of attention, and each attribution, says in one sentence how far it may be believed.

What was measured by `faithfulness` on the same inspection is said with its numbers and with what it was measured of;
where nothing was, that is said, and how to ask. An n-gram's share of a linear model is no estimate and needs none.
"""

from collections.abc import Mapping

from seqloom.inspection.faithfulness.report import FaithfulnessView
from seqloom.inspection.view import View

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
    ATTENTION: "ask .faithfulness(), or --view faithfulness",
    ATTRIBUTION: "ask .faithfulness(method=...), or --view faithfulness --set method=...",
}


class Beliefs:
    """What is known of how far the pictures of one input may be believed."""

    def __init__(self) -> None:
        self._known = dict[str, str]()  # by what a report was about, the latest

    def learn(self, view: View) -> None:
        """Nothing; a report of faithfulness is remembered, any other view is not."""
        if isinstance(view, FaithfulnessView):
            about = ATTRIBUTION if view.evidence.moved is None else ATTENTION
            picture = view.picture[0].lower() + view.picture[1:]
            self._known[about] = f"{view.badge().text.capitalize()}; measured of {picture}."

    def badge(self, name: str, missing: str | None) -> tuple[str, ...]:
        """The sentence that the view of a name carries, if it is such a picture; `missing` is why none can be asked."""
        if (about := PICTURES.get(name)) is None:
            return ()
        if missing is not None:
            return (f"Faithfulness cannot be measured: {missing}.",)
        return (self._known.get(about, f"Faithfulness not measured: {ASK[about]}."),)
