"""Help in groups: a command with many options tells them panel by panel, in plain text.

What is given by its place comes first, then the panels in the order of the signature, and what every verb with data has
last. `--help` stands in the first panel: at the end of a long list nobody finds it.
"""

from typing import Any

from typer.core import TyperCommand

from seqloom.cli.data_options import FileOptions

GIVEN = "Arguments"  # what has no name
REST = "Data"  # options that name no panel are those that every verb with data has
OWN = "Options"  # of a verb that has so few that one panel holds them


class Panels(TyperCommand):
    """A command whose options stand under the names of their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, a section for each panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                panels.setdefault(self._panel(option), []).append(record)
        for panel in sorted(panels, key=lambda name: (name != GIVEN, name == REST)):  # stable: else as they came
            with formatter.section(panel):
                formatter.write_dl(panels[panel])

    def _panel(self, option: Any) -> str:
        """The name of the panel of an option."""
        if option.param_type_name == "argument":
            return GIVEN
        named = [panel for one in self.params if (panel := getattr(one, "rich_help_panel", None))]
        own = named[0] if option.name == "help" else getattr(option, "rich_help_panel", None)
        return own or REST


class TwoPanels(Panels):
    """A command with few options: its own stand before those that say how files are read."""

    def _panel(self, option: Any) -> str:
        """The name of the panel of an option."""
        if option.param_type_name == "argument":
            return GIVEN
        return REST if option.name in FileOptions.__annotations__ else OWN
