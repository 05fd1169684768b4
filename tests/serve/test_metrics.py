"""The text for Prometheus: what its numbers mean, and how fine its histogram is."""

from pathlib import Path

from seqloom.config.serving import ServingConfig
from seqloom.serve.engine import COUNTS, Engine
from seqloom.serve.traffic import Exchange, Log, Traffic


def test_the_metrics_say_what_each_number_of_the_engine_means() -> None:
    counts = Engine({"reviews": Path("reviews")}, ServingConfig()).counters
    assert counts.keys() == COUNTS.keys()
    lines = Traffic(Log(None)).text(counts, 0, 1).splitlines()
    for name, meaning in COUNTS.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        at = lines.index(f"# HELP seqloom_engine_{name} {meaning}")
        assert lines[at + 1] == f"# TYPE seqloom_engine_{name} {kind}"
        assert lines[at + 2].startswith(f"seqloom_engine_{name} ")


def test_the_histogram_tells_answers_of_one_two_and_five_milliseconds_apart() -> None:
    traffic = Traffic(Log(None))
    for seconds in (0.0009, 0.0015, 0.0016, 0.004):
        traffic.count(Exchange("POST", "/v1/classify", 200, seconds))
    text = traffic.text({}, 0, 1)
    for most, count in ((0.001, 1), (0.002, 3), (0.005, 4)):
        assert f'seqloom_request_seconds_bucket{{route="/v1/classify",le="{most}"}} {count}\n' in text
