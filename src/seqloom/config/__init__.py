"""Configuration: frozen typed values that check themselves, read from and written to TOML and JSON, and `build()`.

Nothing here imports torch: a configuration is checked, counted and shown before anything is allocated. `build()` is the
one place where a configuration reaches for the code that it describes.
"""
