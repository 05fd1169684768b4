"""The data report: what it says, in a terminal and on a page, and that no text can disturb it."""

import html.parser
import json
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.config.data import BadRows
from seqloom.data.kinds.kind import InputKind, TargetKind
from seqloom.data.kinds.text import TextPair
from seqloom.data.kinds.words import Words
from seqloom.data.problems import Ledger, Place
from seqloom.data.report import Batching, DataReport, ReportColumns, Reporter, bin_names
from seqloom.data.schema import Example, Input, Schema, Target
from seqloom.errors import DataError
from seqloom.report.labels import columns, excerpt, excerpt_from, visible

FAMILY = "👨‍👩‍👧‍👦"
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\"'&\r\n" + FAMILY


def rows(path: str, pairs: list[tuple[Input, Target]]) -> list[Example]:
    return [Example(one, target, f"{path}:{row}", Place(path, row + 2)) for row, (one, target) in enumerate(pairs)]


def report(name: str, parts: dict[str, list[Example]], schema: Schema, ledger: Ledger, **given: object) -> DataReport:
    """The report on these parts."""
    reporter = Reporter(schema)
    for part, examples in parts.items():
        reporter.update(part, examples)
    reporter.finish(ledger)
    return reporter.report(name, ledger, **given)  # type: ignore[arg-type]


def labeled(count: int, start: int = 0) -> list[tuple[Input, Target]]:
    words = ["warp", "weft", "heddle", "shuttle", "treadle", "bobbin", "selvage"]
    texts = [
        " ".join(words[(row * step + step) % 7] for step in range(2, 3 + row % 9))
        for row in range(start, start + count)
    ]
    # A long number keeps them from being near twins.
    return [(f"{text} {row * 7**20 % 10**15}", "yes" if row % 3 else "no") for row, text in enumerate(texts, start)]


def reported(name: str = "looms", extra: list[tuple[Input, Target]] | None = None, **options: object) -> DataReport:
    train, dev = labeled(90) + (extra or []), labeled(20, start=200)
    parts = {"train": rows("train.csv", train), "dev": rows("dev.csv", dev)}
    return report(name, parts, Schema("text", "label"), Ledger(), **options)  # type: ignore[arg-type]


def test_good_data_is_fine_and_the_first_lines_say_so() -> None:
    lines = reported().text(80).split("\n")
    assert lines[:3] == ["looms", "classify: text → label", "✓ This data can be used; no problems found"]
    assert [line.split() for line in lines[4:6]] == [["90", "rows", "in", "train"], ["20", "rows", "in", "dev"]]


def test_numbers_of_the_report_are_those_of_the_data() -> None:
    found = reported()
    lengths = np.array([len(text) for text, _ in labeled(90)])
    assert [(part.name, part.rows) for part in found.splits] == [("train", 90), ("dev", 20)]
    assert [(entry.label, entry.counts) for entry in found.labels] == [("yes", (60, 13)), ("no", (30, 7))]
    (measure,) = found.distributions
    train = measure.summaries[0]
    assert (train.min, train.max) == (lengths.min(), lengths.max())
    assert (train.median, train.mean) == (np.median(lengths), pytest.approx(lengths.mean()))
    assert train.p95 == pytest.approx(np.quantile(lengths, 0.95))


LENGTHS = st.lists(st.integers(0, 60) | st.integers(3, 6) | st.just(400), min_size=1, max_size=30)


@given(LENGTHS, st.lists(st.integers(0, 9), max_size=5))
@settings(max_examples=60)
def test_histograms_count_every_row_once_and_in_its_bin(train: list[int], dev: list[int]) -> None:
    parts = {"train": rows("a", [("a" * n, None) for n in train]), "dev": rows("b", [("b" * n, None) for n in dev])}
    (measure,) = report("x", parts, Schema("text", "nothing"), Ledger()).distributions
    for lengths, counts in zip([train, dev] if dev else [train], measure.counts, strict=True):
        expected = [sum(one.low <= n <= (n if one.high is None else one.high) for n in lengths) for one in measure.bins]
        assert list(counts) == expected
        assert sum(counts) == len(lengths)
    assert measure.bins[0].low == min(train + dev)
    assert len(measure.bins) <= 13


def histogram(values: list[float]) -> tuple[list[str], list[int]]:
    """The names and the counts of the bins of a target."""
    parts = {"train": rows("a", [(f"text {n}", (value,)) for n, value in enumerate(values)])}
    measure = report("x", parts, Schema("text", "numbers"), Ledger()).distributions[-1]
    return bin_names(measure), list(measure.counts[0])


