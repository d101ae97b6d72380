"""Collections are embedded once; afterwards, or after an interruption, the cache knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.backbones.backbone import load_backbone
from monitor.backbones.backbone_spec import BackboneSpec, cache_root
from monitor.backbones.engine import Engine, Features, Images, open_engine
from monitor.backbones.feature_cache import Chunk, FeatureCache
from monitor.feed import labelled_dataset as dataset
from monitor.feed.errors import ContractError
from monitor.feed.input_contract import Columns
from monitor.feed.labelled_dataset import embed_dataset
from monitor.images.reject_reasons import Reason, Rejected
from monitor.novelty.fingerprint import Fingerprint
from tests.feed.make import encoded, picture

COUNT = 30


@pytest.fixture
def engine() -> Iterator[Engine]:
    with open_engine(load_backbone(BackboneSpec("tiny")), runtime="torch", threads=1) as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    images = [encoded(picture(40, 40, seed=i), "PNG") for i in range(COUNT)]
    images[3] = b"broken"
    table = pa.table(
        {
            "image_id": [None if i == 5 else f"id-{i}" for i in range(COUNT)],
            "image": images,
            "label": [f"class {i % 3}" for i in range(COUNT)],
            "fine": [f"fine {i % 6}" for i in range(COUNT)],
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=7)
    return path


class Counted:
    """Counts the images that an engine really computes."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images = 0
        run = engine._run

        def counting(images: Images) -> Features:
            self.images += len(images)
            return run(images)

        monkeypatch.setattr(engine, "_run", counting)


def test_rows_become_features_with_labels_in_order(
    file: Path, engine: Engine, tmp_path: Path
) -> None:
    found = embed_dataset([file], engine, cache=tmp_path / "cache")
    kept = [i for i in range(COUNT) if i not in (3, 5)]
    assert found.image_ids == tuple(f"id-{i}" for i in kept)
    assert found.labels == tuple(f"class {i % 3}" for i in kept)
    assert found.features.shape == (len(kept), 64)
    assert found.features.dtype == np.float32
    reasons = [(sample.image_id, sample.rejected.reason) for sample in found.rejected]
    assert reasons == [("id-3", Reason.UNKNOWN_FORMAT), ("", Reason.BAD_ID)]
    assert found.rejected[0].where.endswith("a.parquet, row 3")


def test_the_second_time_nothing_is_computed(
    file: Path, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = embed_dataset([file], engine, cache=tmp_path / "cache")
    counted = Counted(engine, monkeypatch)
    moved = file.rename(tmp_path / "moved.parquet")
    second = embed_dataset([moved], engine, cache=tmp_path / "cache", columns=Columns(label="fine"))
    assert counted.images == 0
    assert np.array_equal(first.features, second.features)
    assert first.image_ids == second.image_ids
    assert second.labels[:3] == ("fine 0", "fine 1", "fine 2")
    assert [s.rejected for s in first.rejected] == [s.rejected for s in second.rejected]


def test_an_interrupted_run_goes_on_where_it_stopped(
    file: Path, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "CHUNK", 8)
    whole = embed_dataset([file], engine, cache=tmp_path / "other")

    def stop_half_way(done: int, total: int) -> None:
        assert total == COUNT
        if done >= 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_dataset([file], engine, cache=tmp_path / "cache", progress=stop_half_way)
    counted = Counted(engine, monkeypatch)
    again = embed_dataset([file], engine, cache=tmp_path / "cache")
    assert counted.images == COUNT - 16
    assert np.array_equal(again.features, whole.features)


def test_another_backbone_never_meets_these_features(
    file: Path, engine: Engine, tmp_path: Path
) -> None:
    embed_dataset([file], engine, cache=tmp_path / "cache")
    multi = load_backbone(BackboneSpec.parse("tiny+multi"))
    with open_engine(multi, runtime="torch", threads=1) as other:
        found = embed_dataset([file], other, cache=tmp_path / "cache")
    assert found.features.shape[1] == multi.dimension


def test_a_damaged_chunk_is_computed_again(file: Path, engine: Engine, tmp_path: Path) -> None:
    first = embed_dataset([file], engine, cache=tmp_path / "cache")
    [chunk] = (tmp_path / "cache" / "features").rglob("*.safetensors")
    chunk.write_bytes(chunk.read_bytes()[:100])
    again = embed_dataset([file], engine, cache=tmp_path / "cache")
    assert np.array_equal(again.features, first.features)
    assert chunk.stat().st_size > 100


def test_class_folders(engine: Engine, tmp_path: Path) -> None:
    root = tmp_path / "images"
    for name in ("cat", "dog", "_hidden"):
        (root / name / "deep").mkdir(parents=True)
        (root / name / "1.png").write_bytes(encoded(picture(30, 30, seed=len(name)), "PNG"))
        (root / name / "deep" / "2.JPG").write_bytes(encoded(picture(30, 30, seed=9), "JPEG"))
        (root / name / "notes.txt").write_text("not an image")
    (root / "dog" / "3.png").write_bytes(b"")
    found = embed_dataset([root], engine, cache=tmp_path / "cache")
    assert found.image_ids == ("cat/1.png", "cat/deep/2.JPG", "dog/1.png", "dog/deep/2.JPG")
    assert found.labels == ("cat", "cat", "dog", "dog")
    assert [(s.image_id, s.rejected.reason) for s in found.rejected] == [
        ("dog/3.png", Reason.NO_IMAGE)
    ]


def test_labels_are_needed_unless_said_otherwise(engine: Engine, tmp_path: Path) -> None:
    image = encoded(picture(30, 30, seed=0), "PNG")
    pq.write_table(pa.table({"image_id": ["a"], "image": [image]}), tmp_path / "a.parquet")
    with pytest.raises(ContractError, match="label"):
        embed_dataset([tmp_path / "a.parquet"], engine, cache=tmp_path / "cache")
    found = embed_dataset(
        [tmp_path / "a.parquet"], engine, cache=tmp_path / "cache", need_label=False
    )
    assert found.labels == (None,)


def test_a_chunk_survives_its_round_trip(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, Fingerprint("tiny", "", "{}", 4, "float32"))
    chunk = Chunk(
        np.array([0, 2]), np.eye(2, 4, dtype=np.float32), {1: Rejected(Reason.CORRUPT, "é: bad")}
    )
    images = [b"a", b"b", b"c"]
    assert cache.get(images) is None
    cache.put(images, chunk)
    found = cache.get(images)
    assert found is not None
    assert np.array_equal(found.positions, chunk.positions)
    assert np.array_equal(found.features, chunk.features)
    assert found.rejected == chunk.rejected
    assert cache.get([b"ab", b"", b"c"]) is None
    assert cache.get(images[::-1]) is None


def test_the_cache_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "named"))
    assert cache_root() == tmp_path / "named"
    assert cache_root(tmp_path) == tmp_path
    monkeypatch.delenv("CONCLAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "conclad"
