"""`python -m seqloom.cli` is the `seqloom` command."""

from seqloom.cli import main

main()
