-- The index of what events concern; see belog.storage.selective. Readers extend it, in steps, up to
-- indexed_to; appends do not wait for it.
CREATE TABLE {schema}.belog_index (
    log integer PRIMARY KEY,
    indexed_to bigint NOT NULL,
    events bigint NOT NULL,
    void bigint NOT NULL,
    bytes bigint NOT NULL
);
INSERT INTO {schema}.belog_index SELECT log, 0, 0, 0, 0 FROM {schema}.belog_logs;

-- Every name once. Byte order, so that a prefix is a range.
CREATE TABLE {schema}.belog_names (
    log integer NOT NULL,
    field smallint NOT NULL,
    term text COLLATE "C" NOT NULL,
    name bigint GENERATED ALWAYS AS IDENTITY,
    events bigint NOT NULL,
    first_run_idx bigint,
    PRIMARY KEY (log, field, term)
);

CREATE TABLE {schema}.belog_postings (
    name bigint NOT NULL,
    idx bigint NOT NULL,
    PRIMARY KEY (name, idx)
);

CREATE TABLE {schema}.belog_ids (
    log integer NOT NULL,
    event_id bytea NOT NULL,
    idx bigint NOT NULL,
    PRIMARY KEY (log, event_id)
);
