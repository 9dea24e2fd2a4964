-- As the first belog_append, and a commit that others wait for need not be durable when it returns:
-- the caller makes it so, after the lock, before it tells anybody (belog.storage.postgres_durable).
--   p_defer      null: the commit is durable; false: unless another append was at work; true: it
--                need not be
-- Returns in each row, too, whether what the row says may not be durable yet, and whether another
-- append was at work.
DROP FUNCTION {schema}.belog_append(
    integer, text, bigint, integer[], bigint[], bigint[],
    bytea[], text[], text[], text[], bytea[]
);
CREATE FUNCTION {schema}.belog_append(
    p_log integer, p_channel text, p_look_max bigint, p_defer boolean,
    p_sizes integer[], p_at bigint[], p_seen bigint[],
    p_ids bytea[], p_types text[], p_kinds text[], p_subjects text[], p_values bytea[]
) RETURNS TABLE (
    first_idx bigint, end_idx bigint, stamp bigint, is_deferred boolean, is_crowded boolean
) LANGUAGE plpgsql AS $$
DECLARE
    v_calls integer := cardinality(p_sizes);
    v_total integer := cardinality(p_values);
    v_from integer := 1;
    v_to integer;
    v_seen bigint;
    v_next bigint;
    v_start bigint;
    v_key bigint := hashtextextended(p_channel, 0);
BEGIN
    -- A refusal is a statement about records that may not be durable.
    is_deferred := p_defer IS NOT NULL;
    is_crowded := false;
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

    -- A queue that hands the turn to one, where the row's lock wakes all who wait. Nothing rests on
    -- it, and without a channel there is none.
    IF NOT pg_try_advisory_xact_lock(v_key) THEN
        is_crowded := true;
        PERFORM pg_advisory_xact_lock(v_key);
    END IF;
    -- A server with synchronous standbys shows no commit before they have it, so it must be waited
    -- for here.
    is_deferred := p_defer IS NOT NULL AND (p_defer OR is_crowded)
        AND current_setting('synchronous_standby_names') = '';
    IF is_deferred THEN
        PERFORM set_config('synchronous_commit', 'off', true);
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
        ELSIF v_total = 1 THEN
            INSERT INTO {schema}.belog_records
            VALUES (
                p_log, v_next, stamp,
                p_ids[1], p_types[1], p_kinds[1], p_subjects[1], p_values[1]
            );
            v_next := v_next + 1;
        ELSIF v_calls = 1 THEN
            INSERT INTO {schema}.belog_records
            SELECT
                p_log, v_next + e.n - 1, stamp, e.id, e.type, e.kind, e.subject, e.value
            FROM unnest(p_ids, p_types, p_kinds, p_subjects, p_values)
                WITH ORDINALITY AS e (id, type, kind, subject, value, n);
            v_next := v_next + v_total;
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
