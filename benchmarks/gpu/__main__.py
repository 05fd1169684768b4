"""Run all GPU benchmarks, or those that are named.

python -m benchmarks.gpu                          all
python -m benchmarks.gpu attention --json out     one, and its rows appended to a file, one JSON object a line
"""

import argparse
import importlib
import pkgutil
from pathlib import Path

from benchmarks import gpu
from benchmarks.gpu.comparison import Report

HERE = [name for _, name, _ in pkgutil.iter_modules(gpu.__path__) if name not in ("__main__", "comparison")]


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks and print all tables again at the end."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Benchmarks for a GPU.")
    parser.add_argument("names", nargs="*", help=f"benchmarks to run: {', '.join(HERE)} (default: all)")
    parser.add_argument("--json", type=Path, help="append results to this file, one JSON object a line")
    parser.add_argument("--only", default="", help="run only the works whose name contains this text")
    chosen = parser.parse_args(arguments)
    report = Report(chosen.json, chosen.only)
    for name in chosen.names or HERE:
        importlib.import_module(f"benchmarks.gpu.{name}").run(report)
    report.print_all()


if __name__ == "__main__":
    main()