@pytest.mark.parametrize(
    ("values", "names", "counts"),
    [
        ([7.0] * 4, ["7"], [4]),
        ([0.25] * 3, ["0.25"], [3]),
        ([1.0, 2.0, 2.0, 5.0], ["1", "2", "3", "4", "5"], [1, 2, 0, 0, 1]),
        ([0.0, 500.0, 500.0, 500.0], ["0", "500"], [1, 3]),
        ([-1.0, 0.5, 0.5, 0.5], ["-1", "0.5"], [1, 3]),
    ],
)
def test_few_different_values_have_a_bin_each(values: list[float], names: list[str], counts: list[int]) -> None:
    assert histogram(values) == (names, counts)


def test_a_stray_value_leaves_no_empty_bins_before_the_others() -> None:
    names, counts = histogram([3.0, *map(float, range(1000, 1200))])
    assert names[:2] == ["3–999", "1,000–1,019"]
    assert all(counts)


def test_negative_numbers_and_fractions_have_readable_bins() -> None:
    assert histogram([float(n) for n in range(-20, 21)])[0][0] == "-20 to -16"
    assert histogram([n / 8 for n in range(-20, 21)])[0][:2] == ["-2.5 to -2", "-2 to -1.5"]


def test_warnings_are_counted_and_the_gravest_finding_comes_first() -> None:
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=0.1))
    ledger.rows = 92
    ledger.note("json.blank", "blank lines", Place("train.csv", 3))
    ledger.bad_row("row.empty_text", "the text is empty", Place("train.csv", 7), "remove it")
    parts = {"train": rows("train.csv", [*labeled(90), ("x\u200by", "Yes"), ("z", "Yes")])}
    found = report("looms", parts, Schema("text", "label"), ledger)
    assert [(finding.severity, finding.code, finding.rows) for finding in found.findings] == [
        ("warn", "row.empty_text", 1),
        ("warn", "uni.invisible", 1),
        ("warn", "label.case", 2),
        ("note", "json.blank", 1),
    ]
    assert (found.verdict, found.skipped) == ("warnings", 1)
    assert "! This data can be used, but check it first: 3 kinds of warnings, 1 bad row" in found.text(100)


def test_what_a_check_refuses_is_told_and_not_raised() -> None:
    found = report("x", {"train": rows("x.csv", [("a", "yes"), ("b", "yes")])}, Schema("text", "label"), Ledger())
    assert found.verdict == "errors"
    (finding,) = found.findings
    assert (finding.severity, finding.code) == ("reject", "label.single")
    assert finding.samples[0].place == "x.csv"
    assert "✗ This data cannot be used as it is: 1 error" in found.text()


def test_bad_rows_that_are_not_skipped_refuse_the_data_and_do_not_hide_a_refusal() -> None:
    ledger = Ledger()
    for line in range(25):
        ledger.bad_row("row.empty_text", "the text is empty", Place("x.csv", line + 1))
    found = report("x", {"train": rows("x.csv", [("a", "yes"), ("b", "yes")])}, Schema("text", "label"), ledger)
    assert {(one.code, one.severity, one.rows) for one in found.findings} == {
        ("row.empty_text", "reject", 25),
        ("label.single", "reject", 0),
    }
    (single,) = (one.samples[0] for one in found.findings if one.code == "label.single")
    assert (single.place, single.text.startswith("every label is 'yes'")) == ("x.csv", True)


def test_samples_with_different_cures_are_shown_with_each_of_them() -> None:
    ledger = Ledger()
    for line, fix in enumerate(["mend it", "mend it", "leave it out", "mend it", "drop it"], start=1):
        ledger.warn("x.odd", f"case {line}", Place("a.csv", line), fix)
    found = report("looms", {"train": rows("train.csv", labeled(90))}, Schema("text", "label"), ledger)
    lines = [line.strip() for line in found.text().split("\n")]
    at = next(at for at, line in enumerate(lines) if line.startswith("! x.odd"))
    assert lines[at].split() == ["!", "x.odd", "5", "a.csv:1", "case", "1"]
    assert lines[at + 1 : at + 6] == [
        "Fix: mend it",
        "a.csv:3 case 3",
        "Fix: leave it out",
        "a.csv:5 case 5",
        "Fix: drop it",
    ]
    page = found.html()
    assert [page.count(f"Fix: {fix}<") for fix in ("mend it", "leave it out", "drop it")] == [1, 1, 1]
    assert page.index("case 5") < page.index("2 more") < page.index("case 2")


def test_an_overlap_is_shown_for_every_two_parts() -> None:
    same = labeled(3)
    parts = {name: rows(name, same + labeled(9, 20 * at)) for at, name in enumerate(("train", "dev", "test"), start=1)}
    written = " ".join(report("looms", parts, Schema("text", "label"), Ledger()).text().split())
    for first, second in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert f"3 of 12 rows in {second} (25 %) have inputs that are identical to some in {first}" in written
        assert f"remove these rows from {first}; otherwise scores on {second}" in written


