"""The parts of a tuning: the space, the storage, the study, and how results are told."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import optuna
import pytest
from optuna.trial import FixedTrial
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.base import from_toml, with_setting
from seqloom.config.data import DataConfig
from seqloom.config.training import (
    AdamWConfig,
    ByLengthConfig,
    ConstantConfig,
    CosineConfig,
    EpochsConfig,
    PacksConfig,
    RangeConfig,
    SpaceConfig,
)
from seqloom.errors import ConfigError, DurableError, MissingExtraError, SeqloomError
from seqloom.experiments.tune.plan import DataGround, TuningPlan, drawn, near, request_of, require_searchable, used
from seqloom.experiments.tune.results import Results, TrialResult
from seqloom.experiments.tune.study import NETWORK, Study, file_system, open_storage, require_local, version_warning
from seqloom.experiments.tune.tuning import OpenTuning
from seqloom.tasks.task import Metric
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve

ONE = RangeConfig(low=0.1, high=0.1)
PARAMS = {"model": "cnn", "size": "tiny", "dropout": 0.2, "lr": 0.01, "batch_tokens": 512, "weight_decay": 0.05}
PARAMS |= {"schedule": "cosine", "warmup": 0.1}
MODELS = SpaceConfig(models=("cnn", "lstm"), batch_tokens=(256, 512))
HAS_POSTGRES = find_spec("psycopg") is not None  # the extra `postgres` is there for `make soak` only


def a_plan(out: Path, **changes: Any) -> TuningPlan:
    given = {"data": DataConfig(train=("x.csv",)), "out": str(out), "storage": f"sqlite:///{out / 'study.db'}"}
    return TuningPlan(**(given | {"study": "s", "trials": 3} | changes))


def a_study(plan: TuningPlan, metric: Metric = Metric("accuracy")) -> Study:  # noqa: B008
    return Study(plan, metric, open_storage(plan.storage))


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> DataGround:
    """Forty short rows, thirty epochs of them."""
    folder = tmp_path_factory.mktemp("ground")
    for part in ("train", "dev"):
        rows = [f"{'good' if at % 2 else 'bad'} word{at} word{at % 7},{'yes' if at % 2 else 'no'}" for at in range(40)]
        (folder / f"{part}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    data = DataConfig(train=(str(folder / "train.csv"),), dev=(str(folder / "dev.csv"),))
    request = RunRequest(model="cnn", size="nano", training={"duration": EpochsConfig(epochs=30)})
    return DataGround(resolve(data, request, cache=folder / "cache"))


@pytest.mark.slow
def test_batches_are_searched_around_the_usual_one_whichever_model_comes_first(
    ground: DataGround, tmp_path: Path
) -> None:
    found = set()
    for names in (("linear", "cnn"), ("cnn", "linear")):
        out = tmp_path / names[0]
        out.mkdir()
        opening = OpenTuning(a_plan(out, data=ground.first.config.data, space=SpaceConfig(models=names)))
        found.add(opening.plan.space.batch_tokens)
        opening.close()
    assert len(found) == 1


@pytest.mark.parametrize(("models", "searched"), [(("linear",), False), (("cnn",), True), (("linear", "cnn"), True)])
def test_sizes_are_searched_only_if_a_recipe_has_several(
    models: tuple[str, ...], searched: bool, ground: DataGround
) -> None:
    space = ground.filled(SpaceConfig(models=models, sizes=("nano", "small")))
    assert space.sizes == (("nano", "small") if searched else ("small",))


@pytest.mark.parametrize("given", [["missing.csv"], ["a.csv", "--models", "cmn"], ["a.csv", "--dev-size", "0"]])
@pytest.mark.parametrize("verb", [["tune"], ["compare", "--models", "cnn"], ["auto"]])
def test_wrong_input_leaves_nothing(
    verb: list[str], given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{word} word{at},{word}" for at in range(20) for word in ("good", "bad")]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    error = CliRunner().invoke(app, [*verb, *given, "--out", "new/deep/out"]).exception
    assert isinstance(error, SeqloomError)
    assert [path.name for path in tmp_path.rglob("*")] == ["a.csv"]
    (tmp_path / "empty").mkdir()
    assert isinstance(CliRunner().invoke(app, [*verb, *given, "--out", "empty"]).exception, SeqloomError)
    assert {path.name for path in tmp_path.rglob("*")} == {"a.csv", "empty"}


def some_results(count: int, **changes: Any) -> Results:
    trials = tuple(
        TrialResult(
            number=number,
            state="done" if number % 3 else "pruned",
            value=number / 20,
            params={"model": "cnn" if number % 2 else "lstm", "lr": 0.001 * (number + 1)},
            seconds=2.0,
            is_default=number == 1,
            config='kind = "run"\n',
        )
        for number in range(count)
    )
    shares = {"lr": 0.75, "model": 0.25}
    given = {"study": "s", "metric": "accuracy", "higher_is_better": True, "trials": trials, "importances": shares}
    return Results(**(given | changes))


def test_a_plan_that_was_written_for_a_worker_reads_back() -> None:
    settings = {"duration": msgspec.to_builtins(EpochsConfig(epochs=3)), "patience": 2}
    plan = a_plan(Path("out"), settings=settings, space=SpaceConfig(models=("cnn", "lstm"), lr=ONE))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=TuningPlan) == plan


@pytest.mark.parametrize("changes", [{"trials": 0}, {"seconds": -1.0}, {"seconds": float("inf")}])
def test_a_plan_without_trials_or_time_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give"):
        a_plan(Path("out"), **changes)


def test_parameters_become_the_wishes_of_an_ordinary_run(tmp_path: Path, ground: DataGround) -> None:
    plan = a_plan(tmp_path, space=MODELS)
    params = drawn(FixedTrial(PARAMS), plan)  # type: ignore[arg-type]
    assert params == PARAMS
    request = request_of(params, plan, ground)
    assert (request.model, request.size, request.dropout) == ("cnn", "tiny", 0.2)
    assert request.training == {
        "lr": 0.01,
        "batching": ByLengthConfig(batch_tokens=512),
        "optimizer": AdamWConfig(weight_decay=0.05),
        "schedule": CosineConfig(warmup=round(0.1 * ground.steps(ByLengthConfig(batch_tokens=512)))),
        "keep_checkpoints": 1,
    }


@pytest.mark.slow
def test_a_warm_up_never_lasts_longer_than_its_share_of_the_steps(tmp_path: Path, ground: DataGround) -> None:
    """Whatever is drawn for however short a run, it reaches its rate."""
    plan = a_plan(tmp_path, space=ground.filled(SpaceConfig()))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        training = request_of(drawn(study.ask(), plan), plan, ground).training
        assert training["schedule"].warmup <= 0.2 * ground.steps(training["batching"]) + 0.5
    with pytest.raises(ConfigError, match="warmup: high is 300"):
        SpaceConfig(warmup=RangeConfig(low=0, high=300)).check()


def test_batches_are_drawn_around_what_is_usual_for_the_data(ground: DataGround) -> None:
    half, usual, twice = ground.filled(SpaceConfig()).batch_tokens
    assert (2 * half, usual, twice) == (ground.batch, ground.batch, 2 * ground.batch)
    assert ground.filled(SpaceConfig(batch_tokens=(64,))).batch_tokens == (64,)  # who names them has them


def test_running_text_stays_in_packs_whatever_the_batch(ground: DataGround) -> None:
    first, packs = ground.first, PacksConfig(batch_rows=4, row_length=32)
    config = msgspec.structs.replace(
        first.config, training=msgspec.structs.replace(first.config.training, batching=packs)
    )
    packed = DataGround(first._replace(config=config))
    assert packed.batch == 128 and packed.feed(64) == PacksConfig(batch_rows=2, row_length=32)


def test_the_run_that_nobody_tuned_is_shown_with_what_stands_in_its_configuration(
    tmp_path: Path, ground: DataGround
) -> None:
    plan, config = a_plan(tmp_path, space=ground.filled(SpaceConfig(models=("cnn",)))), ground.first.config
    shown = used(config, RunRequest(model="cnn", size="nano"), plan)
    training = config.training
    assert (shown["lr"], shown["batch_tokens"]) == (training.lr, ground.batch)
    assert (shown["schedule"], shown["warmup"]) == (training.schedule.kind(), training.schedule.warmup)
    assert all(f"dropout = {part}" in config.to_toml() for part in str(shown["dropout"]).split("/"))
    two = with_setting(config.model, "dropout", 0.25)
    halves = msgspec.structs.replace(config, model=two)
    assert used(halves, RunRequest(model="cnn", size="nano"), plan)["dropout"] == 0.25
    nearest = near(config, RunRequest(model="cnn", size="nano"), plan, ground)
    assert nearest["batch_tokens"] == ground.batch and 0 <= float(nearest["warmup"]) <= 0.2


def test_a_dropout_that_differs_between_parts_is_left_out_of_the_picture_and_of_nothing_else() -> None:
    trials = tuple(
        TrialResult(
            number=at, state="done", value=at / 9, params={"dropout": "0.2/0.3" if not at else at / 9}, seconds=1
        )
        for at in range(9)
    )
    results = some_results(0, trials=trials, importances={"dropout": 1.0})
    assert ">0.2/0.3</td>" in results.html() and "0.1111 to 0.2222 (2)" in results.text(80)


@pytest.mark.slow
def test_the_first_trials_go_through_each_model_once(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, trials=3, space=SpaceConfig(models=("cnn", "lstm", "gru", "bag"), batch_tokens=(8,)))
    study, seen = a_study(plan), []
    study.offer_first({"model": "cnn", "lr": 0.01})
    study.offer_first({"model": "cnn", "lr": 0.01})  # another worker comes later
    for _ in range(3):
        with study.claim() as claimed:
            assert claimed is not None
            seen.append((drawn(claimed.trial, plan)["model"], claimed.is_default))
            study.done(claimed.trial, 0.5)
    assert seen == [("cnn", True), ("lstm", False), ("gru", False)]
    assert [one.state for one in study.results().trials] == ["done"] * 3  # none is left waiting


def test_what_is_fixed_is_not_searched(tmp_path: Path, ground: DataGround) -> None:
    fixed = {"lr": 0.5, "schedule": msgspec.to_builtins(ConstantConfig()), "optimizer": {"kind": "sgd"}}
    plan = a_plan(tmp_path, settings=fixed | {"batching": {"kind": "by-length", "batch_tokens": 64}}, space=MODELS)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    params = drawn(study.ask(), plan)
    assert set(params) == {"model", "size", "dropout"}
    assert request_of(params, plan, ground).training["lr"] == 0.5
    closed = SpaceConfig(
        sizes=("nano",), lr=ONE, dropout=ONE, weight_decay=ONE, warmup=ONE, batch_tokens=(8,), schedules=("cosine",)
    )
    with pytest.raises(ConfigError, match="nothing to search"):
        require_searchable(a_plan(tmp_path, space=closed))
    require_searchable(plan)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('kind = "space"\nsizes = []', "sizes is empty"),
        ('kind = "space"\ndropout = {low = 0.5, high = 0.1}', "dropout: low 0.5 is above high 0.1"),
        ('kind = "space"\nlr = {low = 0.0, high = 0.1, log = true}', "lr: a logarithmic range must start above 0"),
        ('kind = "space"\ndropout = {low = 0.5, high = 1.5}', "dropout: high is 1.5"),
        ('kind = "space"\nsizes = ["huge"]', "unknown name 'huge'"),
    ],
)
def test_a_space_that_means_nothing_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_toml(text, SpaceConfig)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("study.db", "not a URL"),
        ("sqlite://", "needs a file"),
        ("mysql://host/name", "only SQLite and PostgreSQL"),
        ("postgresql://me:secret@127.0.0.1:1/none", "cannot open" if HAS_POSTGRES else r"seqloom\[postgres\]"),
    ],
)
def test_storages_that_cannot_be_are_refused_without_showing_a_password(
    url: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.experiments.tune.study.ATTEMPTS", 1)
    with pytest.raises((ConfigError, DurableError, MissingExtraError), match=words) as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)


def test_sqlite_on_a_network_file_system_is_refused_and_a_local_disk_is_not(tmp_path: Path) -> None:
    mounts, line = tmp_path / "mountinfo", "36 35 98:0 / {} rw shared:1 - {} server:/x rw\n"
    mounts.write_text(line.format("/", "ext4") + line.format(tmp_path, "nfs4"))
    assert file_system(tmp_path, mounts) == "nfs4"
    with pytest.raises(ConfigError, match=r"network file system \(nfs4\).*postgresql"):
        require_local(tmp_path / "deeper", mounts)
    require_local(Path("/"), mounts)
    require_local(tmp_path, tmp_path / "systems without such a file")
    mounts.write_text(line.format("/", "nfs4") + line.format(tmp_path, "ext4"))
    require_local(tmp_path, mounts)
    assert "nfs4" in NETWORK


@pytest.mark.slow
def test_without_the_guard_sqlite_would_be_opened_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.experiments.tune.study.file_system", lambda *_: "nfs")
    with pytest.raises(ConfigError, match="network"):
        open_storage(f"sqlite:///{tmp_path / 'study.db'}")
    monkeypatch.setattr("seqloom.experiments.tune.study.NETWORK", set())
    assert open_storage(f"sqlite:///{tmp_path / 'study.db'}").shown.endswith("study.db")


def test_an_old_sqlite_is_warned_of() -> None:
    assert "3.51.2 is older than 3.51.3" in version_warning((3, 51, 2))
    assert version_warning((3, 51, 3)) == ""


def test_a_missing_optuna_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy.engine", None)
    with pytest.raises(MissingExtraError, match=r"seqloom\[tune\]"):
        open_storage(f"sqlite:///{tmp_path / 'study.db'}")


@pytest.mark.slow
def test_workers_share_a_study_and_nobody_gets_a_trial_twice(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, trials=2)
    first, second = a_study(plan), a_study(plan)
    with first.claim() as one, second.claim() as two, first.claim() as three:
        assert one is not None and two is not None and three is None
        assert {one.number, two.number} == {0, 1}
        first.done(one.trial, 0.5)
    with first.claim() as left:  # the second worker is gone, and has told nothing
        assert left is not None and left.number == two.number
        first.pruned(left.trial)
    with second.claim() as none:
        assert none is None
    assert first.finished() == 2


@pytest.mark.slow
def test_a_trial_that_is_taken_up_again_has_the_parameters_it_had(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, seed=7, space=MODELS)
    study = a_study(plan)
    with study.claim() as claimed:
        assert claimed is not None
        first = drawn(claimed.trial, plan)
    with a_study(plan).claim() as again:
        assert again is not None and again.number == claimed.number
        assert drawn(again.trial, plan) == first
    other = a_plan(tmp_path / "other", seed=7, space=MODELS)
    with a_study(other).claim() as elsewhere:
        assert elsewhere is not None and drawn(elsewhere.trial, other) == first


@pytest.mark.slow
@pytest.mark.parametrize("higher", [True, False])
def test_a_trial_that_is_worse_than_the_others_at_the_same_moment_is_given_up(tmp_path: Path, higher: bool) -> None:
    study = a_study(a_plan(tmp_path, trials=9), Metric("m", higher))
    sign = 1 if higher else -1
    for value in (0.6, 0.7, 0.8, 0.9):
        with study.claim() as claimed:
            assert claimed is not None
            assert not any(study.should_prune(claimed.trial, sign * value, moment) for moment in (1, 2, 3))
            study.done(claimed.trial, sign * value)
    with study.claim() as claimed:
        assert claimed is not None
        assert [study.should_prune(claimed.trial, sign * 0.95, moment) for moment in (1, 2)] == [False, False]
        study.done(claimed.trial, sign * 0.95)
    with study.claim() as claimed:
        assert claimed is not None
        assert study.should_prune(claimed.trial, sign * 0.1, 2)
        study.pruned(claimed.trial)
    assert study.results().best == study.results().trials[4]


@pytest.mark.slow
def test_another_search_in_the_same_study_is_refused(tmp_path: Path) -> None:
    study = a_study(a_plan(tmp_path))
    study.require_same({"space": SpaceConfig(), "task": "classify"})
    study.require_same({"space": SpaceConfig(), "task": "classify"})
    with pytest.raises(ConfigError, match=r"differs: space\..*another --out or --study"):
        study.require_same({"space": SpaceConfig(sizes=("big",)), "task": "classify"})


def test_results_tell_the_best_and_what_mattered_in_every_form() -> None:
    results = some_results(12)
    assert results.best is not None and results.best.number == 11
    assert results.default is not None and results.default.number == 1
    text, page = results.text(80), results.html()
    for shown in (text, page):
        assert "Best dev accuracy: 0.55 in trial 11; with default settings" in shown
        assert "Parameter importance" in shown and "lstm (4)" in shown and "0.002 to 0.003 (2)" in shown
    assert max(map(len, text.splitlines())) <= 80
    assert results.to_json()["trials"][11]["value"] == 0.55
    assert results._repr_html_().startswith("<iframe sandbox")
    assert "<script" not in page and not re.search("src=|href=", page)


def test_lower_is_better_turns_the_order_round() -> None:
    results = some_results(12, higher_is_better=False)
    assert results.best is not None and results.best.number == 1
    assert "which has the default settings" in results.text(80)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_trials_are_told_too(count: int) -> None:
    results = some_results(count, importances={})
    assert "Parameter importances need" in results.text(60)
    assert ("<h2>Trials</h2>" in results.html()) == (count > 0)


def test_names_from_outside_do_nothing_on_the_page() -> None:
    assert "<script" not in some_results(3, study="<script>alert(1)</script>").html()
