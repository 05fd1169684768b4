"""The first pass over a dataset: all rows are checked and counted before anything is encoded.

    rows ──▶ blocks of one split ──▶ checks, labels, tags ──▶ the caller (which fits a tokenizer, for example)

The survey collects the labels of the training set, the tag scheme of each file and the number of rows of each split. A
small dataset is kept in memory, so that further passes need no file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, cast

from seqloom.config.data import ANY_ROWS, SPLITS, AnySplit, FoldSplit, RandomSplit, SplitName
from seqloom.data.checks.check import BLOCK_CHARACTERS, BLOCK_ROWS, Check, ExampleBlock, weight_of
from seqloom.data.checks.duplicates import RepeatCheck
from seqloom.data.checks.labels import LabelCheck, counted_labels
from seqloom.data.checks.texts import CharacterCheck, PairCheck
from seqloom.data.dataset import Dataset, SplitBlock
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Examples, Schema
from seqloom.data.tags import READ_AS, Scheme, TagChecker, convert, spans
from seqloom.events import Progress
from seqloom.report.numbers import counted, share

MOST_ROWS, MOST_CHARACTERS = 250_000, 2**25  # of a dataset that is kept for further passes

Block = tuple[SplitName, Examples]


class ExampleObserver(Protocol):
    """Receives every block of every split once: the checks, or the data report."""

    def update(self, split: str, examples: Examples) -> None:
        """Add more examples of a split."""

    def finish(self, ledger: Ledger) -> None:
        """Write all findings to the ledger; raise RejectedError if the data cannot be used."""


class Checks:
    """All checks that apply to a schema and run before every training."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.checks: list[Check] = [CharacterCheck(), RepeatCheck(schema)]
        if schema.target.has_labels:
            self.checks.append(LabelCheck(schema))
        if schema.input.is_text and schema.target.is_text:
            self.checks.append(PairCheck())

    def update(self, split: str, examples: Sequence[Example]) -> None:
        """Add more examples of a split."""
        if examples:
            block = ExampleBlock(split, examples, self.schema)
            for check in self.checks:
                check.update(block)

    def finish(self, ledger: Ledger) -> None:
        """Write all findings to the ledger; raise RejectedError if the data cannot be used."""
        for check in self.checks:
            check.finish(ledger)


