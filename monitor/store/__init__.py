"""The store: ledger, pools, questions, answers, classes, detector versions, and their files.

Names are imported when they are used: a command that only reads the database loads neither numpy
nor pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monitor.store.batch_commit import CommittedBatch, ScoredBatch, commit_batches
    from monitor.store.compaction import compact
    from monitor.store.integrity_check import Finding, Severity, check, repair
    from monitor.store.records import Occurrence
    from monitor.store.retention import drop_spools, drop_thumbnails
    from monitor.store.snapshots import (
        load_detector,
        load_snapshot,
        publish_snapshot,
        save_detector,
    )
    from monitor.store.source_purge import purge
    from monitor.store.store import Recovered, Store, Transaction, recover
    from monitor.store.version_and_settled_commit import (
        NewClass,
        VersionUpdate,
        commit_settled,
        commit_version,
        refuse_version,
        release_version,
    )

__all__ = [
    "CommittedBatch",
    "Finding",
    "NewClass",
    "Occurrence",
    "Recovered",
    "ScoredBatch",
    "Severity",
    "Store",
    "Transaction",
    "VersionUpdate",
    "check",
    "commit_batches",
    "commit_settled",
    "commit_version",
    "compact",
    "drop_spools",
    "drop_thumbnails",
    "load_detector",
    "load_snapshot",
    "publish_snapshot",
    "purge",
    "recover",
    "refuse_version",
    "release_version",
    "repair",
    "save_detector",
]

_HOME = {
    "CommittedBatch": "batch_commit",
    "Finding": "integrity_check",
    "NewClass": "version_and_settled_commit",
    "Occurrence": "records",
    "Recovered": "store",
    "ScoredBatch": "batch_commit",
    "Severity": "integrity_check",
    "Store": "store",
    "Transaction": "store",
    "VersionUpdate": "version_and_settled_commit",
    "check": "integrity_check",
    "commit_batches": "batch_commit",
    "commit_settled": "version_and_settled_commit",
    "commit_version": "version_and_settled_commit",
    "compact": "compaction",
    "drop_spools": "retention",
    "drop_thumbnails": "retention",
    "load_detector": "snapshots",
    "load_snapshot": "snapshots",
    "publish_snapshot": "snapshots",
    "purge": "source_purge",
    "recover": "store",
    "refuse_version": "version_and_settled_commit",
    "release_version": "version_and_settled_commit",
    "repair": "integrity_check",
    "save_detector": "snapshots",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
