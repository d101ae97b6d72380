-- The first layout, as conclad 0.1 made it on sqlite. Never edit: old state looks like this.

CREATE TABLE schema_version (
    number INTEGER NOT NULL,
    applied_at DATETIME NOT NULL,
    PRIMARY KEY (number)
);

CREATE TABLE files (
    id INTEGER NOT NULL,
    path TEXT NOT NULL,
    size BIGINT NOT NULL,
    mtime_ns BIGINT,
    etag TEXT,
    rows BIGINT,
    state TEXT NOT NULL,
    reason TEXT,
    tries INTEGER NOT NULL,
    first_seen_at DATETIME NOT NULL,
    updated_at DATETIME NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (path)
);

CREATE INDEX files_by_state ON files (state, id);

CREATE TABLE seen (
    digest BLOB NOT NULL,
    batch_id INTEGER NOT NULL,
    seen_at DATETIME NOT NULL,
    PRIMARY KEY (digest)
)
 WITHOUT ROWID;

CREATE INDEX seen_by_time ON seen (seen_at);

CREATE TABLE outputs (
    kind TEXT NOT NULL,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    generation INTEGER NOT NULL,
    name TEXT NOT NULL,
    rows BIGINT NOT NULL,
    purged BIGINT NOT NULL,
    size BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    committed_at DATETIME NOT NULL,
    PRIMARY KEY (kind, first),
    UNIQUE (name)
);

CREATE TABLE pools (
    id INTEGER NOT NULL,
    group_name TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    size BIGINT NOT NULL,
    above BIGINT NOT NULL,
    seed BIGINT NOT NULL,
    round INTEGER NOT NULL,
    budget INTEGER NOT NULL,
    asked INTEGER NOT NULL,
    detector_version INTEGER,
    resolved_by INTEGER,
    evidence JSON NOT NULL,
    opened_at DATETIME NOT NULL,
    closed_at DATETIME,
    finished_at DATETIME,
    spool_dropped_at DATETIME,
    PRIMARY KEY (id)
);

CREATE INDEX pools_by_state ON pools (state, id);

CREATE TABLE classes (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    origin TEXT NOT NULL,
    created_at DATETIME NOT NULL,
    created_in INTEGER,
    retired_at DATETIME,
    merged_into TEXT,
    PRIMARY KEY (id),
    FOREIGN KEY(merged_into) REFERENCES classes (id)
);

CREATE UNIQUE INDEX classes_living_name ON classes (name) WHERE retired_at IS NULL AND merged_into IS NULL;

CREATE TABLE events (
    id INTEGER NOT NULL,
    at DATETIME NOT NULL,
    kind TEXT NOT NULL,
    source TEXT,
    payload JSON NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX events_by_time ON events (at);

CREATE INDEX events_by_source ON events (source, id);

CREATE INDEX events_by_kind ON events (kind, id);

CREATE TABLE counters (
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    label TEXT NOT NULL,
    value DOUBLE NOT NULL,
    PRIMARY KEY (name, source, label)
);

CREATE TABLE notes (
    room TEXT NOT NULL,
    "key" TEXT NOT NULL,
    value JSON NOT NULL,
    updated_at DATETIME NOT NULL,
    PRIMARY KEY (room, "key")
);

CREATE TABLE leases (
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    token BIGINT NOT NULL,
    acquired_at DATETIME NOT NULL,
    expires_at DATETIME NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE batches (
    id INTEGER NOT NULL,
    file_id INTEGER NOT NULL,
    first_row BIGINT NOT NULL,
    rows BIGINT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    tries INTEGER NOT NULL,
    detector_version INTEGER,
    known BIGINT NOT NULL,
    novel BIGINT NOT NULL,
    rejected BIGINT NOT NULL,
    duplicates BIGINT NOT NULL,
    settled_at DATETIME,
    PRIMARY KEY (id),
    UNIQUE (file_id, first_row),
    FOREIGN KEY(file_id) REFERENCES files (id)
);

CREATE INDEX batches_pending ON batches (file_id, first_row) WHERE state = 'pending';

CREATE TABLE detector_versions (
    number INTEGER NOT NULL,
    parent INTEGER,
    "key" TEXT NOT NULL,
    snapshot TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    pool_id INTEGER,
    evidence JSON NOT NULL,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (number),
    FOREIGN KEY(parent) REFERENCES detector_versions (number),
    UNIQUE ("key"),
    FOREIGN KEY(pool_id) REFERENCES pools (id)
);

CREATE TABLE pool_members (
    pool_id INTEGER NOT NULL,
    batch_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    rows BIGINT NOT NULL,
    size BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    PRIMARY KEY (pool_id, batch_id),
    FOREIGN KEY(pool_id) REFERENCES pools (id),
    FOREIGN KEY(batch_id) REFERENCES batches (id)
);

CREATE TABLE queries (
    id INTEGER NOT NULL,
    pool_id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    batch_id INTEGER NOT NULL,
    spool_row BIGINT NOT NULL,
    image_id TEXT NOT NULL,
    source_id TEXT NOT NULL,
    captured_at DATETIME,
    file TEXT NOT NULL,
    "row" BIGINT NOT NULL,
    score DOUBLE NOT NULL,
    score_ratio DOUBLE NOT NULL,
    nearest_class TEXT,
    suggestion JSON NOT NULL,
    thumbnail TEXT,
    state TEXT NOT NULL,
    lease_owner TEXT,
    lease_until DATETIME,
    answer_id INTEGER,
    opened_at DATETIME NOT NULL,
    closed_at DATETIME,
    PRIMARY KEY (id),
    UNIQUE (pool_id, batch_id, spool_row),
    FOREIGN KEY(pool_id) REFERENCES pools (id),
    FOREIGN KEY(batch_id) REFERENCES batches (id)
);

CREATE INDEX queries_by_pool ON queries (pool_id, round, id);

CREATE INDEX queries_by_thumbnail ON queries (thumbnail);

CREATE INDEX queries_open ON queries (id) WHERE state = 'open';

CREATE TABLE publications (
    id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at DATETIME NOT NULL,
    who TEXT NOT NULL,
    reason TEXT,
    "rollback" BOOLEAN NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(number) REFERENCES detector_versions (number)
);

CREATE TABLE answers (
    id INTEGER NOT NULL,
    query_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    class_id TEXT,
    outcome TEXT NOT NULL,
    undoes INTEGER,
    who TEXT NOT NULL,
    at DATETIME NOT NULL,
    client_id TEXT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(query_id) REFERENCES queries (id),
    FOREIGN KEY(class_id) REFERENCES classes (id),
    UNIQUE (undoes),
    FOREIGN KEY(undoes) REFERENCES answers (id),
    UNIQUE (client_id)
);

CREATE INDEX answers_by_person ON answers (who, id);

CREATE INDEX answers_by_query ON answers (query_id, id);
