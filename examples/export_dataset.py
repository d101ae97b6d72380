"""Verdicts with their images as a Hugging Face image folder: for a viewer, or to train on.

`datasets.load_dataset("imagefolder", data_dir=...)` reads it; FiftyOne reads it with
`fiftyone.Dataset.from_dir(..., dataset_type=fiftyone.types.ImageClassificationDirectoryTree)`,
because there is a folder for each verdict.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pyarrow.parquet as pq
from drawn_images import CLASSES, class_folders, feed_file

import conclad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backbone", default="embedded")
    chosen = parser.parse_args()
    folder: Path = chosen.folder
    class_folders(folder / "labelled", CLASSES[:2], each=60)
    feed_file(folder / "feed/today.parquet", [*CLASSES[:2] * 20, *[CLASSES[2]] * 5])
    config = conclad.configure(
        {"state.dir": str(folder / "state"), "backbone.name": chosen.backbone}, environ={}
    )
    conclad.fit(config, [folder / "labelled"])
    conclad.score(config, [folder / "feed"], out=folder / "verdicts")
    print(f"{export(folder / 'verdicts/verdicts', folder / 'dataset')} images in dataset/")


def export(verdicts: Path, out: Path) -> int:
    """Image files in a folder for each verdict, and metadata.jsonl beside them."""
    rows = pq.read_table(verdicts).to_pylist()
    out.mkdir(parents=True, exist_ok=True)
    with (out / "metadata.jsonl").open("w") as metadata:
        images: dict[str, list[bytes]] = {}
        for row in rows:
            file = row["file"]
            if file not in images:
                images[file] = pq.read_table(file, columns=["image"])["image"].to_pylist()
            # Ids of ingested images are paths.
            plain = f"{row['source_id']}-{row['image_id']}".replace("/", "-").removesuffix(".jpg")
            name = f"{row['verdict']}/{plain}.jpg"
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_bytes(images[file][row["row"]])
            kept = ("image_id", "source_id", "verdict", "score_ratio", "nearest_class_name")
            metadata.write(json.dumps({"file_name": name, **{k: row[k] for k in kept}}) + "\n")
    return len(rows)


if __name__ == "__main__":
    main()
