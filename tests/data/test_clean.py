"""`seqloom data clean`: what changes, what stays as it is written, and what is refused before anything is written."""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import seqloom
from seqloom.cli import app
from seqloom.config.cleaning import RepeatRule
from seqloom.data.check import check_data
from seqloom.data.checks.spelling import merged_cases, merged_typos, typos_between
from seqloom.data.clean import CleanReport, clean_data
from seqloom.data.mojibake import repaired
from seqloom.errors import ConfigError, RejectedError


def write(folder: Path, rows: list[str], name: str = "data.csv") -> Path:
    path = folder / name
    path.write_text("".join(f"{row}\n" for row in ["text,label", *rows]), encoding="utf-8")
    return path


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()[1:]


def counts(report: CleanReport) -> dict[str, int]:
    return {one.code: one.rows for one in report.changes}


def clean(folder: Path, rows: list[str], **options: object) -> tuple[list[str], CleanReport]:
    """The rows of the copy, without the header, and the report."""
    report = clean_data(write(folder, rows), out=folder / "out.csv", **options)  # type: ignore[arg-type]
    return lines(folder / "out.csv"), report


# --- labels ----------------------------------------------------------------------------------------------------------


def test_spellings_of_a_label_become_the_most_frequent_one(tmp_path: Path) -> None:
    rows = ["a,spam", "b,Spam", "c,spam ", "d,SPAM", "e,spam", "f,very  good", "g,very good", "h,cafe\u0301", "i,café"]
    found, report = clean(tmp_path, rows)
    assert [row.partition(",")[2] for row in found] == [*["spam"] * 5, *["very good"] * 2, "café", "café"]
    assert counts(report) == {"spelling": 5}
    assert {one.label: (one.becomes, one.rows) for one in report.labels}["SPAM"] == ("spam", 1)
    assert [(one.row, one.line) for one in report.changes[0].each[:2]] == [(2, 3), (3, 4)]


def test_short_labels_with_a_typing_error_are_listed_with_commands_that_rename_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [*(f"a{n},ham" for n in range(300)), "b,hamm", "c,hamm", *(f"d{n},spam" for n in range(20)), "e,cat"]
    write(tmp_path, [*rows, *(f"f{n},car" for n in range(20)), "g,spamm"])
    report = clean_data("data.csv", typo_distance=1)
    assert [(one.label, one.like) for one in report.kept if one.like] == [("hamm", "ham")]
    table, command = report.relabeling
    assert "--typo-distance 1 --labels data-labels.csv" in command and command in report.text(200)
    subprocess.run(["/bin/sh", "-c", table], check=True)
    assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0
    assert Counter(row.partition(",")[2] for row in lines(tmp_path / "data-clean.csv"))["ham"] == 302
    again = clean_data("data.csv").relabeling
    assert "data-labels-2.csv" in again[0] and "data-clean-2.csv" in again[1], "nothing is overwritten"


def test_typing_errors_are_corrected_only_if_asked(tmp_path: Path) -> None:
    rows = [*(f"a{n},complaint" for n in range(3)), "b,compliant", "c,class1", "d,class2", "e,cat", "f,car"]
    found, _ = clean(tmp_path, rows)
    assert found == rows
    report = clean_data(tmp_path / "data.csv", typo_distance=1)
    assert [(one.label, one.becomes) for one in report.labels] == [("compliant", "complaint")]


def test_a_table_renames_and_drops_labels_and_has_the_last_word_on_case(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("from,to\njunk,Spam\nnan,\nHma,ham\n")
    rows = ["a,spam", "b,spam", "c, Junk", "d,nan", "e,ham"]
    found, report = clean(tmp_path, rows, labels=tmp_path / "table.csv")
    assert found == ["a,Spam", "b,Spam", "c,Spam", "e,ham"]
    assert counts(report) == {"spelling": 3, "table": 2}
    assert report.unmatched == ("Hma",) and "the file does not have: 'Hma'." in report.text()
    again = clean_data(tmp_path / "data.csv", labels=tmp_path / "table.csv", case="keep")
    assert again.unmatched == ("junk", "Hma")


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ("from,to\na,b\nb,c\n", "finally becomes"),
        ("from,to\na,B\nb,c\n", "finally becomes"),
        ("from,to\na,b\na,c\n", "keep one of the two rows"),
        ("old,new\na,b\n", "from,to"),
    ],
)
def test_a_table_that_says_two_things_is_refused(tmp_path: Path, table: str, match: str) -> None:
    (tmp_path / "table.csv").write_text(table)
    with pytest.raises((ConfigError, RejectedError), match=match):
        clean(tmp_path, ["a,b", "c,d"], labels=tmp_path / "table.csv")
    assert not (tmp_path / "out.csv").exists()


def test_rare_labels_are_merged_or_their_rows_dropped(tmp_path: Path) -> None:
    rows = ["a,x", "b,x", "c,y", "d,z"]
    assert clean(tmp_path, rows, rare=2, rare_label="other")[0] == ["a,x", "b,x", "c,other", "d,other"]
    (tmp_path / "out.csv").unlink()
    found, report = clean(tmp_path, rows, rare=2)
    assert found == ["a,x", "b,x"] and counts(report) == {"rare": 2} and report.written == 2


def test_rare_labels_are_counted_in_the_rows_that_are_left(tmp_path: Path) -> None:
    assert clean(tmp_path, ["a,x", "b,x", "c,y", "c,y", "d,z", "d,w", "e,x"], rare=2, rare_label="other")[0] == [
        *("a,x", "b,x", "c,other", "d,other", "e,x")  # the repeat of c is gone first, then those of d become one
    ]


def test_several_labels_are_cleaned_one_by_one(tmp_path: Path) -> None:
    rows = [f"t{n},Sport|news" for n in range(3)] + ["u,sport |news|Sport", "v,", "w,news| |odd"]
    found, _ = clean(tmp_path, rows, label_separator="|", rare=2)
    assert found == [*(f"t{n},Sport|news" for n in range(3)), "u,Sport|news", "v,", "w,news"]