class Survey:
    """The first pass over a dataset; its results are complete when `blocks` is exhausted."""

    def __init__(self, dataset: Dataset, ledger: Ledger, observer: ExampleObserver | None = None) -> None:
        self.dataset, self.ledger = dataset, ledger
        ledger.format = dataset.config.reading.format  # also if it was inferred
        self.rows: Counter[SplitName] = Counter()
        self.labels: dict[SplitName, Counter[str]] = {part: Counter() for part in SPLITS}
        self.schemes: dict[str, Scheme] = {}  # the tag scheme of each file
        self._observer = observer or Checks(dataset.schema)
        self._tags: dict[str, TagChecker] = {}
        self._kept: list[Block] | None = []
        self._characters = 0
        self._is_complete = False
        self._size: int | None = None  # of the files, in bytes

    def blocks(self) -> Iterator[Block]:
        """Yield the examples in blocks of one split; raise RejectedError if the checks reject the data.

        The checks see them once. For the tokenizer of another encoding they are yielded `again`.
        """
        if self._is_complete:
            yield from self.again()
            return
        rows = self.dataset.blocks(self.ledger)
        target = self.dataset.schema.target
        for part, block in in_blocks(self._follow_tags(rows) if target.has_labels and target.of_steps else rows):
            self._update(part, block)
            yield part, block
        if not self.rows["train"]:
            place = Place(self.dataset.config.train[0])
            self.ledger.bad_file("data.no_train", "no row is in the training set", place, "check the split")
        self._warn_of_uneven_splits()
        for path, checker in self._tags.items():
            before = next(iter(self.schemes.values()), None)
            self.schemes[path] = checker.finish(self.ledger, Place(path), before)
        self._observer.finish(self.ledger)
        self._is_complete = True

    def progress(self) -> Progress:
        """The rows read so far, and their share of the files if the size is known."""
        size = self._size = self.dataset.size() if self._size is None else self._size
        share = min(1.0, self.ledger.bytes / size) if size and self.ledger.bytes else None
        return Progress("rows read", sum(self.rows.values()), part=share)

    def read(self) -> Iterator[Progress]:
        """Run the checks on all blocks, and yield the progress."""
        for _ in self.blocks():
            yield self.progress()

    def _follow_tags(self, blocks: Iterator[SplitBlock]) -> Iterator[SplitBlock]:
        """Yield the same rows, and check their tags in the order of the files."""
        for block in blocks:
            for example in block.examples:
                checker = self._tags.setdefault(example.place.path, TagChecker())
                checker.feed(cast(tuple[str, ...], example.target), example.place)
            yield block

    def _warn_of_uneven_splits(self) -> None:
        """Warn of random splits that are empty, or far from the requested size because of groups."""
        split, shares = self.dataset.config.split, _drawn_shares(self.dataset.config.split, self.dataset.splits)
        total = self.rows["train"] + sum(self.rows[part] for part in shares)  # without splits given as files
        place = Place(self.dataset.config.train[0])
        for part, wanted in shares.items():
            drawn = self.rows[part] / total
            if not drawn:
                text = f"{part} is empty; it should have {share(wanted)} of {counted(total, 'row')}"
                self.ledger.warn("split.empty", text, place, f"give a file with --{part}, or raise --{part}-size")
            elif getattr(split, "group", None) is not None and abs(drawn - wanted) > wanted / 2:
                text = f"{part} has {share(drawn)} of the rows instead of {share(wanted)}, because groups stay together"
                self.ledger.warn("split.uneven", text, place, "try another --split-seed, or smaller groups")

    def again(self) -> Iterator[Block]:
        """Yield the same blocks again, without checks: from memory if they were kept, else from the files."""
        blocks = self._kept if self._kept is not None else in_blocks(self.dataset.blocks(Ledger(ANY_ROWS)))
        for part, block in blocks:
            yield part, Examples.of(map(self._converted, block)) if self._convertible() else block

    def schema(self) -> Schema:
        """The schema with the labels of the training set, sorted; for span tags, all tags of the types found."""
        seen = self.labels["train"]
        scheme: Scheme = next(iter(self.schemes.values()), "plain")
        if scheme == "plain":
            return self.dataset.schema._replace(labels=tuple(sorted(seen)))
        types = sorted({span.label for tag in seen for span in spans([tag])})
        letters = "BI" if READ_AS[scheme] == "bio" else "BIES"
        tags = (f"{letter}-{kind}" for kind in types for letter in letters)
        return self.dataset.schema._replace(labels=("O", *tags))

    def _update(self, part: SplitName, block: Examples) -> None:
        self.rows[part] += len(block)
        self._observer.update(part, block)
        target = self.dataset.schema.target
        if target.has_labels:
            self.labels[part].update(counted_labels(block.targets, target))
        if self._kept is None:
            return
        self._kept.append((part, block))
        self._characters += weight_of(block)
        if sum(self.rows.values()) > MOST_ROWS or self._characters > MOST_CHARACTERS:
            self._kept = None

    def _convertible(self) -> bool:
        return any(READ_AS[scheme] != scheme for scheme in self.schemes.values())

    def _converted(self, example: Example) -> Example:
        scheme = self.schemes[example.place.path]
        if READ_AS[scheme] == scheme:
            return example
        return example._replace(target=convert(cast(tuple[str, ...], example.target), READ_AS[scheme]))


def _drawn_shares(split: AnySplit | None, parts: Sequence[SplitName]) -> dict[SplitName, float]:
    """The shares of the splits that are drawn from the training file, among the rows that may be read."""
    if isinstance(split, FoldSplit):
        return {"dev": 1 / split.folds}
    shares: dict[SplitName, float] = (
        {"dev": split.dev_size, "test": split.test_size} if isinstance(split, RandomSplit) else {}
    )
    seen = 1 - sum(share for part, share in shares.items() if part not in parts)
    return {part: share / seen for part, share in shares.items() if share and part in parts}


def in_blocks(given: Iterable[SplitBlock]) -> Iterator[Block]:
    """Yield blocks of rows of one split each, limited by the number of rows and by their size."""
    waiting: dict[SplitName, Examples] = {}
    sizes: Counter[SplitName] = Counter()
    for block in given:
        for splits, examples in _fitting(block, waiting, sizes):
            for part in dict.fromkeys(splits):
                own = examples if splits.count(part) == len(splits) else examples.where([one == part for one in splits])
                sizes[part] += weight_of(own)
                waiting.setdefault(part, Examples.of(())).extend(own)
                if len(waiting[part]) == BLOCK_ROWS or sizes[part] >= BLOCK_CHARACTERS:
                    yield part, waiting.pop(part)
                    del sizes[part]
    yield from waiting.items()


def _fitting(
    block: SplitBlock, waiting: Mapping[SplitName, Examples], sizes: Mapping[SplitName, int]
) -> Iterator[SplitBlock]:
    """Yield the rows in blocks of one row, or before whose last row no block of a split is complete."""
    splits, examples = block
    fullest = max((len(waiting[part]) for part in {*splits} & waiting.keys()), default=0)
    largest = max((sizes[part] for part in {*splits}), default=0)
    if len(splits) == 1 or (fullest + len(splits) <= BLOCK_ROWS and largest + weight_of(examples) < BLOCK_CHARACTERS):
        yield block
        return
    half = len(splits) // 2
    for some in (slice(half), slice(half, None)):
        if splits[some]:
            yield from _fitting(SplitBlock(splits[some], examples[some]), waiting, sizes)
