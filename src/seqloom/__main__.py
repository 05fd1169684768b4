"""`python -m seqloom` is the `seqloom` command."""

from seqloom.cli import main

main()
