"""Fit, score and look at what is new, from Python."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq
from drawn_images import CLASSES, class_folders, feed_file

import conclad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backbone", default="embedded")
    chosen = parser.parse_args()
    folder: Path = chosen.folder
    class_folders(folder / "labelled", CLASSES[:2], each=60)
    feed_file(folder / "feed/today.parquet", [*CLASSES[:2] * 20, CLASSES[2]])

    config = conclad.configure(
        {"state.dir": str(folder / "state"), "backbone.name": chosen.backbone}, environ={}
    )
    fitted = conclad.fit(config, [folder / "labelled"])
    print(f"T_inner {fitted.t_inner:.3g}, exceeded by {fitted.exceedance:.0%} of known images")
    scored = conclad.score(config, [folder / "feed"], out=folder / "verdicts")
    print(f"{scored.novel} of {scored.images} images are novel")
    verdicts = pq.read_table(folder / "verdicts/verdicts").to_pylist()
    for row in sorted(verdicts, key=lambda row: -row["score_ratio"])[:5]:
        print(
            f"{row['score_ratio']:6.2f}  {row['image_id']}  most like {row['nearest_class_name']}"
        )


if __name__ == "__main__":
    main()
