"""Scores against dependency distance: the same comparison on synthetic data with longer and longer distances.

    copy           which token was shown `distance` steps ago?
    copy_memory    ten tokens, to be repeated after `delay` steps

Each distance is a separate comparison in DIR/distance-100: trained and evaluated on that distance. A recurrent layer
must carry the information through every step in between; attention reaches it in one step and reads all steps in
parallel. So the time per token is shown as well.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from seqloom.config.data import SPLITS, DataConfig, GivenSplit
from seqloom.data.schema import Example, Schema
from seqloom.data.synthetic.registry import NAMES
from seqloom.data.synthetic.set import SyntheticSet
from seqloom.errors import ConfigError
from seqloom.experiments.compare.comparison import run_comparison
from seqloom.experiments.compare.plan import ComparisonEnded, ComparisonPlan, ComparisonReport
from seqloom.experiments.compare.results import Comparison
from seqloom.files.disk import make_folder, write_file
from seqloom.report.document import Bullets, Document, Pictures, Shown, TableBlock
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.numbers import counted, estimate

FAR = ("distance", "delay")  # parameters of synthetic sets that set the distance


class Distances(Shown, msgspec.Struct, frozen=True):
    """A comparison at each of several distances, the shortest first."""

    data: str
    distances: tuple[int, ...]
    comparisons: tuple[Comparison, ...]

    def figures(self) -> list[Figure]:
        """Score and time per token of every model against distance."""
        first, scores, times = self.comparisons[0], list[Series](), list[Series]()
        for name in (one.name for one in first.models):
            found = [(one.model(name), one.mean_length) for one in self.comparisons]
            cost = [None if one.cost is None else 1000 * one.cost.latency.median / tokens for one, tokens in found]
            scores.append(Series(name=name, x=self.distances, y=[one.score.value for one, _ in found]))
            times.append(Series(name=name, x=self.distances, y=cost))
        return [
            Line(title=f"{first.metric} against distance", series=scores, x_label="distance"),
            Line(title="Microseconds per token", series=times, x_label="distance", y_axis="log"),
        ]

    def document(self) -> Document:
        """The result of each distance, the score of each model at each distance, and the figures."""
        pairs = list(zip(self.distances, self.comparisons, strict=True))
        rows = [
            [name, *(estimate(score.value, (score.low, score.high)) for score in scores)]
            for name in sorted(one.name for one in self.comparisons[0].models)
            for scores in [[one.model(name).score for one in self.comparisons]]
        ]
        return Document(
            f"{self.data} at {counted(len(self.distances), 'distance')}",
            [
                Bullets([f"distance {far:,}: {one.sentence()}" for far, one in pairs]),
                TableBlock(["", *(f"distance {far:,}" for far in self.distances)], rows),
                Pictures(self.figures()),
            ],
        )


def run_distances(
    plan: ComparisonPlan, distances: Sequence[int], jobs: int = 1, *, rows: int | None = None
) -> Iterator[ComparisonReport | Distances]:
    """The events of a comparison at each distance; the last item is the `Distances`, unless it was stopped.

    Args:
        plan: the comparison.
        distances: the distances.
        jobs: runs at the same time.
        rows: rows of the training set (default: that of the synthetic set); dev and test sets have a tenth.
    """
    source, parameter = far_set(plan.data)
    ordered, found = sorted(set(distances)), list[Comparison]()
    for far in ordered:
        folder = plan.folder / f"distance-{far}"
        data = _written(source, {parameter: far}, folder / "data", rows)
        report: ComparisonReport | None = None
        for report in run_comparison(msgspec.structs.replace(plan, data=data, out=str(folder)), jobs):
            yield report
        assert isinstance(report, ComparisonEnded), "the last report"
        if report.comparison is None:
            return
        found.append(report.comparison)
    results = Distances(source.name, tuple(ordered), tuple(found))
    plan.write(results)
    yield results


def far_set(data: DataConfig) -> tuple[SyntheticSet, str]:
    """The synthetic set and its distance parameter; ConfigError for other data."""
    source = NAMES.get(data.train[0])
    parameter = next((name for name in FAR if source is not None and name in source.parameters), None)
    if source is None or parameter is None:
        able = [name for name, one in NAMES.items() if set(FAR) & set(one.parameters)]
        raise ConfigError(f"{data.train[0]} has no distance parameter", fix=f"use {' or '.join(able)}")
    return source, parameter


def _written(source: SyntheticSet, settings: dict[str, int], folder: Path, rows: int | None) -> DataConfig:
    """Write the files of a set at one distance; existing files are kept if they have as many rows."""
    make_folder(folder)
    paths = {part: folder / f"{part}.jsonl" for part in SPLITS}
    for part, path in paths.items():
        usual: int = getattr(source.sizes, part)
        count = usual if rows is None else rows if part == "train" else max(1, rows // 10)
        examples = source.examples(part, count=count, **settings)  # raises for an impossible distance
        if not path.exists():
            write_file(path, (msgspec.json.encode(_row(source.schema, example)) + b"\n" for example in examples))
            continue
        with path.open("rb") as lines:
            found = sum(1 for _ in lines)
        if found != count:
            raise ConfigError(f"{path} has {found:,} rows, but {count:,} are requested", fix="give another --out")
    train, dev, test = ((str(paths[part]),) for part in ("train", "dev", "test"))
    return DataConfig(train=train, dev=dev, test=test, task=source.task, split=GivenSplit())


def _row(schema: Schema, example: Example) -> dict[str, object]:
    (text,) = schema.input.texts(example.input)
    if schema.input.in_words:
        return {"tokens": text.split(" "), "tags": list(schema.target.labels(example.target))}
    return {"text": text, "label": example.target}
