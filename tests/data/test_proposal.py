"""A refused table: the error names all options with which it opens, and they do open it."""

import ast
import random
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import seqloom
from seqloom.cli import app
from seqloom.config.cleaning import CleaningConfig
from seqloom.config.data import DataConfig, ReadingConfig
from seqloom.config.options import added_arguments
from seqloom.data.clean import cleaning_steps
from seqloom.data.dataset import Dataset, open_data
from seqloom.data.inputs import InputColumns, read_inputs
from seqloom.data.kinds.text import TextInput
from seqloom.data.problems import Ledger
from seqloom.errors import RejectedError, SeqloomError
from seqloom.events import finished
from seqloom.search.documents import Collection, TextFile

LABELS = ("ham", "spam")
WORDS = ["good", "great", "nice", "fine", "bad", "awful", "poor", "plot", "actor", "film", "story", "music"]


def text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=6))


def table(path: Path, row: Callable[[random.Random], str], encoding: str = "utf-8", first: str = "") -> Path:
    rng = random.Random(0)
    rows = [*([first] if first else []), *(row(rng) for _ in range(60))]
    path.write_text("\n".join([*rows, ""]), encoding=encoding)
    return path


ROWS: dict[str, tuple[str, Callable[[random.Random], str], str, str]] = {  # name: file, row, encoding, options
    "pairs": ("a.tsv", lambda rng: f"{text(rng)}\t{text(rng)}", "utf-8", "--no-header --task translate"),
    "digits": ("a.tsv", lambda rng: f"{text(rng)}\t{rng.randrange(2)}", "utf-8", "--no-header --task classify"),
    "stars": ("a.csv", lambda rng: f"{text(rng)},{rng.randrange(1, 6)}", "utf-8", "--no-header --task classify"),
    "prices": ("a.csv", lambda rng: f"{text(rng)},{rng.random():.4f}", "utf-8", "--no-header --task regress"),
    "codes": (
        "a.tsv",
        lambda rng: f"0{rng.random():.9f}\t0{rng.random():.9f}",
        "utf-8",
        "--no-header --task translate",
    ),
    "commas": (
        "a.csv",
        lambda rng: f"{text(rng)}{', ' + text(rng) if rng.random() < 0.9 else ''};{rng.choice('ab')}",
        "utf-8",
        "--delimiter ';' --no-header --task classify",
    ),
    "all": ("a.csv", lambda rng: f"café {text(rng)};{rng.choice('ab')}", "cp1252", "--encoding cp1252 --delimiter ';'"),
}


def options_in(error: SeqloomError) -> str:
    found = re.search(r"Fix: add (--.*?)(?: \(or|;|\.$)(?! --)", str(error).replace("';'", "SEMICOLON"))
    assert found is not None, str(error)
    return found[1].replace("SEMICOLON", "';'")


def reopened(path: Path, options: str) -> Dataset:
    """The data with the options as a shell would pass them."""
    call = ast.parse(f"open_data({added_arguments(options)})", mode="eval").body
    assert isinstance(call, ast.Call)
    named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    reading = {name: named.pop(name) for name in ("encoding", "delimiter", "header") if name in named}
    columns = {name: (value,) if isinstance(value, str) else value for name, value in named.items() if name != "task"}
    config = DataConfig(train=(str(path),), reading=ReadingConfig(**reading), task=named.get("task"), **columns)
    return open_data(config, Ledger())


@pytest.mark.parametrize("case", ROWS)
def test_the_error_of_a_table_without_a_header_has_all_options_that_open_it(case: str, tmp_path: Path) -> None:
    name, row, encoding, expected = ROWS[case]
    path = table(tmp_path / name, row, encoding)
    with pytest.raises(RejectedError) as refused:
        open_data(DataConfig(train=(str(path),)), Ledger())
    options = options_in(refused.value)
    assert options.startswith(expected) and "--input 1 --target 2" in options
    opened = reopened(path, options)
    assert len(list(opened.rows(Ledger()))) == 60


