"""The study of a tuning as one worker sees it: where it is kept, which trial is next, and what is told about it.

    RUNNING, claimed here by nobody     a worker of this machine died: its run folder goes on
    RUNNING, silent for ten minutes     a worker of another machine died: its parameters are asked for again
    RUNNING, of nobody for a while      a worker died between asking and claiming: the same
    fewer trials than wanted            a new one is drawn from what the others gave

A claim is the lock of a folder, `claims/007`; the system lets go of it when its holder dies.

Studies are kept in an SQLite file for one machine, in PostgreSQL for several; Optuna speaks to both. SQLite relies on
locks of the file system, and those of network file systems are not to be relied on; so it is refused there. Optuna's
own messages are held back: what people should know is in our reports.
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

HEARTBEAT, SILENCE = 30, 600  # seconds between signs of life; without one for so long another worker takes the trial
WAIT = 60.0  # seconds for a lock of SQLite
MENDED = (3, 51, 3)  # the version of SQLite that mended a rare damage with several writers
ATTEMPTS = 5  # to open: two that make the tables at once get in each other's way
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "beegfs", "gpfs", "glusterfs"}
NETWORK |= {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse"}


class OpenedStudy(NamedTuple):
    """A storage, its address without a password, and what people should know about it."""

    storage: "RDBStorage"
    shown: str
    said: tuple[str, ...]

    def close(self) -> None:
        """Let go of all connections."""
        self.storage.remove_session()
        self.storage.engine.dispose()


def open_storage(url: str) -> OpenedStudy:
    """The storage at an address: sqlite:///FILE or postgresql://user@host/name."""
    with needing("tune"):
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    try:
        address = make_url(url)
    except ArgumentError:
        raise ConfigError("--storage is no address", fix="sqlite:///study.db or postgresql://user@host/name") from None
    if address.drivername == "sqlite":
        if not address.database or address.database == ":memory:":
            raise ConfigError("--storage sqlite has no file, and memory is forgotten", fix="sqlite:///study.db")
        path = Path(address.database)
        make_folder(path.parent)
        require_local(path.parent)
        said, local = version_said(sqlite3.sqlite_version_info), f"sqlite:///{path}"
        return OpenedStudy(
            _connected(local, local, {"connect_args": {"timeout": WAIT}}), local, (said,) if said else ()
        )
    if address.drivername not in ("postgresql", "postgresql+psycopg"):
        problem = f"--storage {address.drivername}: studies are kept in SQLite or PostgreSQL"
        raise ConfigError(problem, fix="sqlite:///study.db or postgresql://user@host/name")
    with needing("postgres"):
        import psycopg  # noqa: F401
    whole = address.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    shown = address.render_as_string(hide_password=True)
    return OpenedStudy(_connected(whole, shown, {"pool_pre_ping": True}), shown, ())


def version_said(version: tuple[int, ...]) -> str:
    """A warning about an old SQLite; empty for a new one."""
    if version >= MENDED:
        return ""
    found, mended = ".".join(map(str, version)), ".".join(map(str, MENDED))
    return (
        f"SQLite {found} is older than {mended}, which mended a rare damage with several writers: "
        "for many workers take PostgreSQL"
    )


