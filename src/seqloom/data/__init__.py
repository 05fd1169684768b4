"""Data in: whatever a user has becomes batches, and nothing is lost or changed in silence.

    files ──▶ readers ──▶ Table of Records ──▶ Examples ──▶ columns of numbers ──▶ order ──▶ Batch
                 │                                │              (in memory or mapped)
                 └── Ledger: what was refused, warned about or noted, each with its place

torch is loaded only where columns become tensors: `loader`, and the collating of `kinds`.
"""
