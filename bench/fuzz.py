"""Fuzz rows, the configuration or imports, led by coverage; needs atheris (the extra `fuzz`).

    python -m bench.fuzz rows|config|imports [--minutes 10] [--seed 1]

Each input is either taken or refused with an error of ours; anything else that is raised ends the
run and leaves the input below out/fuzz. Rows must come out one for each that went in, ids and
reasons such that they can be shown; what is imported must be accounted for record by record.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import atheris
except ModuleNotFoundError:
    sys.exit("bench.fuzz needs atheris: pip install 'conclad-monitor[fuzz]'")

with atheris.instrument_imports(include=["monitor"]):
    from monitor.config import load
    from monitor.feed.input_contract import Columns, Row, check_schema, rows_of
    from monitor.people.exchange.parsed_answers import take_in
    from monitor.people.exchange.read_answers import read_answers

import pyarrow as pa
import yaml

from monitor.errors import ConcladError
from monitor.plain_text import NAME_LONGEST, REASON_LONGEST
from monitor.store import Store
from tests.people import world

OUT = Path("out", "fuzz")
QUESTIONS = 8
ROWS = 4


def rows_target(folder: Path) -> Callable[[bytes], None]:
    """Columns of any type under the names of the contract, with any values."""
    kinds = [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.string_view(),
        pa.binary_view(),
        pa.int64(),
        pa.uint8(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns"),
        pa.timestamp("s", "Europe/Berlin"),
        pa.float64(),
        pa.bool_(),
        pa.null(),
    ]
    names = ("image_id", "source_id", "captured_at", "label", "image")

    def value(given: Any, kind: pa.DataType) -> Any:
        if given.ConsumeBool() and given.ConsumeBool():
            return None
        if pa.types.is_null(kind):
            return None
        if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
            return given.ConsumeInt(1 if kind == pa.uint8() else 8)
        if pa.types.is_floating(kind):
            return given.ConsumeFloat()
        if pa.types.is_boolean(kind):
            return given.ConsumeBool()
        data = given.ConsumeBytes(given.ConsumeIntInRange(0, 300))
        is_text = "string" in str(kind)
        # Text that is no UTF-8 comes too, as in files of careless writers; see below.
        return data.decode("utf-8", "replace") if is_text else data

    def column(given: Any, kind: pa.DataType) -> pa.Array:
        if pa.types.is_integer(kind) and kind == pa.uint8():
            return pa.array([given.ConsumeIntInRange(0, 255) for _ in range(ROWS)], kind)
        if kind == pa.string() and given.ConsumeBool():
            parts = [given.ConsumeBytes(given.ConsumeIntInRange(0, 40)) for _ in range(ROWS)]
            raw = pa.array(parts, pa.binary())
            return pa.StringArray.from_buffers(ROWS, raw.buffers()[1], raw.buffers()[2])
        if pa.types.is_timestamp(kind):
            return pa.array([value(given, pa.int64()) for _ in range(ROWS)], pa.int64()).cast(kind)
        found = pa.array([value(given, kind) for _ in range(ROWS)], kind)
        encodes = given.ConsumeBool() and not pa.types.is_null(kind) and "view" not in str(kind)
        return found.dictionary_encode() if encodes else found

    def target(data: bytes) -> None:
        given = atheris.FuzzedDataProvider(data)
        columns = {}
        for name in names:
            if name in ("image_id", "image") or given.ConsumeBool():
                kind = kinds[given.ConsumeIntInRange(0, len(kinds) - 1)]
                columns[name] = column(given, kind)
        batch = pa.RecordBatch.from_pydict(columns)
        try:
            layout = check_schema(batch.schema, Columns(), where="a.parquet")
        except ConcladError:
            return
        found = list(rows_of(batch, layout, 0, given.ConsumeUnicode(20)))
        assert [row.row for row in found] == list(range(ROWS))
        for row in found:
            for text in (row.image_id, row.source_id):
                assert text is None or (text.isprintable() and len(text) <= NAME_LONGEST)
            if not isinstance(row, Row):
                assert row.detail.isprintable()
                assert len(row.detail) <= REASON_LONGEST

    return target


def config_target(folder: Path) -> Callable[[bytes], None]:
    """A file of settings, and settings on the command line."""
    path = folder / "ray_config.yaml"

    def target(data: bytes) -> None:
        given = atheris.FuzzedDataProvider(data)
        overrides = []
        if given.ConsumeBool():
            overrides = [given.ConsumeUnicodeNoSurrogates(40) for _ in range(2)]
        path.write_bytes(given.ConsumeBytes(given.remaining_bytes()))
        try:
            load(path, overrides=overrides, environ={})
        except ConcladError as error:
            assert str(error)

    return target


def imports_target(folder: Path) -> Callable[[bytes], None]:
    """A file of answers in each of its formats, taken in by a store with a few questions."""
    store = Store.open(folder / "state")
    world.fit(store)
    world.ask(store, QUESTIONS)

    def target(data: bytes) -> None:
        given = atheris.FuzzedDataProvider(data)
        name = ("a.csv", "a.jsonl", "a.json")[given.ConsumeIntInRange(0, 2)]
        content = given.ConsumeBytes(given.remaining_bytes())
        try:
            parsed = read_answers(name, content)
        except ConcladError:
            return
        done = take_in(store, parsed, who="fuzzer", content=content)
        assert len(done.receipts) == len(parsed.said)
        assert sum(done.counts.values()) == len(parsed.said) + len(parsed.problems) + parsed.left

    return target


TARGETS = {"rows": rows_target, "config": config_target, "imports": imports_target}


def seeds(what: str, folder: Path) -> None:
    """Examples to begin with: what is sound, so that mutations reach the depths."""
    folder.mkdir(parents=True, exist_ok=True)
    if what == "config":
        text = Path("ray_config.yaml").read_text()
        for number, part in enumerate(text.split("\n\n")):
            (folder / f"seed-{number}").write_bytes(part.encode() + b"\0")
        (folder / "seed-whole").write_bytes(text.encode() + b"\0")
    if what == "imports":
        records = [{"question_id": 3, "class": "dune"}, {"question_id": 4, "answer": "cannot_tell"}]
        choice = {"from_name": "class", "type": "choices", "value": {"choices": ["dune"]}}
        task = {"data": {"question_id": 5}, "annotations": [{"result": [choice]}]}
        texts = [
            "question_id,class,answer\n1,dune,\n2,,bad_image\n",
            "\n".join(map(json.dumps, records)),
            json.dumps([task, {"question_id": 6, "class": "water"}]),
        ]
        for number, text in enumerate(texts):
            # The provider takes its integers from the end.
            (folder / f"seed-{number}").write_bytes(text.encode() + bytes([number]))


def dictionary(what: str, path: Path) -> None:
    """Words that a mutation would hardly find."""
    words = {"question_id", "class", "answer", "annotations", "result", "choices", "value", "data"}
    if what == "config":
        words = set(_keys(yaml.safe_load(Path("ray_config.yaml").read_text()) or {}))
    path.write_text("\n".join(f'"{word}"' for word in sorted(words)) + "\n")


def _keys(values: dict[str, Any]) -> list[str]:
    found = list(values)
    for value in values.values():
        found += _keys(value) if isinstance(value, dict) else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=sorted(TARGETS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    # By the clock, which runs on while others compute: more on a crowded machine.
    parser.add_argument("--seconds", type=int, default=20, help="one input may take")
    args = parser.parse_args()
    corpus = OUT / args.what
    seeds(args.what, corpus)
    with tempfile.TemporaryDirectory() as folder:
        dictionary(args.what, Path(folder, "words"))
        options = [
            f"-max_total_time={int(args.minutes * 60)}",
            f"-seed={args.seed}",
            f"-dict={folder}/words",
            f"-artifact_prefix={OUT}/{args.what}-",
            "-max_len=4096",
            f"-timeout={args.seconds}",
            "-rss_limit_mb=4096",
            "-print_final_stats=1",
            str(corpus),
        ]
        atheris.Setup([sys.argv[0], *options], TARGETS[args.what](Path(folder)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
