"""A file of inputs becomes a file of vectors: streamed, in order, and gone on with where it was stopped.

    file ── checked ──▶ windows ── sorted by length ──▶ model ──▶ in order ──▶ kept segment by segment ──▶ joined

The same call after a kill goes on behind the last segment that is whole, and ends with the bytes of a run that was not
stopped: windows, batches and scales are the same. Another file, model or setting is refused.
"""

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from seqloom.bundle import identity_of
from seqloom.config.data import ReadingConfig
from seqloom.data.inputs import InputColumns
from seqloom.data.readers.files import fingerprint
from seqloom.errors import ConfigError, DataError
from seqloom.events import Progress, finished
from seqloom.files.disk import write_file
from seqloom.files.folders import sweep
from seqloom.files.lock import hold, remove_held
from seqloom.inference.model import LoadedModel, load
from seqloom.search.embedding.output import (
    FORMAT,
    EmbeddingCard,
    Job,
    Kind,
    Numbers,
    QuantizationLoss,
    Segments,
    Written,
    card_of,
    differences,
    form_of,
    measured,
    read_card,
    require_kind,
    require_own_card,
    sampled,
)
from seqloom.search.embedding.packed_linears import Precision, require_precision
from seqloom.search.embedding.windows import (
    Bad,
    CheckedSource,
    InputSource,
    Note,
    Row,
    Setup,
    WindowVectors,
    Work,
    here,
    threads,
)

SUFFIX = ".work"  # of the folder of unfinished work
ENOUGH = 1_024  # rows with a vector that the scale of int8 is taken from, or all there are

# what comes of windows, in their order
Engine = Callable[[Setup, LoadedModel, Iterable[Work]], Iterator[WindowVectors]]


class Finished(NamedTuple):
    """What is in the file that was written."""

    path: Path
    rows: int
    width: int
    bad: tuple[Bad, ...]  # rows without a vector
    notes: tuple[Note, ...]
    loss: QuantizationLoss | None  # of vectors that are not kept, or not computed, in float32


Embedding = Generator[CheckedSource | Progress, None, Finished]  # what is in the file, and then how far it is


def embed_file(
    model: LoadedModel | str | Path,
    source: InputSource | str | Path,
    out: str | Path,
    *,
    input: str | None = None,  # the name of the option
    kept_as: Kind = "float32",
    precision: Precision = "float32",
    bad_rows: str = "strict",
    budget: int | None = None,
    engine: Engine = here,
) -> Finished:
    """What was written: the vector of every row of a file, in order, in `out` (.npy or .parquet).

    `kept_as` is how numbers are kept, `precision` what the model computes in. Rows that cannot be read are refused, or
    with bad_rows="skip" have a place without a vector.
    """
    loaded = model if isinstance(model, LoadedModel) else load(model)
    if not isinstance(source, InputSource):
        if bad_rows not in ("strict", "skip"):
            raise ConfigError(f"bad_rows {bad_rows!r}", fix="choose from strict, skip")
        columns = InputColumns(() if input is None else (input,), loaded.columns)
        source = InputSource(Path(source), columns, ReadingConfig(), bad_rows == "skip")
    work = embedding(loaded, source, Path(out), kept_as=kept_as, precision=precision, budget=budget, engine=engine)
    return finished(work)


def embedding(
    loaded: LoadedModel,
    source: InputSource,
    out: Path,
    *,
    kept_as: str = "float32",
    precision: Precision = "float32",
    budget: int | None = None,
    engine: Engine = here,
) -> Embedding:
    """The same as work that tells how far it is."""
    written = form_of(out)
    numbers = Numbers(require_kind(kept_as), loaded.vector_size)
    require_precision(loaded, precision)
    if out.absolute() == source.path.absolute():
        raise ConfigError(f"{out} is the input itself, which the vectors would replace", fix="another name")
    require_own_card(out)
    symbols = budget or loaded.vector_budget
    setup = Setup(str(loaded.path), str(loaded.device), precision, symbols, source.skip, threads())
    checked = source.checked(loaded.task.asked.schema.input)
    yield checked
    job = Job(
        format=FORMAT,
        source=checked.sha256,
        rows=checked.rows,
        model=identity_of(loaded.path),
        width=numbers.width,
        kept_as=numbers.kind,
        precision=setup.precision,
        budget=setup.budget,
        device=loaded.device.type,
        threads=setup.threads,
    )
    work = out.with_name(out.name + SUFFIX)
    segments = Segments(work, job)
    segments.require_own()
    card = _done_card(out, job)
    if card is None:
        with hold(work):
            yield from _filled(segments, numbers, source, loaded, setup, engine)
            card = _joined(segments, out, written)
            remove_held(work)  # while it is held: the next holder has a folder of its own
    elif segments.is_begun():
        with hold(work):
            remove_held(work)
    for path in (out, card_of(out), work):
        sweep(out.absolute().parent, name=path.name)  # what kills have left
    return Finished(out, card.job.rows, card.job.width, card.bad, card.notes, card.loss)


