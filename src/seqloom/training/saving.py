"""Checkpoints of a run on its way: written, counted when they fail, and removed when they are old.

journal ─▶ checkpoint ─▶ retention       each on all processes or on none; what was there before stays whole
"""

from pathlib import Path

from seqloom.durable import remove_folder
from seqloom.training import checkpoints
from seqloom.training.agreeing import agreed
from seqloom.training.checkpoints import Checkpoint
from seqloom.training.choice import CheckpointChoice
from seqloom.training.clock import Clock
from seqloom.training.devices import environment
from seqloom.training.dues import in_between, save_is_due
from seqloom.training.journal import AnyJournal
from seqloom.training.session import Session
from seqloom.training.standing import Machine, Standing
from seqloom.training.update import Update

MOST_FAILED = 3  # in a row


class Saves:
    """Writes the checkpoints of a run; `failed` says how many in a row could not be written."""

    def __init__(
        self, session: Session, update: Update, choice: CheckpointChoice, journal: AnyJournal, clock: Clock
    ) -> None:
        self.session, self.update, self.choice, self.journal, self.clock = session, update, choice, journal, clock
        self.failed = 0

    def write(self, standing: Standing) -> tuple[Path, str]:
        """Where the checkpoint lies, or where it would, and why it does not; the same on all processes."""
        problem, path = self.flush(standing), None
        if not problem:
            path, problem = agreed(self.session.ranks, lambda: self._saved(standing))
        self.failed = self.failed + 1 if problem else 0
        return path or self.session.folder.checkpoints, problem

    def flush(self, standing: Standing) -> str:
        """Why the lines of the journal are not on the disk; empty if they are."""
        _, problem = agreed(self.session.ranks, self.journal.flush)
        standing.lines = self.journal.lines
        return problem

    def _saved(self, standing: Standing) -> Path:
        session = self.session
        machine = Machine(environment=environment(session.device, session.ranks), seconds=self.clock.seconds)
        checkpoint = Checkpoint(standing, machine, self.update.tensors() | self.choice.tensors())
        path = checkpoints.save(session.folder.checkpoints, checkpoint, session.ranks)
        if session.ranks.rank == 0 and (save_is_due(session.config.training, standing) or standing.ended):
            self._retain(path, standing)
        return path

    def _retain(self, newest: Path, standing: Standing) -> None:
        """Remove old checkpoints, and those that a signal asked for in between: they change nothing that comes out."""
        config, folder = self.session.config.training, self.session.folder.checkpoints
        for path in in_between(folder, config):
            if path != newest:
                remove_folder(path)
        chosen = standing.chosen.step if standing.chosen else None
        checkpoints.retain(folder, max(config.keep, config.average_last), chosen)
