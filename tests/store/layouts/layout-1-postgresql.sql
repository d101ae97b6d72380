-- The first layout, as conclad 0.1 made it on postgresql. Never edit: old state looks like this.

CREATE TABLE schema_version (
    number INTEGER NOT NULL,
    applied_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (number)
);

CREATE TABLE files (
    id BIGINT NOT NULL,
    path TEXT NOT NULL,
    size BIGINT NOT NULL,
    mtime_ns BIGINT,
    etag TEXT,
    rows BIGINT,
    state TEXT NOT NULL,
    reason TEXT,
    tries INTEGER NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (path)
);

CREATE INDEX files_by_state ON files (state, id);

CREATE TABLE seen (
    digest BYTEA NOT NULL,
    batch_id BIGINT NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (digest)
);

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
    committed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (kind, first),
    UNIQUE (name)
);

CREATE TABLE pools (
    id BIGINT NOT NULL,
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
    evidence JSONB NOT NULL,
    opened_at TIMESTAMP WITH TIME ZONE NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    spool_dropped_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id)
);

CREATE INDEX pools_by_state ON pools (state, id);

CREATE TABLE classes (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    origin TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_in INTEGER,
    retired_at TIMESTAMP WITH TIME ZONE,
    merged_into TEXT,
    PRIMARY KEY (id),
    FOREIGN KEY(merged_into) REFERENCES classes (id)
);

CREATE UNIQUE INDEX classes_living_name ON classes (name) WHERE retired_at IS NULL AND merged_into IS NULL;

CREATE TABLE events (
    id BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    kind TEXT NOT NULL,
    source TEXT,
    payload JSONB NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX events_by_time ON events (at);

CREATE INDEX events_by_source ON events (source, id);

CREATE INDEX events_by_kind ON events (kind, id);

CREATE TABLE counters (
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    label TEXT NOT NULL,
    value DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (name, source, label)
);

CREATE TABLE notes (
    room TEXT NOT NULL,
    key TEXT NOT NULL,
    value JSONB NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (room, key)
);

CREATE TABLE leases (
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    token BIGINT NOT NULL,
    acquired_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE batches (
    id BIGINT NOT NULL,
    file_id BIGINT NOT NULL,
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
    settled_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id),
    UNIQUE (file_id, first_row),
    FOREIGN KEY(file_id) REFERENCES files (id)
);

CREATE INDEX batches_pending ON batches (file_id, first_row) WHERE state = 'pending';

CREATE TABLE detector_versions (
    number INTEGER NOT NULL,
    parent INTEGER,
    key TEXT NOT NULL,
    snapshot TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    pool_id BIGINT,
    evidence JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (number),
    FOREIGN KEY(parent) REFERENCES detector_versions (number),
    UNIQUE (key),
    FOREIGN KEY(pool_id) REFERENCES pools (id)
);

CREATE TABLE pool_members (
    pool_id BIGINT NOT NULL,
    batch_id BIGINT NOT NULL,
    name TEXT NOT NULL,
    rows BIGINT NOT NULL,
    size BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    PRIMARY KEY (pool_id, batch_id),
    FOREIGN KEY(pool_id) REFERENCES pools (id),
    FOREIGN KEY(batch_id) REFERENCES batches (id)
);

CREATE TABLE queries (
    id BIGINT NOT NULL,
    pool_id BIGINT NOT NULL,
    round INTEGER NOT NULL,
    batch_id BIGINT NOT NULL,
    spool_row BIGINT NOT NULL,
    image_id TEXT NOT NULL,
    source_id TEXT NOT NULL,
    captured_at TIMESTAMP WITH TIME ZONE,
    file TEXT NOT NULL,
    row BIGINT NOT NULL,
    score DOUBLE PRECISION NOT NULL,
    score_ratio DOUBLE PRECISION NOT NULL,
    nearest_class TEXT,
    suggestion JSONB NOT NULL,
    thumbnail TEXT,
    state TEXT NOT NULL,
    lease_owner TEXT,
    lease_until TIMESTAMP WITH TIME ZONE,
    answer_id BIGINT,
    opened_at TIMESTAMP WITH TIME ZONE NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (id),
    UNIQUE (pool_id, batch_id, spool_row),
    FOREIGN KEY(pool_id) REFERENCES pools (id),
    FOREIGN KEY(batch_id) REFERENCES batches (id)
);

CREATE INDEX queries_by_pool ON queries (pool_id, round, id);

CREATE INDEX queries_by_thumbnail ON queries (thumbnail);

CREATE INDEX queries_open ON queries (id) WHERE state = 'open';

CREATE TABLE publications (
    id BIGINT NOT NULL,
    number INTEGER NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    who TEXT NOT NULL,
    reason TEXT,
    rollback BOOLEAN NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(number) REFERENCES detector_versions (number)
);

CREATE TABLE answers (
    id BIGINT NOT NULL,
    query_id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    class_id TEXT,
    outcome TEXT NOT NULL,
    undoes BIGINT,
    who TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
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
