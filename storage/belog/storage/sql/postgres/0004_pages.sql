-- A row holds one record, or as many consecutive ones of one append as fit a page of the server: most
-- of what a short row costs, in the heap, the index and the write-ahead log, a row costs whatever its
-- length is.
--   value   of one record, or those of several without anything between
--   ends    null: one record; else how many bytes of value lie before the end of each
--   keys    two per record: of its subject and of its event id; see belog.storage.postgres_rows.
--           Null in rows of an older version: they are taken to concern everything.
ALTER TABLE {schema}.belog_records
    DROP COLUMN event_id, DROP COLUMN event_type, DROP COLUMN subject_kind, DROP COLUMN subject_id,
    ADD COLUMN ends integer[], ADD COLUMN keys integer[];
-- A row that fits a page stays in it, and is not compressed.
ALTER TABLE {schema}.belog_records SET (toast_tuple_target = 8160);

DROP FUNCTION {schema}.belog_touched(integer, bigint, bigint, bytea[], text[], text[]);
DROP FUNCTION {schema}.belog_append(
    integer, text, bigint, boolean, integer[], bigint[], bigint[],
    bytea[], text[], text[], text[], bytea[]
);
DROP FUNCTION {schema}.belog_copy(
    integer, text, bigint, bigint[], bigint[], bytea[], text[], text[], text[], bytea[]
);

-- Whether a record of [p_from, p_to) could change a verdict on events with these keys. The key 1 is
-- that of the log itself. A session keeps its plan while the table grows, so what would be best for a
-- small one is forbidden.
CREATE FUNCTION {schema}.belog_touched(
    p_log integer, p_from bigint, p_to bigint, p_keys integer[]
) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    -- The row before may hold some of them.
    v_row bigint := (
        SELECT b.idx FROM {schema}.belog_records b
        WHERE b.log = p_log AND b.idx <= p_from
        ORDER BY b.idx DESC
        LIMIT 1
    );
BEGIN
    RETURN EXISTS (
        SELECT 1
        FROM {schema}.belog_records r
            CROSS JOIN LATERAL unnest(
                CASE
                    WHEN r.idx >= p_from THEN coalesce(r.keys, '{1}')
                    ELSE r.keys[2 * (p_from - r.idx)::integer + 1 :]
                END
            ) AS k (key)
        WHERE r.log = p_log AND r.idx >= coalesce(v_row, p_from) AND r.idx < p_to
            -- Not IN alone: that would become a join, by a plan that suits no number of records.
            AND (k.key = 1 OR k.key IN (SELECT unnest(p_keys)))
    );
END
$$;

