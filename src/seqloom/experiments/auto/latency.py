"""The latency of one prediction of each candidate, measured after the last decision of a race.

FOLDER/latency.json has the median milliseconds by run. A number is measured once and never again: a race that is
resumed, or continued with more minutes, keeps it, also after the weights of the run are removed. When the race has
taken too long, no further run is measured.
"""

from collections.abc import Iterable

import msgspec

from seqloom.errors import DamagedError
from seqloom.experiments.auto.plan import AutoPlan, Entry, resolved_run
from seqloom.experiments.auto.record import RaceRecord
from seqloom.experiments.auto.runs import run_folder
from seqloom.experiments.compare.costs import measure_latency
from seqloom.files.disk import write_file
from seqloom.files.layouts import RunFile
from seqloom.inference.model import load

LATENCY = "latency.json"


def read_latencies(plan: AutoPlan) -> dict[str, float]:
    """The latency of each measured run, by its name."""
    path = plan.folder / LATENCY
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, float])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedError(
            f"{path} cannot be read ({error})", fix="delete it, and run the same command; latencies may be missing"
        ) from error


def measure_latencies(plan: AutoPlan, entries: Iterable[Entry], record: RaceRecord) -> None:
    """Measure the runs that have weights and no latency yet, and write the latencies."""
    known = read_latencies(plan)
    for entry in entries:
        if record.is_over():
            return
        folder = run_folder(plan, entry)
        if entry.name not in known and (folder / RunFile.MODEL).is_dir():
            resolved = resolved_run(plan, entry)
            device = plan.chosen_device(resolved.config.training.precision)
            model = load(folder, device=device.torch)
            known[entry.name] = round(measure_latency(model, resolved.prepared, "dev"), 4)
            write_file(plan.folder / LATENCY, msgspec.json.encode(known))
            record.keep_time()
