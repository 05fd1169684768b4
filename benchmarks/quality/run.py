"""Train and evaluate experiments, several runs at a time; run the same command again to resume.

    SEQLOOM_DATA=DATA python benchmarks/quality/run.py ptb-650 sst2-cnn --seeds 0,1,2 --jobs 4 --out OUT
    python benchmarks/quality/run.py --out OUT --table

Each run has a run folder OUT/EXPERIMENT-SEED. A result is a line of OUT/results.jsonl: experiment, seed, split, all
metrics, seconds of training, machine, commands and commit. `--seconds` interrupts runs that are still training after
that time: they save, and the same command resumes them. `--dev` evaluates on the dev set instead, to choose settings.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from prepare_data import prepare_data

from experiments import EXPERIMENTS, Experiment

HERE = Path(__file__).parent


def main(given: list[str] | None = None) -> None:
    """Run experiments, or print the table of results."""
    arguments = _arguments(given)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        sys.stdout.write(table(arguments.out) + "\n")
        return
    unknown = [name for name in arguments.names if name not in EXPERIMENTS]
    if unknown:
        sys.exit(f"unknown experiment {unknown[0]}; choose from {', '.join(EXPERIMENTS)}")
    places = {"data": os.environ["SEQLOOM_DATA"], "glove": os.environ.get("SEQLOOM_GLOVE", "glove.txt")}
    places |= {"models": str(HERE / "models"), "made": str(prepare_data(arguments.out))}
    jobs = [(name, seed) for name in arguments.names for seed in map(int, arguments.seeds.split(","))]
    until = time.monotonic() + arguments.seconds
    with ThreadPoolExecutor(arguments.jobs) as pool:
        done = pool.map(lambda job: one(*job, places, arguments, until), jobs)
        for line in done:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def one(name: str, seed: int, places: dict[str, str], arguments: argparse.Namespace, until: float) -> str:
    """Train a run until it is done or time is up, then evaluate it; returns a line about the result."""
    experiment, folder = EXPERIMENTS[name], arguments.out / f"{name}-{seed}"
    split = "dev" if arguments.dev or "--split test" not in experiment.evaluate else "test"
    if any((one["experiment"], one["seed"], one["split"]) == (name, seed, split) for one in results(arguments.out)):
        return f"{name} {seed}: {split} was evaluated before"
    if time.monotonic() > until:
        return f"{name} {seed}: not started"
    where = ["--device", arguments.device]
    command = ["train", *filled(experiment.train, places), "--out", str(folder), "--seed", str(seed), *where]
    code, _, messages = call(command, until)
    if code == 130:
        return f"{name} {seed}: interrupted, {messages.strip().splitlines()[-1]}"
    if code:
        return f"{name} {seed}: training failed with exit code {code}: {messages[-1500:]}"
    options = experiment.evaluate.replace("--split test", "" if arguments.dev else "--split test")
    code, out, messages = call(
        ["evaluate", str(folder), *shlex.split(options), "--json", *where], time.monotonic() + 3_600
    )
    if code:
        return f"{name} {seed}: evaluation failed with exit code {code}: {messages[-1500:]}"
    found = json.loads(out)
    record = {"experiment": name, "seed": seed, "split": found["split"], "metrics": found["metrics"]}
    record |= {"seconds": trained(folder), "machine": machine(arguments.device), "commit": arguments.commit}
    record |= {"train": f"seqloom train {experiment.train}", "evaluate": f"seqloom evaluate RUN {options}"}
    with (arguments.out / "results.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    value = experiment.scale * found["metrics"][experiment.metric]
    return f"{name} {seed}: {found['split']} {experiment.metric} {value:.4g}"


def results(out: Path) -> list[dict[str, Any]]:
    """Return all results so far; a run with a result is not evaluated again, so no test set is used twice."""
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def trained(folder: Path) -> float:
    """Return the seconds of training of a run, over all of its starts."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return round(next(one["speed"]["seconds"] for one in reversed(events) if one["kind"] == "end"), 1)


def filled(command: str, places: dict[str, str]) -> list[str]:
    """Split a command and fill in the folders; other braces belong to templates and stay."""
    for name, folder in places.items():
        command = command.replace(f"{{{name}}}", folder)
    return shlex.split(command)


def call(arguments: list[str], until: float) -> tuple[int, str, str]:
    """Run a verb, interrupted when time is up; returns its exit code, output and messages."""
    process = subprocess.Popen(
        [sys.executable, "-m", "seqloom", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, messages = process.communicate(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        out, messages = process.communicate()
    return process.returncode, out, messages


def machine(device: str) -> str:
    """Return the machine and the version of torch."""
    if device != "cpu" and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"


def table(out: Path) -> str:
    """Return a Markdown table with the median over seeds and each seed of every experiment."""
    records = results(out)
    rows = ["| experiment | split | median | each seed | target | seconds |", "|---|---|---|---|---|---|"]
    for name, experiment in EXPERIMENTS.items():
        for split in ("dev", "test"):
            latest = {one["seed"]: one for one in records if (one["experiment"], one["split"]) == (name, split)}
            if latest:
                rows.append(_row(name, experiment, split, latest))
    return "\n".join(rows)


def _row(name: str, experiment: Experiment, split: str, latest: dict[int, dict[str, Any]]) -> str:
    values = [experiment.scale * one["metrics"][experiment.metric] for _, one in sorted(latest.items())]
    seconds = statistics.median(one["seconds"] for one in latest.values())
    each = ", ".join(f"{value:.4g}" for value in values)
    return f"| {name} | {split} | {statistics.median(values):.4g} | {each} | {experiment.target:g} | {seconds:.0f} |"


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--commit", default="", help="recorded with each result")
    parser.add_argument("--dev", action="store_true", help="evaluate on the dev set")
    parser.add_argument("--table", action="store_true", help="print the table of results so far")
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
