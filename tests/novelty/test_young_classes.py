"""Classes that were learnt from few images are asked about images that resemble another class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.novelty import subspace
from monitor.novelty.array_types import Floats
from monitor.novelty.detector import Detector, KnownClass
from monitor.novelty.robust.robust_settings import RobustSettings
from monitor.novelty.robust.single_image_score import Opinions

_DIMENSION = 40
_YOUNG, _STRANGE = 2, 3


class Meadow:
    """Two narrow classes, a wide one between them that is rarely seen, and something strange."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._means = self._rng.normal(size=(4, _DIMENSION))
        self._means[_YOUNG] += 0.6 * (self._means[0] - self._means[_YOUNG])
        falling = np.geomspace(1, 0.1, _DIMENSION)
        self._spread = np.stack([falling[self._rng.permutation(_DIMENSION)] for _ in range(4)])
        self._spread[_YOUNG] *= 2
        labelled = np.concatenate([self.draw(0, 150), self.draw(1, 150)])
        self.fitted = Detector.fit(labelled, ["a"] * 150 + ["b"] * 150)

    def draw(self, index: int, count: int) -> Floats:
        noise = self._rng.normal(size=(count, _DIMENSION)) * self._spread[index]
        drawn: Floats = (self._means[index] + noise).astype(np.float32)
        return drawn

    def taught(self, *, count: int = 30, origin: str = "discovered") -> Detector:
        """With the third class, learnt from so few images; a fitted one is not asked."""
        born = KnownClass.fit(
            "c9",
            "young",
            self.draw(_YOUNG, count),
            settings=self.fitted.settings,
            rng=np.random.default_rng(0),
            origin=origin,
        )
        return self.fitted.with_classes([born])


def _asked(detector: Detector) -> list[int]:
    assert detector.opinions is not None
    return [int(position) for position in detector.opinions.young]


def test_its_images_are_known_though_they_resemble_another_class_more() -> None:
    asked, silent = (Meadow().taught(origin=origin) for origin in ("discovered", "fit"))
    assert (_asked(asked), _asked(silent)) == ([_YOUNG], [])
    meadow = Meadow()
    own = meadow.draw(_YOUNG, 600)
    now, before = asked.score(own), silent.score(own)
    np.testing.assert_array_equal(now.nearest, before.nearest)
    elsewhere = now.nearest != _YOUNG
    assert elsewhere.sum() > 40
    assert now.novel[elsewhere].mean() < 0.75 * before.novel[elsewhere].mean()


def test_what_is_none_of_its_images_stays_novel() -> None:
    meadow = Meadow()
    detector = meadow.taught()
    assert detector.score(meadow.draw(_STRANGE, 300)).novel.all()
    known = np.concatenate([meadow.draw(0, 300), meadow.draw(1, 300)])
    assert detector.score(known).novel.mean() < 0.1


def test_an_unconfirmed_class_makes_nothing_known() -> None:
    young = Meadow().taught()
    doubted = [replace(known, confirmed=known.id != "c9") for known in young.classes]
    assert _asked(young.with_known(doubted)) == []


def test_a_mature_class_is_not_asked() -> None:
    most = RobustSettings().mature
    assert _asked(Meadow().taught(count=most - 1)) == [_YOUNG]
    assert _asked(Meadow().taught(count=most)) == []


def test_the_rate_of_references_above_t_inner_stays_what_was_set() -> None:
    detector = Meadow().taught()
    assert detector.calibration.exceedance == pytest.approx(
        RobustSettings().false_novel, abs=2.5 / len(detector.references)
    )


def test_verdicts_are_the_same_with_the_screen_of_many_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meadow = Meadow()
    detector = meadow.taught()
    probe = np.concatenate([meadow.draw(index, 100) for index in range(4)])
    exact = detector.score(probe)
    monkeypatch.setattr(subspace, "WORTHWHILE", 0)
    screened = replace(detector).score(probe)
    np.testing.assert_array_equal(screened.novel, exact.novel)
    np.testing.assert_allclose(screened.score, exact.score, rtol=1e-3)


def test_a_state_from_before_young_classes_were_asked_is_read() -> None:
    meadow = Meadow()
    assert meadow.fitted.opinions is not None
    arrays = meadow.fitted.opinions.to_arrays()
    earlier = {name: array for name, array in arrays.items() if not name.startswith("young")}
    read = replace(meadow.fitted, saved=Opinions.from_arrays(earlier))
    probe = meadow.draw(1, 50)
    np.testing.assert_allclose(read.score(probe).score, meadow.fitted.score(probe).score, rtol=1e-5)
    # Such a state may hold discovered classes as well: they are asked from the next version on.
    taught = meadow.taught()
    assert _asked(replace(taught, saved=read.opinions)) == []
    assert _asked(replace(taught, saved=read.opinions).with_known(taught.classes)) == [_YOUNG]
