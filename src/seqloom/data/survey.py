"""The first reading of a data set: everything is checked and counted before any work is done with it.

    rows ──▶ blocks of one part ──▶ checks, labels, tags ──▶ on to whoever wants them (a tokeniser that is fitted)

What the survey leaves: the labels of the training part in order, the schemes of tags, and how many rows each part has.
A set of moderate size is kept, so that the second reading needs no file.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from seqloom.config.data import PARTS, AnySplit, FoldSplit, Part, RandomSplit
from seqloom.data.checks.check import BLOCK_CHARACTERS, BLOCK_ROWS, Check, ExampleBlock, weight
from seqloom.data.checks.duplicates import RepeatCheck
from seqloom.data.checks.labels import LabelCheck
from seqloom.data.checks.texts import CharacterCheck, PairCheck
from seqloom.data.dataset import Dataset
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Schema
from seqloom.data.tags import READ_AS, Scheme, TagChecker, convert, spans
from seqloom.events import Progress
from seqloom.report.numbers import share

MOST_ROWS, MOST_CHARACTERS = 250_000, 2**25  # of a set that is kept for the second reading

Block = tuple[Part, list[Example]]


class Looker(Protocol):
    """Whoever sees every block of every part once: the checks, or a report with more than the checks."""

    def see(self, part: str, examples: Sequence[Example]) -> None:
        """Look at further examples of a part."""

    def finish(self, ledger: Ledger) -> None:
        """Write what was found; raise RejectedError where the data cannot be used."""


class Checks:
    """All cheap checks that make sense for a schema, fed together."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.checks: list[Check] = [CharacterCheck(), RepeatCheck(schema)]
        if schema.target.has_labels:
            self.checks.append(LabelCheck(schema))
        if schema.input.is_text and schema.target.is_text:
            self.checks.append(PairCheck())

    def see(self, part: str, examples: Sequence[Example]) -> None:
        """Look at further examples of a part."""
        if examples:
            block = ExampleBlock(part, examples, self.schema)
            for check in self.checks:
                check.see(block)

    def finish(self, ledger: Ledger) -> None:
        """Write all findings into the ledger; raise RejectedError where the data cannot be used."""
        for check in self.checks:
            check.finish(ledger)


