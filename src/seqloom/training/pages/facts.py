"""What a run's folder says about its data: `data.json`, and the labels in `vocabulary/`."""

import json
from pathlib import Path
from typing import Any

import msgspec

from seqloom.errors import DamagedError
from seqloom.files.layouts import RunFile, VocabularyFile


class RunFinding(msgspec.Struct, frozen=True):
    """Something that was found in the data before training."""

    severity: str
    code: str
    rows: int
    text: str


class DataSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a run: files, rows of each part, labels, findings."""

    files: tuple[str, ...] = ()
    rows: dict[str, int] = {}
    labels: tuple[str, ...] = ()
    findings: tuple[RunFinding, ...] = ()
    said: tuple[str, ...] = ()


def data_summary(run: Path) -> DataSummary:
    """The data of a run; empty where the folder does not say."""
    facts = _json(run / RunFile.DATA) or {}
    labels = _json(run / RunFile.VOCABULARY / VocabularyFile.LABELS) or []
    try:
        return DataSummary(
            files=tuple(facts.get("fingerprints", {})),
            rows=dict(facts.get("split", {}).get("counts", {})),
            labels=tuple(map(str, labels["labels"] if isinstance(labels, dict) else labels)),
            findings=tuple(map(_finding, facts.get("findings", []))),
            said=tuple(map(str, facts.get("said", []))),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{run / 'data.json'} is not what training wrote: {error}", fix="train again") from None


def _finding(value: Any) -> RunFinding:
    """A finding with the text of its first case; a named tuple is an array in JSON."""
    if isinstance(value, dict):
        value = [value["severity"], value["code"], value["rows"], value.get("samples", [])]
    severity, code, rows, samples = value
    first = samples[0] if samples else {}
    text = first.get("text", "") if isinstance(first, dict) else first[1]
    return RunFinding(str(severity), str(code), int(rows), str(text))


def _json(path: Path) -> Any:
    if not path.exists():
        return None
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is not JSON: {error}", fix="train again") from None
