r"""A template cuts a line into named fields at the marks between the names: "IN: {source} OUT: {target}".

Each field but the last goes up to the first place where the next mark stands; the last one takes the rest. Nothing is
ever tried twice, so the time is linear in the line, and no pattern is built from what a user wrote.

>>> template = Template.parse("IN: {source} OUT: {target}")
>>> template.fields, template.cut("IN: jump twice OUT: I_JUMP I_JUMP")
(('source', 'target'), ('jump twice', 'I_JUMP I_JUMP'))
"""

from typing import NamedTuple

from seqloom.errors import ConfigError


class NoFit(NamedTuple):
    """Why a line does not fit: the mark that is missing, and from which character on (counted from 0)."""

    mark: str
    start: int


class Template(NamedTuple):
    """Names of fields, the text before the first, and the mark behind each; the last mark ends the line."""

    fields: tuple[str, ...]
    before: str
    marks: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Template":
        r"""The template that is written so; `\t` in two characters is a tab, which no shell types easily."""
        before, *parts = text.replace("\\t", "\t").split("{")
        fields, marks = [], []
        for part in parts:
            name, brace, mark = part.partition("}")
            if not brace or not name.strip() or "}" in mark:
                raise ConfigError(f"the template '{text}' has braces that do not pair", fix=_EXAMPLE)
            fields.append(name)
            marks.append(mark)
        _check(text, before, fields, marks)
        return cls(tuple(fields), before, tuple(marks))

    def cut(self, line: str) -> tuple[str, ...] | NoFit:
        """The fields of a line, or why it does not fit."""
        if not line.startswith(self.before):
            return NoFit(self.before, 0)
        at, fields = len(self.before), []
        for mark in self.marks[:-1]:
            stop = line.find(mark, at)
            if stop < 0:
                return NoFit(mark, at)
            fields.append(line[at:stop])
            at = stop + len(mark)
        last = self.marks[-1]
        if not line.endswith(last) or len(line) - len(last) < at:
            return NoFit(last, at)
        fields.append(line[at : len(line) - len(last)])
        return tuple(fields)

    def start(self, fields: tuple[str, ...], column: int) -> int:
        """Where a field begins in the line that was cut into these fields, counted from 0."""
        return len(self.before) + sum(len(fields[n]) + len(self.marks[n]) for n in range(column))


_EXAMPLE = "write names in braces with marks between them: '{label} {text}'"


def _check(text: str, before: str, fields: list[str], marks: list[str]) -> None:
    if not fields or "}" in before:
        raise ConfigError(f"the template '{text}' has no field", fix=_EXAMPLE)
    if "" in marks[:-1]:
        behind = fields[marks.index("") + 1]
        raise ConfigError(f"the template '{text}' has no mark before '{{{behind}}}'", fix=_EXAMPLE)
    if twice := [name for name in fields if fields.count(name) > 1]:
        raise ConfigError(f"the template '{text}' names '{twice[0]}' twice", fix="give each field a name of its own")
    if any(end in text for end in "\r\n"):
        raise ConfigError("a template is for one line", fix="take the line end out of it")
