"""Tuning: many short runs on the dev part, each drawn from what the ones before it gave.

    tune ──▶ study in a storage (SQLite, PostgreSQL) ◀── further processes and machines
              │ ask: parameters of a trial
              ▼
             FOLDER/trials/007, an ordinary run ── Validated ──▶ goes on, or is pruned
              │ tell: its best score on dev
              ▼
             Results: what was best, what mattered;  best.toml, model/, report.html

The test part is taken away before anything begins. Whatever stops a tuning, the next start goes on: finished trials
are in the storage, unfinished ones are run folders that resume.

    reports  what a tuning says while it goes on      storage  where studies are kept
    space    parameters drawn, and what they mean     study    which trial is next
    ground   what the data says about batches and steps
    trials   one trial                                working  trials one after the other
    results  what came out      figures, page, terminal: shown       front  the whole in one call
"""

from seqloom.tuning.front import search, tune
from seqloom.tuning.plan import Plan
from seqloom.tuning.results import Results

__all__ = ["Plan", "Results", "search", "tune"]