def test_labels_of_json_keep_their_types_and_other_values_their_writing(tmp_path: Path) -> None:
    rows = ['{"text": "a", "label": 1, "x": 1e2}', '{"x": 2.50, "text": "b", "label": "Pos"}']
    rows += ['{"text": "c", "label": "pos", "x": 1}', '{"text": "\\u00e9", "label":  "pos", "x": null}']
    rows += [
        '{"x": {"\\"label\\": ": [1234567890123456789.5, "}"]},\t"label" :"POS" , "\\u0074ext":"caf\\u00c3\\u00a9" } '
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(rows) + "\n")
    clean_data(path, out=tmp_path / "b.jsonl")
    found = (tmp_path / "b.jsonl").read_text().splitlines()
    assert found[0] == rows[0] and found[2:4] == rows[2:4]
    assert found[1] == '{"x": 2.50, "text": "b", "label": "pos"}'
    assert found[4] == rows[4].replace("POS", "pos").replace("caf\\u00c3\\u00a9", "café")


def test_labels_of_more_than_one_spelling_are_kept_apart_if_the_user_wants_both() -> None:
    found = merged_cases(Counter({"US": 2, "us": 1, "Us": 9}), {"US", "us"})
    assert found == {"Us": "US"}


WORDS = st.text("abc1", min_size=4, max_size=7)


def plain_distance(one: str, other: str) -> int:
    """The distance by its definition, as a recursion over prefixes."""
    if not one or not other:
        return len(one) + len(other)
    found = min(
        plain_distance(one[:-1], other) + 1,
        plain_distance(one, other[:-1]) + 1,
        plain_distance(one[:-1], other[:-1]) + (one[-1] != other[-1]),
    )
    swapped = len(one) > 1 and len(other) > 1 and one[-2:] == other[:-3:-1]
    return min(found, plain_distance(one[:-2], other[:-2]) + 1) if swapped else found


@settings(max_examples=20)
@given(st.text("ab", max_size=5), st.text("ab", max_size=5))
def test_typing_errors_are_counted_as_defined(one: str, other: str) -> None:
    assert typos_between(one, other, 9) == plain_distance(one, other)


@settings(max_examples=25)
@given(st.dictionaries(WORDS, st.integers(1, 9), max_size=8))
def test_labels_that_stay_are_further_apart_than_the_distance(found: dict[str, int]) -> None:
    merged = merged_typos(Counter(found), (), 1)
    kept = sorted(found.keys() - merged.keys())
    assert set(merged.values()) <= set(kept)
    assert all(typos_between(one, other, 1) is None for one in kept for other in kept if one < other)
    assert all(found[new] >= found[old] for old, new in merged.items())


# --- characters ------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)


@pytest.mark.parametrize(
    "text", ["café", "20 °C", "„ja“ – nein", "5 €", "привет", "東京", "😀 ok", "Ελλάδα", "naïve Ä"]
)
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_text_that_was_decoded_wrongly_once_or_twice_is_repaired(text: str, encoding: str) -> None:
    damaged = text
    for _ in range(2):
        damaged = damaged.encode().decode(encoding, "replace")
        if "\ufffd" in damaged:
            break
        assert repaired(damaged) == text


@pytest.mark.parametrize(
    "text", ["CAFÉ” and", "IRMÃ”", "MAÇÃ…", "“Å”", "NESTLÉ®", "NÃO", "Ã", "Â", "«À»", "“â” Ñ–", "Ä™"]
)
def test_correct_text_is_left_alone(text: str) -> None:
    assert repaired(text) == text


@given(TEXTS)
def test_repaired_text_is_not_repaired_again(text: str) -> None:
    damaged = text.encode().decode("latin-1")
    assert repaired(repaired(damaged)) == repaired(damaged)


def test_lines_in_two_encodings_become_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text,label\nété,a\nnaïf,b\n".encode() + "caf\xe9 “noir”,a\n".encode("cp1252") + b"plain,b\n")
    with pytest.raises(RejectedError, match=r"`seqloom data clean .*a\.csv -o .*a-clean\.csv`"):
        seqloom.load_data(path)
    report = clean_data(path, out=tmp_path / "b.csv")
    assert lines(tmp_path / "b.csv") == ["été,a", "naïf,b", "café “noir”,a", "plain,b"]
    assert counts(report) == {"encoding": 1} and report.changes[0].each[0].line == 4 and report.changed == 1


def test_the_report_on_a_copy_counts_the_lines_in_windows_1252_of_rows_that_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text,label\nété,a\nnaïf,b\n".encode() + "caf\xe9,a\ncaf\xe9,a\nth\xe9,\n".encode("cp1252"))
    assert next(one.rows for one in check_data(path).findings if one.code == "enc.mixed") == 3
    report = clean_data(path)
    assert counts(report) == {"encoding": 1, "empty": 1, "repeat": 1}
    assert "converted to UTF-8 in a row that is kept" in " ".join(report.text(200).split())


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        ("text,label\n" + "row,a\n" * 150 + "caf\xe9,b\nlast,a\n", "--encoding cp1252 if the whole file is"),
        ("text,label\nna\xc3\xafve,b\nb\xe9\x81b,a\nc,b\n", "--encoding NAME"),
        ("text,label\nna\xc3\xafve,b\nb\xe9b,a\nc\x81,b\n", "save the whole file as UTF-8"),
    ],
    ids=["no other line is beyond ASCII", "not Windows-1252", "one line is not Windows-1252"],
)
def test_no_command_is_offered_for_a_file_in_two_encodings_that_is_not_cleaned(
    tmp_path: Path, content: str, fix: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode("latin-1"))
    for verb in (["check", path], ["clean", path, "--dry-run"]):
        done = CliRunner().invoke(app, ["data", *map(str, verb)])
        assert isinstance(done.exception, RejectedError)
        assert fix in str(done.exception) and "seqloom data clean" not in str(done.exception)


def test_a_file_in_two_encodings_is_cleaned_whatever_utf_8_is_called(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\n\xc3\xa9,a\ncaf\xe9,b\n")
    assert counts(clean_data(path, encoding="UTF8")) == {"encoding": 1}


def test_a_file_in_one_other_encoding_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text,label\nété,a\ncafé,b\n".encode("cp1252"))
    with pytest.raises(RejectedError, match='use encoding="cp1252"'):
        clean_data(path, out=tmp_path / "b.csv")
    clean_data(path, out=tmp_path / "b.csv", encoding="cp1252")
    assert lines(tmp_path / "b.csv") == ["été,a", "café,b"]


@pytest.mark.parametrize(("rule", "text"), [("keep", "a\r\nb\rc"), ("lf", "a\nb\nc"), ("space", "a b c")])
def test_line_ends_inside_fields_change_if_asked(tmp_path: Path, rule: str, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "a\r\nb\rc", "label": "x"}) + '\n{"text": "d", "label": "y"}\n')
    clean_data(path, out=tmp_path / "b.jsonl", line_ends=rule)  # type: ignore[arg-type]
    assert json.loads((tmp_path / "b.jsonl").read_text().splitlines()[0])["text"] == text


