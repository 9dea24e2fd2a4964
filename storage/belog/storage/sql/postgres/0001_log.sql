-- One row per log. The name is what a URI calls it.
CREATE TABLE {schema}.belog_logs (
    log integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    log_id uuid NOT NULL,
    instance text NOT NULL,
    is_replica boolean NOT NULL
);

-- Where each log ends: the row whose lock orders all writers. Narrow, and with room in its page, so
-- that updating it moves nothing and touches no index.
CREATE TABLE {schema}.belog_ends (
    log integer PRIMARY KEY,
    next_idx bigint NOT NULL,
    created_at bigint NOT NULL
) WITH (fillfactor = 10);

-- The columns between time and value repeat what the value says, for the check in belog_append and
-- for people. They are null where the value is not an event.
CREATE TABLE {schema}.belog_records (
    log integer NOT NULL,
    idx bigint NOT NULL,
    created_at bigint NOT NULL,
    event_id bytea,
    event_type text,
    subject_kind text,
    subject_id text,
    value bytea NOT NULL,
    PRIMARY KEY (log, idx)
);

-- Whether a record of [p_from, p_to) could change a verdict on one of the events.
CREATE FUNCTION {schema}.belog_touched(
    p_log integer, p_from bigint, p_to bigint,
    p_ids bytea[], p_kinds text[], p_subjects text[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1
        FROM {schema}.belog_records r
        WHERE r.log = p_log AND r.idx >= p_from AND r.idx < p_to
            AND (
                r.subject_kind = 'system'
                OR r.event_id IN (SELECT unnest(p_ids))
                OR (r.subject_kind, r.subject_id) IN (
                    SELECT s.kind, s.id FROM unnest(p_kinds, p_subjects) AS s (kind, id)
                )
            )
    );
END
$$;

-- Append the events of several calls in one transaction, each call all or nothing.
--   p_sizes      how many events each call has
--   p_at         the next index that a call demands, or null
--   p_seen       up to where a call's events were judged, or null
--   p_look_max   how many records behind that may be looked through
-- Returns one row per call: its first index (null where it was refused), the next index of the log
-- at that point, and the ingest time.
--
-- The row of belog_ends stays locked until the commit is durable, so the order of indices is the
-- order of commits: no reader sees an index before a lower one.
CREATE FUNCTION {schema}.belog_append(
    p_log integer, p_channel text, p_look_max bigint,
    p_sizes integer[], p_at bigint[], p_seen bigint[],
    p_ids bytea[], p_types text[], p_kinds text[], p_subjects text[], p_values bytea[]
) RETURNS TABLE (first_idx bigint, end_idx bigint, stamp bigint) LANGUAGE plpgsql AS $$
DECLARE
    v_calls integer := cardinality(p_sizes);
    v_total integer := cardinality(p_values);
    v_from integer := 1;
    v_to integer;
    v_seen bigint;
    v_next bigint;
    v_start bigint;
BEGIN
    IF v_calls = 1 AND (p_at[1] IS NOT NULL OR p_seen[1] IS NOT NULL) THEN
        -- Refuse without the lock what is lost already, and leave less to look at under it.
        SELECT e.next_idx INTO end_idx FROM {schema}.belog_ends e WHERE e.log = p_log;
        v_seen := p_seen[1];
        IF end_idx <> p_at[1] OR v_seen > end_idx OR end_idx - v_seen > p_look_max OR (
            v_seen IS NOT NULL AND v_seen < end_idx
            AND {schema}.belog_touched(p_log, v_seen, end_idx, p_ids, p_kinds, p_subjects)
        ) THEN
            RETURN NEXT;
            RETURN;
        END IF;
        p_seen[1] := greatest(v_seen, end_idx);
    END IF;

    UPDATE {schema}.belog_ends e
    SET next_idx = e.next_idx + v_total,
        created_at = greatest(
            e.created_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
        )
    WHERE e.log = p_log
    RETURNING e.next_idx - v_total, e.created_at INTO v_start, stamp;
    IF v_start IS NULL THEN
        RAISE EXCEPTION 'belog: no log %', p_log USING ERRCODE = 'no_data_found';
    END IF;

    v_next := v_start;
    FOR v_call IN 1 .. v_calls LOOP
        v_to := v_from + p_sizes[v_call] - 1;
        v_seen := p_seen[v_call];
        first_idx := v_next;
        IF v_next <> p_at[v_call] OR v_seen > v_next OR v_next - v_seen > p_look_max OR (
            v_seen IS NOT NULL AND v_seen < v_next
            AND {schema}.belog_touched(
                p_log, v_seen, v_next,
                p_ids[v_from:v_to], p_kinds[v_from:v_to], p_subjects[v_from:v_to]
            )
        ) THEN
            first_idx := NULL;
        ELSIF v_calls = 1 AND v_total = 1 THEN
            INSERT INTO {schema}.belog_records
            VALUES (
                p_log, v_next, stamp,
                p_ids[1], p_types[1], p_kinds[1], p_subjects[1], p_values[1]
            );
            v_next := v_next + 1;
        ELSE
            INSERT INTO {schema}.belog_records
            SELECT
                p_log, v_next + e.n - 1, stamp, e.id, e.type, e.kind, e.subject, e.value
            FROM unnest(
                p_ids[v_from:v_to], p_types[v_from:v_to], p_kinds[v_from:v_to],
                p_subjects[v_from:v_to], p_values[v_from:v_to]
            ) WITH ORDINALITY AS e (id, type, kind, subject, value, n);
            v_next := v_next + p_sizes[v_call];
        END IF;
        end_idx := v_next;
        v_from := v_to + 1;
        RETURN NEXT;
    END LOOP;

    IF v_next <> v_start + v_total THEN
        UPDATE {schema}.belog_ends e SET next_idx = v_next WHERE e.log = p_log;
    END IF;
    IF v_next > v_start AND p_channel IS NOT NULL THEN
        PERFORM pg_notify(p_channel, v_next::text);
    END IF;
END
$$;

-- Append records that have their index and time already. Returns the log's last index as it was;
-- nothing was written where that is not p_after.
CREATE FUNCTION {schema}.belog_copy(
    p_log integer, p_channel text, p_after bigint,
    p_idx bigint[], p_created bigint[],
    p_ids bytea[], p_types text[], p_kinds text[], p_subjects text[], p_values bytea[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_last bigint;
    v_created bigint;
BEGIN
    SELECT e.next_idx - 1, e.created_at INTO v_last, v_created
    FROM {schema}.belog_ends e
    WHERE e.log = p_log
    FOR UPDATE;
    IF v_last <> p_after OR cardinality(p_idx) = 0 THEN
        RETURN v_last;
    END IF;
    -- Readers see the running maximum of the times, and find a time by halving.
    INSERT INTO {schema}.belog_records
    SELECT
        p_log, e.idx, greatest(v_created, max(e.created) OVER (ORDER BY e.n)),
        e.id, e.type, e.kind, e.subject, e.value
    FROM unnest(p_idx, p_created, p_ids, p_types, p_kinds, p_subjects, p_values)
        WITH ORDINALITY AS e (idx, created, id, type, kind, subject, value, n);
    UPDATE {schema}.belog_ends e
    SET next_idx = p_idx[cardinality(p_idx)] + 1,
        created_at = greatest(v_created, (SELECT max(c) FROM unnest(p_created) AS c))
    WHERE e.log = p_log;
    IF p_channel IS NOT NULL THEN
        PERFORM pg_notify(p_channel, (p_idx[cardinality(p_idx)] + 1)::text);
    END IF;
    RETURN v_last;
END
$$;

-- The first index whose record was ingested at or after a time; the log's next index if there is none.
CREATE FUNCTION {schema}.belog_index_at(p_log integer, p_created bigint)
RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_low bigint := 0;
    v_high bigint;
    v_middle bigint;
    v_idx bigint;
    v_created bigint;
BEGIN
    SELECT e.next_idx INTO v_high FROM {schema}.belog_ends e WHERE e.log = p_log;
    -- All below v_low is earlier, all from v_high on is not.
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high) / 2;
        SELECT r.idx, r.created_at INTO v_idx, v_created
        FROM {schema}.belog_records r
        WHERE r.log = p_log AND r.idx >= v_middle
        ORDER BY r.idx
        LIMIT 1;
        IF v_created < p_created THEN
            v_low := v_idx + 1;
        ELSE
            v_high := v_middle;
        END IF;
    END LOOP;
    RETURN v_low;
END
$$;
