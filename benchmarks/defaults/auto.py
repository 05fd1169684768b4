"""`seqloom auto` against each recipe of its portfolio trained alone with the whole time, on two cores each.

    SEQLOOM_DATA=DATA python benchmarks/defaults/auto.py --out OUT --places 8         16 cores: eight jobs at a time
    SEQLOOM_DATA=DATA python benchmarks/defaults/auto.py --out OUT --only trec,sst2   some of the datasets

A recipe alone is `seqloom train --model RECIPE`, whose default size and number of epochs end in about five minutes on
two cores; a translator has `--seconds` instead. `*` marks the default recipe. Models are chosen on dev sets alone. The
test sets are evaluated once, after all training. Results are lines of OUT/results.jsonl, and what has scores there is
not trained again; `--limit` starts no job after that many seconds.
"""

import argparse
import json
import os
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from settings import DATASETS

MINUTES = 5.0
THREADS = 2


class Raced(NamedTuple):
    """A dataset, its test set, and the recipes that are trained alone; the first is the default."""

    test: str  # arguments of `seqloom evaluate`
    recipes: tuple[str, ...]
    options: str = ""  # of the recipes


CLASSIFIERS = ("cnn", "linear", "bag", "bilstm", "transformer")
RACES = {
    "trec": Raced("{data}/trec/test.txt", CLASSIFIERS),
    "sst2": Raced("{data}/sst2/test.txt", CLASSIFIERS),
    "atis-slots": Raced("{data}/atis/test.tsv", ("bilstm", "cnn", "gru", "bilstm --head softmax", "transformer")),
    "multi30k": Raced(
        "{data}/multi30k/test_2016_flickr.en {data}/multi30k/test_2016_flickr.de",
        ("transformer", "seq2seq-additive"),
        f"--seconds {60 * MINUTES:g}",
    ),
}


def main() -> None:
    """Run what has no result yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--places", type=int, default=1, help="jobs at a time, each on two cores of its own")
    parser.add_argument("--first-core", type=int, default=0)
    parser.add_argument("--only", default=",".join(RACES))
    parser.add_argument("--limit", type=float, default=1e9)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    known = {(one["data"], one["job"]) for one in results(given.out) if "error" not in one}
    names = given.only.split(",")
    jobs = [(name, "auto") for name in names]
    jobs += [(name, recipe) for name in names for recipe in RACES[name].recipes]
    waiting = queue.SimpleQueue[tuple[str, str]]()
    for job in jobs:
        if job not in known:
            waiting.put(job)
    until, writing = time.monotonic() + given.limit, threading.Lock()

    def work(cores: list[int]) -> None:
        while time.monotonic() < until:
            try:
                name, job = waiting.get_nowait()
            except queue.Empty:
                return
            answer = ran(name, job, given.out, cores)
            with writing, (given.out / "results.jsonl").open("a") as file:
                file.write(json.dumps(answer) + "\n")
                print(json.dumps(answer), flush=True)

    firsts = range(given.first_core, given.first_core + THREADS * given.places, THREADS)
    threads = [threading.Thread(target=work, args=([*range(first, first + THREADS)],)) for first in firsts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(table(results(given.out)))


def ran(name: str, job: str, out: Path, cores: list[int]) -> dict[str, Any]:
    """Train a job and evaluate its model: the scores on both sets, or the error."""
    data, folder = os.environ["SEQLOOM_DATA"], out / f"{name}-{job.replace(' ', '')}"
    dataset, raced, began = DATASETS[name], RACES[name], time.monotonic()
    read = shlex.split(dataset.read.replace("{data}", data))
    where = ["--out", str(folder), "--device", "cpu"]
    if job == "auto":
        command = ["auto", *read, "--minutes", f"{MINUTES:g}", *where]
    else:
        command = ["train", *read, "--model", *shlex.split(f"{job} {raced.options}"), *where]
    trained = called(command, cores)
    seconds = time.monotonic() - began
    answer: dict[str, Any] = {"data": name, "job": job, "seconds": round(seconds, 1)}
    if trained.returncode:
        return answer | {"error": trained.stderr[-1500:]}
    if job == "auto":
        board = json.loads((folder / "leaderboard.json").read_text())
        answer["winner"] = board["rows"][0]["name"]
    test = shlex.split(raced.test.replace("{data}", data))
    for split, arguments in {"dev": [], "test": test}.items():
        found = called(["evaluate", str(folder), *arguments, "--json", "--device", "cpu"], cores)
        if found.returncode:
            return answer | {"error": found.stderr[-1500:]}
        answer[split] = (
            100 * json.loads(found.stdout)["metrics"][dataset.metric] / (100 if "bleu" in dataset.metric else 1)
        )
    return answer


def called(arguments: Iterable[str], cores: list[int]) -> "subprocess.CompletedProcess[str]":
    """Run a command on these cores."""
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS)}
    pinned = ["taskset", "-c", ",".join(map(str, cores))]
    command = [*pinned, sys.executable, "-m", "seqloom", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def results(out: Path) -> list[dict[str, Any]]:
    """What has been trained."""
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(done: list[dict[str, Any]]) -> str:
    """For each dataset: auto with its winner, and every recipe alone; scores on dev and test, and seconds."""
    lines = ["| dataset, metric | model | dev | test | seconds |", "|---|---|---|---|---|"]
    for name, raced in RACES.items():
        for one in (one for one in done if one["data"] == name and "test" in one):
            job = f"auto: {one['winner']}" if one["job"] == "auto" else one["job"]
            mark = " *" if one["job"] == raced.recipes[0] else ""
            lines.append(
                f"| {name}, {DATASETS[name].metric} | {job}{mark} | {one['dev']:.2f} | {one['test']:.2f} | "
                f"{one['seconds']:.0f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