# --- rows ------------------------------------------------------------------------------------------------------------


def test_clean_drops_the_repeats_that_check_counts(tmp_path: Path) -> None:
    rows = ["Where is it?,ask", "where  is it?,ask", "WHERE IS IT? ,ask", "no,tell", "No,tell", "yes,tell", "so,ask"]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["text,label", *rows, *(f"row {number},ask" for number in range(20)), ""]))
    named = {"dev_size": 0.0, "test_size": 0.0}
    (within,) = check_data(path, **named).duplicates.within
    report = clean_data(path, out=tmp_path / "copy.csv")
    assert counts(report) == {"repeat": within.exact} == {"repeat": 3}
    assert (tmp_path / "copy.csv").read_text().splitlines()[1:4] == ["Where is it?,ask", "no,tell", "yes,tell"]
    assert check_data(tmp_path / "copy.csv", **named).duplicates.within[0].exact == 0
    assert counts(clean_data(path, repeats="exact")) == {"space": 1}


@pytest.mark.parametrize(("repeats", "kept"), [("drop", 2), ("keep", 4), ("exact", 4)])
def test_translations_that_differ_in_case_like_their_sources_are_repeats_and_no_conflicts(
    repeats: RepeatRule, kept: int, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("en,de\nHello,Hallo\nhello,hallo\nHELLO,HALLO\nThank you,Danke\n")
    how = {"task": "translate", "input": "en", "target": "de", "conflicts": "drop"}
    assert clean_data(path, repeats=repeats, **how).written == kept


def test_words_of_a_tagger_that_differ_in_case_are_no_repeats(tmp_path: Path) -> None:
    rows = [{"tokens": [word, "it"], "tags": ["O", "O"]} for word in ("us", "US", "us")]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert counts(clean_data(tmp_path / "data.jsonl")) == {"repeat": 1}


def test_empty_and_repeated_rows_are_dropped_and_contradictions_kept_or_dropped(tmp_path: Path) -> None:
    rows = ["a,x", " ,x", "b,", "a,x", "c,x", "c,y", "a,X"]
    found, report = clean(tmp_path, rows)
    assert found == ["a,x", "c,x", "c,y"]
    assert counts(report) == {"empty": 2, "repeat": 2} and (report.conflicts, report.conflict_lines) == (2, (6, 7))
    assert counts(clean_data(tmp_path / "data.csv", conflicts="drop")) == {"empty": 2, "repeat": 2, "conflict": 2}
    assert clean_data(tmp_path / "data.csv", repeats="keep").written == 5
    assert clean_data(write(tmp_path, ["a,x", "a,x", "a,y", "b,y"]), repeats="keep").conflict_lines == (2, 3, 4)


def test_other_columns_quotes_and_the_header_are_copied_as_they_are_written(tmp_path: Path) -> None:
    rows = ['"text" , label;,note,', '"a, b",x,"c ""d""",', 'cafÃ©,x,"cafÃ©",', '"e"" Ã©",y,"0\r\n07",', 'f,"y",,']
    path = tmp_path / "a.csv"
    path.write_bytes("\n".join(rows).replace('"text" , label;', "text,label").encode())
    clean_data(path, out=tmp_path / "b.csv")
    kept = ["text,label,note,", rows[1], 'café,x,"cafÃ©",', '"e"" é",y,"0\r\n07",', rows[4], ""]
    assert (tmp_path / "b.csv").read_bytes().decode() == "\n".join(kept)


def test_bad_rows_stop_the_command_unless_they_may_be_skipped(tmp_path: Path) -> None:
    rows = ["a,x", "b,y,z", "c,y"]
    with pytest.raises(RejectedError, match=r"csv\.ragged"):
        clean(tmp_path, rows)
    assert not (tmp_path / "out.csv").exists()
    found, report = clean(tmp_path, rows, skip_bad_rows=True, max_bad_rows=0.5)
    assert found == ["a,x", "c,y"] and "csv.ragged" in report.skipped[0]
    assert report.bad_rows == 1 and not report.is_clean and not report.changes
    assert "0 rows changed and 0 rows dropped, 1 bad row left out; written to" in report.text()


@pytest.mark.parametrize(
    ("rows", "options", "match"),
    [
        (
            ["a,x", "b,y", "b,Y"],
            {"rare": 5},
            r"all 3 rows of .* dropped: 2 with a rare label, 1 repeated.*smaller rare",
        ),
        (["a,x", "a,y"], {"conflicts": "drop"}, "dropped: 2 with the same input as another.*leave out conflicts"),
        ([",x", "b,"], {}, "dropped: 2 without input or target.*name other columns with input and target"),
    ],
)
def test_a_copy_without_any_row_is_refused_and_a_dry_run_suggests_none(
    tmp_path: Path, rows: list[str], options: dict[str, object], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        clean(tmp_path, rows, task="classify", **options)
    assert not (tmp_path / "out.csv").exists()
    report = clean_data(tmp_path / "data.csv", task="classify", **options)  # type: ignore[arg-type]
    assert (report.written, report.next) == (0, ())


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d", "", "cafÃ©", "café", "x\r\ny", 'q "r"', "s, t", "Â\u00a0"]),
        st.sampled_from(
            ["Spam", "spam", " SPAM", "spamm", "ham", "Ham", "odd", "other", "", "A\u0303©t", "very  good"]
        ),
    ),
    min_size=1,
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    ROWS,
    st.sampled_from([0, 1]),
    st.sampled_from([(0, None), (2, None), (2, "other"), (3, "Spam")]),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["keep", "lf", "space"]),
)
def test_cleaning_the_copy_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    typo_distance: int,
    rare: tuple[int, str | None],
    conflicts: str,
    repeats: str,
    line_ends: str,
) -> None:
    folder = tmp_path_factory.mktemp("clean")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": t, "label": n, "k": 1}) + "\n" for t, n in rows))
    options: dict[str, object] = {"typo_distance": typo_distance, "rare": rare[0], "rare_label": rare[1]}
    options |= {"conflicts": conflicts, "repeats": repeats, "line_ends": line_ends, "task": "classify"}
    first = clean_data(folder / "a.jsonl", **options)  # type: ignore[arg-type]
    if not first.written:
        with pytest.raises(ConfigError, match="would be dropped"):
            clean_data(folder / "a.jsonl", out=folder / "b.jsonl", **options)  # type: ignore[arg-type]
        return
    clean_data(folder / "a.jsonl", out=folder / "b.jsonl", **options)  # type: ignore[arg-type]
    again = clean_data(folder / "b.jsonl", **options)  # type: ignore[arg-type]
    assert again.is_clean and not again.changed and again.rows == again.written == first.written


