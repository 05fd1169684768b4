"""Labels and tags as a whole: how many there are, how often each occurs, and which were never seen in training."""

from collections import Counter
from itertools import chain

from seqloom.data.checks.blocks import Block
from seqloom.data.checks.spellings import find_spellings, quoted, rows_said
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Schema
from seqloom.data.values import is_number

TRAINING = "train"
MOST_LABELS = 1_000_000  # so many different ones are never classes, and memory has an end
FEWEST_ROWS = 20  # below, half of the rows may well have a label of their own
UNSEEN_SHARE = 0.01
OTHERWISE = "name the column of the label, or choose another task"


class LabelCheck:
    """Finds label.too_many, label.single, label.singleton and label.unseen, and what `spellings` finds."""

    def __init__(self, schema: Schema) -> None:
        self._kind = schema.target
        self._thing = "tag" if schema.target == "tags" else "label"
        self._counts: dict[str, Counter[str]] = {}
        self._firsts: dict[str, dict[str, Place]] = {}  # of each part, where each label stands first
        self._rows: Counter[str] = Counter()

    def see(self, block: Block) -> None:
        """Count the labels of a block, up to a number that no set of classes has."""
        self._rows[block.part] += len(block.examples)
        counts, firsts = self._counts.setdefault(block.part, Counter()), self._firsts.setdefault(block.part, {})
        if len(counts) > MOST_LABELS:
            return
        targets = [example.target for example in block.examples]
        labels: list[str] = targets if self._kind == "label" else list(chain.from_iterable(targets))  # type: ignore[assignment,arg-type]
        counts.update(labels)
        if set(labels) - firsts.keys():
            for example in block.examples:
                for label in (example.target,) if self._kind == "label" else example.target:  # type: ignore[union-attr]
                    firsts.setdefault(label, example.place)  # type: ignore[arg-type]

    def finish(self, ledger: Ledger) -> None:
        """Write the findings; raise RejectedError where the labels cannot be learnt."""
        if not self._counts:
            return
        reference = TRAINING if TRAINING in self._counts else next(iter(self._counts))
        self._refuse_too_many(ledger, reference)
        self._refuse_single(ledger, reference)
        odd = find_spellings(ledger, self._everywhere(), self._places(), tags=self._kind == "tags")
        self._warn_of_singletons(ledger, reference, odd)
        for part in self._counts:
            if part != reference:
                self._find_unseen(ledger, part, reference)

    def _everywhere(self) -> Counter[str]:
        return sum(self._counts.values(), Counter())

    def _places(self) -> dict[str, Place]:
        return {label: place for firsts in reversed(self._firsts.values()) for label, place in firsts.items()}

    def _file(self, part: str) -> Place:
        return Place(next(iter(self._firsts[part].values()), Place(part)).path)

    def _refuse_too_many(self, ledger: Ledger, reference: str) -> None:
        endless = [part for part, counts in self._counts.items() if len(counts) > MOST_LABELS]
        rows, counts = self._rows[reference], self._counts[reference]
        own = self._kind == "label" and rows >= FEWEST_ROWS and len(counts) > rows / 2  # a small dev set may well do
        for part in [*endless, *([reference] if own else [])]:
            rows, counts = self._rows[part], self._counts[part]
            text = f"{len(counts):,} different {self._thing}s in {rows:,} rows; is it the right column?"
            measured = self._kind == "label" and all(map(is_number, counts))
            fix = "--task regress, if they are measured; else --target NAME, of the label" if measured else OTHERWISE
            ledger.bad_file("label.too_many", text, self._file(part), fix)

    def _refuse_single(self, ledger: Ledger, part: str) -> None:
        counts = self._counts[part]
        if self._kind != "labels" and len(counts) == 1:
            text = f"every {self._thing} is {quoted(next(iter(counts)))}; there is nothing to tell apart"
            ledger.bad_file("label.single", text, self._file(part), "give examples of at least two classes")

    def _warn_of_singletons(self, ledger: Ledger, part: str, odd: set[str]) -> None:
        for label, count in self._counts[part].items():
            if count == 1 and label not in odd:
                text = f"{self._thing} {quoted(label)} has a single example in {part}"
                fix = "add examples, or join it with another class: one is too few to learn from"
                ledger.warn("label.singleton", text, self._firsts[part][label], fix)

    def _find_unseen(self, ledger: Ledger, part: str, reference: str) -> None:
        counts, firsts = self._counts[part], self._firsts[part]
        unseen = sorted(counts.keys() - self._counts[reference].keys(), key=lambda label: -counts[label])
        total = sum(counts[label] for label in unseen)
        if not unseen:
            return
        if total > UNSEEN_SHARE * counts.total():
            listed = ", ".join(f"{quoted(label)} ({counts[label]:,})" for label in unseen[:5])
            text = f"{total:,} of {counts.total():,} {self._thing}s of {part} are not in {reference}: {listed}"
            more = f" and {len(unseen) - 5:,} more" if len(unseen) > 5 else ""
            ledger.bad_file("label.unseen", text + more, firsts[unseen[0]], f"put examples of each into {reference}")
        for label in unseen:
            text = f"{self._thing} {quoted(label)} ({rows_said(counts[label])}) of {part} is not in {reference}"
            ledger.warn("label.unseen", f"{text}; it counts as an error", firsts[label], count=counts[label])
