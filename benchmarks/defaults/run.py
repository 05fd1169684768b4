"""Train every recipe with its defaults and with other settings, and print how close the defaults come to the best.

    SEQLOOM_DATA=DATA python benchmarks/defaults/run.py search --out OUT --jobs 4       each setting, with one seed
    SEQLOOM_DATA=DATA python benchmarks/defaults/run.py confirm --out OUT --jobs 4      default and best, three seeds
    python benchmarks/defaults/run.py table --out OUT

Everything is scored on the dev set. Results are lines of OUT/results.jsonl; what has a score there is not trained
again. `--minutes` starts no further run after that time. The seed of the search is not among the three.
"""

import argparse
import json
import multiprocessing
import os
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple

from settings import DATASETS, Dataset, settings

from seqloom.recipes.families import Size

SEARCHED, CONFIRMED = 7, (0, 1, 2)  # seeds


class Job(NamedTuple):
    """A run."""

    dataset: str
    recipe: str
    setting: str
    seed: int

    @property
    def key(self) -> list[Any]:
        """What identifies its result."""
        return list(self)


def main() -> None:
    """Search, confirm, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "confirm", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--recipes", default="", help="only these")
    parser.add_argument("--settings", default="", help="only these, separated by semicolons")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10_000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", default="small", help="which default learning rate the settings are relative to")
    parser.add_argument("--options", default="", help='of `seqloom train`, for every run, such as "--epochs 20"')
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "table":
        sys.stdout.write(table(results(given.out)))
        return
    done = results(given.out)
    names = given.datasets.split(",")
    jobs = searched(names) if given.what == "search" else confirmed(names, done)
    known = {tuple(one["job"]) for one in done if one["score"] is not None}
    chosen = given.recipes.split(",") if given.recipes else [job.recipe for job in jobs]
    tried = given.settings.split(";") if given.settings else [job.setting for job in jobs]
    waiting = [job for job in jobs if tuple(job) not in known and job.recipe in chosen and job.setting in tried]
    until = time.time() + 60 * given.minutes
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    for job in waiting:
        queue.put(job)
    for _ in range(given.jobs):
        queue.put(None)
    where = (os.environ["SEQLOOM_DATA"], given.out, given.size, f"--device {given.device} {given.options}", until)
    workers = [context.Process(target=work, args=(queue, answers, *where)) for _ in range(given.jobs)]
    for worker in workers:
        worker.start()
    queue.cancel_join_thread()  # jobs may be left when the time is up
    with (given.out / "results.jsonl").open("a") as file:
        for answer in answered(workers, answers):
            file.write(json.dumps(answer) + "\n")
            file.flush()
            sys.stdout.write(f"{' '.join(map(str, answer['job']))}: {answer.get('score')} {answer['seconds']:.0f} s\n")
            sys.stdout.flush()


def answered(workers: list[BaseProcess], answers: Any) -> Iterator[dict[str, Any]]:
    """The answers of all workers until the last one has ended or was killed."""
    working = True
    while working:
        working = any(worker.is_alive() for worker in workers)  # before the answers are read: it may just have sent one
        with suppress(Empty):
            while True:
                yield answers.get(timeout=1.0)
    if killed := [worker.exitcode for worker in workers if worker.exitcode]:
        sys.stdout.write(f"workers that were stopped, by exit codes: {killed}; the same command trains the rest\n")


def searched(names: list[str]) -> list[Job]:
    """Every setting of every recipe, with one seed: first the defaults of all, then the next setting, and so on."""
    jobs = [
        (at, not DATASETS[name].is_large, Job(name, recipe, setting, SEARCHED))
        for name in names
        for recipe in DATASETS[name].recipes
        for at, setting in enumerate(settings(DATASETS[name], recipe))
    ]
    return [job for _, _, job in sorted(jobs, key=lambda one: one[:2])]


def confirmed(names: list[str], done: list[dict[str, Any]]) -> list[Job]:
    """The default and the best setting of the search, with three other seeds."""
    return [
        Job(name, recipe, setting, seed)
        for name in names
        for recipe in DATASETS[name].recipes
        for setting in dict.fromkeys(("default", best_setting(done, name, recipe)))
        for seed in CONFIRMED
    ]


def best_setting(done: list[dict[str, Any]], name: str, recipe: str) -> str:
    """The setting with the best score of the search."""
    found = {
        one["job"][2]: one["score"]
        for one in done
        if one["job"][:2] == [name, recipe] and one["job"][3] == SEARCHED and one.get("score") is not None
    }
    sign = -1 if DATASETS[name].lower_is_better else 1
    return max(found, key=lambda setting: sign * found[setting], default="default")


def work(queue: Any, answers: Any, data: str, out: Path, size: Size, added: str, until: float) -> None:
    """Train one run after another until none is left or the time is up."""
    import torch

    torch.set_num_threads(1)
    while (job := queue.get()) is not None and time.time() < until:
        began = time.time()
        answer = {"job": job.key, **trained(job, data, out / "runs" / str(os.getpid()), size, added)}
        answers.put(answer | {"seconds": time.time() - began})


def trained(job: Job, data: str, folder: Path, size: Size, added: str) -> dict[str, Any]:
    """The dev score of a run, or the error."""
    from typer.testing import CliRunner

    from seqloom.cli import app

    dataset: Dataset = DATASETS[job.dataset]
    shutil.rmtree(folder, ignore_errors=True)
    options = f"{dataset.read.replace('{data}', data)} {settings(dataset, job.recipe, size)[job.setting]}"
    command = ["train", *shlex.split(options), "--model", job.recipe, "--seed", str(job.seed), "--out", str(folder)]
    result = CliRunner().invoke(app, [*command, *shlex.split(added), "--json"])
    if result.exit_code:
        return {"score": None, "error": result.output[-600:]}
    found = json.loads(result.stdout)
    shutil.rmtree(folder, ignore_errors=True)
    return {"score": found["metrics"][dataset.metric], "steps": found["step"], "best_step": found["best_step"]}


def results(out: Path) -> list[dict[str, Any]]:
    """What has been trained."""
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(done: list[dict[str, Any]]) -> str:
    """For each dataset and recipe: the mean of the default, the best setting and its mean, and their ratio."""
    lines = [
        "| dataset, metric | recipe | default | best setting | its score | default / best |",
        "|---|---|---|---|---|---|",
    ]
    for name, dataset in DATASETS.items():
        for recipe in dataset.recipes:
            best = best_setting(done, name, recipe)
            default, other = (scores(done, name, recipe, setting) for setting in ("default", best))
            if len(default) < len(CONFIRMED) or len(other) < len(CONFIRMED):
                continue
            means = statistics.mean(default), statistics.mean(other)
            ratio = means[1] / means[0] if dataset.lower_is_better else means[0] / means[1]
            shown = [
                f"{mean:.4g} ({min(one):.4g} to {max(one):.4g})"
                for mean, one in zip(means, (default, other), strict=True)
            ]
            lines.append(
                f"| {name}, {dataset.metric} | `{recipe}` | {shown[0]} | {best} | {shown[1]} | {100 * ratio:.1f} % |"
            )
    return "\n".join(lines) + "\n"


def scores(done: list[dict[str, Any]], name: str, recipe: str, setting: str) -> list[float]:
    """The scores of the three seeds."""
    wanted = [[name, recipe, setting, seed] for seed in CONFIRMED]
    return [one["score"] for one in done if one["job"] in wanted and one.get("score") is not None]


if __name__ == "__main__":
    main()