class Survey:
    """One pass over a data set; what it found is known when `blocks` has come to its end."""

    def __init__(self, dataset: Dataset, ledger: Ledger, looker: Looker | None = None) -> None:
        self.dataset, self.ledger = dataset, ledger
        self.rows: Counter[Part] = Counter()
        self.labels: dict[Part, Counter[str]] = {part: Counter() for part in PARTS}
        self.schemes: dict[str, Scheme] = {}  # of the tags of each file
        self.written: dict[int, str] = {}  # inputs of rows of dev of which the vocabulary lacks something
        self._looker = looker or Checks(dataset.schema)
        self._tags: dict[str, TagChecker] = {}
        self._kept: list[Block] | None = []
        self._characters = 0

    def blocks(self) -> Iterator[Block]:
        """The examples in blocks of one part, all seen by the checks; RejectedError when they find the set unfit."""
        rows = self.dataset.rows(self.ledger)
        target = self.dataset.schema.target
        for part, block in _in_blocks(self._follow_tags(rows) if target.has_labels and target.of_steps else rows):
            self._see(part, block)
            yield part, block
        if not self.rows["train"]:
            place = Place(self.dataset.config.train[0])
            self.ledger.bad_file("data.no_train", "no row belongs to the training part", place, "look at the split")
        self._warn_of_uneven_parts()
        for path, checker in self._tags.items():
            before = next(iter(self.schemes.values()), None)
            self.schemes[path] = checker.finish(self.ledger, Place(path), before)
        self._looker.finish(self.ledger)

    def progress(self) -> Progress:
        """How far the reading is; the share is known where files are read whose size is."""
        size = self.dataset.size()
        share = min(1.0, self.ledger.bytes / size) if size and self.ledger.bytes else None
        return Progress("rows read", sum(self.rows.values()), part=share)

    def read(self) -> Iterator[Progress]:
        """How far it is while all blocks are seen by the checks, and by nobody else."""
        for _ in self.blocks():
            yield self.progress()

    def _follow_tags(self, rows: Iterator[tuple[Part, Example]]) -> Iterator[tuple[Part, Example]]:
        """The same rows, their tags seen in the order of the files, in which faults are told."""
        for part, example in rows:
            checker = self._tags.setdefault(example.place.path, TagChecker())
            checker.feed(cast(tuple[str, ...], example.target), example.place)
            yield part, example

    def _warn_of_uneven_parts(self) -> None:
        """Tell of parts that were to be drawn and came out empty, or far from their share because of groups."""
        split, shares = self.dataset.config.split, _drawn_shares(self.dataset.config.split, self.dataset.parts)
        total = self.rows["train"] + sum(self.rows[part] for part in shares)  # what is given as a file is not drawn
        place = Place(self.dataset.config.train[0])
        for part, wanted in shares.items():
            drawn = self.rows[part] / total
            if not drawn:
                text = f"no row fell to {part}, which was to have {share(wanted)} of {total:,}"
                self.ledger.warn("split.empty", text, place, f"give --{part}, or --shares")
            elif getattr(split, "group", None) is not None and abs(drawn - wanted) > wanted / 2:
                text = f"{part} has {share(drawn)} of the rows instead of {share(wanted)}, because groups stay together"
                self.ledger.warn("split.uneven", text, place, "another --split-seed, or smaller groups")

    def again(self) -> Iterator[Block]:
        """The same blocks once more, without checks: from memory if they were kept, else from the files."""
        blocks = self._kept if self._kept is not None else _in_blocks(self.dataset.rows(Ledger(self.ledger.bad_rows)))
        for part, block in blocks:
            yield part, [self._converted(example) for example in block] if self._convertible() else block

    def schema(self) -> Schema:
        """The schema with the labels of the training part: sorted, or for spans every tag that its types can have."""
        seen = self.labels["train"]
        scheme: Scheme = next(iter(self.schemes.values()), "plain")
        if scheme == "plain":
            return self.dataset.schema._replace(labels=tuple(sorted(seen)))
        types = sorted({span.label for tag in seen for span in spans([tag])})
        letters = "BI" if READ_AS[scheme] == "bio" else "BIES"
        tags = (f"{letter}-{kind}" for kind in types for letter in letters)
        return self.dataset.schema._replace(labels=("O", *tags))

    def _see(self, part: Part, block: list[Example]) -> None:
        self.rows[part] += len(block)
        self._looker.see(part, block)
        target = self.dataset.schema.target
        if target.has_labels:
            self.labels[part].update(label for example in block for label in target.labels(example.target))
        if self._kept is None:
            return
        self._kept.append((part, block))
        self._characters += sum(weight(example) for example in block)
        if sum(self.rows.values()) > MOST_ROWS or self._characters > MOST_CHARACTERS:
            self._kept = None

    def _convertible(self) -> bool:
        return any(READ_AS[scheme] != scheme for scheme in self.schemes.values())

    def _converted(self, example: Example) -> Example:
        scheme = self.schemes[example.place.path]
        if READ_AS[scheme] == scheme:
            return example
        return example._replace(target=convert(cast(tuple[str, ...], example.target), READ_AS[scheme]))


def _drawn_shares(split: AnySplit | None, parts: Sequence[Part]) -> dict[Part, float]:
    """The shares of the parts that are drawn from the training file and may be read, of the rows that may be read."""
    if isinstance(split, FoldSplit):
        return {"dev": 1 / split.folds}
    shares: dict[Part, float] = {"dev": split.dev, "test": split.test} if isinstance(split, RandomSplit) else {}
    seen = 1 - sum(share for part, share in shares.items() if part not in parts)
    return {part: share / seen for part, share in shares.items() if share and part in parts}


def _in_blocks(rows: Iterator[tuple[Part, Example]]) -> Iterator[Block]:
    """Rows gathered into blocks of one part each, closed by their number or by their size, whichever comes first."""
    waiting: defaultdict[Part, list[Example]] = defaultdict(list)
    sizes: Counter[Part] = Counter()
    for part, example in rows:
        block = waiting[part]
        block.append(example)
        sizes[part] += weight(example)
        if len(block) == BLOCK_ROWS or sizes[part] >= BLOCK_CHARACTERS:
            yield part, block
            del waiting[part], sizes[part]
    yield from waiting.items()
