"""What the verbs print on."""

import os
import sys

from rich.console import Console


class Screen(Console):
    """A console without highlighting; a reader who leaves a pipe early has seen enough, and that is no error."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        """Stop writing, and stop the command."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)
