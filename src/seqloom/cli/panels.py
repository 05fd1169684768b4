"""Help in groups: a command with many options tells them panel by panel, in plain text."""

from typing import Any

from typer.core import TyperCommand

REST = "Data"  # options that name no panel are those that every verb with data has


class Panels(TyperCommand):
    """A command whose options stand under the names of their panels, in the order in which these first come."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, a section for each panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                panels.setdefault(getattr(option, "rich_help_panel", None) or REST, []).append(record)
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)
