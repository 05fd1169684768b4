"""A frozen value that shows itself: for a terminal, as a page, in a notebook, and to programs."""

import msgspec

from seqloom.data.report.page import framed


class Shown(msgspec.Struct, frozen=True):
    """Base of results; whoever has fields says how they look."""

    def text(self, width: int = 80, colour: bool = False) -> str:
        """The results for a terminal."""
        raise NotImplementedError

    def html(self) -> str:
        """The results as one self-contained page."""
        raise NotImplementedError

    def to_json(self) -> str:
        """The results as JSON text."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    def _repr_html_(self) -> str:
        return framed(self.html())