def require_local(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    """Refuse a folder on a network file system, where the system tells."""
    kind = file_system(folder, mounts)
    if kind in NETWORK:
        raise ConfigError(
            f"{folder} lies on a network file system ({kind}), where SQLite may lose what it has written",
            fix="put the file on a local disk, or give --storage postgresql://user@host/name",
        )


def file_system(folder: Path, mounts: Path) -> str:
    """The kind of the file system that holds a folder; empty where nobody tells."""
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

    def ask_again(study: "OptunaStudy", trial: "FrozenTrial") -> None:  # whose worker fell silent
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
                fix = "check that it runs, the name and the password; the database must exist"
                raise DurableError(f"{shown} cannot be opened: {reason}", fix=fix) from None
            time.sleep(0.2 * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, Optuna says nothing by itself: no lines, and no warnings about what it calls experimental."""
    from optuna.exceptions import ExperimentalWarning

    logger = logging.getLogger("optuna")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage")  # ours is given between the reports of a run
            yield
    finally:
        logger.setLevel(before)


ASKED, CONFIG, DEFAULT, HOST, FOLDER, SURPLUS = "asked", "config", "default", "host", "folder", "surplus"
PROBLEM = "problem"
NAMELESS = 30.0  # seconds: whoever asks for a trial puts its name there within milliseconds
POLL = 0.2  # seconds
STATES: dict[str, TrialState] = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}
STATES |= {"RUNNING": "running", "WAITING": "waiting"}


class Claimed(NamedTuple):
    """A trial that is this worker's, and nobody else's while the claim is held."""

    trial: "Trial"

    @property
    def number(self) -> int:
        """Its number, which names its folder."""
        return self.trial.number

    @property
    def is_default(self) -> bool:
        """Whether it is the run that nobody tuned."""
        return bool(self.trial.user_attrs.get(DEFAULT))


class Study:
    """A study in a storage."""

    def __init__(self, plan: TuningPlan, metric: Metric, opened: OpenedStudy) -> None:
        import optuna

        self.plan, self.metric, self.opened = plan, metric, opened
        self._nameless: dict[int, float] = {}  # trials that are nobody's, and since when we have known
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
        """Write down what the study is about, or refuse to mix it with another search."""
        plain = msgspec.json.decode(msgspec.json.encode(asked))
        before = self.study.user_attrs.get(ASKED)
        if before is None:
            self.study.set_user_attr(ASKED, plain)
            return
        changed = [name for name in plain if before.get(name) != plain[name]]
        if changed:
            raise ConfigError(
                f"the study '{self.plan.study}' in {self.opened.shown} is another search: {', '.join(changed)} differ",
                fix="give another --out or --study, or the same settings to go on",
            )

    def offer_first(self, params: Params) -> None:
        """Have the run that nobody tuned as the first trial, and then each other model once: chance may forget one."""
        if self.study.get_trials(deepcopy=False):
            return
        self.study.enqueue_trial(params, user_attrs={DEFAULT: True})
        for name in self.plan.space.models[1 : self.plan.trials]:
            self.study.enqueue_trial({"model": name})

    def finished(self) -> int:
        """Trials that count: done or pruned."""
        return len([one for one in self.study.get_trials(deepcopy=False) if _state(one) in ("done", "pruned")])

    @contextmanager
    def claim(self) -> Iterator[Claimed | None]:
        """A block with the next trial, or with None when there is none to begin."""
        from optuna.storages import fail_stale_trials

        with ExitStack() as held:
            while True:
                with quiet():
                    fail_stale_trials(self.study)
                claimed = self._left(held) or self._asked(held)
                if claimed is not None or not self._healed():
                    break
                time.sleep(POLL)  # a trial that is nobody's may yet be ours
            yield claimed

    def _healed(self) -> bool:
        """Whether some trial is nobody's; one that has been so for long is asked for again, as a new trial.

        Times are our own, for the clocks of other machines may differ.
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

    def _left(self, held: ExitStack) -> Claimed | None:
        """A trial whose worker on this machine died."""
        import optuna

        for found in self.study.get_trials(deepcopy=False):
            folder = self._claim_folder(found.number)
            if _state(found) == "running" and folder.is_dir() and _is_held(folder, held):
                if _state(self.study.get_trials(deepcopy=False)[found.number]) == "running":
                    self._seed(found.number)
                    trial = optuna.trial.Trial(self.study, found._trial_id)
                    self._sign(trial)
                    return Claimed(trial)
                held.close()  # it ended while we looked
        return None

    def _claim_folder(self, number: int) -> Path:
        return self.plan.folder / "claims" / f"{number:03d}"

    def _asked(self, held: ExitStack) -> Claimed | None:
        """A new trial; None when as many are finished or under way as are wanted."""
        from optuna.exceptions import UpdateFinishedTrialError

        if self._count(math.inf) >= self.plan.trials:
            return None
        with quiet():
            trial = self.study.ask()
        make_folder(self._claim_folder(trial.number))
        if not _is_held(self._claim_folder(trial.number), held):  # another worker took it for one that was left
            return self._asked(held)
        self._seed(trial.number)
        try:
            self._sign(trial)
        except UpdateFinishedTrialError:  # we were so slow that others took it for nobody's
            return self._asked(held)
        if self._count(trial.number) >= self.plan.trials:  # two workers asked for the last one
            trial.set_user_attr(SURPLUS, True)
            self._tell(trial, None, "FAIL")
            return None
        return Claimed(trial)

    def _sign(self, trial: "Trial") -> None:
        """Say that a trial is ours."""
        self.alive(trial)
        trial.set_user_attr(HOST, socket.gethostname())

    def _count(self, below: float) -> int:
        """Trials with a smaller number that are finished or under way."""
        trials = self.study.get_trials(deepcopy=False)
        return len([one for one in trials if one.number < below and _state(one) in ("done", "pruned", "running")])

    def _seed(self, number: int) -> None:
        """Draw by the seed and the number of the trial: workers draw differently, and the same when they go on."""
        import optuna

        self.study.sampler = optuna.samplers.TPESampler(seed=draw(self.plan.seed, number) % 2**32)

    def alive(self, trial: "Trial") -> None:
        """Give a sign of life."""
        self.opened.storage.record_heartbeat(trial._trial_id)

    def is_hopeless(self, trial: "Trial", value: float, moment: int) -> bool:
        """Whether a trial with this score at this validation should end: others did better at the same moment."""
        if moment not in self.study.trials[trial.number].intermediate_values and math.isfinite(value):
            trial.report(value, moment)
        return trial.should_prune()

    def done(self, trial: "Trial", value: float) -> None:
        """Tell the best score of a trial that was trained to its end."""
        self._tell(trial, value, "COMPLETE")

    def pruned(self, trial: "Trial") -> None:
        """Tell that a trial was given up."""
        self._tell(trial, None, "PRUNED")

    def failed(self, trial: "Trial", problem: str) -> None:
        """Tell that a trial came to nothing, and why; it does not count."""
        trial.set_user_attr(PROBLEM, problem)
        self._tell(trial, None, "FAIL")

    def _tell(self, trial: "Trial", value: float | None, state: str) -> None:
        from optuna.trial import TrialState as OptunaState

        with quiet():
            self.study.tell(trial, value, state=OptunaState[state])

    def results(self) -> Results:
        """The study as it stands."""
        known = [one for one in self.study.get_trials(deepcopy=False) if SURPLUS not in one.user_attrs]
        # without those that failed before anybody had begun them
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
        quantile = min(0.5, max(0.1, FEWEST / len(values)))  # a tenth of few trials is one, and one shows nothing
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=quantile)
        try:
            with quiet(), warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # the best score the same as the others: nothing mattered
                shares = optuna.importance.get_param_importances(self.study, evaluator=evaluator)
        except UserWarning:
            return {}
        return dict(sorted(shares.items(), key=lambda entry: -entry[1]))


def _is_held(folder: Path, held: ExitStack) -> bool:
    """Whether the claim is ours now; it is let go with the stack."""
    try:
        held.enter_context(hold(folder))
    except HeldError:
        return False
    return True


def _state(trial: "FrozenTrial") -> TrialState:
    return STATES[trial.state.name]
