"""Embed a file: stream its rows, keep their order, and resume after a stop.

    file ── checked ──▶ windows ── sorted by length ──▶ model ──▶ in order ──▶ stored shard by shard ──▶ joined

The same call after a kill resumes after the last complete shard, and ends with the same bytes as a run that was not
stopped: windows, batches and scales are the same. A different file, model or setting raises an error.
"""

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from seqloom.bundle import identity_of
from seqloom.config.options import strict
from seqloom.data.inputs import InputColumns
from seqloom.data.readers.files import fingerprint
from seqloom.errors import ConfigError, DataError
from seqloom.events import Progress, finished
from seqloom.files.disk import write_file
from seqloom.files.folders import sweep
from seqloom.files.lock import hold, remove_held
from seqloom.inference.as_trained import inputs_as_trained
from seqloom.inference.model import LoadedModel, load
from seqloom.search.embedding.output import (
    FORMAT,
    EmbeddingCard,
    FileWriter,
    Job,
    QuantizationLoss,
    Shards,
    VectorDtype,
    VectorFormat,
    card_of,
    differences,
    measure_loss,
    read_card,
    require_dtype,
    require_own_card,
    sample_rows,
    writer_for,
)
from seqloom.search.embedding.packed_linears import Precision, require_precision
from seqloom.search.embedding.windows import (
    CheckedSource,
    EmbeddingNote,
    FailedRow,
    InputSource,
    Row,
    Window,
    WindowVectors,
    WorkerSetup,
    local_engine,
    num_threads,
)

SUFFIX = ".work"  # suffix of the folder of unfinished work
ENOUGH = 1_024  # vectors that the scale of int8 is computed from, or all if there are fewer

# computes the vectors of windows, in order
Engine = Callable[[WorkerSetup, LoadedModel, Iterable[Window]], Iterator[WindowVectors]]


class EmbeddedFile(NamedTuple):
    """What `embed_file` wrote.

    Attributes:
        path: The file of vectors.
        rows: The number of rows, also those without a vector.
        width: The number of dimensions.
        bad: Rows without a vector, with the reason.
        notes: Warnings, such as truncated texts, with their counts.
        loss: What quantization cost; None for float32.
    """

    path: Path
    rows: int
    width: int
    bad: tuple[FailedRow, ...]
    notes: tuple[EmbeddingNote, ...]
    loss: QuantizationLoss | None


Embedding = Generator[CheckedSource | Progress, None, EmbeddedFile]  # what the file contains, then progress


@strict
def embed_file(
    model: LoadedModel | str | Path,
    source: InputSource | str | Path,
    out: str | Path,
    *,
    input: str | None = None,  # the name of the option
    dtype: VectorDtype = "float32",
    precision: Precision = "float32",
    skip_bad_rows: bool = False,
    batch_tokens: int | None = None,
    engine: Engine = local_engine,
) -> EmbeddedFile:
    """Compute the vector of every row of a file, in order; call it again to resume.

    Args:
        model: A loaded model, or the folder of a run or model.
        source: The file of inputs; a file of the same format is read as the run of the model read its data.
        out: The file to write, .npy or .parquet.
        input: The input column (default: that of the training data, or found by name).
        dtype: How numbers are stored: "float32", "float16", "int8" or "binary".
        precision: What the model computes in: "float32" or "int8".
        skip_bad_rows: Leave rows that cannot be read without a vector, instead of raising RejectedError.
        batch_tokens: Tokens in one batch (default: 1,024 on a CPU, 8,192 elsewhere).
        engine: Where windows are computed; `seqloom.search.embedding.ray_cluster.ray_engine` for a Ray cluster.
    """
    loaded = model if isinstance(model, LoadedModel) else load(model)
    if not isinstance(source, InputSource):
        columns = InputColumns(() if input is None else (input,), loaded.columns, trained_id=loaded.id_column)
        labels, trained = loaded.spec.schema.labels, () if input else loaded.columns
        read = inputs_as_trained(loaded.run, Path(source), {}, trained, loaded.id_column, labels)
        source = InputSource(Path(source), columns, read.config, skip_bad_rows)
    work = embedding_steps(
        loaded, source, Path(out), dtype=dtype, precision=precision, batch_tokens=batch_tokens, engine=engine
    )
    return finished(work)


