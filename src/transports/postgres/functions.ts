import { SHARED_PRESENCE_EVENTS_KEPT } from '../../hub/transport.ts';

/** Signals that are kept for nodes that are unavailable for a while. */
const SIGNALS_KEPT = 10_000;

/**
 * The steps that the server executes completely or not at all. A step is one statement, so a gateway that dies or
 * loses its network in the middle never leaves a transaction open, whose locks others would wait for.
 *
 * @param s the schema, quoted
 */
export function functionsSql(s: string): string {
  return `
CREATE FUNCTION ${s}.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
  'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint';

-- Removes what exceeds the limits, at most p_most entries, oldest first. The caller has locked the stream.
CREATE FUNCTION ${s}.evict(
  INOUT p_stream ${s}.streams, p_max_length bigint, p_oldest bigint, p_most int
) LANGUAGE plpgsql AS $$
DECLARE
  v_update bigint;
  v_event bigint;
  v_updates bigint;
  v_events bigint;
  v_first bigint;
BEGIN
  IF p_most <= 0 THEN RETURN; END IF;
  SELECT at INTO v_first FROM ${s}.entries
    WHERE stream = p_stream.id AND position > p_stream.evicted_updates ORDER BY position LIMIT 1;
  IF (p_max_length > 0 AND p_stream.updates > p_max_length) OR v_first < p_oldest THEN
    -- Updates, together with the presence events before them.
    SELECT max(position) FILTER (WHERE NOT presence), max(position) FILTER (WHERE presence),
        count(*) FILTER (WHERE NOT presence), count(*) FILTER (WHERE presence)
      INTO v_update, v_event, v_updates, v_events
      FROM (
        SELECT position, presence, bool_and(
            (p_max_length > 0 AND updates > p_max_length) OR (updates > 1 AND at < p_oldest)
          ) OVER (ORDER BY position) AS goes
        FROM (
          SELECT position, presence, at, p_stream.updates - (count(*) FILTER (WHERE NOT presence)
              OVER (ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS updates
          FROM (
            SELECT position, presence, at FROM ${s}.entries
            WHERE stream = p_stream.id AND position > p_stream.evicted_updates
            ORDER BY position LIMIT p_most
          ) oldest
        ) counted
      ) judged WHERE goes;
    DELETE FROM ${s}.entries WHERE stream = p_stream.id
      AND position > p_stream.evicted_updates AND position <= greatest(v_update, v_event);
    p_stream.evicted_updates := coalesce(v_update, p_stream.evicted_updates);
    p_stream.evicted_events := coalesce(v_event, p_stream.evicted_events);
    p_stream.updates := p_stream.updates - v_updates;
    p_stream.events := p_stream.events - v_events;
  END IF;
  IF p_stream.events = 0 THEN RETURN; END IF;
  -- Presence events wherever they are, but never the last entry.
  SELECT max(position), count(*) INTO v_event, v_events FROM (
    SELECT position, bool_and(nth <= p_stream.events - ${SHARED_PRESENCE_EVENTS_KEPT} OR at < p_oldest)
      OVER (ORDER BY position) AS goes
    FROM (
      SELECT position, at, row_number() OVER (ORDER BY position) AS nth FROM (
        SELECT position, at FROM ${s}.entries
        WHERE stream = p_stream.id AND presence AND position > p_stream.evicted_events
          AND position < p_stream.position
        ORDER BY position
        LIMIT CASE WHEN p_oldest > 0 OR p_stream.events > ${SHARED_PRESENCE_EVENTS_KEPT} THEN p_most ELSE 0 END
      ) oldest
    ) numbered
  ) judged WHERE goes;
  IF v_event IS NULL THEN RETURN; END IF;
  DELETE FROM ${s}.entries WHERE stream = p_stream.id AND presence
    AND position > p_stream.evicted_events AND position <= v_event;
  p_stream.evicted_events := v_event;
  p_stream.events := p_stream.events - v_events;
END $$;

-- Appends a group, once for each number that a writer gives it. Returns the position of its last entry, the key of the
-- entry before the group, and the end of the signals.
CREATE FUNCTION ${s}.append(
  p_stream int, p_writer text, p_batch bigint, p_name text,
  p_ids text[], p_events boolean[], p_bodies text[], p_times bigint[],
  p_max_length bigint, p_max_age bigint, p_most int, p_commit text,
  OUT last_position bigint, OUT previous text, OUT signals bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_stream ${s}.streams;
  v_now bigint;
  v_count int := cardinality(p_ids);
  v_events int;
  v_update int;
BEGIN
  IF p_commit = 'replicated' AND current_setting('synchronous_standby_names') = '' THEN
    RAISE EXCEPTION 'durability replicated needs synchronous_standby_names on the server'
      USING ERRCODE = '55000';
  END IF;
  PERFORM set_config('synchronous_commit', CASE p_commit WHEN 'async' THEN 'off' ELSE 'on' END, true);
  SELECT * INTO v_stream FROM ${s}.streams WHERE id = p_stream FOR UPDATE;
  IF NOT FOUND THEN RAISE EXCEPTION 'the stream was removed' USING ERRCODE = '42P01'; END IF;
  SELECT e.position INTO signals FROM ${s}.signal_ends e WHERE e.stream = p_stream;
  IF p_writer IS NOT NULL THEN
    SELECT w.position INTO last_position FROM ${s}.writers w
      WHERE w.stream = p_stream AND w.writer = p_writer AND w.batch >= p_batch;
    IF FOUND THEN RETURN; END IF;
    IF p_batch = 1 THEN
      DELETE FROM ${s}.writers w WHERE w.stream = p_stream AND w.at < now() - interval '1 day';
    END IF;
  END IF;
  v_now := ${s}.now_ms();
  previous := v_stream.key;
  INSERT INTO ${s}.entries (stream, position, at, size, presence, key, previous, id, body)
    SELECT p_stream, v_stream.position + nth, coalesce(moment, v_now), octet_length(body), event,
      p_name || ':' || nth, CASE nth WHEN 1 THEN v_stream.key ELSE p_name || ':' || (nth - 1) END, id, body
    FROM unnest(p_ids, p_events, p_bodies, p_times) WITH ORDINALITY AS given(id, event, body, moment, nth);
  SELECT count(*) FILTER (WHERE event), max(nth) FILTER (WHERE NOT event) INTO v_events, v_update
    FROM unnest(p_events) WITH ORDINALITY AS given(event, nth);
  v_stream.last_update_id := coalesce(p_ids[v_update], v_stream.last_update_id);
  last_position := v_stream.position + v_count;
  v_stream.position := last_position;
  v_stream.key := p_name || ':' || v_count;
  v_stream.last_id := p_ids[v_count];
  v_stream.updates := v_stream.updates + v_count - v_events;
  v_stream.events := v_stream.events + v_events;
  IF p_writer IS NOT NULL THEN
    INSERT INTO ${s}.writers AS w (stream, writer, batch, position, at)
      VALUES (p_stream, p_writer, p_batch, v_stream.position, now())
      ON CONFLICT (stream, writer) DO UPDATE
      SET batch = excluded.batch, position = excluded.position, at = excluded.at;
  END IF;
  v_stream := ${s}.evict(
    v_stream, p_max_length, CASE WHEN p_max_age > 0 THEN v_now - p_max_age ELSE 0 END, p_most);
  UPDATE ${s}.streams t SET position = v_stream.position, key = v_stream.key,
      last_id = v_stream.last_id, last_update_id = v_stream.last_update_id,
      updates = v_stream.updates, events = v_stream.events,
      evicted_updates = v_stream.evicted_updates, evicted_events = v_stream.evicted_events
    WHERE t.id = p_stream;
  PERFORM pg_notify(v_stream.channel, v_stream.position::text);
END $$;

-- Appends those of a group that need not be new, or whose ids the history does not have; returns which.
CREATE FUNCTION ${s}.append_once(
  p_once boolean[], p_stream int, p_writer text, p_batch bigint, p_name text,
  p_ids text[], p_events boolean[], p_bodies text[], p_times bigint[],
  p_max_length bigint, p_max_age bigint, p_most int, p_commit text,
  OUT last_position bigint, OUT previous text, OUT signals bigint, OUT kept int[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  -- A process that waited here sees what was appended meanwhile.
  SELECT t.position INTO last_position FROM ${s}.streams t WHERE t.id = p_stream FOR UPDATE;
  IF NOT FOUND THEN RAISE EXCEPTION 'the stream was removed' USING ERRCODE = '42P01'; END IF;
  SELECT coalesce(array_agg(nth ORDER BY nth), '{}') INTO kept
    FROM unnest(p_ids, p_once) WITH ORDINALITY AS given(id, once, nth)
    WHERE NOT once OR NOT EXISTS (
      SELECT FROM ${s}.entries e
      WHERE e.stream = p_stream AND e.id = given.id AND octet_length(e.id) <= 1024
    ) AND NOT EXISTS (
      SELECT FROM unnest(p_ids) WITH ORDINALITY AS other(id, nth)
      WHERE other.id = given.id AND other.nth < given.nth
    );
  IF kept = '{}' THEN
    SELECT e.position INTO signals FROM ${s}.signal_ends e WHERE e.stream = p_stream;
    RETURN;
  END IF;
  SELECT a.last_position, a.previous, a.signals INTO last_position, previous, signals
    FROM ${s}.append(
      p_stream, p_writer, p_batch, p_name,
      ARRAY(SELECT p_ids[n] FROM unnest(kept) WITH ORDINALITY AS k(n, i) ORDER BY i),
      ARRAY(SELECT p_events[n] FROM unnest(kept) WITH ORDINALITY AS k(n, i) ORDER BY i),
      ARRAY(SELECT p_bodies[n] FROM unnest(kept) WITH ORDINALITY AS k(n, i) ORDER BY i),
      ARRAY(SELECT p_times[n] FROM unnest(kept) WITH ORDINALITY AS k(n, i) ORDER BY i),
      p_max_length, p_max_age, p_most, p_commit
    ) a;
END $$;

-- Sends a signal to all nodes.
CREATE FUNCTION ${s}.signal(p_stream int, p_key text, p_process text, p_message text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_position bigint;
BEGIN
  UPDATE ${s}.signal_ends e SET position = e.position + 1 WHERE e.stream = p_stream
    RETURNING e.position INTO v_position;
  INSERT INTO ${s}.signals VALUES (p_stream, v_position, p_key, p_process, p_message);
  DELETE FROM ${s}.signals WHERE stream = p_stream
    AND position > v_position - ${SIGNALS_KEPT} - 4 AND position <= v_position - ${SIGNALS_KEPT};
  PERFORM pg_notify(channel, '') FROM ${s}.streams WHERE id = p_stream;
END $$;

-- Counts an event in a sliding window, unless p_events are in a window's length already.
CREATE FUNCTION ${s}.count(
  p_stream int, p_key text, p_events double precision, p_window bigint,
  OUT current double precision, OUT previous double precision, OUT elapsed bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ${s}.now_ms();
  v_number bigint := v_now / p_window;
  v_row ${s}.counts;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  SELECT * INTO v_row FROM ${s}.counts c WHERE c.stream = p_stream AND c.key = p_key FOR UPDATE;
  IF NOT FOUND THEN
    DELETE FROM ${s}.counts WHERE ctid = ANY (ARRAY(
      SELECT c.ctid FROM ${s}.counts c WHERE c.expires < v_now ORDER BY c.expires LIMIT 4 FOR UPDATE SKIP LOCKED));
    INSERT INTO ${s}.counts VALUES (p_stream, p_key, v_number, 0, 0, v_now + 2 * p_window)
      ON CONFLICT DO NOTHING;
    SELECT * INTO v_row FROM ${s}.counts c WHERE c.stream = p_stream AND c.key = p_key FOR UPDATE;
  END IF;
  current := coalesce(v_row.current, 0);
  previous := coalesce(v_row.previous, 0);
  IF v_row.window_number < v_number THEN
    previous := CASE WHEN v_row.window_number = v_number - 1 THEN current ELSE 0 END;
    current := 0;
  END IF;
  elapsed := v_now - v_number * p_window;
  IF previous * (1 - elapsed::double precision / p_window) + current + 1 <= p_events THEN
    UPDATE ${s}.counts c
      SET window_number = v_number, current = $5 + 1, previous = $6, expires = v_now + 2 * p_window
      WHERE c.stream = p_stream AND c.key = p_key;
  END IF;
END $$;
`;
}
