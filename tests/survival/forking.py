"""The server of `distributed.forking` with everything imported that a run needs: a kill costs half a second."""

from distributed.forking import Forks, serve


class Runs(Forks):
    """Starts runs, each in a process of its own; one that takes longer than its `limit` is killed."""

    program = "survival.forking"


if __name__ == "__main__":
    import seqloom.nn.stacks
    import seqloom.tasks.classify
    import seqloom.tasks.lm
    import seqloom.tasks.translate
    import seqloom.training.run_report  # noqa: F401  # what a run imports when it needs it
    import survival.jobs  # noqa: F401  # no operator runs here: threads would not survive the fork

    serve()