def embedding_steps(
    loaded: LoadedModel,
    source: InputSource,
    out: Path,
    *,
    dtype: str = "float32",
    precision: Precision = "float32",
    batch_tokens: int | None = None,
    engine: Engine = local_engine,
) -> Embedding:
    """Do the same as `embed_file`, as a generator that yields progress."""
    written = writer_for(out)
    numbers = VectorFormat(require_dtype(dtype), loaded.vector_size)
    require_precision(loaded, precision)
    if out.absolute() == source.path.absolute():
        raise ConfigError(f"{out} is the input file, which the vectors would replace", fix="choose another name")
    require_own_card(out)
    tokens = batch_tokens or loaded.vector_budget
    setup = WorkerSetup(str(loaded.path), str(loaded.device), precision, tokens, source.skip_bad_rows, num_threads())
    checked = source.checked(loaded.task.input_spec.schema.input)
    yield checked
    job = Job(
        format=FORMAT,
        source=checked.sha256,
        rows=checked.rows,
        model=identity_of(loaded.path),
        width=numbers.width,
        dtype=numbers.dtype,
        precision=setup.precision,
        batch_tokens=setup.batch_tokens,
        device=loaded.device.type,
        threads=setup.threads,
    )
    work = out.with_name(out.name + SUFFIX)
    shards = Shards(work, job)
    shards.require_own()
    card = _done_card(out, job)
    if card is None:
        with hold(work):
            yield from _filled(shards, numbers, source, loaded, setup, engine)
            card = _joined(shards, out, written)
            remove_held(work)  # while it is held, so that the next process starts with a new folder
    elif shards.is_begun():
        with hold(work):
            remove_held(work)
    for path in (out, card_of(out), work):
        sweep(out.absolute().parent, name=path.name)  # leftovers of killed processes
    return EmbeddedFile(out, card.job.rows, card.job.width, card.bad, card.notes, card.loss)


def _done_card(out: Path, job: Job) -> EmbeddingCard | None:
    """Return the card of the output if this job wrote it; ConfigError if something else has its name."""
    if not out.exists():
        return None
    card = read_card(out)
    if card is None:
        raise ConfigError(
            f"{out} already exists and was not written by seqloom embed", fix="choose another name, or delete it"
        )
    # the number of threads matters for resuming, not for finished output
    if msgspec.structs.replace(card.job, threads=job.threads) != job:
        found = differences(card.job, job)
        raise ConfigError(
            f"{out} already exists, made with other settings: {found}", fix="choose another name, or delete it"
        )
    if card.sha256 != fingerprint(out).sha256:
        fix = "delete it, and run the command again"
        raise ConfigError(f"{out} is damaged or was changed: its checksum differs", fix=fix)
    return card


def _filled(
    shards: Shards, numbers: VectorFormat, source: InputSource, loaded: LoadedModel, setup: WorkerSetup, engine: Engine
) -> Iterator[Progress]:
    """Compute the missing shards."""
    sweep(shards.folder)
    done, total = shards.begin(), shards.job.rows
    numbers = shards.numbers() if done else numbers
    yield Progress("rows", done, total, kept=done)
    if done == total:
        return
    windows = engine(setup, loaded, _works(source.windows(loaded.task.input_spec.schema.input), done, total))
    waiting: list[WindowVectors] = []  # the first windows, until there are enough vectors for a scale
    while not numbers.is_fitted and sum(len(one.vectors) - len(one.bad) for one in waiting) < ENOUGH:
        if (first := next(windows, None)) is None:
            break
        waiting.append(first)
    if waiting:
        numbers = numbers.fitted(np.concatenate([one.vectors for one in waiting]))
    for made in chain(waiting, windows):
        shards.add(made, numbers)
        done = made.start + len(made.vectors)
        yield Progress("rows", done, total, kept=done)
    if done != total:
        raise DataError(
            f"{source.path} changed while it was read: it had {total:,} rows and now has {done:,}",
            fix="run the command again when the file no longer changes",
        )


def _works(windows: Iterable[list[Row]], done: int, total: int) -> Iterator[Window]:
    """Yield the windows that are not done, numbered by their rows."""
    start = 0
    for window in windows:
        stop = start + len(window)
        if start >= done:
            yield Window(start, window, sample_rows(total, start, stop) - start)
        start = stop


def _joined(shards: Shards, out: Path, written: FileWriter) -> EmbeddingCard:
    """Write the card, then the vectors, so that vectors never exist without a card."""
    job, numbers = shards.job, shards.numbers()
    bad, notes = list[FailedRow](), dict[str, EmbeddingNote]()  # one note per code, with its total
    exact, kept = list[np.ndarray](), list[np.ndarray]()
    for record, vectors, sample in shards:
        bad += record.bad
        for note in record.notes:
            times = notes[note.code].times if note.code in notes else 0
            notes[note.code] = notes.get(note.code, note)._replace(times=times + note.times)
        exact.append(sample)
        kept.append(numbers.decoded(vectors[sample_rows(job.rows, record.start, record.stop) - record.start]))
    as_computed = job.dtype == job.precision == "float32"  # then nothing is lost
    loss = None if as_computed else measure_loss(np.concatenate(exact), np.concatenate(kept))
    scale = None if numbers.scale is None else numbers.scale.tolist()
    digest = hashlib.sha256()
    for piece in written(shards, numbers, job.rows):
        digest.update(piece)
    card = EmbeddingCard(job, scale, tuple(bad), tuple(notes.values()), loss, digest.hexdigest())
    write_file(card_of(out), msgspec.json.format(msgspec.json.encode(card)))
    write_file(out, written(shards, numbers, job.rows))
    return card