def test_three_columns_are_a_pair_of_texts_and_a_label(tmp_path: Path) -> None:
    path = table(tmp_path / "a.tsv", lambda rng: f"{text(rng)}\t{rng.choice('ab')}\t{text(rng)}")
    with pytest.raises(RejectedError, match="Fix: add --no-header --task classify --input 1 --input 3 --target 2"):
        open_data(DataConfig(train=(str(path),)), Ledger())


def test_names_that_are_not_known_are_proposed_with_their_flags(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{rng.choice('ab')},{text(rng)}", first="kind,what they wrote")
    with pytest.raises(RejectedError, match=r"Fix: add --task classify --input 'what they wrote' --target kind"):
        open_data(DataConfig(train=(str(path),)), Ledger())


def test_nothing_is_proposed_if_it_is_not_clear(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{text(rng)},{rng.choice('ab')},{rng.choice('cd')}")
    with pytest.raises(RejectedError, match="Fix: give --input NAME --target NAME, or --no-header if"):
        open_data(DataConfig(train=(str(path),)), Ledger())


def test_in_python_the_options_are_arguments(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", ROWS["all"][1], "cp1252")
    with pytest.raises(RejectedError) as refused:
        seqloom.train(path)
    expected = 'add encoding="cp1252", delimiter=";", header=False, task="classify", input="1", target="2"'
    assert expected in str(refused.value) and "--" not in str(refused.value)


def test_the_flags_of_a_fix_are_what_a_shell_reads() -> None:
    assert shlex.split("--delimiter ';' --no-header") == ["--delimiter", ";", "--no-header"]
    assert added_arguments("--delimiter ';' --no-header") == 'delimiter=";", header=False'


@pytest.mark.parametrize(("name", "task"), [("score", "classify"), ("rating", "classify"), ("price", "classify")])
def test_few_integers_are_labels_whatever_their_column_is_called(name: str, task: str, tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{text(rng)},{rng.randrange(1, 6)}", first=f"text,{name}")
    opened = open_data(DataConfig(train=(str(path),), target=(name,)), Ledger())
    assert opened.config.task == task
    assert f"task: classify ('{name}' has few different numbers; use --task regress to predict them)" in opened.messages


def test_many_numbers_are_still_predicted_and_the_line_names_the_option(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{text(rng)},{rng.randrange(100)}", first="text,score")
    opened = open_data(DataConfig(train=(str(path),)), Ledger())
    assert "task: regress ('score' has numbers; use --task classify if they are labels)" in opened.messages


def test_texts_that_rarely_repeat_are_translated_and_not_counted_as_labels(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{text(rng)},{text(rng)}", first="text,german")
    opened = open_data(DataConfig(train=(str(path),), target=("german",)), Ledger())
    assert "task: translate ('german' has texts that rarely repeat; use --task classify if they are labels)" in (
        opened.messages
    )


INBOX = [f"{label};message {number} with words;2024-03-{1 + number % 9:02}" for number in range(90) for label in LABELS]


def in_two_encodings(path: Path, rows: Sequence[str] = tuple(INBOX)) -> Path:
    """A file like one that was edited on two machines: line 3 is UTF-8, the last line Windows-1252."""
    head, *rest = rows
    lines = ["status;message;received", head, "ham;see you at the café;2024-03-01", *rest]
    path.write_bytes("\n".join([*lines, ""]).encode() + "spam;only £9 a week;2024-03-09\n".encode("cp1252"))
    return path


def test_the_command_for_a_file_in_two_encodings_has_all_options_and_works(tmp_path: Path) -> None:
    path = in_two_encodings(tmp_path / "inbox.csv")
    with pytest.raises(RejectedError) as refused:
        open_data(DataConfig(train=(str(path),)), Ledger())
    assert "the file seems to have delimiter ';'. Fix: run " in str(refused.value)
    (check,) = re.findall("`seqloom ([^`]*)`", str(refused.value))
    assert check == f"data check {path} --delimiter ';' --target status"
    found = CliRunner().invoke(app, shlex.split(check)).output
    assert "enc.mixed" in found
    cleaning = found.partition("\nNext\n  seqloom ")[2].partition("\n")[0]
    assert cleaning.endswith("inbox-clean.csv --delimiter ';' --target status")
    done = CliRunner().invoke(app, shlex.split(cleaning))
    assert done.exit_code == 0, done.output
    assert len(list(reopened(tmp_path / "inbox-clean.csv", "--delimiter ';' --target status").rows(Ledger()))) == 182


def test_the_command_keeps_the_options_that_were_given(tmp_path: Path) -> None:
    path = in_two_encodings(tmp_path / "inbox.csv")
    reading = ReadingConfig(delimiter=";", format="csv")
    with pytest.raises(RejectedError, match=r"inbox\.csv --format csv --delimiter ';' --target status`"):
        open_data(DataConfig(train=(str(path),), reading=reading), Ledger())


def test_the_command_for_inputs_in_two_encodings_says_how_they_were_read_and_works(tmp_path: Path) -> None:
    path, reading = in_two_encodings(tmp_path / "inbox.csv"), ReadingConfig(delimiter=";")
    for reads in (
        lambda: list(read_inputs(path, TextInput(), Ledger(), columns=InputColumns(("message",)), reading=reading)),
        lambda: TextFile(path, ("message",), reading=reading).read(),
        lambda: Collection(path, ("message",), reading=reading).checked(),
    ):
        with pytest.raises(RejectedError, match=r"`seqloom data clean [^`]*--delimiter ';' [^`]*`") as refused:
            reads()
        (cleaning,) = re.findall("`seqloom ([^`]*)`", str(refused.value))
        assert cleaning.endswith("--delimiter ';' --task lm --input message --repeats keep"), "every row is needed"
    assert CliRunner().invoke(app, shlex.split(cleaning)).exit_code == 0


def test_a_check_describes_a_file_in_two_encodings(tmp_path: Path) -> None:
    path = in_two_encodings(tmp_path / "inbox.csv")
    report = seqloom.check_data(path, delimiter=";", target="status")
    first = report.findings[0]
    assert (report.verdict, report.rows, first.code, first.rows) == ("errors", 182, "enc.mixed", 1)
    assert "inbox.csv:183:" in first.samples[0].place
    assert next(command.partition(" -o")[0] for command in report.next) == f"seqloom data clean {path}"
    assert report.next[1].startswith("seqloom train") and "inbox-clean.csv" in report.next[1]


def test_a_check_of_a_file_whose_options_are_clear_reports_all_of_it(tmp_path: Path) -> None:
    path = in_two_encodings(tmp_path / "inbox.csv")
    report = seqloom.check_data(path)
    missing, mixed = report.findings[:2]
    assert (missing.severity, missing.code, mixed.code, report.rows) == ("reject", "csv.delimiter", "enc.mixed", 182)
    assert missing.samples[0].fix.startswith('add delimiter=";", target="status"'), "what Python takes"
    assert "--delimiter ';'" in CliRunner().invoke(app, ["data", "check", str(path)]).output, "and the shell"
    assert report.verdict == "errors" and all("--delimiter ';' --target status" in one for one in report.next)
    path.write_text("a;b;c;d\n" + "one;two;three;four\n" * 9)
    with pytest.raises(RejectedError, match="give input="):
        seqloom.check_data(path)


def test_cleaning_names_all_missing_options_at_once(tmp_path: Path) -> None:
    path = in_two_encodings(tmp_path / "inbox.csv")
    with pytest.raises(RejectedError, match=r"Fix: add --delimiter ';' --target status\.$"):
        finished(cleaning_steps(DataConfig(train=(str(path),)), CleaningConfig()))


def test_the_options_that_are_clear_are_named_with_what_is_not_clear(tmp_path: Path) -> None:
    path, header = tmp_path / "post.csv", "id;note;kind;channel"
    rows = [f"{number};a note, number {number};{'ab'[number % 2]};{'cd'[number % 3 % 2]}" for number in range(60)]
    path.write_text("\n".join([header, *rows, ""]))
    rest = "; then there is no column 'text'; found id, note, kind, channel: give --input NAME --target NAME, or "
    for asked in (DataConfig(train=(str(path),)), DataConfig(train=(str(path),), task="classify")):
        with pytest.raises(RejectedError, match=f"Fix: use --delimiter ';', or .* if the file has one column{rest}"):
            open_data(asked, Ledger())
    path.write_bytes(path.read_bytes() + "60;£9;a;d\n".encode("cp1252") + "61;é;a;d\n".encode())
    check = "Fix: run `seqloom data check .*post.csv --delimiter ';' --input NAME --target NAME`"
    with pytest.raises(RejectedError, match=f"; there is no column 'text'; found id, note, kind, channel. {check}"):
        open_data(DataConfig(train=(str(path),)), Ledger())


def test_the_only_column_that_can_be_the_target_is_named(tmp_path: Path) -> None:
    path = tmp_path / "inbox.csv"
    path.write_text("\n".join(["status;message;received", *INBOX, ""]))
    with pytest.raises(RejectedError, match=r"Fix: add --delimiter ';' --target status\."):
        open_data(DataConfig(train=(str(path),)), Ledger())
    with pytest.raises(RejectedError, match="Fix: give --target status, or --task lm"):
        open_data(DataConfig(train=(str(path),), reading=ReadingConfig(delimiter=";")), Ledger())
    two = table(
        tmp_path / "b.csv", lambda rng: f"{rng.choice('ab')},{text(rng)},{rng.choice('cd')}", first="one,text,two"
    )
    with pytest.raises(RejectedError, match="Fix: give --target NAME, or --task lm"):
        open_data(DataConfig(train=(str(two),)), Ledger())


def tickets(path: Path, *more: Callable[[int], str]) -> Path:
    """Rows without a header: a running number, a topic, a message and further columns, in two encodings."""
    rng = random.Random(0)
    rows = [
        ";".join([f"{number + 1001}", f"{rng.choice(LABELS)}", f"message {text(rng)}", *(one(number) for one in more)])
        for number in range(120)
    ]
    rows[1], rows[80] = rows[1].replace("message", "caf\u00e9"), rows[80].replace("message", "na\u00efve")
    path.write_bytes(b"\n".join([*(row.encode("cp1252" if at == 80 else "utf-8") for at, row in enumerate(rows)), b""]))
    return path


def test_running_numbers_are_no_input_and_the_first_command_that_is_printed_is_complete(tmp_path: Path) -> None:
    path = tickets(tmp_path / "tickets.csv")
    with pytest.raises(RejectedError, match=r"and no header\. Fix: run `seqloom data check") as refused:
        open_data(DataConfig(train=(str(path),)), Ledger())
    (check,) = re.findall("`seqloom ([^`]*)`", str(refused.value))
    assert check == f"data check {path} --delimiter ';' --no-header --input 3 --target 2"
    assert seqloom.check_data(path).rows == 120, "a check reads it at once"


def test_columns_that_are_not_certain_are_suggested_by_their_contents(tmp_path: Path) -> None:
    path = tickets(
        tmp_path / "tickets.csv", lambda number: f"agent{number % 7}", lambda number: "low effort"[: number % 3]
    )
    with pytest.raises(RejectedError) as refused:
        seqloom.train(path)
    assert "5 columns without a header" in str(refused.value)
    (check,) = re.findall("`seqloom ([^`]*)`", str(refused.value))
    assert check == f"data check {path} --delimiter ';' --no-header --input 3 --target 2"
    found = CliRunner().invoke(app, shlex.split(check)).output
    assert "text from '3' → label from '2'" in found and "input.running" not in found
    ids = seqloom.check_data(path, delimiter=";", header=False, input="1", target="2", encoding="cp1252")
    (running,) = [one for one in ids.findings if one.code == "input.running"]
    assert running.severity == "warn" and running.samples[0].fix.endswith('input="3"')


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ("{at},note {at} by hand,{price}", "--input 2 --target 3"),  # sorted by a price, after an id
        ("{price},note {at} by hand,{label}", "--input 2 --target 3"),  # ids with gaps
        ("note {at} by hand,{at},{label}", "--input 1 --target 3"),  # ids after the text
        ("note {at} by hand,{price}", "--input 1 --target 2"),
    ],
)
def test_ascending_numbers_are_a_target_unless_they_count_the_rows(row: str, options: str, tmp_path: Path) -> None:
    path = tmp_path / "sorted.csv"
    rows = [row.format(at=at + 7, price=100 + at * at, label=LABELS[at % 2]) for at in range(60)]
    path.write_text("\n".join([*rows, ""]))
    with pytest.raises(RejectedError, match=f" --no-header.* {options}"):
        open_data(DataConfig(train=(str(path),)), Ledger())


def test_options_that_nobody_gave_are_not_blamed(tmp_path: Path) -> None:
    path, dev = tmp_path / "only.csv", tmp_path / "dev.csv"
    path.write_text("text;label\n" + "".join(f"a message, number {one};{LABELS[one % 2]}\n" for one in range(40)))
    dev.write_text("text,label\n" + "".join(f'"a message; {one} words",{LABELS[one % 2]}\n' for one in range(40)))
    assert seqloom.check_data(path).rows == 40
    with pytest.raises(RejectedError) as refused:
        seqloom.check_data(path, dev=dev)
    assert "the delimiter looks like ';'. Fix: use delimiter=\";\"" in str(refused.value)
    assert str(refused.value).startswith(f"{path}:1: csv.delimiter") and "dev.csv" not in str(refused.value)


def test_the_command_that_cleans_a_file_leaves_out_the_rows_that_cannot_be_read(tmp_path: Path) -> None:
    path, rows = tmp_path / "films.csv", [f"caf\u00e9 {number},{LABELS[number % 2]}" for number in range(30)]
    path.write_bytes(
        "\n".join(["text,label", *rows, "too,many,fields", ""]).encode() + "na\u00efve,ham\n".encode("cp1252")
    )
    with pytest.raises(RejectedError) as refused:
        open_data(DataConfig(train=(str(path),)), Ledger())
    (cleaning,) = re.findall("`seqloom ([^`]*)`", str(refused.value))
    assert cleaning.endswith("films-clean.csv --skip-bad-rows --max-bad-rows 3.13%")
    assert CliRunner().invoke(app, shlex.split(cleaning)).exit_code == 0


def test_the_command_for_inputs_names_the_columns_of_this_file(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    lines = ["sentence,day", *(f"caf\u00e9 {number},monday" for number in range(9))]
    lines += ["too,many,fields", "twice,monday", "twice,monday"]
    path.write_bytes("\n".join([*lines, ""]).encode() + "na\u00efve,friday\n".encode("cp1252"))
    for reads in (
        lambda: list(read_inputs(path, TextInput(), Ledger(), columns=InputColumns(trained=("text",)))),
        lambda: TextFile(path, default_columns=("text",)).read(),
        lambda: Collection(path, default_columns=("text",)).checked(),
    ):
        with pytest.raises(RejectedError) as refused:
            reads()
        (cleaning,) = re.findall("`seqloom ([^`]*)`", str(refused.value))
        assert "-clean.csv --task lm --input sentence --skip-bad-rows" in cleaning
        assert cleaning.endswith(" --repeats keep")
    assert CliRunner().invoke(app, shlex.split(cleaning)).exit_code == 0
    assert (tmp_path / "new-clean.csv").read_text().count("twice") == 2
    with pytest.raises(RejectedError, match=r"-o \S*new-clean-2\.csv "):
        TextFile(path).read()


DAYS = ["2024-05-06", "2024-05-06T10:11:12.5+02:00", "5/6/24 3:04 PM"]


@pytest.mark.parametrize("day", DAYS)
def test_the_only_text_beside_a_given_target_is_named_as_the_input(day: str, tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", lambda rng: f"{rng.choice('ab')},{text(rng)},{day}", first="kind,wrote,day")
    with pytest.raises(RejectedError, match="--input wrote"):
        open_data(DataConfig(train=(str(path),), target=("kind",)), Ledger())


@pytest.mark.parametrize("day", DAYS)
def test_a_text_that_starts_with_a_date_is_a_text_and_a_date_with_a_time_is_none(day: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    table(path, lambda rng: f"{rng.choice('ab')},{day} {text(rng)},{day}", first="kind,wrote,day")
    with pytest.raises(RejectedError, match="--input wrote --target kind"):
        open_data(DataConfig(train=(str(path),)), Ledger())
