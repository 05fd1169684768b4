"""The `seqloom` command, and `python -m seqloom`."""

import sys


def main() -> None:
    """Run the command; Ctrl-C prints "stopped", also while modules are being imported."""
    try:
        from seqloom.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
