"""The study of a search, as one worker sees it: its storage, the next trial, and reported results.

    RUNNING, not claimed on this machine     a worker of this machine died: its run folder is resumed
    RUNNING, no heartbeat for ten minutes    a worker of another machine died: its parameters are tried again
    RUNNING, without an owner for a while    a worker died before it claimed the trial: the same
    fewer trials than wanted                 a new one is drawn

A claim is the lock of a folder, `claims/007`; the system releases it when its process dies.

Studies are stored in an SQLite file for one machine, in PostgreSQL for several; Optuna supports both. SQLite needs
reliable file locks, which network file systems do not have, so it is refused there. Optuna's own messages are silenced:
everything that users need is in our events.
"""

import logging
import math
import socket
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from seqloom.data.splits import draw
from seqloom.errors import ConfigError, DurableError, HeldError, needing
from seqloom.experiments.tune.plan import Params, TuningPlan
from seqloom.experiments.tune.results import FEWEST, Results, TrialResult, TrialState
from seqloom.files.disk import make_folder
from seqloom.files.lock import hold
from seqloom.tasks.task import Metric

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.storages import RDBStorage
    from optuna.study import Study as OptunaStudy
    from optuna.trial import FrozenTrial, Trial

HEARTBEAT, SILENCE = 30, 600  # seconds between heartbeats; without one for so long, another worker takes the trial
WAIT = 60.0  # seconds for a lock of SQLite
FIXED = (3, 51, 3)  # the version of SQLite that fixed a rare corruption with several writers
ATTEMPTS = 5  # to open: two processes that create the tables at the same time disturb each other
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "beegfs", "gpfs", "glusterfs"}
NETWORK |= {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse"}


class OpenedStudy(NamedTuple):
    """A storage, its URL without the password, and messages about it."""

    storage: "RDBStorage"
    shown: str
    messages: tuple[str, ...]

    def close(self) -> None:
        """Close all connections."""
        self.storage.remove_session()
        self.storage.engine.dispose()


def open_storage(url: str) -> OpenedStudy:
    """The storage at a URL: sqlite:///FILE or postgresql://user@host/name."""
    with needing("tune"):
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    try:
        address = make_url(url)
    except ArgumentError:
        raise ConfigError(
            "--storage is not a URL", fix="give sqlite:///study.db or postgresql://user@host/name"
        ) from None
    if address.drivername == "sqlite":
        if not address.database or address.database == ":memory:":
            raise ConfigError("--storage sqlite needs a file", fix="give sqlite:///study.db")
        path = Path(address.database)
        make_folder(path.parent)
        require_local(path.parent)
        warning, local = version_warning(sqlite3.sqlite_version_info), f"sqlite:///{path}"
        return OpenedStudy(
            _connected(local, local, {"connect_args": {"timeout": WAIT}}), local, (warning,) if warning else ()
        )
    if address.drivername not in ("postgresql", "postgresql+psycopg"):
        problem = f"--storage {address.drivername}: only SQLite and PostgreSQL are supported"
        raise ConfigError(problem, fix="give sqlite:///study.db or postgresql://user@host/name")
    with needing("postgres"):
        import psycopg  # noqa: F401
    whole = address.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    shown = address.render_as_string(hide_password=True)
    return OpenedStudy(_connected(whole, shown, {"pool_pre_ping": True}), shown, ())


def version_warning(version: tuple[int, ...]) -> str:
    """A warning about an old SQLite; empty for a new one."""
    if version >= FIXED:
        return ""
    found, fixed = ".".join(map(str, version)), ".".join(map(str, FIXED))
    return (
        f"SQLite {found} is older than {fixed}, which fixed a rare corruption with several writers; use PostgreSQL for "
        "many workers"
    )


def require_local(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    """Raise ConfigError for a folder on a network file system, where the system reports it."""
    kind = file_system(folder, mounts)
    if kind in NETWORK:
        raise ConfigError(
            f"{folder} is on a network file system ({kind}), where SQLite may lose data",
            fix="put the file on a local disk, or give --storage postgresql://user@host/name",
        )


def file_system(folder: Path, mounts: Path) -> str:
    """The type of the file system of a folder; empty if it is unknown."""
    try:
        lines = mounts.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    found, longest = "", -1
    whole = folder.resolve()
    for line in lines:  # 36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/sda1 rw
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5:
            continue
        point = Path(fields[4].encode().decode("unicode_escape", errors="replace"))
        if whole.is_relative_to(point) and len(point.parts) >= longest:  # a later mount hides an earlier one
            found, longest = kinds[0], len(point.parts)
    return found


def _connected(url: str, shown: str, engine: dict[str, object]) -> "RDBStorage":
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    def ask_again(study: "OptunaStudy", trial: "FrozenTrial") -> None:  # after its last heartbeat
        study.enqueue_trial(trial.params, user_attrs=trial.user_attrs)

    for attempt in range(ATTEMPTS):
        try:
            with quiet():
                return RDBStorage(
                    url,
                    engine_kwargs=engine,
                    heartbeat_interval=HEARTBEAT,
                    grace_period=SILENCE,
                    heartbeat_stale_trial_callback=ask_again,
                )
        except SQLAlchemyError as error:
            if attempt + 1 == ATTEMPTS:
                reason = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
                fix = "check that the server runs, the user name and the password; the database must exist"
                raise DurableError(f"cannot open {shown}: {reason}", fix=fix) from None
            time.sleep(0.2 * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def quiet() -> Iterator[None]:
    """A context without Optuna's log lines and warnings about experimental features."""
    from optuna.exceptions import ExperimentalWarning

    logger = logging.getLogger("optuna")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage")  # ours is sent between the events of a run
            yield
    finally:
        logger.setLevel(before)


ASKED, CONFIG, DEFAULT, HOST, FOLDER, SURPLUS = "asked", "config", "default", "host", "folder", "surplus"
PROBLEM, SOLVED = "problem", "solved"
NAMELESS = 30.0  # seconds; a worker normally signs a trial within milliseconds
POLL = 0.2  # seconds
STATES: dict[str, TrialState] = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}
STATES |= {"RUNNING": "running", "WAITING": "waiting"}


class Claimed(NamedTuple):
    """A trial that belongs to this worker while it holds the claim."""

    trial: "Trial"

    @property
    def number(self) -> int:
        """Its number, which names its folder."""
        return self.trial.number

    @property
    def is_default(self) -> bool:
        """Whether it is the run with default settings."""
        return bool(self.trial.user_attrs.get(DEFAULT))

    @property
    def solved(self) -> str | None:
        """The model, if newton solves it: no parameter of the trial is drawn."""
        return self.trial.user_attrs.get(SOLVED)


class Study:
    """A study in a storage."""

    def __init__(self, plan: TuningPlan, metric: Metric, opened: OpenedStudy) -> None:
        import optuna

        self.plan, self.metric, self.opened = plan, metric, opened
        self._nameless: dict[int, float] = {}  # trials without an owner, and since when we know
        pruners: dict[str, BasePruner] = {
            "median": optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
            "hyperband": optuna.pruners.HyperbandPruner(),
            "none": optuna.pruners.NopPruner(),
        }
        with quiet():
            self.study: OptunaStudy = optuna.create_study(
                storage=opened.storage,
                study_name=plan.study,
                direction="maximize" if metric.higher_is_better else "minimize",
                pruner=pruners[plan.pruner],
                load_if_exists=True,
            )

    def require_same(self, asked: dict[str, Any]) -> None:
        """Record the settings of the study, or refuse to mix it with a different search."""
        plain = msgspec.json.decode(msgspec.json.encode(asked))
        before = self.study.user_attrs.get(ASKED)
        if before is None:
            self.study.set_user_attr(ASKED, plain)
            return
        changed = [name for name in plain if before.get(name) != plain[name]]
        if changed:
            raise ConfigError(
                f"the study '{self.plan.study}' in {self.opened.shown} differs: {', '.join(changed)}",
                fix="give another --out or --study, or the same settings to resume it",
            )

    def offer_first(self, params: Params) -> None:
        """Enqueue the run with default settings as first trial, then each other model once; solved ones as they are."""
        if self.study.get_trials(deepcopy=False):
            return
        named = self.plan.space.models[: self.plan.trials] or ("",)  # none: the default of the task
        for number, name in enumerate(named):
            is_solved, is_default = name in self.plan.solved, number == 0
            offered = {} if is_solved else params if is_default else {"model": name}
            notes = ({DEFAULT: True} if is_default else {}) | ({SOLVED: name} if is_solved else {})
            self.study.enqueue_trial(offered, user_attrs=notes)

    def finished(self) -> int:
        """The number of trials that are done or pruned."""
        return len([one for one in self.study.get_trials(deepcopy=False) if _state(one) in ("done", "pruned")])

    @contextmanager
    def claim(self) -> Iterator[Claimed | None]:
        """A context with the next trial, or None if there is none."""
        from optuna.storages import fail_stale_trials

        with ExitStack() as claims:
            while True:
                with quiet():
                    fail_stale_trials(self.study)
                claimed = self._left(claims) or self._new(claims)
                if claimed is not None or not self._healed():
                    break
                time.sleep(POLL)  # a trial without an owner may become ours
            yield claimed

    def _healed(self) -> bool:
        """Whether some trial has no owner; one that has had none for long is tried again, as a new trial.

        Only our own clock is used, because clocks of other machines may differ.
        """
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState as OptunaState

        now, trials = time.monotonic(), self.study.get_trials(deepcopy=False)
        found = [one for one in trials if _state(one) == "running" and HOST not in one.user_attrs]
        self._nameless = {one.number: self._nameless.get(one.number, now) for one in found}
        for one in found:
            if now - self._nameless[one.number] >= NAMELESS:
                with suppress(UpdateFinishedTrialError):  # another worker was faster
                    self.opened.storage.set_trial_state_values(one._trial_id, OptunaState.FAIL)
                    if fixed := one.system_attrs.get("fixed_params"):
                        self.study.enqueue_trial(fixed, user_attrs=one.user_attrs)
        return bool(found)

    def _left(self, claim: ExitStack) -> Claimed | None:
        """A trial whose worker on this machine died."""
        import optuna

        for found in self.study.get_trials(deepcopy=False):
            folder = self._claim_folder(found.number)
            if _state(found) == "running" and folder.is_dir() and _is_held(folder, claim):
                if _state(self.study.get_trials(deepcopy=False)[found.number]) == "running":
                    self._seed(found.number)
                    trial = optuna.trial.Trial(self.study, found._trial_id)
                    self._sign(trial)
                    return Claimed(trial)
                claim.close()  # it ended in the meantime
        return None

    def _claim_folder(self, number: int) -> Path:
        return self.plan.folder / "claims" / f"{number:03d}"

    def _new(self, claim: ExitStack) -> Claimed | None:
        """A new trial; None if enough are finished or running."""
        from optuna.exceptions import UpdateFinishedTrialError

        if self._count(math.inf) >= self.plan.trials:
            return None
        with quiet():
            trial = self.study.ask()
        make_folder(self._claim_folder(trial.number))
        if not _is_held(self._claim_folder(trial.number), claim):  # another worker took it for an abandoned one
            return self._new(claim)
        self._seed(trial.number)
        try:
            self._sign(trial)
        except UpdateFinishedTrialError:  # we were so slow that others took it for abandoned
            return self._new(claim)
        if self._count(trial.number) >= self.plan.trials:  # two workers asked for the last one
            trial.set_user_attr(SURPLUS, True)
            self._finish(trial, None, "FAIL")
            return None
        return Claimed(trial)

    def _sign(self, trial: "Trial") -> None:
        self.alive(trial)
        trial.set_user_attr(HOST, socket.gethostname())

    def _count(self, below: float) -> int:
        """The number of finished or running trials with a smaller number."""
        trials = self.study.get_trials(deepcopy=False)
        return len([one for one in trials if one.number < below and _state(one) in ("done", "pruned", "running")])

    def _seed(self, number: int) -> None:
        """Seed the sampler by the number of the trial: different for each worker, and the same on resume."""
        import optuna

        self.study.sampler = optuna.samplers.TPESampler(seed=draw(self.plan.seed, number) % 2**32)

    def alive(self, trial: "Trial") -> None:
        """Send a heartbeat."""
        self.opened.storage.record_heartbeat(trial._trial_id)

    def should_prune(self, trial: "Trial", value: float, moment: int) -> bool:
        """Whether to prune a trial with this score at this validation."""
        if moment not in self.study.trials[trial.number].intermediate_values and math.isfinite(value):
            trial.report(value, moment)
        return trial.should_prune()

    def done(self, trial: "Trial", value: float) -> None:
        """Report the best score of a trial that was trained to the end."""
        self._finish(trial, value, "COMPLETE")

    def pruned(self, trial: "Trial") -> None:
        self._finish(trial, None, "PRUNED")

    def failed(self, trial: "Trial", problem: str) -> None:
        """Report that a trial failed, and why; it does not count."""
        trial.set_user_attr(PROBLEM, problem)
        self._finish(trial, None, "FAIL")

    def _finish(self, trial: "Trial", value: float | None, state: str) -> None:
        from optuna.trial import TrialState as OptunaState

        with quiet():
            self.study.tell(trial, value, state=OptunaState[state])

    def results(self) -> Results:
        """The results so far."""
        known = [one for one in self.study.get_trials(deepcopy=False) if SURPLUS not in one.user_attrs]
        # without trials that failed before they started
        trials = tuple(self._result(one) for one in known if _state(one) != "failed" or HOST in one.user_attrs)
        return Results(
            study=self.plan.study,
            metric=self.metric.name,
            higher_is_better=self.metric.higher_is_better,
            trials=trials,
            importances=self._importances(trials),
        )

    def _result(self, trial: "FrozenTrial") -> TrialResult:
        state, values = _state(trial), list(trial.intermediate_values.values())
        best = (max if self.metric.higher_is_better else min)(values, default=None)
        duration = trial.duration
        return TrialResult(
            number=trial.number,
            state=state,
            value=trial.value if state == "done" else best,
            params=trial.user_attrs.get("params", trial.params),
            seconds=0.0 if duration is None else duration.total_seconds(),
            is_default=bool(trial.user_attrs.get(DEFAULT)),
            host=str(trial.user_attrs.get(HOST, "")),
            folder=str(trial.user_attrs.get(FOLDER, "")),
            config=str(trial.user_attrs.get(CONFIG, "")),
            problem=str(trial.user_attrs.get(PROBLEM, "")),
        )

    def _importances(self, trials: tuple[TrialResult, ...]) -> dict[str, float]:
        import optuna

        values = [one.value for one in trials if one.state == "done"]
        if len(values) < FEWEST or len(set(values)) < 2:
            return {}
        quantile = min(0.5, max(0.1, FEWEST / len(values)))  # at least five trials
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=quantile)
        try:
            with quiet(), warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # raised if the best trials do not differ from the others
                shares = optuna.importance.get_param_importances(self.study, evaluator=evaluator)
        except UserWarning:
            return {}
        return dict(sorted(shares.items(), key=lambda entry: -entry[1]))


def _is_held(folder: Path, claim: ExitStack) -> bool:
    """Whether we hold the claim now; the stack releases it."""
    try:
        claim.enter_context(hold(folder))
    except HeldError:
        return False
    return True


def _state(trial: "FrozenTrial") -> TrialState:
    return STATES[trial.state.name]
