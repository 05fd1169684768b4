"""Run the GPU benchmarks of operators, or those that are named.

python -m benchmarks.gpu                          all
python -m benchmarks.gpu attention --json out     one, and its rows appended to a file, one JSON object a line
python -m benchmarks.gpu --only ALiBi "window 512, B=2"

Whole training steps and decoding are programs of their own: `python -m benchmarks.gpu.training` and `.decoding`.
"""

import argparse
from pathlib import Path

from benchmarks.gpu import attention
from benchmarks.gpu.comparison import Report

BENCHMARKS = {"attention": attention.run}


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks and print all tables again at the end."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Benchmarks for a GPU.")
    parser.add_argument("names", nargs="*", help=f"benchmarks to run: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--json", type=Path, help="append results to this file, one JSON object a line")
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="TEXT",
        help="run only the works whose name contains one of these texts",
    )
    chosen = parser.parse_args(arguments)
    report = Report(chosen.json, chosen.only)
    for name in chosen.names or BENCHMARKS:
        BENCHMARKS[name](report)
    report.print_all()


if __name__ == "__main__":
    main()
