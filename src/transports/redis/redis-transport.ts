import { hash, randomUUID } from 'node:crypto';
import type { RedisTransportConfig } from '../../config/transports.ts';
import type { Transport, TransportCounts } from '../../hub/transport.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Logger } from '../../kernel/log.ts';
import { Sessions } from '../../kernel/sessions.ts';
import { BlockingReader, RedisSignals } from './blocking-reader.ts';
import { DeliveredPosition } from '../delivered-position.ts';
import { hubKeys, type HubKeys, appendedKeys } from './keys.ts';
import type { RedisPlace } from './primary.ts';
import { EVICTED_EXTRA, groupStore, ReadBacks, uncertain } from '../read-backs.ts';
import { ServerPresence } from '../server-presence.ts';
import { ServerTransport } from '../server-transport.ts';
import { RedisPresence } from './redis-presence.ts';
import { listOf, StoredHistory, appendArguments } from './stored-history.ts';
import { COUNT } from './scripts.ts';
import { refusalOf, Session } from './session.ts';

export interface RedisTransportOptions
  extends RedisPlace,
    Pick<RedisTransportConfig, 'maxLength' | 'maxAgeMs' | 'replicas'> {
  /** Prefix of the hub's keys. */
  readonly stream: string;
  readonly random: () => number;
  readonly clock: Clock;
  /** Clock for the heartbeat of presence; defaults to the other clock. */
  readonly presenceClock?: Clock;
  readonly log: Logger;
}

/**
 * A history in Redis or Valkey that the hubs of many machines share. One connection reads, with blocking
 * commands, for this process, and the entries that it reads are delivered. After every connection, and every
 * few seconds, the reader verifies that this is the history that was read: each entry has a random key and
 * contains that of its predecessor. If not, the history has lost its end, and the entries that replace it are
 * delivered.
 *
 * @throws HubgateError `transport-failed`, `history-too-new`
 */
export async function openRedisTransport(options: RedisTransportOptions): Promise<Transport> {
  const { clock, random, log, replicas, maxLength, maxAgeMs } = options;
  const keys = hubKeys(options.stream);
  const isElsewhere = (error: unknown): boolean => refusalOf(error).isElsewhere;
  const sessions = new Sessions({
    store: 'Redis',
    meanwhile: 'the hub refuses publications',
    connect: () => Session.open(options, keys.log, clock),
    ...{ isElsewhere, clock, random, log },
  });
  const process = randomUUID();
  const session = () => sessions.live();
  const signals = new RedisSignals({ keys, process, session, log });
  const storedHistory = new StoredHistory(keys);
  const delivered = new DeliveredPosition();
  const readBacks = new ReadBacks(clock);
  const read = { keys, replicas, delivered, readBacks };
  const append = groupStore<Session>({
    ...{ store: 'Redis', sessions, delivered, readBacks, signals, clock, faultOf: refusalOf },
    async attempt(session, group, { name, batch }) {
      const limits = [maxLength, maxAgeMs, group.length + EVICTED_EXTRA].map(String);
      const args = [name, String(batch), ...limits, ...group.flatMap(appendArguments)];
      const [place, count] = await session.append(appendedKeys(keys, process), args, replicas);
      if (count < replicas)
        throw uncertain(`only ${count} of ${replicas} replicas have the update`);
      // Without a key, nothing was added.
      const [at = '', key = ''] = String(place).split(' ');
      return { position: Number.parseInt(at, 10), key: key === '' ? null : key };
    },
  });
  const transport = new ServerTransport({
    ...{ store: 'Redis', clock, maxLength, sessions, storedHistory, delivered, readBacks, signals },
    reader: new BlockingReader({ ...read, storedHistory, signals, log }),
    presence: new ServerPresence({
      ...{ store: 'Redis', session, clock: options.presenceClock ?? clock, log },
      isAway: () => sessions.isAway,
      isElsewhere,
      steps: (live) => new RedisPresence({ keys, process, session: live }),
    }),
    counts: countsOf(keys, sessions),
    append,
    prepare: async () => {},
    check: async (one) => void (await one.command('INCR', keys.probe)),
  });
  await transport.open();
  return transport;
}

/** Counters in hashes of their own, whose names show nothing of what is counted. */
function countsOf(keys: HubKeys, sessions: Sessions<Session>): TransportCounts {
  return {
    count: async (key, events, windowMs) => {
      const digest = hash('sha256', key, 'base64url');
      const place = `${keys.counts}:${digest}`;
      const args = [String(windowMs), String(events)];
      const reply = await sessions.ask((session) => session.run(COUNT, [place], args));
      const [current = 0, previous = 0, elapsedMs = 0] = listOf(reply).map(Number);
      return { current, previous, elapsedMs };
    },
  };
}
