"""Reading data: user files become batches, and every loss or change is reported.

    files ──▶ readers ──▶ Table of Records ──▶ Examples ──▶ columns of numbers ──▶ order ──▶ Batch
                 │                                │              (in memory or mapped)
                 └── Ledger: bad rows, warnings and notes, each with its place

torch is imported only where columns become tensors: in `loader`, and in the collate methods of `kinds`.
"""