def _done_card(out: Path, job: Job) -> EmbeddingCard | None:
    """The card of the output of this very job, if it is there; ConfigError for anything else of its name."""
    if not out.exists():
        return None
    card = read_card(out)
    if card is None:
        raise ConfigError(f"{out} is there, and no job of ours made it", fix="choose another name, or delete it")
    # threads decide what is gone on with, not what is done
    if msgspec.structs.replace(card.job, threads=job.threads) != job:
        found = differences(card.job, job)
        raise ConfigError(f"{out} is there, made from something else: {found}", fix="choose another name, or delete it")
    if card.sha256 != fingerprint(out).sha256:
        fix = "delete it, and give the command again"
        raise ConfigError(f"{out} is not what was written: it is damaged, or was changed", fix=fix)
    return card


def _filled(
    segments: Segments, numbers: Numbers, source: InputSource, loaded: LoadedModel, setup: Setup, engine: Engine
) -> Iterator[Progress]:
    """Add segments behind those that are there."""
    sweep(segments.folder)
    done, total = segments.begin(), segments.job.rows
    numbers = segments.numbers() if done else numbers
    yield Progress("rows", done, total, kept=done)
    if done == total:
        return
    windows = engine(setup, loaded, _works(source.windows(loaded.task.asked.schema.input), done, total))
    waiting: list[WindowVectors] = []  # the first ones, until there are enough vectors for a scale
    while not numbers.is_fitted and sum(len(one.vectors) - len(one.bad) for one in waiting) < ENOUGH:
        if (first := next(windows, None)) is None:
            break
        waiting.append(first)
    if waiting:
        numbers = numbers.fitted(np.concatenate([one.vectors for one in waiting]))
    for made in chain(waiting, windows):
        segments.add(made, numbers)
        done = made.start + len(made.vectors)
        yield Progress("rows", done, total, kept=done)
    if done != total:
        raise DataError(f"{source.path} had {total:,} rows, and now has {done:,}", fix="begin again when it is at rest")


def _works(windows: Iterable[list[Row]], done: int, total: int) -> Iterator[Work]:
    """The windows that are not done, numbered by their rows."""
    start = 0
    for window in windows:
        stop = start + len(window)
        if start >= done:
            yield Work(start, window, sampled(total, start, stop) - start)
        start = stop


def _joined(segments: Segments, out: Path, written: Written) -> EmbeddingCard:
    """Write what is done, the card first, so that vectors never stand without it."""
    job, numbers = segments.job, segments.numbers()
    bad, notes = list[Bad](), dict[str, Note]()  # one for each code, with the number of all of them
    exact, kept = list[np.ndarray](), list[np.ndarray]()
    for told, vectors, sample in segments:
        bad += told.bad
        for note in told.notes:
            times = notes[note.code].times if note.code in notes else 0
            notes[note.code] = notes.get(note.code, note)._replace(times=times + note.times)
        exact.append(sample)
        kept.append(numbers.decoded(vectors[sampled(job.rows, told.start, told.stop) - told.start]))
    as_computed = job.kept_as == job.precision == "float32"  # then nothing is lost
    loss = None if as_computed else measured(np.concatenate(exact), np.concatenate(kept))
    scale = None if numbers.scale is None else numbers.scale.tolist()
    digest = hashlib.sha256()
    for piece in written(segments, numbers, job.rows):
        digest.update(piece)
    card = EmbeddingCard(job, scale, tuple(bad), tuple(notes.values()), loss, digest.hexdigest())
    write_file(card_of(out), msgspec.json.format(msgspec.json.encode(card)))
    write_file(out, written(segments, numbers, job.rows))
    return card
