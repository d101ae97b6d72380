"""Names of notes and counters that one package writes and another one reads."""

from __future__ import annotations

#: The lease of the one monitor that works on a state.
COORDINATOR_LEASE = "coordinator"

#: The counters of batches by outcome, of images by source and outcome (known, novel, duplicate,
#: rejected), and of rejected images by source and reason.
BATCHES, IMAGES, REJECTIONS = "batches", "images", "rejected"

#: Counters by source: images that reused the features of another, those that could have and were
#: embedded to see, and by how much the scores of these over T_inner differed, added up.
REUSED, REUSE_CHECKS, REUSE_CHANGE = "reused", "reuse_checks", "reuse_change"

#: Notes by kind and key: the monitor's heartbeat, and what the trigger would notice.
HEARTBEAT = ("monitor", "coordinator")
SENSITIVITY = ("sensitivity", "latest")

#: Kinds of notes with one for each source: when it last sent, the verdict on its drift, and what
#: that was judged by. The last is large and apart, so that whoever wants verdicts reads only them.
SOURCES = "source"
DRIFT = "drift"
DRIFT_STATES = "drift-state"
#: Notes by pool: what drift is judged by, of all of its sources, until it joins theirs.
RECENT_DRIFT_STATES = "recent-drift-states"
#: What the monitor waits for, as it notes it itself.
OUTAGES = ("monitor", "outages")

#: The key of the desk, a file next to the database: never in a copy of the state.
DESK_KEY = "desk-key"

#: Notes by class: the pseudo-labelled images that people took out of it.
WRONG_LABELS = "wrong_labels"
#: How sources that are shifted are corrected, one note for each, and how often that has changed.
SHIFTS = "shift"
SHIFT_REVISION = ("monitor", "shift_revision")
#: Where files wait that are written before the transaction which gives them their names.
STAGING = "staging"
