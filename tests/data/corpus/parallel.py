"""M01-M07: two files whose lines belong together."""

import random

from data.corpus.case import fine, lines, reject, warn


def translations(count: int) -> tuple[list[str], list[str]]:
    """Sentences of many lengths, and others about as long."""
    draw = random.Random(7)
    lengths = [draw.randint(6, 40) for _ in range(count)]
    sources = [" ".join(f"w{draw.randint(100, 999)}" for _ in range(length)) for length in lengths]
    targets = [" ".join(f"v{draw.randint(1000, 9999)}" for _ in range(length)) for length in lengths]
    return sources, targets


SOURCE, TARGET = translations(1000)


def sides(source: list[str], target: list[str]) -> dict[str, bytes]:
    """Both files."""
    return {"train.en": lines(*source), "train.de": lines(*target)}


PARALLEL = [
    reject("M01", "par.count", sides(SOURCE, TARGET[:999]), place="train.en:1000", says=("1,000", "999")),
    reject(
        "M02",
        "par.blank",
        sides(SOURCE[:10], [*TARGET[:3], "", *TARGET[4:8], " ", TARGET[9]]),
        place="train.de:4",
        says=("blank target", "train.de:9", "× 2"),
    ),
    warn(
        "M03",
        "par.suspect",
        sides(SOURCE[:800], TARGET[:399] + TARGET[400:801]),
        *("--dev-size", "0", "--test-size", "0"),
        says=("misaligned from line 400", "1 line early"),
    ),
    reject("M04", "par.same_file", sides(SOURCE[:20], SOURCE[:20]), place="train.de"),
    reject(
        "M04 one path", "par.same_file", {"train.en": lines(*SOURCE[:20])}, "train.en", "train.en", place="train.en"
    ),
    warn(
        "M05",
        "par.copies",
        sides(SOURCE[:100], SOURCE[:51] + TARGET[51:100]),
        *("--dev-size", "0", "--test-size", "0"),
        place="train.en:1",
        says=("51 of 100", "51 %"),
    ),
    warn(
        "M06",
        "par.ratio",
        sides([*SOURCE[:100], "a", "b"], [*TARGET[:100], "x" * 40, "y" * 50]),
        place="train.en:101",
        says=("× 2", "33 times", "42 times"),
    ),
    fine("M07", sides([*SOURCE[:19], "a\rb"], [*TARGET[:19], "c d"]), note="line.bare_cr", says=("1 CR",), rows=20),
]
