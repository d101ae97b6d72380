"""What `fit` says against its labels: classes that look alike, images that look mislabelled."""

from __future__ import annotations

from pathlib import Path

from monitor.cli.fit import describe
from monitor.jobs.fit_detector import fit
from tests.jobs.feeds import config_for, picture, write_feed


def test_sound_labels_are_not_doubted(tmp_path: Path) -> None:
    labelled = write_feed(tmp_path / "a.parquet", ["water", "forest"] * 60)
    found = fit(config_for(tmp_path), [labelled])
    assert (found.alike, found.doubted) == ((), ())
    assert "% of 60" in describe(found)


def test_a_mislabelled_image_is_named(tmp_path: Path) -> None:
    kinds = ["water", "forest"] * 60
    images = [picture(kind, i) for i, kind in enumerate(kinds)]
    images[10] = picture("forest", 10_000)  # labelled water
    labelled = write_feed(tmp_path / "a.parquet", kinds, images=images)
    found = fit(config_for(tmp_path), [labelled])
    assert str(found.doubted[0]) == "000010 is labelled water and looks like forest"
    assert "Labels to look at:\n  000010" in describe(found)


def test_one_class_under_two_names_looks_alike(tmp_path: Path) -> None:
    kinds = ["water", "forest", "sand"] * 60
    images = [picture("water" if kind == "sand" else kind, i) for i, kind in enumerate(kinds)]
    found = fit(config_for(tmp_path), [write_feed(tmp_path / "a.parquet", kinds, images=images)])
    [pair] = found.alike
    assert set(pair.names) == {"sand", "water"}
    assert pair.swapped / pair.of > 0.3
    assert not found.doubted, "it is the classes that are in doubt, not their images"
    assert "look alike to this backbone" in describe(found)


def test_one_class_and_few_images_are_warned_of(tmp_path: Path) -> None:
    found = fit(config_for(tmp_path), [write_feed(tmp_path / "a.parquet", ["water"] * 24)])
    said = describe(found)
    assert "There is one class" in said
    assert "Fewer than 30 images judge water" in said
