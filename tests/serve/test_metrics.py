"""The text for Prometheus: every number has its meaning."""

from pathlib import Path

from seqloom.config.serving import ServingConfig
from seqloom.serve.engine import COUNTS, Engine
from seqloom.serve.traffic import Log, Traffic


def test_the_metrics_say_what_each_number_of_the_engine_means() -> None:
    counts = Engine({"reviews": Path("reviews")}, ServingConfig()).counters
    assert counts.keys() == COUNTS.keys()
    lines = Traffic(Log(None)).text(counts, 0, 1).splitlines()
    for name, meaning in COUNTS.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        at = lines.index(f"# HELP seqloom_engine_{name} {meaning}")
        assert lines[at + 1] == f"# TYPE seqloom_engine_{name} {kind}"
        assert lines[at + 2].startswith(f"seqloom_engine_{name} ")
