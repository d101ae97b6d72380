"""Labelled images become detector version 1, once."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from monitor.jobs.errors import AlreadyFitted
from monitor.jobs.fit_detector import Fitted, fit
from monitor.jobs.from_config import current_version, open_store
from monitor.jobs.progress import JobProgress
from monitor.novelty.errors import ClassTooSmall, MissingLabels
from monitor.store.exemplars import all_exemplars, get_thumbnail
from monitor.store.integrity_check import check
from tests.jobs.feeds import COLOURS, config_for, picture, write_feed


def test_each_class_is_reported(tmp_path: Path) -> None:
    labelled = write_feed(tmp_path / "a.parquet", ["water"] * 50 + ["forest"] * 80)
    fitted = fit(config_for(tmp_path), [labelled])
    assert (fitted.version, fitted.is_new) == (1, True)
    assert [(c.name, c.images) for c in fitted.classes] == [("forest", 80), ("water", 50)]
    for known in fitted.classes:
        assert known.calibrated_on == known.images
        assert 0 < known.components < known.images
        assert known.validation_fre is not None
        assert known.validation_fre > 0
    assert fitted.t_inner > 0
    assert 0 <= fitted.exceedance < 0.5
    assert fitted.calibrated_on == sum(c.calibrated_on for c in fitted.classes)


def test_the_version_is_in_use_and_the_state_is_whole(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    fit(config, [write_feed(tmp_path / "a.parquet", ["water", "forest"] * 30)])
    with open_store(config) as store:
        assert current_version(store).number == 1
        assert check(store) == []
        with store.reading() as tx:
            assert sorted(c.name for c in tx.classes.all()) == ["forest", "water"]


def test_the_same_images_give_the_same_version_and_are_not_embedded_again(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    labelled = write_feed(tmp_path / "a.parquet", ["water", "forest"] * 30)
    first = fit(config, [labelled])
    moved = labelled.rename(tmp_path / "b.parquet")
    again = fit(config, [moved])
    assert (again.version, again.is_new) == (first.version, False)
    assert again.classes == first.classes


def test_other_images_are_refused_once_there_is_a_detector(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    fit(config, [write_feed(tmp_path / "a.parquet", ["water", "forest"] * 30)])
    with pytest.raises(AlreadyFitted, match=r"holds detector version 1 .* state\.dir"):
        fit(config, [write_feed(tmp_path / "b.parquet", ["sand", "forest"] * 30)])


def test_a_class_too_small_to_calibrate_is_refused_with_advice(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    labelled = write_feed(tmp_path / "a.parquet", ["water"] * 40 + ["snow"])
    with pytest.raises(ClassTooSmall, match="snow") as caught:
        fit(config, [labelled])
    assert "at least" in str(caught.value)
    with open_store(config) as store, store.reading() as tx:
        assert tx.versions.all() == []


def test_class_folders_are_labelled_by_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    for kind in ("water", "forest"):
        (folder / kind).mkdir(parents=True)
        for seed in range(30):
            (folder / kind / f"{seed}.png").write_bytes(picture(kind, seed))
    (folder / "water" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    fitted = fit(config_for(tmp_path), [folder])
    assert [(c.name, c.images) for c in fitted.classes] == [("forest", 30), ("water", 30)]
    assert sum(fitted.rejected.values()) == 1


def test_images_without_a_label_are_left_out_and_counted(tmp_path: Path) -> None:
    kinds = ["water", "forest"] * 30
    labelled = write_feed(tmp_path / "a.parquet", kinds)
    extra = write_feed(tmp_path / "b.parquet", ["sand"] * 5, first_id=100)
    _blank_labels(extra)
    fitted = fit(config_for(tmp_path), [labelled, extra])
    assert fitted.unlabelled == 5
    assert len(fitted.classes) == 2
    fresh = config_for(tmp_path, f"state.dir={tmp_path / 'fresh'}")
    with pytest.raises(MissingLabels, match=r"feed\.columns\.label"):
        fit(fresh, [extra])


def test_progress_ends_at_the_number_of_images(tmp_path: Path) -> None:
    seen: list[JobProgress] = []
    labelled = write_feed(tmp_path / "a.parquet", ["water", "forest"] * 30)
    fit(config_for(tmp_path), [labelled], progress=seen.append)
    assert [(p.stage, p.done, p.total) for p in seen][-1] == ("embed", 60, 60)


def test_the_preset_and_its_overrides_reach_the_detector(tmp_path: Path) -> None:
    labelled = write_feed(tmp_path / "a.parquet", list(COLOURS) * 30)

    def components(variance: float) -> int:
        config = config_for(
            tmp_path,
            f"novelty.settings.variance={variance}",
            f"state.dir={tmp_path / str(variance)}",
        )
        fitted: Fitted = fit(config, [labelled])
        return sum(known.components for known in fitted.classes)

    assert components(0.5) < components(0.95)


def _blank_labels(path: Path) -> None:
    table = pq.read_table(path)
    blank = pa.array([None, "", " ", None, ""], pa.string())
    pq.write_table(table.set_column(table.schema.get_field_index("label"), "label", blank), path)


def test_pictures_of_each_class_are_kept_for_people(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    labelled = write_feed(tmp_path / "a.parquet", ["water", "forest"] * 30)
    fit(config, [labelled])
    with open_store(config) as store:
        with store.reading() as tx:
            shown = all_exemplars(tx)
            names = {row.id: row.name for row in tx.classes.all()}
        assert {names[class_id]: len(kept) for class_id, kept in shown.items()} == {
            "water": 8,
            "forest": 8,
        }
        for class_id, kept in shown.items():
            data = get_thumbnail(store.folder, kept[0].thumbnail)
            colour = np.asarray(Image.open(io.BytesIO(data))).mean(axis=(0, 1))
            assert np.abs(colour - np.asarray(COLOURS[names[class_id]])).max() < 12
        assert check(store) == []