def near_parts(count: int) -> dict[str, list[Example]]:
    """100 rows in dev, of which so many are nearly in train."""
    train, dev = labeled(90), labeled(100 - count, start=200)
    long = [f"a long sentence about looms and about weaving, number {text}" for text, _ in train[:count]]
    near: list[tuple[Input, Target]] = [(f"{text}!", "yes") for text in long]
    return {"train": rows("train.csv", [*train, *((text, "yes") for text in long)]), "dev": rows("dev.csv", dev + near)}


def test_many_rows_that_are_nearly_in_another_part_are_a_warning() -> None:
    found = report("looms", near_parts(2), Schema("text", "label"), Ledger())
    (near,) = (one for one in found.findings if one.code == "leak.near")
    assert (near.severity, near.rows, found.verdict) == ("warn", 2, "warnings")
    assert near.samples[0].place == "dev.csv:100"
    assert near.samples[0].text.startswith("2 of 100 rows in dev (2 %) are nearly the same as a row in train")
    assert near.samples[0].text.endswith("at train.csv:92")
    assert "<b>0 %</b><span>of dev is also in train; 2 % nearly</span>" in found.html()


def test_few_rows_that_are_nearly_in_another_part_are_none() -> None:
    found = report("looms", near_parts(1), Schema("text", "label"), Ledger())
    assert (found.duplicates.between[0].near, found.findings) == (1, ())


def test_of_one_group_of_twins_one_sample_is_shown() -> None:
    long = "the same words again and again and again, " * 4
    parts = {name: rows(name, [(f"{long}{n}", None) for n in range(4)] * 2) for name in ("train", "dev", "test")}
    found = report("x", parts, Schema("text", "nothing"), Ledger())
    assert found.duplicates.near and found.duplicates.exact and all(leak.samples for leak in found.duplicates.between)
    assert found.text().count(" rows in the group") == 1
    assert found.html().count("<blockquote>") == 1


def test_the_plain_values_say_their_format_and_the_verdict() -> None:
    plain = json.loads(json.dumps(reported().to_json()))
    assert (plain["format"], plain["verdict"]) == (2, "ok")
    assert list(plain["distributions"][0]["summaries"][0]) == ["split", "min", "median", "mean", "p95", "max"]


def test_one_row_is_called_so() -> None:
    found = report("x", {"train": rows("x", [("a", (1.0,))])}, Schema("text", "numbers"), Ledger())
    assert "1  row in train" in found.text()
    assert "<b>1</b><span>row in train</span>" in found.html()


def test_what_the_caller_knows_is_shown() -> None:
    found = reported(
        columns=ReportColumns(("sentence",), ("polarity",)),
        inferred=["task classify: 'polarity' holds 2 texts"],
        tokens={"train": np.array([3, 1])},
        batching=Batching(padding=0.031, fill=0.964, batches=1420, repeated_pairs=0.12),
    )
    written = found.text(80)
    assert "classify: text from 'sentence' → label from 'polarity'" in written
    assert "  - task classify: 'polarity' holds 2 texts" in written
    assert "Tokens per input" in written
    assert "1,420 batches per epoch, 96.4 % full, 3.1 % padding" in written


def test_a_sample_that_stood_for_all_rows_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqloom.data.checks import duplicates

    monkeypatch.setattr(duplicates.DuplicateSearch.__init__, "__defaults__", (10,))
    assert "Near duplicates were searched in a sample: 10 of 90 rows in train, 10 of 20 rows" in reported().text(100)
    assert "Near duplicates were searched in a sample" in reported().html()


def test_leaks_are_in_the_first_screen_of_the_page_and_in_the_table() -> None:
    train = labeled(90)
    parts = {"train": rows("train.csv", train), "dev": rows("dev.csv", [*train[:5], *labeled(15, start=200)])}
    found = report("looms", parts, Schema("text", "label"), Ledger())
    assert "dev in train" in found.text()
    assert "<b>25 %</b><span>of dev is also in train</span>" in found.html()


SETS: list[tuple[InputKind, TargetKind, Input, Target]] = [
    ("text", "label", "a text", "yes"),
    ("text", "labels", "a text", ("yes", "no")),
    ("text", "numbers", "a text", (0.5,)),
    ("text", "text", "a text", "ein Text"),
    ("text", "nothing", "a text", None),
    ("pair", "label", TextPair("one", "two"), "yes"),
    ("words", "tags", Words.join(["No", "way"]), ("O", "B-x")),
    ("vectors", "numbers", np.zeros((4, 2)), (1.0, -2.0)),
    ("picture", "label", np.zeros((4, 5, 1)), "yes"),
]


