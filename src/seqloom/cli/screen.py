"""What the verbs print on."""

from rich.console import Console


class Screen(Console):
    """A console that shows text as it stands; a reader who leaves a pipe early has seen enough: no error."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, emoji=False, stderr=stderr)

    def on_broken_pipe(self) -> None:
        """Stop writing and end the command, as rich does, but with exit code 0."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(0) from None