# --- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["data", "clean", *map(str, arguments)], env={"COLUMNS": "120"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


@pytest.mark.slow
def test_the_command_writes_the_copy_and_a_report_in_each_format(tmp_path: Path) -> None:
    path = write(tmp_path, ["a,x", "b,X", "c,x"])
    for number, suffix in enumerate(["html", "md", "json"]):
        printed = run(path, "-o", tmp_path / f"{number}.csv", "--report", tmp_path / f"r.{suffix}")
        assert "1 row changed and 0 rows dropped" in printed and "spelling" in printed
        assert "spelling" in (tmp_path / f"r.{suffix}").read_text()
    assert json.loads(run(path, "--dry-run", "--json"))["changes"][0]["code"] == "spelling"


def test_every_change_is_in_files_and_in_python_and_five_of_a_kind_in_the_terminal(tmp_path: Path) -> None:
    path = write(tmp_path, [*(f"text {n},spam" for n in range(30)), *(f"text {n + 50},Spam" for n in range(20))])
    report = clean_data(path)
    assert [one.line for one in report.changes[0].each] == list(range(32, 52))
    assert len(report.to_json()["changes"][0]["each"]) == 20
    for number, suffix in enumerate(["html", "json"]):
        printed = run(path, "-o", tmp_path / f"{number}.csv", "--report", tmp_path / f"r.{suffix}")
        assert len(re.findall(r"\D(3[2-9]|4\d|5[01])\D.*'Spam'", printed)) == 5
    assert len(json.loads((tmp_path / "r.json").read_text())["changes"][0]["each"]) == 20
    page = (tmp_path / "r.html").read_text()
    assert all(f">{line}<" in page for line in range(32, 52))


def test_labels_that_differ_in_case_stay_apart_if_asked(tmp_path: Path) -> None:
    rows = ["a,CO", "b,Co", "c,Co", "d, co2", "e,cobalt", "f,Cobalt", "g,cobalt"]
    kept = [*rows[:3], "d,co2", *rows[4:]]
    found, report = clean(tmp_path, rows, case="keep", typo_distance=1)
    assert found == kept and counts(report) == {"spelling": 1} and not any(one.like for one in report.kept)
    assert clean_data(tmp_path / "out.csv", case="keep").is_clean
    (tmp_path / "table.csv").write_text("from,to\nCO,monoxide\n")
    renamed = clean_data(tmp_path / "data.csv", case="keep", labels=tmp_path / "table.csv", conflicts="keep")
    assert {one.label: one.becomes for one in renamed.labels} == {"CO": "monoxide", " co2": "co2"}
    printed = run(tmp_path / "data.csv", "--dry-run", "--case", "keep")
    assert "1 row changed" in printed


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, ["a,x", "b,X", "c,x"])
    assert "nothing is written" in run(path, "--dry-run")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((), "-o OUT"),
        (("-o", "{folder}/data.csv"), "never changed"),
        (("-o", "{folder}/../{name}/data.csv"), "never changed"),
        (("-o", "{folder}/there.csv"), "already exists"),
        (("-o", "{folder}/out.jsonl"), "must end in .csv"),
        (("-o", "{folder}/none/out.csv"), "does not exist"),
        (("-o", "{folder}/out.csv", "--report", "{folder}/r.pdf"), "unknown extension"),
        (("-o", "{folder}/out.csv", "--report", "{folder}/there.md"), "already exists"),
        (("-o", "{folder}/out.csv", "--report", "{folder}/out.csv"), "unknown extension"),
        (("-o", "{folder}/out.csv", "--rare-label", "x"), "--rare"),
        (("-o", "{folder}/out.csv", "--task", "regress", "--rare", "2"), "no labels to rename"),
        (("-o", "{folder}/out.csv", "--label-separator", "|", "--rare", "2", "--rare-label", "a|b"), "separates"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, arguments: tuple[str, ...], match: str
) -> None:
    path = write(tmp_path, ["a,1", "b,2"])
    for name in ("there.csv", "there.md"):
        (tmp_path / name).write_text("old")
    before = path.read_bytes()
    with pytest.raises((ConfigError, RejectedError), match=match):
        run(path, *(one.format(folder=tmp_path, name=tmp_path.name) for one in arguments))
    assert path.read_bytes() == before and not (tmp_path / "out.csv").exists()


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(ConfigError, match="only csv, tsv, jsonl, conll files are"):
        clean_data(tmp_path / "a.txt")


def test_a_file_that_changes_meanwhile_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, ["a,x", "b,y"])
    states = iter(["before", "after"])
    monkeypatch.setattr("seqloom.data.clean.state_of", lambda _: next(states))
    with pytest.raises(RejectedError, match="changed while it was read"):
        clean_data(path, out=tmp_path / "out.csv")
    assert [one.name for one in tmp_path.iterdir()] == ["data.csv"]


def test_rows_that_leak_within_one_file_are_removed_by_the_command_of_the_fix(tmp_path: Path) -> None:
    rows = [f"row {number % 40},{'ab'[number % 2]}" for number in range(80)]
    found = check_data(write(tmp_path, rows))
    (overlap,) = [one for one in found.findings if one.code == "leak.overlap"]
    assert all(case.fix.startswith("keep one of these rows in the file, or clean a") for case in overlap.samples)
    assert all(".csv`; otherwise" in case.fix for case in overlap.samples)
    clean(tmp_path, rows)
    assert "leak.overlap" not in [one.code for one in check_data(tmp_path / "out.csv").findings]