@pytest.mark.parametrize(("kind", "target_kind", "one", "target"), SETS)
def test_every_kind_of_example_has_a_report(
    kind: InputKind, target_kind: TargetKind, one: Input, target: Target
) -> None:
    found = report("x", {"train": rows("x", [(one, target)] * 3)}, Schema(kind, target_kind), Ledger())
    assert found.duplicates.within[0].exact == 2
    assert json.loads(json.dumps(found.to_json()))["splits"] == [{"name": "train", "rows": 3}]
    assert found.text(60).endswith("\n")
    assert found.html().startswith("<!DOCTYPE html>")


def test_no_examples_at_all_are_refused() -> None:
    with pytest.raises(DataError, match="x has no examples"):
        report("x", {"train": []}, Schema("text", "label"), Ledger())


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_no_line_is_wider_than_asked_for(width: int) -> None:
    found = reported(
        "a very long name " * 20,
        extra=[("词" * 300, "标签" * 40), ("词" * 299 + "语", "标签" * 40), (FAMILY * 80, "x" * 200), ("y", "x" * 200)],
        inferred=["because " * 40, "w" * 300],
    )
    assert max(map(columns, found.text(width).split("\n"))) <= width


def test_too_narrow_a_terminal_is_refused() -> None:
    with pytest.raises(DataError, match="30 columns"):
        reported().text(30)


def hostile_report() -> DataReport:
    extra: list[tuple[Input, Target]] = [(HOSTILE, HOSTILE), (f"{HOSTILE}!", HOSTILE), (HOSTILE, f"{HOSTILE} ")]
    parts = {HOSTILE: rows(HOSTILE, labeled(30) + extra), "dev": rows("dev", extra * 2)}
    options = {"columns": ReportColumns((HOSTILE,), (HOSTILE,)), "inferred": [HOSTILE]}
    return report(HOSTILE, parts, Schema("text", "label"), Ledger(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("color", [False, True])
def test_no_text_disturbs_a_terminal(color: bool) -> None:
    written = hostile_report().text(80, color)
    plain = written.replace("\x1b[1m", "").replace("\x1b[0m", "") if color else written
    hidden = {c for c in plain if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c != "\n"}
    assert hidden <= ({"\x1b"} if color else set())
    assert "\x1b[31m" not in written
    assert {c for c in written if unicodedata.category(c) == "Cf"} <= set("\u2068\u2069\u200d")


class Elements(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_no_text_becomes_markup_and_the_page_needs_nothing_else() -> None:
    page = hostile_report().html()
    reader = Elements()
    reader.feed(page)
    assert "script" not in reader.found
    assert not {name for name in reader.attributes if name.startswith("on")} | ({"src", "href"} & reader.attributes)
    assert visible(HOSTILE) in "".join(reader.texts)
    assert "\u202e" not in page
    assert page.count("<style>") == 1
    assert "prefers-color-scheme:dark" in page


def test_in_a_notebook_the_page_stays_in_its_frame() -> None:
    shown = hostile_report()._repr_html_()
    reader = Elements()
    reader.feed(shown)
    assert reader.found == {"iframe"}
    assert shown.startswith("<iframe sandbox srcdoc=")


@given(
    st.text(st.sampled_from([*"ab词", FAMILY[0], "\u200d", "🇩", "🇪", "\u0301", "\x1b", "🏽"]), max_size=30),
    st.integers(1, 20),
)
@settings(max_examples=200)
def test_an_excerpt_fits_and_ends_between_characters_as_readers_see_them(text: str, width: int) -> None:
    short = excerpt(text, width)
    assert columns(short) <= width
    assert short.endswith("…") or all(short.count(letter) >= text.count(letter) for letter in text if letter in "ab词")


@pytest.mark.parametrize("width", range(1, 16))
def test_an_emoji_sequence_a_flag_or_an_accented_letter_is_never_cut(width: int) -> None:
    for whole in (FAMILY, "🇩🇪", "e\u0301", "👍🏽"):
        kept = excerpt(whole * 8, width).removesuffix("…")
        assert kept == whole * (len(kept) // len(whole))


def test_an_excerpt_from_the_middle_begins_with_a_whole_emoji() -> None:
    text = "ab" + FAMILY + "cd"
    assert [excerpt_from(text, start, 40) for start in (2, 3, 8)] == [f"…{FAMILY}cd"] * 3
    assert excerpt_from(text, 9, 40) == "…cd"


def test_near_twins_are_shown_from_shortly_before_they_differ() -> None:
    long = "the same words again and again and again, " * 4
    parts = {"train": rows("x", [(f"{long}one", None), (f"{long}two", None)])}
    found = report("x", parts, Schema("text", "nothing"), Ledger())
    written = found.text(60)
    assert "again, one" in written
    assert "again, two" in written
