"""Archives and tables as they are: zip, tar, WebDataset, Hugging Face Parquet."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.ingest.errors import SourceRefused
from monitor.ingest.ingest_job import ingest
from monitor.ingest.ingest_options import Options
from monitor.ingest.path_pattern import PathPattern
from tests.ingest.making import OLD, cameras, images, jpeg, moment, rows


def settled(path: Path) -> str:
    os.utime(path, (OLD, OLD))
    return str(path)


def write_zip(path: Path, members: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, (2026, 3, 11, 7, 5, 8))
            archive.writestr(info, data)
    return settled(path)


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w") -> str:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), OLD
            archive.addfile(info, io.BytesIO(data))
    return settled(path)


MEMBERS = {f"cam-{i % 2}/{i}.jpg": jpeg(i) for i in range(12)} | {
    "readme.txt": b"hello",
    "__MACOSX/cam-0/._1.jpg": b"\0\0",
}
PICTURES = {name: data for name, data in MEMBERS.items() if name.startswith("cam")}


def test_zip(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "photos.zip", MEMBERS)
    ingest([path], tmp_path / "feed")
    assert images(tmp_path / "feed") == {f"photos.zip/{n}": d for n, d in PICTURES.items()}
    found = rows(tmp_path / "feed")
    assert {row["source_id"] for row in found} == {"cam-0", "cam-1"}
    assert {row["captured_at"] for row in found} == {moment("2026-03-11T07:05:08+00:00")}
    assert ingest([path], tmp_path / "feed").images == 0


@pytest.mark.parametrize(
    ("name", "mode"), [("p.tar", "w"), ("p.tar.gz", "w:gz"), ("p.tar.xz", "w:xz")]
)
def test_tar(tmp_path: Path, name: str, mode: str) -> None:
    path = write_tar(tmp_path / name, MEMBERS, mode)
    ingest([path], tmp_path / "feed")
    assert images(tmp_path / "feed") == {f"{name}/{n}": d for n, d in PICTURES.items()}


def test_archives_in_folders_have_the_folders_source_and_patterns(tmp_path: Path) -> None:
    (tmp_path / "in/north").mkdir(parents=True)
    write_zip(tmp_path / "in/north/1.zip", {"x/boat/1.jpg": jpeg(1)})
    ingest([str(tmp_path / "in")], tmp_path / "feed")
    assert [row["source_id"] for row in rows(tmp_path / "feed")] == ["north"]
    pattern = PathPattern.parse("{source}/*/{label}/*.jpg")
    ingest([str(tmp_path / "in")], tmp_path / "other", Options(pattern=pattern))
    [row] = rows(tmp_path / "other")
    assert (row["source_id"], row["label"]) == ("north", "boat")


def test_webdataset(tmp_path: Path) -> None:
    """Labels and times stand beside the images, before or after them."""
    for shard in range(2):
        members: dict[str, bytes] = {}
        for i in range(3):
            key = f"{shard}{i:04d}"
            members[f"{key}.cls"] = f"{i % 2}".encode()
            members[f"{key}.jpg"] = jpeg(10 * shard + i)
            note = {"captured_at": f"2026-03-11T07:0{i}:00Z", "caption": "a boat"}
            members[f"{key}.json"] = json.dumps(note).encode()
        write_tar(tmp_path / f"train-{shard:06d}.tar", members)
    ingest([str(path) for path in sorted(tmp_path.glob("*.tar"))], tmp_path / "feed")
    found = rows(tmp_path / "feed")
    assert [row["label"] for row in found] == ["0", "1", "0"] * 2
    assert {row["source_id"] for row in found} == {"train"}
    assert found[1]["captured_at"] == moment("2026-03-11T07:01:00+00:00")
    assert len(images(tmp_path / "feed")) == 6


def test_half_an_archive_gives_what_is_whole_and_is_told(tmp_path: Path) -> None:
    path = Path(write_tar(tmp_path / "p.tar", PICTURES))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    settled(path)
    done = ingest([str(path)], tmp_path / "feed")
    assert 0 < done.images < len(PICTURES)
    assert "cannot be read to its end" in done.examples[0].why
    path.write_bytes(whole)
    settled(path)
    ingest([str(path)], tmp_path / "feed")
    assert sorted(images(tmp_path / "feed").values()) == sorted(PICTURES.values())


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "p.zip").write_bytes(b"hello")
    with pytest.raises(SourceRefused, match=r"p\.zip: cannot be read to its end"):
        ingest([settled(tmp_path / "p.zip")], tmp_path / "feed")


def hugging_face(path: Path, count: int = 5) -> str:
    features = {
        "image": {"_type": "Image"},
        "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    }
    schema = pa.schema(
        [
            ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            ("label", pa.int64()),
        ],
        {"huggingface": json.dumps({"info": {"features": features}})},
    )
    table = pa.table(
        {
            "image": [{"bytes": jpeg(i), "path": f"{i}.jpg"} for i in range(count)],
            "label": [i % 2 for i in range(count)],
        },
        schema=schema,
    )
    pq.write_table(table, path, row_group_size=2)
    return settled(path)


def test_hugging_face(tmp_path: Path) -> None:
    path = hugging_face(tmp_path / "train-00000-of-00002.parquet")
    ingest([path], tmp_path / "feed")
    found = rows(tmp_path / "feed")
    assert [row["image"] for row in found] == [jpeg(i) for i in range(5)]
    assert [row["label"] for row in found] == ["cat", "dog", "cat", "dog", "cat"]
    assert {row["source_id"] for row in found} == {"train"}
    assert ingest([path], tmp_path / "feed").images == 0


def test_a_feed_can_be_ingested_into_another(tmp_path: Path) -> None:
    cameras(tmp_path / "in", 8)
    ingest([str(tmp_path / "in")], tmp_path / "first", Options(settle=0))
    ingest([str(tmp_path / "first")], tmp_path / "second", Options(settle=0))
    assert rows(tmp_path / "second") == rows(tmp_path / "first")


def test_parquet_without_images(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(SourceRefused, match=r"no column holds images \(found: a\)"):
        ingest([settled(tmp_path / "a.parquet")], tmp_path / "feed")