def test_near_duplicates_within_one_file_are_removed_by_the_command_of_the_fix(tmp_path: Path) -> None:
    long = "a long sentence about looms and about the weaving of cloth and of baskets in town"
    texts = [f"{long} {number % 20 + 100} {'!' * (number // 20)}" for number in range(60)]
    texts += [f"{number * 7919} is no copy of {number * 104729}" for number in range(120)]
    path = write(tmp_path, [f"{text},{'ab'[number % 2]}" for number, text in enumerate(texts)])
    (near,) = [one for one in check_data(path).findings if one.code == "leak.near"]
    command = re.search("`seqloom (data clean [^`]*)`", near.samples[0].fix)
    assert command is not None and command[1].endswith("-o " + str(tmp_path / "data-clean.csv") + " --repeats near")
    assert CliRunner().invoke(app, shlex.split(command[1])).exit_code == 0
    copy = tmp_path / "data-clean.csv"
    assert "leak.near" not in [one.code for one in check_data(copy).findings]
    report = clean_data(path, repeats="near")
    assert counts(report)["near"] == 58 and report.changes[-1].each[0].line == 4, "the first of each label stays"
    assert clean_data(copy, repeats="near").is_clean


def test_white_space_around_texts_is_removed_and_told(tmp_path: Path) -> None:
    rows = ["see you\t\t\t,ham", "  win a prize ,spam", "ok then,ham"]
    found, report = clean(tmp_path, rows)
    assert found == ["see you,ham", "win a prize,spam", "ok then,ham"]
    assert counts(report) == {"space": 2} and report.changed == 2
    assert [(one.before, one.after) for one in report.changes[0].each] == [
        ("'see you\\x09\\x09\\x09'", "'see you'"),
        ("'  win a prize '", "'win a prize'"),
    ]
    assert clean_data(tmp_path / "out.csv").is_clean
    (tmp_path / "out.csv").unlink()
    _, report = clean(tmp_path, [f"{'see you there ' * 9}soon\t,ham", "hi,spam"])
    (sample,) = report.changes[0].each
    assert sample.before.endswith("soon\\x09'") and sample.after.endswith("soon'"), "shown where they differ"


def test_white_space_around_each_text_of_a_pair_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("a,b,label\nhi ,yo,x\nhi,\tyou,y\n")
    report = clean_data(path, out=tmp_path / "out.csv", input=("a", "b"))
    assert lines(tmp_path / "out.csv") == ["hi,yo,x", "hi,you,y"] and counts(report) == {"space": 2}


def test_an_empty_row_is_shown_with_what_was_there(tmp_path: Path) -> None:
    report = clean_data(write(tmp_path, [",ham", "lunch at noon,", "see you,ham", "hi,spam"]))
    (empty,) = report.changes
    assert [one.before for one in empty.each] == ["label: 'ham' | text: ''", "label: '' | text: 'lunch at noon'"]


def test_near_duplicates_are_those_of_texts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a", "b"], "tags": ["O", "O"]}\n' * 3)
    with pytest.raises(ConfigError, match="needs texts"):
        clean_data(tmp_path / "a.jsonl", repeats="near")


def test_a_check_shows_everything_at_once_and_its_commands_lead_to_data_that_can_be_used(tmp_path: Path) -> None:
    """Rows without a label do not hide what else there is, and what is printed can be pasted."""
    labels = ["refund", "refund", "Refund", "delivery", "delivery ", "login"]
    rows = [f"message number {number} about {labels[number % 6]};{labels[number % 6]}" for number in range(240)]
    rows[100], rows[150], rows[200] = "no label;", ";login", "a message with a slip;refudn"
    path = tmp_path / "my messages.csv"
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    given = [str(path), "--delimiter", ";", "--no-header", "--input", "1", "--target", "2", "--task", "classify"]
    done = CliRunner().invoke(app, ["data", "check", *given], env={"COLUMNS": "80"})
    assert done.exit_code == 2 and done.stderr == ""
    codes = ("row.empty_label", "row.empty_text", "label.case", "label.space")
    said = " ".join(done.stdout.split())
    assert all(found in said for found in (*codes, "Labels (6)", "2 bad rows left out"))
    clean, train = (line.strip() for line in done.stdout.partition("\nNext\n")[2].splitlines())
    cleaned = CliRunner().invoke(app, shlex.split(clean)[1:], env={"COLUMNS": "80"})
    assert cleaned.exit_code == 0 and "Labels of the copy (3)" in cleaned.stdout
    assert clean.endswith("--typo-distance 1") and "clean a copy with --typo-distance 1: `seqloom data clean`" in said
    assert cleaned.stdout.endswith(f"\nNext\n  {train}\n")
    assert shlex.split(train)[:2] == ["seqloom", "train"]
    again = CliRunner().invoke(app, ["data", "check", *shlex.split(train)[2:]], env={"COLUMNS": "80"})
    assert again.exit_code == 0 and "Next\n  seqloom train " in again.stdout


def messy(path: Path) -> Path:
    """Two encodings, no header, labels in several spellings, rare labels, repeats, empty and ragged rows."""
    labels = ["Refund", "Delivery", "Login"]
    rows = [f"message number {number} at the café;{labels[number % 3]}".encode() for number in range(270)]
    rows[10], rows[20], rows[30] = b"one;Refudn", b"two;delivery", b"three;Login "
    rows[40], rows[50], rows[60], rows[70] = b"four;Spam", b"five;Praise", b";Login", b"no label;"
    rows[80], rows[90], rows[100] = b"too;many;fields", rows[91], "six £;Login".encode("cp1252")
    path.write_bytes(b"\n".join([*rows, b""]))
    return path


