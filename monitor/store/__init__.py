"""The store: ledger, pools, questions, answers, classes, detector versions, and their files."""

from monitor.store.checking import Finding, Severity, check, repair
from monitor.store.commit import Committed, ScoredBatch, commit_batch, commit_batches
from monitor.store.compaction import compact
from monitor.store.publish import (
    NewClass,
    Occurrence,
    Update,
    commit_version,
    refuse_version,
    release_version,
)
from monitor.store.recovery import Recovered, recover
from monitor.store.retention import drop_spools, drop_thumbnails, purge
from monitor.store.snapshots import (
    load_detector,
    load_snapshot,
    publish_snapshot,
    save_detector,
)
from monitor.store.store import Store, Transaction

__all__ = [
    "Committed",
    "Finding",
    "NewClass",
    "Occurrence",
    "Recovered",
    "ScoredBatch",
    "Severity",
    "Store",
    "Transaction",
    "Update",
    "check",
    "commit_batch",
    "commit_batches",
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