-- As the belog_append before, with the records in rows.
--   p_sizes      how many events each call has
--   p_at         the next index that a call demands, or null
--   p_seen       up to where a call's events were judged, or null
--   p_look_max   how many records behind that may be looked through
--   p_defer      null: the commit is durable; false: unless another append was at work; true: it
--                need not be
--   p_rows       how many rows each call has
--   p_firsts     how many events of the call lie before each row
--   p_counts     how many events each row has
--   p_starts     how many bytes of p_value lie before each row
--   p_ends, p_keys
--                of each event, of each event two
--   p_value      of all rows, without anything between: an array of them would be copied twice
-- Returns whether what it says may not be durable yet, whether another append was at work (0 or 1),
-- the ingest time, and of each call two: its first index (null where it was refused), and the next
-- index of the log at that point. Functions are called in assignments, which need no plan to be run.
CREATE FUNCTION {schema}.belog_append(
    p_log integer, p_channel text, p_look_max bigint, p_defer boolean,
    p_sizes integer[], p_at bigint[], p_seen bigint[],
    p_rows integer[], p_firsts integer[], p_counts integer[], p_starts integer[],
    p_ends integer[], p_keys integer[], p_value bytea
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_calls integer := cardinality(p_sizes);
    v_total integer := cardinality(p_ends);
    v_before integer := 0;
    v_row integer := 1;
    v_row_end integer;
    v_size integer;
    v_seen bigint;
    v_next bigint;
    v_start bigint;
    v_stamp bigint;
    v_first bigint;
    v_end bigint;
    v_deferred boolean;
    v_crowded integer := 0;
    v_calls_answer bigint[];
    v_key bigint := hashtextextended(p_channel, 0);
    v_done text;
BEGIN
    IF v_calls = 1 AND (p_at[1] IS NOT NULL OR p_seen[1] IS NOT NULL) THEN
        -- Refuse without the lock what is lost already, and leave less to look at under it.
        SELECT e.next_idx INTO v_end FROM {schema}.belog_ends e WHERE e.log = p_log;
        v_seen := p_seen[1];
        IF v_end <> p_at[1] OR v_seen > v_end OR v_end - v_seen > p_look_max OR (
            v_seen IS NOT NULL AND v_seen < v_end
            AND {schema}.belog_touched(p_log, v_seen, v_end, p_keys)
        ) THEN
            -- A refusal is a statement about records that may not be durable.
            RETURN ARRAY[(p_defer IS NOT NULL)::integer, 0, NULL, NULL, v_end];
        END IF;
        p_seen[1] := greatest(v_seen, v_end);
    END IF;

    -- A queue that hands the turn to one, where the row's lock wakes all who wait. Nothing rests on
    -- it, and without a channel there is none.
    IF NOT pg_try_advisory_xact_lock(v_key) THEN
        v_crowded := 1;
        v_done := pg_advisory_xact_lock(v_key)::text;
    END IF;
    -- A server with synchronous standbys shows no commit before they have it, so it must be waited
    -- for here.
    v_deferred := p_defer IS NOT NULL AND (p_defer OR v_crowded = 1)
        AND current_setting('synchronous_standby_names') = '';
    IF v_deferred THEN
        v_done := set_config('synchronous_commit', 'off', true);
    END IF;

    UPDATE {schema}.belog_ends e
    SET next_idx = e.next_idx + v_total,
        created_at = greatest(
            e.created_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
        )
    WHERE e.log = p_log
    RETURNING e.next_idx - v_total, e.created_at INTO v_start, v_stamp;
    IF v_start IS NULL THEN
        RAISE EXCEPTION 'belog: no log %', p_log USING ERRCODE = 'no_data_found';
    END IF;

    v_next := v_start;
    FOR v_call IN 1 .. v_calls LOOP
        v_size := p_sizes[v_call];
        v_row_end := v_row + p_rows[v_call];
        v_seen := p_seen[v_call];
        v_first := v_next;
        IF v_next <> p_at[v_call] OR v_seen > v_next OR v_next - v_seen > p_look_max OR (
            v_seen IS NOT NULL AND v_seen < v_next
            AND {schema}.belog_touched(
                p_log, v_seen, v_next, p_keys[2 * v_before + 1 : 2 * (v_before + v_size)]
            )
        ) THEN
            v_first := NULL;
        ELSIF v_size = 1 THEN
            INSERT INTO {schema}.belog_records (log, idx, created_at, value, keys)
            VALUES (
                p_log, v_next, v_stamp,
                substring(p_value FROM p_starts[v_row] + 1 FOR p_ends[v_before + 1]),
                p_keys[2 * v_before + 1 : 2 * v_before + 2]
            );
            v_next := v_next + 1;
        ELSE
            INSERT INTO {schema}.belog_records (log, idx, created_at, value, ends, keys)
            SELECT
                p_log, v_next + e.first, v_stamp,
                substring(p_value FROM e.start + 1 FOR p_ends[v_before + e.first + e.count]),
                CASE
                    WHEN e.count > 1
                    THEN p_ends[v_before + e.first + 1 : v_before + e.first + e.count]
                END,
                p_keys[2 * (v_before + e.first) + 1 : 2 * (v_before + e.first + e.count)]
            FROM (
                -- Not generate_series: by what the planner thinks of that, it would plan each time.
                SELECT
                    unnest(p_firsts[v_row : v_row_end - 1]) AS first,
                    unnest(p_counts[v_row : v_row_end - 1]) AS count,
                    unnest(p_starts[v_row : v_row_end - 1]) AS start
            ) AS e;
            v_next := v_next + v_size;
        END IF;
        v_calls_answer := v_calls_answer || ARRAY[v_first, v_next];
        v_before := v_before + v_size;
        v_row := v_row_end;
    END LOOP;

    IF v_next <> v_start + v_total THEN
        UPDATE {schema}.belog_ends e SET next_idx = v_next WHERE e.log = p_log;
    END IF;
    IF v_next > v_start AND p_channel IS NOT NULL THEN
        v_done := pg_notify(p_channel, v_next::text)::text;
    END IF;
    RETURN ARRAY[v_deferred::integer, v_crowded, v_stamp] || v_calls_answer;
END
$$;

-- Call belog_append, and return its answer when what that says is durable, in one round trip: where
-- that was left to be done, by a second transaction, which has the server's own synchronous_commit.
-- An error may come after the first commit.
CREATE PROCEDURE {schema}.belog_commit(
    p_log integer, p_channel text, p_look_max bigint, p_defer boolean,
    p_sizes integer[], p_at bigint[], p_seen bigint[],
    p_rows integer[], p_firsts integer[], p_counts integer[], p_starts integer[],
    p_ends integer[], p_keys integer[], p_value bytea,
    INOUT answer bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    v_lsn pg_lsn;
BEGIN
    answer := {schema}.belog_append(
        p_log, p_channel, p_look_max, p_defer, p_sizes, p_at, p_seen,
        p_rows, p_firsts, p_counts, p_starts, p_ends, p_keys, p_value
    );
    IF answer[1] = 1 THEN
        COMMIT;
        -- Transactional: without an id of its own a transaction would not be flushed at its commit.
        v_lsn := pg_logical_emit_message(true, 'belog', '');
    END IF;
END
$$;

-- Append records that have their index and time already, a row each. Returns the log's last index as
-- it was; nothing was written where that is not p_after.
CREATE FUNCTION {schema}.belog_copy(
    p_log integer, p_channel text, p_after bigint,
    p_idx bigint[], p_created bigint[], p_keys integer[], p_values bytea[]
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
    INSERT INTO {schema}.belog_records (log, idx, created_at, value, keys)
    SELECT
        p_log, e.idx, greatest(v_created, max(e.created) OVER (ORDER BY e.n)), e.value,
        ARRAY[p_keys[2 * e.n - 1], p_keys[2 * e.n]]
    FROM unnest(p_idx, p_created, p_values) WITH ORDINALITY AS e (idx, created, value, n);
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

-- The rows that hold the first p_limit records from an index on. The first and the last of them may
-- hold more.
CREATE FUNCTION {schema}.belog_scan(p_log integer, p_since bigint, p_limit bigint)
RETURNS TABLE (idx bigint, created_at bigint, ends integer[], value bytea)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_end bigint;
    v_left bigint := p_limit;
BEGIN
    FOR idx, created_at, ends, value IN
        SELECT r.idx, r.created_at, r.ends, r.value
        FROM {schema}.belog_records r
        WHERE r.log = p_log
            AND r.idx >= coalesce(
                (
                    SELECT max(b.idx) FROM {schema}.belog_records b
                    WHERE b.log = p_log AND b.idx <= p_since
                ),
                p_since
            )
        ORDER BY r.idx
    LOOP
        v_end := idx + coalesce(cardinality(ends), 1);
        CONTINUE WHEN v_end <= p_since;
        RETURN NEXT;
        v_left := v_left - (v_end - greatest(idx, p_since));
        EXIT WHEN v_left <= 0;
    END LOOP;
END
$$;

-- Remove records. What a row holds beside them stays, in rows of its own.
CREATE FUNCTION {schema}.belog_remove(p_log integer, p_idx bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- One at a time: who waited for a row would pass by what became of it.
    PERFORM 1 FROM {schema}.belog_logs l WHERE l.log = p_log FOR UPDATE;
    WITH gone AS (
        DELETE FROM {schema}.belog_records r
        WHERE r.log = p_log
            AND r.idx IN (
                SELECT (
                    SELECT max(b.idx)
                    FROM {schema}.belog_records b
                    WHERE b.log = p_log AND b.idx <= i
                )
                FROM unnest(p_idx) AS i
            )
            AND (r.ends IS NOT NULL OR r.idx IN (SELECT unnest(p_idx)))
        RETURNING r.*
    )
    INSERT INTO {schema}.belog_records (log, idx, created_at, value, keys)
    SELECT
        g.log, g.idx + n - 1, g.created_at,
        substring(
            g.value FROM coalesce(g.ends[n - 1], 0) + 1
            FOR g.ends[n] - coalesce(g.ends[n - 1], 0)
        ),
        g.keys[2 * n - 1 : 2 * n]
    FROM gone g, generate_subscripts(g.ends, 1) AS n
    WHERE g.idx + n - 1 NOT IN (SELECT unnest(p_idx));
END
$$;

-- The first index whose record was ingested at or after a time; the log's next index if there is none.
CREATE OR REPLACE FUNCTION {schema}.belog_index_at(p_log integer, p_created bigint)
RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_low bigint := 0;
    v_high bigint;
    v_middle bigint;
    v_idx bigint;
    v_end bigint;
    v_created bigint;
BEGIN
    SELECT e.next_idx INTO v_high FROM {schema}.belog_ends e WHERE e.log = p_log;
    -- All below v_low is earlier, all from v_high on is not. Both are where a row begins, or may.
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high) / 2;
        SELECT r.idx, r.idx + coalesce(cardinality(r.ends), 1), r.created_at
        INTO v_idx, v_end, v_created
        FROM {schema}.belog_records r
        WHERE r.log = p_log AND r.idx >= v_low AND r.idx <= v_middle
        ORDER BY r.idx DESC
        LIMIT 1;
        IF v_idx IS NULL THEN
            -- Nothing begins before the middle: look at what comes next.
            SELECT r.idx, r.idx + coalesce(cardinality(r.ends), 1), r.created_at
            INTO v_idx, v_end, v_created
            FROM {schema}.belog_records r
            WHERE r.log = p_log AND r.idx > v_middle AND r.idx < v_high
            ORDER BY r.idx
            LIMIT 1;
        END IF;
        EXIT WHEN v_idx IS NULL;
        IF v_created < p_created THEN
            v_low := v_end;
        ELSE
            v_high := v_idx;
        END IF;
    END LOOP;
    RETURN v_high;
END
$$;