def test_the_first_check_of_a_messy_file_tells_everything_and_one_command_cleans_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    messy(tmp_path / "messy.csv")
    done = CliRunner().invoke(app, ["data", "check", "messy.csv"], env={"COLUMNS": "80"})
    assert done.exit_code == 2 and done.stderr == ""
    said = " ".join(done.stdout.split())
    codes = ["csv.delimiter", "enc.mixed", "row.empty_text", "row.empty_label", "csv.ragged"]
    assert all(code in said for code in [*codes, "label.space", "label.case", "label.rare", "label.singleton"])
    assert "Fix: add --delimiter ';' --no-header --task classify --input 1 --target 2" in said
    clean, train = (line.strip() for line in done.stdout.partition("\nNext\n")[2].splitlines())
    assert "--delimiter ';' --no-header" in clean and "--skip-bad-rows" in clean
    assert clean.endswith("--typo-distance 1"), "what becomes of rare labels is for the user to decide"
    assert "label.few" not in said and "with --rare 5 added, which drops such rows" in said
    cleaned = CliRunner().invoke(app, shlex.split(clean)[1:], env={"COLUMNS": "80"})
    assert cleaned.exit_code == 0 and cleaned.stdout.endswith(f"\nNext\n  {train}\n")
    assert {row.partition(";")[2] for row in (tmp_path / "messy-clean.csv").read_text().splitlines()} == {
        *("Refund", "Delivery", "Login", "Spam", "Praise")
    }
    again = CliRunner().invoke(app, ["data", "check", *shlex.split(train)[2:]])
    assert again.exit_code == 0, again.stdout
    assert again.stdout.partition("\nNext\n")[2].split()[:2] == ["seqloom", "train"], "the advice does not loop"


def test_the_report_on_a_copy_tells_of_rare_labels_with_the_command_that_merges_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = [*["ham"] * 150, *["spam"] * 5, *["praise"] * 4, "hamm", "other things"]
    write(tmp_path, [f"a{number},{label}" for number, label in enumerate(labels)])
    report = clean_data("data.csv")
    assert report.rare == ("praise", "other things"), "not the likely typing error"
    said = " ".join(report.text().split())
    assert "'praise' has 4 rows" in said
    assert "never predicted. --rare 5 drops their rows. --rare 5 --rare-label other merges them." in said
    *_, command = report.relabeling
    assert command.endswith("--labels data-labels.csv --rare 5 --rare-label other")
    asked = clean_data("data.csv", rare=2)
    assert asked.rare == ("praise",) and "'praise' has 4 rows" in asked.text(), "it stays, and is still told"
    assert asked.rare_options == ("--rare 5",), "merged alone, it would be as rare"
    assert asked.relabeling[-1].count("--rare") == 1
    for one in report.relabeling:
        subprocess.run(["/bin/sh", "-c", one.replace("seqloom", f"{sys.executable} -m seqloom")], check=True)
    assert Counter(row.partition(",")[2] for row in lines(tmp_path / "data-clean.csv")) == {
        "ham": 151,
        "spam": 5,
        "other": 5,
    }


def test_a_dry_run_writes_nothing_also_if_the_copy_is_named(tmp_path: Path) -> None:
    path, out = write(tmp_path, ["a,x", "b,X", "c,x"]), tmp_path / "other.csv"
    assert f"nothing is written to {out}: a dry run" in " ".join(run(path, "-o", str(out), "--dry-run").split())
    report = clean_data(path, out=out, dry_run=True)
    assert (report.out, report.planned, out.exists()) == (None, str(out), False)
    assert report.next == (f"seqloom data clean {path} -o {out}",), "the copy keeps its name"
    with pytest.raises(ConfigError, match="is the file itself"):
        clean_data(path, out=path, dry_run=True)


def test_rare_labels_of_a_copy_are_a_remark_and_not_advice_without_end(tmp_path: Path) -> None:
    rows = [f"text number {number},{('ham', 'spam')[number % 2]}" for number in range(40)]
    path = write(tmp_path, [*rows, "in court,legal", "a lawyer,legal", "hm,?"])
    found = check_data(path)
    (few,) = [one for one in found.findings if one.code == "label.few"]
    (text, fix), command = few.samples[0][1:], f"seqloom data clean {path} -o {path.with_name('data-clean.csv')}"
    assert text.startswith("labels 'legal' (2 rows) and '?' (1 row) have fewer than 5 rows")
    assert fix == f"add examples, or clean a copy: `{command} --rare 5`, which drops such rows"
    assert found.next == (f"seqloom train {path}",) and few.severity == "note"
    more = check_data(write(tmp_path, [*rows, "in court,legal", "a lawyer,legal", "hm,?", "eh,?", "no,?"]))
    (few,) = [one for one in more.findings if one.code == "label.few"]
    assert few.samples[0].fix.endswith(f"rows; to merge them clean a copy: `{command} --rare 5 --rare-label other`")


def test_rare_labels_of_several_files_are_never_merged_file_by_file(tmp_path: Path) -> None:
    rows = [f"text number {number},{('ham', 'Spam')[number % 2]}" for number in range(60)]
    path = write(tmp_path, [*rows, "see,spma", "one,legal", "two,legal", "three,spam"])
    dev = tmp_path / "dev.csv"
    dev.write_text("".join(f"{row}\n" for row in ["text,label", *(f"new {row.lower()}" for row in rows), "x,legal"]))
    found = check_data(path, dev=dev)
    assert not any("--rare" in one for one in (*found.next, *(s.fix for f in found.findings for s in f.samples)))
    for command in found.next[:-1]:
        shell = command.replace("seqloom", f"{sys.executable} -m seqloom", 1)
        subprocess.run(["/bin/sh", "-c", shell], check=True, capture_output=True)
    names = [{row.rpartition(",")[2] for row in lines(tmp_path / f"{name}-clean.csv")} for name in ("data", "dev")]
    assert names[1] <= names[0] and len(names[1] - {"legal", "ham"}) == 1, "one spelling in both files"
    again = CliRunner().invoke(app, ["data", "check", *shlex.split(found.next[-1])[2:]])
    assert again.exit_code == 0, again.output


def test_a_check_names_every_label_that_its_command_renames_as_a_typing_error(tmp_path: Path) -> None:
    labels = ["billing"] * 190 + ["praise"] * 200 + ["biling"] * 7 + ["blling"] + ["prase"] * 6 + ["praisee"]
    path = write(tmp_path, [f"text number {number},{label}" for number, label in enumerate(labels)])
    found = check_data(path)
    (typos,) = [one for one in found.findings if one.code == "label.rare"]
    said = " ".join(sample.text for sample in typos.samples)
    report = clean_data(path, typo_distance=1)
    assert found.next[0].endswith("--typo-distance 1") and typos.rows == 15
    assert all(f"'{one.label}' ({one.rows} row" in said for one in report.labels) and len(report.labels) == 4


