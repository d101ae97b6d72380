"""A labelled dataset becomes feeds, and the whole monitor walks through them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from monitor.cli.evaluate import evaluate, live_steps
from monitor.evaluation import live_run
from monitor.evaluation.errors import (
    CellsFailedError,
    ClassTooSmallError,
    NotEnoughClassesError,
    OutputInUseError,
    ShareError,
)
from monitor.evaluation.every_label import LinearDiscriminant, judged_by_the_rest
from monitor.evaluation.labelled_features import LabelledFeatures, labelled_features
from monitor.evaluation.live_feed import LiveFeed, LivePool
from monitor.evaluation.live_plan import LivePlan
from monitor.evaluation.live_record import LiveCell, Record, run_live_cell
from monitor.evaluation.live_report import live_tables, write_live_report
from monitor.evaluation.live_run import run_live
from monitor.novelty.class_separation import auroc
from tests.evaluation.samples import synthetic

SMALL = LivePlan(labelled=40, pool=80, pools=3, clean=2, shares=(0.25,), seeds=(0,))
# The fields that readers of live.json rely on.
PROMISED = {
    "dataset", "backbone", "seed", "share", "labelled", "pool_size", "noticed_in", "present",
    "found", "questions", "needless_rounds", "clean_pools", "auroc_immediate", "recall_immediate",
    "false_immediate", "auroc_closed", "recall_closed", "false_closed", "auroc_settled",
    "recall_settled", "false_settled", "novel_after", "right_after",
}  # fmt: skip


def blobs() -> LabelledFeatures:
    return synthetic(classes=5, each=200)


def play(plan: LivePlan, share: float, seed: int = 0) -> Record:
    cell = LiveCell("synthetic", "none", share, seed)
    return run_live_cell(cell, plan, blobs(), live_steps())


@pytest.fixture
def features(tmp_path: Path) -> Path:
    path = tmp_path / "blobs.npz"
    np.savez(path, X=blobs().features, y=np.asarray(blobs().labels))
    return path


def command(features: Path, out: Path, *more: str) -> Result:
    arguments = [
        "--live", "--features", str(features), "--labelled", "40", "--pool", "80", "--pools", "2",
        "--clean", "1", "--share", "0,0.25", "--seeds", "0", "--out", str(out), *more,
    ]  # fmt: skip
    return CliRunner().invoke(evaluate, arguments)


def test_a_class_far_from_the_known_ones_is_noticed_and_learnt() -> None:
    record = play(SMALL, 0.25)
    assert set(record) >= PROMISED
    assert record["noticed_in"] == 1
    assert (record["present"], record["found"]) == (1, 1)
    assert record["clean_pools"] == 2
    assert record["learnt_pools"] == 2
    assert record["questions"] >= record["questions_until_noticed"] >= 1
    for when in ("immediate", "closed", "settled"):
        assert record[f"auroc_{when}"] > 0.9
        assert record[f"false_{when}"] < 0.3
    assert record["right_after"] > 0.5
    json.dumps(record, allow_nan=False)


def test_every_pool_with_new_images_is_judged_beside_a_discriminant_with_every_label() -> None:
    first, *later = play(SMALL, 0.25)["by_pool"]
    assert [row["pool"] for row in (first, *later)] == [1, 2, 3]
    assert first["recall_settled"] > 0.8
    assert first["right_new_discriminant"] is None, "nobody has labelled a new image yet"
    assert all(row["right_new_discriminant"] > 0.9 for row in later)
    assert later[-1]["right_new_settled"] > 0.8


def test_settled_commit_stand_beside_what_every_label_would_give() -> None:
    record = play(SMALL, 0.25)
    assert record["auroc_every_label"] > 0.95
    assert record["recall_at_3_every_label"] > 0.9
    assert record["right_new_every_label"] > 0.9
    assert 0 <= record["right_new_settled"] <= 1
    assert play(SMALL, 0.0)["auroc_every_label"] is None, "nothing was noticed"


def test_no_image_teaches_the_discriminant_that_judges_it() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(60, 80)).astype(np.float32)
    pool = LivePool(
        features=noise[20:],
        labels=np.array(["new", "a"] * 20),
        sources=np.full(40, "s", dtype=object),
        clean=False,
    )
    line = judged_by_the_rest(noise[:20], np.full(20, "a"), pool)
    # Eighty features tell sixty images of pure noise apart, if one may look at them.
    assert abs((line.names == pool.labels).mean() - 0.5) < 0.25
    assert abs(auroc(line.odds[::2], line.odds[1::2]) - 0.5) < 0.25


def test_the_discriminant_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    names = np.array(["a"] * 20 + ["b"] * 50 + ["c"] * 30)
    features = rng.normal(size=(100, 40)).astype(np.float32)
    features[names == "b"] += 0.5
    ours = LinearDiscriminant.fit(features, names)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3).fit(features, names)
    apart = ours(features) - theirs.decision_function(features)
    assert np.ptp(apart, axis=1).max() < 1e-3
    assert (ours.told(features) == theirs.predict(features)).all()


def test_classes_that_stay_unconfirmed_are_counted_apart() -> None:
    few, many = (
        run_live_cell(
            LiveCell("synthetic", "none", 0.25, 0, budget=budget), SMALL, blobs(), live_steps()
        )
        for budget in (1 / SMALL.pool, 0.25)
    )
    assert (few["found"], few["unconfirmed_first"]) == (1, 1), "one question confirms nothing"
    assert (many["found"], many["unconfirmed_first"], many["unconfirmed_second"]) == (1, 0, 0)
    assert many["novel_confirmed_after"] == many["novel_after"] < 0.5


def test_budgets_are_compared_on_the_same_feeds(features: Path, tmp_path: Path) -> None:
    result = command(features, tmp_path / "out", "--budget", "0.05,0.25", "--share", "0.25")
    assert result.exit_code == 0, result.output
    assert "25% asked" in result.output
    small, large = json.loads((tmp_path / "out" / "live.json").read_text())["records"]
    assert (small["budget"], large["budget"]) == (0.05, 0.25)
    assert small["questions"] < large["questions"]
    assert small["auroc_immediate"] == large["auroc_immediate"]


def test_a_feed_without_anything_new_is_all_clean() -> None:
    record = play(SMALL, 0.0)
    assert record["clean_pools"] == SMALL.clean + SMALL.pools
    assert (record["present"], record["found"], record["noticed_in"]) == (0, 0, None)
    assert record["auroc_immediate"] is None
    assert record["false_immediate"] < 0.3
    assert record["auroc_settled"] is None
    assert all(n["noticed_in"] is None for n in record["naive"].values())


def test_without_an_allowance_a_quiet_feed_asks_nobody() -> None:
    asked = play(SMALL, 0.0)
    silent = play(SMALL.with_changes(trickle=0), 0.0)
    assert asked["trickle_questions"] > 0
    assert silent["trickle_questions"] == silent["clean_probes"] == 0
    assert silent["questions"] == 0 or silent["needless_rounds"] > 0


def test_the_same_seed_plays_the_same_feed() -> None:
    first, second = (dict(play(SMALL, 0.25)) for _ in range(2))
    assert first.pop("seconds") > 0
    assert second.pop("seconds") > 0
    assert first == second


def test_pools_hold_what_was_asked_for() -> None:
    plan = LivePlan(known=2, new=2, labelled=30, pool=40, pools=3, clean=1)
    feed = LiveFeed.of(blobs(), plan, seed=3, share=0.1)
    pools = list(feed.pools())
    assert [pool.clean for pool in pools] == [True, False, False, False]
    for pool in pools:
        assert len(pool.features) == len(pool.labels) == len(pool.sources) == 40
        new = np.isin(pool.labels, feed.new)
        assert new.sum() == (0 if pool.clean else 4)
        assert set(pool.labels[~new]) <= set(feed.known)
        if not pool.clean:
            assert set(pool.labels[new]) == set(feed.new)
    assert sorted(set(feed.names)) == sorted(feed.known)
    assert len(feed.labelled) == 60


def test_images_return_only_where_the_data_is_too_small() -> None:
    def shown(plan: LivePlan) -> tuple[LiveFeed, np.ndarray[Any, Any]]:
        feed = LiveFeed.of(blobs(), plan, seed=0, share=0.2)
        return feed, np.concatenate([pool.features for pool in feed.pools()])

    plan = LivePlan(known=3, labelled=30, pool=50, pools=3, clean=2)
    feed, images = shown(plan)
    assert not feed.reused
    assert len(np.unique(images, axis=0)) == len(images)
    longer, again = shown(plan.with_changes(pools=40))
    assert longer.reused
    labelled = blobs().features[longer.labelled]
    together = np.concatenate([np.unique(again, axis=0), labelled])
    assert len(np.unique(together, axis=0)) == len(together), "labelled images are never shown"


def test_shares_of_a_seed_have_the_same_detector_and_other_pools() -> None:
    plan = LivePlan(labelled=30, pool=50, pools=1, clean=1)
    one, other = (LiveFeed.of(blobs(), plan, 0, share) for share in (0.1, 0.2))
    assert (one.known, one.new) == (other.known, other.new)
    np.testing.assert_array_equal(one.labelled, other.labelled)
    first, second = next(one.pools()), next(other.pools())
    assert not np.array_equal(np.sort(first.features, axis=0), np.sort(second.features, axis=0))


def test_sources_have_habits_and_all_bring_new_images() -> None:
    plan = SMALL.with_changes(sources=2, pool=100, pools=4)
    feed = LiveFeed.of(blobs(), plan, seed=1, share=0.2)
    pools = list(feed.pools())
    labels = np.concatenate([p.labels for p in pools])
    sources = np.concatenate([p.sources for p in pools])
    assert set(sources) == {"source-1", "source-2"}
    mixtures = np.array(
        [[np.mean(labels[sources == s] == name) for name in feed.known] for s in np.unique(sources)]
    )
    assert np.abs(mixtures[0] - mixtures[1]).max() > 0.1
    for pool in pools:
        assert (pool.sources == "source-1").sum() == 50
        if not pool.clean:
            new = np.isin(pool.labels, feed.new)
            assert {(pool.sources[new] == s).sum() for s in np.unique(sources)} == {10}
    record = play(plan, 0.2, seed=1)
    assert record["sources"] == 2
    assert record["noticed_in"] is not None


def test_an_interrupted_run_goes_on_where_it_stopped(
    features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    played: list[str] = []

    def until_killed(cell: LiveCell, *given: Any) -> Record:
        if len(played) == 1:
            raise KeyboardInterrupt
        played.append(cell.key)
        return run_live_cell(cell, *given)

    monkeypatch.setattr(live_run, "run_live_cell", until_killed)
    assert command(features, out).exit_code != 0
    assert not (out / "live.json").exists()
    monkeypatch.setattr(live_run, "run_live_cell", run_live_cell)
    rest = command(features, out)
    assert rest.exit_code == 0, rest.output
    assert "[2/2] blobs/precomputed/share-0.25/seed-0: noticed in pool 1" in rest.output
    assert "[1/2]" not in rest.output, "the first feed is not played again"
    stored = json.loads((out / "live.json").read_text())
    assert [r["share"] for r in stored["records"]] == [0, 0.25]
    assert stored["meta"]["plan"]["live"]["labelled"] == 40
    assert "noticed-by-share-blobs-precomputed.png" in (out / "live.md").read_text()
    assert (out / "plots" / "noticed-by-share-blobs-precomputed.png").stat().st_size > 1000
    other = command(features, out, "--pool", "60")
    assert isinstance(other.exception, OutputInUseError)


def test_a_feed_that_fails_does_not_lose_the_others(
    features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(cell: LiveCell, *given: Any) -> Record:
        if cell.share:
            raise ValueError("no such luck")
        return run_live_cell(cell, *given)

    monkeypatch.setattr(live_run, "run_live_cell", broken)
    result = command(features, tmp_path / "out")
    assert isinstance(result.exception, CellsFailedError)
    assert "1 feeds failed" in str(result.exception)
    assert "no such luck" in str(result.exception)
    assert len(json.loads((tmp_path / "out" / "live.json").read_text())["records"]) == 1


def test_the_report_counts_feeds_that_never_noticed(tmp_path: Path) -> None:
    record = play(SMALL, 0.25)
    never = {**record, "seed": 1, "noticed_in": None, "noticed_by": None, "found": 0}
    late = {**record, "seed": 2, "noticed_in": 7, "noticed_by": "probe"}
    meta = {"plan": {"live": SMALL.feed_settings()}}
    [noticed, _, _, learnt, pools, draws, _, clean] = live_tables([record, never, late, late], meta)
    [row] = noticed.rows
    assert row[:6] == ("synthetic, none, 25%", "4", "25%", "25%", "75%", "7")
    assert clean.rows[0][1] == "8"
    assert len(pools.rows[0]) == 1 + SMALL.pools
    assert len(draws.rows[0]) == SMALL.pools - 1, "each later pool against the one before"
    assert learnt.rows[0][-1].endswith(" of 3"), "a class that was never found cannot be confirmed"
    write_live_report([record, never], meta, tmp_path)
    page = (tmp_path / "live.md").read_text()
    assert "MMD on features" in page
    assert page.count("![") == 1


@pytest.mark.parametrize(
    ("more", "error", "sentence"),
    [
        (("--share", "1.5"), ShareError, "from 0 to below 1"),
        (("--budget", "0"), ShareError, "above 0, at most 1"),
        (("--labelled", "5"), ClassTooSmallError, "at least 10 images"),
        (("--labelled", "195"), ClassTooSmallError, "lower one of them"),
        (("--new", "3"), NotEnoughClassesError, "has 5 classes"),
    ],
)
def test_what_the_data_cannot_give_is_refused_before_anything_is_written(
    features: Path, tmp_path: Path, more: tuple[str, ...], error: type[Exception], sentence: str
) -> None:
    result = command(features, tmp_path / "out", *more)
    assert isinstance(result.exception, error)
    assert sentence in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_options_that_would_do_nothing_are_refused(features: Path, tmp_path: Path) -> None:
    used = command(features, tmp_path / "out", "--methods", "paper")
    assert used.exit_code == 2
    assert "--methods means nothing with --live" in used.output
    arguments = ["--features", str(features), "--out", str(tmp_path / "out"), "--trickle", "3"]
    alone = CliRunner().invoke(evaluate, arguments)
    assert alone.exit_code == 2
    assert "--trickle only means something with --live" in alone.output
    both = command(features, tmp_path / "out", "--shift", "--data", "x.parquet")
    assert "give one of them" in both.output


def test_several_datasets_are_reported_apart(tmp_path: Path) -> None:
    first = blobs()
    second = labelled_features("other", "none", first.features[::-1].copy(), first.labels[::-1])
    plan = SMALL.with_changes(pools=1, clean=1)
    outcome = run_live(plan, [first, second], tmp_path, live_steps())
    assert [r["dataset"] for r in outcome.records] == ["synthetic", "other"]
    clean = live_tables(outcome.records, outcome.meta)[-1]
    assert [row[0] for row in clean.rows] == ["synthetic, none", "other, none", "all"]
