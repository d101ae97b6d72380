"""The store: ledger, pools, questions, answers, classes, detector versions, and their files."""

from monitor.store.batch_commit import CommittedBatch, ScoredBatch, commit_batches
from monitor.store.compaction import compact
from monitor.store.integrity_check import Finding, Severity, check, repair
from monitor.store.recovery import Recovered, recover
from monitor.store.retention import drop_spools, drop_thumbnails
from monitor.store.settled_commit import commit_settled
from monitor.store.snapshots import (
    load_detector,
    load_snapshot,
    publish_snapshot,
    save_detector,
)
from monitor.store.source_purge import purge
from monitor.store.store import Store, Transaction
from monitor.store.version_commit import (
    NewClass,
    Occurrence,
    VersionUpdate,
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
