"""Train and judge what the table of figures asks for, several runs at a time; what was stopped goes on.

    SEQLOOM_DATA=DATA python benchmarks/quality/run.py ptb-650 sst2-cnn --seeds 0,1,2 --jobs 4 --out OUT
    python benchmarks/quality/run.py --out OUT --table

Each run is a run folder OUT/FIGURE-SEED. A result is a line of OUT/results.jsonl: the figure, the seed, all metrics,
the seconds that training took, the machine, the command and the commit. `--seconds` interrupts what is still training
after that time: it saves, and the same command goes on with it. `--dev` judges on the dev part instead, to choose
settings by.
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
from figures import FIGURES, Figure
from making import made

HERE = Path(__file__).parent


def main(given: list[str] | None = None) -> None:
    """Run what is asked for, or print the table of what was found."""
    arguments = _arguments(given)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        sys.stdout.write(table(arguments.out) + "\n")
        return
    unknown = [name for name in arguments.names if name not in FIGURES]
    if unknown:
        sys.exit(f"there is no figure {unknown[0]}; choose from {', '.join(FIGURES)}")
    places = {"data": os.environ["SEQLOOM_DATA"], "glove": os.environ.get("SEQLOOM_GLOVE", "glove.txt")}
    places |= {"models": str(HERE / "models"), "made": str(made(arguments.out))}
    jobs = [(name, seed) for name in arguments.names for seed in map(int, arguments.seeds.split(","))]
    until = time.monotonic() + arguments.seconds
    with ThreadPoolExecutor(arguments.jobs) as pool:
        done = pool.map(lambda job: one(*job, places, arguments, until), jobs)
        for line in done:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def one(name: str, seed: int, places: dict[str, str], arguments: argparse.Namespace, until: float) -> str:
    """What came of one run, in a line: trained until it is done or time is up, then judged."""
    figure, folder = FIGURES[name], arguments.out / f"{name}-{seed}"
    part = "dev" if arguments.dev or "--test" not in figure.judge else "test"
    if any((one["figure"], one["seed"], one["part"]) == (name, seed, part) for one in results(arguments.out)):
        return f"{name} {seed}: {part} judged before"
    if time.monotonic() > until:
        return f"{name} {seed}: not begun"
    where = ["--device", arguments.device]
    command = ["train", *filled(figure.train, places), "--out", str(folder), "--seed", str(seed), *where]
    code, _, said = call(command, until)
    if code == 130:
        return f"{name} {seed}: interrupted, {said.strip().splitlines()[-1]}"
    if code:
        return f"{name} {seed}: training ended with {code}: {said[-1500:]}"
    judge = [one for one in shlex.split(figure.judge) if not (arguments.dev and one == "--test")]
    code, out, said = call(["evaluate", str(folder), *judge, "--json", *where], time.monotonic() + 3_600)
    if code:
        return f"{name} {seed}: judging ended with {code}: {said[-1500:]}"
    found = json.loads(out)
    record = {"figure": name, "seed": seed, "part": found["part"], "metrics": found["metrics"]}
    record |= {"seconds": trained(folder), "machine": machine(arguments.device), "commit": arguments.commit}
    record |= {"train": f"seqloom train {figure.train}", "judge": f"seqloom evaluate RUN {figure.judge}"}
    with (arguments.out / "results.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    return f"{name} {seed}: {found['part']} {figure.metric} {figure.times * found['metrics'][figure.metric]:.4g}"


def results(out: Path) -> list[dict[str, Any]]:
    """Everything that was found so far; what has a line is not judged again, so no test part is looked at twice."""
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def trained(folder: Path) -> float:
    """The seconds of training of a run, over all of its starts."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return round(next(one["pace"]["seconds"] for one in reversed(events) if one["kind"] == "ended"), 1)


def filled(command: str, places: dict[str, str]) -> list[str]:
    """The words of a command, with the folders in their places; other braces are templates of lines, and stay."""
    for name, folder in places.items():
        command = command.replace(f"{{{name}}}", folder)
    return shlex.split(command)


def call(arguments: list[str], until: float) -> tuple[int, str, str]:
    """The exit code of a verb, its output and what it said; interrupted when time is up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "seqloom", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, said = process.communicate(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        out, said = process.communicate()
    return process.returncode, out, said


def machine(device: str) -> str:
    """What computed."""
    if device != "cpu" and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"


def table(out: Path) -> str:
    """The median over seeds of every figure, with all of them, as rows of a table."""
    records = results(out)
    rows = ["| figure | part | median | each seed | asked | seconds |", "|---|---|---|---|---|---|"]
    for name, figure in FIGURES.items():
        for part in ("dev", "test"):
            latest = {one["seed"]: one for one in records if (one["figure"], one["part"]) == (name, part)}
            if latest:
                rows.append(_row(name, figure, part, latest))
    return "\n".join(rows)


def _row(name: str, figure: Figure, part: str, latest: dict[int, dict[str, Any]]) -> str:
    values = [figure.times * one["metrics"][figure.metric] for _, one in sorted(latest.items())]
    seconds = statistics.median(one["seconds"] for one in latest.values())
    each = ", ".join(f"{value:.4g}" for value in values)
    return f"| {name} | {part} | {statistics.median(values):.4g} | {each} | {figure.least:g} | {seconds:.0f} |"


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--commit", default="", help="written beside each result")
    parser.add_argument("--dev", action="store_true", help="judge on the dev part")
    parser.add_argument("--table", action="store_true", help="print what was found so far")
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
