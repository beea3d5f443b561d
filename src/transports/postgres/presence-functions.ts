/**
 * The steps of the presence board. Those that concern the subscribers of a process lock its row in `processes`, so that
 * a process that is declared dead cannot enter one of them at the same time. Whoever settles a claim, or enters a
 * subscriber that is claimed, locks its row in `departures`.
 *
 * @param s the schema, quoted
 */
export function presenceSql(s: string): string {
  return `
-- Renews the lease of a process. Returns whether it still existed.
CREATE FUNCTION ${s}.renew(p_stream int, p_process text, p_lease bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_lived boolean;
BEGIN
  SELECT p.until > 0 INTO v_lived FROM ${s}.processes p
    WHERE p.stream = p_stream AND p.process = p_process FOR UPDATE;
  INSERT INTO ${s}.processes VALUES (p_stream, p_process, ${s}.now_ms() + p_lease)
    ON CONFLICT (stream, process) DO UPDATE SET until = excluded.until;
  RETURN coalesce(v_lived, false);
END $$;

-- Enters subscribers, and renews the lease. Returns whether it still existed, and for each subscriber whether it is new,
-- was there, or is new while its state is claimed.
CREATE FUNCTION ${s}.enter(
  p_stream int, p_process text, p_lease bigint, p_subscribers text[], p_records text[], p_matchers text[],
  OUT lived boolean, OUT states text[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_claimed text[];
  v_matchers text[];
  v_arrival bigint;
BEGIN
  -- What a crash of the server loses is entered again, since the process reconnects then.
  PERFORM set_config('synchronous_commit', 'off', true);
  lived := ${s}.renew(p_stream, p_process, p_lease);
  states := '{}';
  v_claimed := ARRAY(
    SELECT d.subscriber FROM ${s}.departures d
    WHERE d.stream = p_stream AND d.process = p_process AND d.subscriber = ANY (p_subscribers)
    ORDER BY d.subscriber FOR UPDATE);
  FOR nth IN 1 .. cardinality(p_subscribers) LOOP
    v_matchers := string_to_array(p_matchers[nth], ' ');
    INSERT INTO ${s}.present (stream, process, subscriber, matchers, records)
      VALUES (p_stream, p_process, p_subscribers[nth], v_matchers, p_records[nth])
      ON CONFLICT DO NOTHING RETURNING arrival INTO v_arrival;
    IF NOT FOUND THEN
      states := states || 'there'::text;
      CONTINUE;
    END IF;
    INSERT INTO ${s}.present_matchers SELECT p_stream, matcher, v_arrival FROM unnest(v_matchers) AS matcher;
    states := states || CASE WHEN p_subscribers[nth] = ANY (v_claimed) THEN 'claimed' ELSE 'new' END;
  END LOOP;
END $$;

CREATE FUNCTION ${s}.take_off(p_stream int, p_process text, p_subscribers text[])
RETURNS TABLE (subscriber text, records text) LANGUAGE sql AS $$
  WITH gone AS (
    DELETE FROM ${s}.present p
    WHERE p.stream = p_stream AND p.process = p_process AND p.subscriber = ANY (p_subscribers)
    RETURNING p.subscriber, p.records, p.matchers, p.arrival
  ), listed AS (
    DELETE FROM ${s}.present_matchers m
    USING (SELECT unnest(matchers) AS matcher, arrival FROM gone) g
    WHERE m.stream = p_stream AND m.matcher = g.matcher AND m.arrival = g.arrival
  )
  SELECT subscriber, records FROM gone
$$;

-- Removes subscribers of a process, and claims to announce each under its name. Returns the claims.
CREATE FUNCTION ${s}.leave(
  p_stream int, p_process text, p_lease bigint, p_subscribers text[], p_names text[]
) RETURNS SETOF ${s}.departures LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM ${s}.processes p WHERE p.stream = p_stream AND p.process = p_process FOR UPDATE;
  RETURN QUERY INSERT INTO ${s}.departures AS d
    SELECT p_stream, p_process, g.subscriber, p_names[array_position(p_subscribers, g.subscriber)], false,
      g.records, ${s}.now_ms() + p_lease
    FROM ${s}.take_off(p_stream, p_process, p_subscribers) g
    ON CONFLICT DO NOTHING RETURNING d.*;
END $$;

-- Renews a lease if requested, takes over expired claims, and removes some subscribers of a dead process.
CREATE FUNCTION ${s}.beat(
  p_stream int, p_process text, p_lease bigint, p_name text, p_most int, p_renews boolean,
  OUT lived boolean, OUT claims json
) LANGUAGE plpgsql AS $$
DECLARE
  v_now bigint := ${s}.now_ms();
  v_dead text;
  v_subscribers text[];
  v_left int;
  v_claims ${s}.departures[];
  v_gone ${s}.departures[];
BEGIN
  lived := true;
  IF p_renews THEN
    lived := ${s}.renew(p_stream, p_process, p_lease);
  END IF;
  WITH due AS (
    SELECT d.process, d.subscriber FROM ${s}.departures d
    WHERE d.stream = p_stream AND d.until <= v_now
    ORDER BY d.until LIMIT p_most FOR UPDATE SKIP LOCKED
  ), taken AS (
    UPDATE ${s}.departures d SET until = v_now + p_lease FROM due
    WHERE d.stream = p_stream AND d.process = due.process AND d.subscriber = due.subscriber
    RETURNING d AS claim
  ) SELECT coalesce(array_agg(claim), '{}') INTO v_claims FROM taken;
  claims := to_json(v_claims);
  v_left := p_most - cardinality(v_claims);
  SELECT p.process INTO v_dead FROM ${s}.processes p
    WHERE p.stream = p_stream AND p.until < v_now
    ORDER BY p.until LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND OR v_left = 0 THEN RETURN; END IF;
  v_subscribers := ARRAY(
    SELECT p.subscriber FROM ${s}.present p
    WHERE p.stream = p_stream AND p.process = v_dead ORDER BY p.subscriber LIMIT v_left);
  IF cardinality(v_subscribers) < v_left THEN
    DELETE FROM ${s}.processes p WHERE p.stream = p_stream AND p.process = v_dead;
  ELSE
    UPDATE ${s}.processes p SET until = 0 WHERE p.stream = p_stream AND p.process = v_dead;
  END IF;
  WITH gone AS (
    INSERT INTO ${s}.departures AS d
    SELECT p_stream, v_dead, g.subscriber, p_name, false, g.records, v_now + p_lease
    FROM ${s}.take_off(p_stream, v_dead, v_subscribers) g
    ON CONFLICT DO NOTHING RETURNING d AS claim
  ) SELECT coalesce(array_agg(claim), '{}') INTO v_gone FROM gone;
  claims := to_json(v_claims || v_gone);
END $$;

-- Marks subscribers as announced. Claims whose state is another one by now continue, with a new name.
CREATE FUNCTION ${s}.settle(
  p_stream int, p_lease bigint, p_name text, p_processes text[], p_subscribers text[], p_told boolean[]
) RETURNS SETOF ${s}.departures LANGUAGE plpgsql AS $$
DECLARE
  v_records text;
  v_is_present boolean;
BEGIN
  FOR nth IN 1 .. cardinality(p_subscribers) LOOP
    PERFORM 1 FROM ${s}.departures d WHERE d.stream = p_stream
      AND d.process = p_processes[nth] AND d.subscriber = p_subscribers[nth] FOR UPDATE;
    CONTINUE WHEN NOT FOUND;
    SELECT p.records INTO v_records FROM ${s}.present p WHERE p.stream = p_stream
      AND p.process = p_processes[nth] AND p.subscriber = p_subscribers[nth];
    v_is_present := FOUND;
    IF v_is_present = p_told[nth] THEN
      DELETE FROM ${s}.departures d WHERE d.stream = p_stream
        AND d.process = p_processes[nth] AND d.subscriber = p_subscribers[nth];
    ELSE
      RETURN QUERY UPDATE ${s}.departures d
        SET name = p_name, active = v_is_present, records = coalesce(v_records, d.records),
          until = ${s}.now_ms() + p_lease
        WHERE d.stream = p_stream AND d.process = p_processes[nth] AND d.subscriber = p_subscribers[nth]
        RETURNING d.*;
    END IF;
  END LOOP;
END $$;

-- Removes some subscribers of a process without any announcement, and the process with the last of them.
CREATE FUNCTION ${s}.quit(p_stream int, p_process text, p_most int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  v_subscribers text[];
BEGIN
  PERFORM 1 FROM ${s}.processes p WHERE p.stream = p_stream AND p.process = p_process FOR UPDATE;
  v_subscribers := ARRAY(
    SELECT p.subscriber FROM ${s}.present p
    WHERE p.stream = p_stream AND p.process = p_process ORDER BY p.subscriber LIMIT p_most);
  PERFORM ${s}.take_off(p_stream, p_process, v_subscribers);
  IF cardinality(v_subscribers) < p_most THEN
    DELETE FROM ${s}.processes p WHERE p.stream = p_stream AND p.process = p_process;
  END IF;
  RETURN cardinality(v_subscribers);
END $$;
`;
}