def test_typing_errors_are_not_merged_by_an_option_that_merges_labels_with_a_meaning_of_their_own(
    tmp_path: Path,
) -> None:
    labels = ["rate"] * 150 + ["date"] * 60 + ["datee"]
    found = check_data(write(tmp_path, [f"text number {number},{label}" for number, label in enumerate(labels)]))
    (typos,) = [one for one in found.findings if one.code == "label.rare"]
    assert "--labels TABLE" in typos.samples[0].fix and "typo" not in found.next[0]


def test_the_rows_of_a_check_and_of_a_copy_add_up(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    rows = [f"text {number},{'ab'[number % 2]}".encode() for number in range(60)]
    rows += [b"caf\xc3\xa9,a", b'"na\xefve\nd\xe9j\xe0 vu",b', b"x,a,b", b",a"]
    path.write_bytes(b"\n".join([b"text,label", *rows, b""]))
    found = check_data(path)
    counts_of = {one.code: one.rows for one in found.findings}
    assert counts_of["enc.mixed"] == 1, "one row of two lines"
    assert "2 bad rows left out of 64" in repr(found)
    (said,) = {one for sample in (s for f in found.findings for s in f.samples) for one in LIMIT.findall(sample.fix)}
    assert f"--max-bad-rows {said}" in found.next[0]
    report = clean_data(path, skip_bad_rows=True, max_bad_rows=said)
    assert counts(report) == {"encoding": 1, "empty": 1}
    assert [int(word) for word in re.findall(r"^ *(\d+)  ", report.text(), re.M)[:4]] == [64, 1, 1, 62]


LIMIT = re.compile("--max-bad-rows ([^ `]+)")


def test_the_report_says_whether_rare_labels_are_renamed_or_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, [*(f"text {number},a" for number in range(9)), "x,b", "y,c"])
    assert "rare label, dropped" in clean_data(path, rare=2).text()
    assert "rare label, renamed" in clean_data(path, rare=2, rare_label="other").text()


def test_the_main_spelling_is_among_those_that_differ_in_case(tmp_path: Path) -> None:
    labels = ["billing"] * 30 + [" billing "] * 4 + ["BILLING"] * 3 + ["praise"] * 9
    rows = [" billing ", *labels]
    found = check_data(write(tmp_path, [f"text number {number},{label}" for number, label in enumerate(rows)]))
    (case,) = [one for one in found.findings if one.code == "label.case"]
    assert case.samples[0].text.startswith("labels 'billing' (30 rows) and 'BILLING' (3 rows)")


def test_the_next_command_of_a_dry_run_writes_the_copy(tmp_path: Path) -> None:
    path = write(tmp_path, ["a,x", "b,X", "c,x", ",y"])
    (command,) = clean_data(path, rare=2, rare_label="other").next
    assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0
    assert lines(tmp_path / "data-clean.csv") == ["a,x", "b,x", "c,x"]
    again = clean_data(tmp_path / "data-clean.csv", delimiter=",")
    assert again.is_clean and again.next == (f"seqloom train {tmp_path / 'data-clean.csv'} --delimiter ,",)


def ragged(count: int) -> list[str]:
    """Rows in several spellings, with short labels that look like typing errors; so many have a field too much."""
    good = [f"row {number},{'aB' if number % 2 else ('Ab', 'ab')[number % 4 // 2]}" for number in range(300)]
    return [*good, *["too,many,fields"] * count, *["a label,hamm", *(f"text {number},ham" for number in range(150))]]


def test_the_commands_of_a_check_and_of_a_dry_run_leave_out_the_rows_that_cannot_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, ragged(9))
    with pytest.raises(
        RejectedError, match=r'the comma, or skip such rows with skip_bad_rows=True and max_bad_rows="1\.96%"'
    ):
        clean_data(path)
    dev = tmp_path / "dev.csv"
    dev.write_text("text,label\nnew,ham\nnew,Ham\n" + "a,b,c\n")  # too many rows for a limit
    found = check_data(path, dev=dev)
    write_copy, _ = found.next
    assert write_copy.endswith("data-clean.csv --skip-bad-rows --max-bad-rows 1.96%")
    advised = [case.fix for one in found.findings for case in one.samples if f"`seqloom data clean {path}" in case.fix]
    assert advised and all(f"`{write_copy}" in fix for fix in advised)
    options = shlex.split(write_copy)[3:]
    dry = clean_data(path, skip_bad_rows=True, max_bad_rows="2%")
    make_table, rename = dry.relabeling
    for command in (dry.next[0], rename):
        assert "--skip-bad-rows --max-bad-rows 2%" in command
    done = CliRunner().invoke(app, ["data", "clean", *options])
    assert done.exit_code == 0 and "Bad rows, left out (9)" in done.stdout and " and 4 more" in done.stdout
    assert done.stdout.endswith(f"\nNext\n  seqloom train {tmp_path / 'data-clean.csv'}\n"), "no bad row is left"
    (tmp_path / "data-clean.csv").unlink()
    subprocess.run(["/bin/sh", "-c", make_table], check=True)
    assert CliRunner().invoke(app, shlex.split(rename)[1:]).exit_code == 0


def test_the_next_command_of_a_check_skips_bad_rows_only_where_some_are_left(tmp_path: Path) -> None:
    path = write(tmp_path, [*(f"row {number},{('ham', 'spam')[number % 2]}" for number in range(297)), "a,b,c", ",ham"])
    write_copy, train = check_data(path, skip_bad_rows=True, max_bad_rows="1%").next
    assert "--skip-bad-rows --max-bad-rows 1%" in write_copy and "skip" not in train
    assert CliRunner().invoke(app, shlex.split(write_copy)[1:]).stdout.endswith(f"\nNext\n  {train}\n")
    rows = [json.dumps({"text": f"row {number}", "label": "ab"[number % 2]}) for number in range(298)]
    objects = tmp_path / "data.jsonl"
    objects.write_text("\n".join([*rows, "{", '{"text": "one", "label": {}}', '{"text": "two ", "label": "a "}', ""]))
    *_, train = check_data(objects, skip_bad_rows=True, max_bad_rows="1%").next
    assert "--skip-bad-rows --max-bad-rows 1%" in train, "an object is no label, and cleaning leaves it as it is"


def test_a_copy_of_a_copy_has_a_number(tmp_path: Path) -> None:
    path = write(tmp_path, ["a,x", "b,X", "c,x"])
    for copy in ("data-clean.csv", "data-clean-2.csv", "data-clean-3.csv"):
        (command,) = clean_data(path).next
        assert command == f"seqloom data clean {path} -o {tmp_path / copy}"
        path = write(tmp_path, ["a,x", "b,X", "c,x"], copy)


def test_files_list_every_bad_row_and_every_conflict_and_the_terminal_says_how_many(tmp_path: Path) -> None:
    path = write(
        tmp_path, [*["too,many,fields"] * 7, *(f"row {number % 4},{'ab'[number // 4]}" for number in range(8))]
    )
    report = clean_data(path, skip_bad_rows=True, max_bad_rows=0.5)
    assert [one.partition(": ")[0] for one in report.skipped] == [f"{path}:{line}" for line in range(2, 9)]
    assert report.conflict_lines == tuple(range(9, 17)) and report.conflicts == 8
    assert "Lines: 9, 10, 11, 12, 13 and 3 more." in " ".join(report.text().split())
    assert "and 2 more" in report.text() and "data.csv:7" not in report.text()
    assert all(f"data.csv:{line}: csv.ragged" in report.html() for line in range(2, 9))
    assert all(one.endswith(" The row is 'too,many,fields'.") for one in report.skipped)
    assert "9, 10, 11, 12, 13, 14, 15, 16" in report.html()


def test_the_next_command_of_a_check_reads_the_copy_in_the_encoding_that_it_has(tmp_path: Path) -> None:
    rows = [f"café {number},{'Ja' if number % 2 else 'nein'}" for number in range(30)] + ["café 30,ja"]
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text(
            "\n".join(["text,label", *(rows if name == "train.csv" else rows[:30]), ""]), "cp1252"
        )
    clean_train, clean_dev, then = check_data(
        tmp_path / "train.csv", dev=tmp_path / "dev.csv", encoding="cp1252", delimiter=","
    ).next
    for command in (clean_train, clean_dev):  # a copy is UTF-8, so the other file needs one too
        assert "--encoding cp1252" in command
        assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0
    assert "--encoding" not in then and then.startswith(f"seqloom train {tmp_path / 'train-clean.csv'} ")
    again = CliRunner().invoke(app, ["data", "check", *shlex.split(then)[2:], "--json"])
    assert again.exit_code == 0 and "char.damaged" not in again.stdout, again.output


def test_what_cannot_be_cleaned_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("John B-PER\nleft O\n\n")
    with pytest.raises(ConfigError, match=r"only csv, tsv, jsonl, conll files are.*`seqloom data check` lists"):
        clean_data(tmp_path / "names.txt")


def test_reports_print_as_a_few_lines(tmp_path: Path) -> None:
    path = write(tmp_path, ["a,x", "b,X", "c,x", ",y"])
    assert repr(clean_data(path)) == f"CleanReport({path})\n  1 row changed and 1 row dropped; nothing is written"
    assert repr(check_data(path)).startswith(f"DataReport({path})\n  This data") and len(repr(check_data(path))) < 600


def test_bad_rows_beyond_the_limit_are_errors_of_the_report(tmp_path: Path) -> None:
    path = write(tmp_path, [*(f"text {number},{'ab'[number % 2]}" for number in range(30)), "too,many,fields"])
    found = check_data(path, skip_bad_rows=True)
    assert found.verdict == "errors" and "max_bad_rows allows 0.1%" in found.too_many
    assert [one.split()[1] for one in found.next] == ["data", "train"], "the file itself cannot be trained on"
    assert check_data(path, skip_bad_rows=True, max_bad_rows="5%").verdict == "warnings"
    path.write_text("text,label\n" + ",a\n" * 9)
    with pytest.raises(RejectedError, match="9 problems"):
        check_data(path)  # there is nothing to report on


SENTENCES = ("Ann B-PER\nleft O\n", "It O\nrains O\n", "ann O\nleft O\n", "Bo B-PER\n")


@pytest.mark.parametrize("name", ["names.conll", "names.txt"])
def test_repeated_sentences_of_words_with_tags_are_dropped(name: str, tmp_path: Path) -> None:
    path, out = tmp_path / name, tmp_path / f"out{Path(name).suffix}"
    path.write_text("\n".join([*SENTENCES, SENTENCES[0], "# a comment\nIt O\nrains B-X\n", SENTENCES[1]]))
    report = clean_data(path, out=out)
    assert counts(report) == {"repeat": 2} and report.conflicts == 2
    assert out.read_text() == "".join(f"{one}\n" for one in (*SENTENCES, "It O\nrains B-X\n"))
    assert report.changes[0].each[0].before == "Ann left"
    assert clean_data(out).is_clean
    assert counts(clean_data(path, conflicts="drop")) == {"repeat": 1, "conflict": 3}
    (command,) = clean_data(path).next
    assert command == f"seqloom data clean {path} -o {path.with_name(f'names-clean{path.suffix}')}"


def test_sentences_that_leak_within_one_file_are_removed_by_the_command_of_the_fix(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(f"w{number % 30} O\nname{number % 7} B-X\n" for number in range(600)))
    found = [one for one in check_data(path).findings if one.code == "leak.overlap"]
    command = f"seqloom data clean {path} -o {tmp_path}/names-clean.txt"
    assert found and all(f"`{command}`" in sample.fix for one in found for sample in one.samples)
    assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0
    assert not [one for one in check_data(tmp_path / "names-clean.txt").findings if one.code.startswith("leak")]


def test_no_command_is_offered_for_words_with_tags_in_a_format_that_is_not_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    row = "1\tw{0}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n2\tv{0}\t_\tVERB\t_\t_\t1\tdep\t_\t_\n"
    path.write_text("\n".join(row.format(number % 30) for number in range(600)))
    (found,) = (one for one in check_data(path).findings if one.code == "leak.overlap")
    assert found.samples and not any("seqloom data clean" in sample.fix for sample in found.samples)


def test_a_file_that_cannot_be_cleaned_is_refused_before_a_name_for_the_copy_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "prose.txt").write_text("It rains.\nIt rained.\n")
    refused = CliRunner().invoke(app, ["data", "clean", str(tmp_path / "prose.txt")])
    assert "prose.txt is not cleaned: only csv, tsv, jsonl, conll files are" in str(refused.exception)
