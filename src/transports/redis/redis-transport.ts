import { createHash, randomUUID, randomBytes } from 'node:crypto';
import type { Transport, TransportCounts } from '../../hub/transport.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Logger } from '../../kernel/log.ts';
import { Sessions } from '../../kernel/sessions.ts';
import { BlockingReader, RedisSignals } from './blocking-reader.ts';
import { HandedOut } from '../handed-out.ts';
import { hubKeys, type HubKeys, appendedKeys } from './keys.ts';
import type { RedisPlace } from './primary.ts';
import { ReadBacks, uncertain } from '../read-backs.ts';
import { ServerPresence } from '../server-presence.ts';
import { ServerTransport } from '../server-transport.ts';
import { RedisPresence } from './redis-presence.ts';
import { listOf, StoredLog, appendArguments, placeOf } from './stored-log.ts';
import { COUNT, APPEND } from './scripts.ts';
import { refusalOf, Session } from './session.ts';
import type { Update } from '../../hub/update.ts';
import { HubgateError } from '../../kernel/error.ts';

export interface RedisTransportOptions extends RedisPlace {
  /** Prefix of the hub's keys. */
  readonly stream: string;
  /** Updates to keep; 0 keeps all. */
  readonly maxLength: number;
  /** Milliseconds to keep an update; 0 keeps it forever. */
  readonly maxAgeMs: number;
  /** Replicas that must have an update before it is delivered and acknowledged. */
  readonly replicas: number;
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
  const sessions = new Sessions({
    store: 'Redis',
    meanwhile: 'the hub refuses publications',
    connect: () => Session.open(options, keys.log, clock),
    isElsewhere: (error) => refusalOf(error).isElsewhere,
    ...{ clock, random, log },
  });
  const process = randomUUID();
  const session = () => sessions.live();
  const signals = new RedisSignals({ keys, process, session });
  const storedLog = new StoredLog(keys);
  const handedOut = new HandedOut();
  const readBacks = new ReadBacks(clock);
  const read = { keys, replicas, handedOut, readBacks };
  const append = new GroupAppend({
    ...read,
    signals: signals.waiting,
    maxLength,
    maxAgeMs,
    sessions,
    clock,
  });
  const transport = new ServerTransport({
    ...{ store: 'Redis', clock, maxLength, sessions, storedLog, handedOut, readBacks, signals },
    reader: new BlockingReader({ ...read, storedLog, signals, log }),
    presence: new ServerPresence({
      ...{ store: 'Redis', session, clock: options.presenceClock ?? clock, log },
      steps: (live) => new RedisPresence({ keys, process, session: live }),
    }),
    counts: countsOf(keys, sessions),
    append: (group) => append.store(group),
    prepare: async () => {},
    catchUpSignals: (one) => signals.catchUp(one),
    readSignals: (one) => signals.catchUp(one),
    check: async (one) => void (await one.command('INCR', keys.probe)),
  });
  await transport.open();
  return transport;
}

/** Counters in hashes of their own, whose names show nothing of what is counted. */
function countsOf(keys: HubKeys, sessions: Sessions<Session>): TransportCounts {
  return {
    count: async (key, events, windowMs) => {
      const digest = createHash('sha256').update(key).digest('base64url');
      const place = `${keys.counts}:${digest}`;
      const args = [String(windowMs), String(events)];
      const reply = await sessions.ask((session) => session.run(COUNT, [place], args));
      const [current = 0, previous = 0, elapsedMs = 0] = listOf(reply).map(Number);
      return { current, previous, elapsedMs };
    },
  };
}

/** How long a group waits for its replicas. */
const WAIT_MS = 2000;
/** How long a group is retried if its reply was lost. */
const RETRY_MS = 8000;
/**
 * Entries that are evicted beyond the number of appended ones, so that a lowered limit never blocks the
 * server.
 */
const EVICTED_EXTRA = 64;

interface GroupAppendOptions {
  readonly keys: HubKeys;
  /** Updates to keep; 0 keeps all. */
  readonly maxLength: number;
  /** Milliseconds to keep an update; 0 keeps it forever. */
  readonly maxAgeMs: number;
  readonly replicas: number;
  readonly sessions: Sessions<Session>;
  readonly handedOut: HandedOut;
  readonly readBacks: ReadBacks;
  /** Must be stored before the updates that follow them. */
  readonly signals: { readonly sent: Promise<unknown> };
  readonly clock: Clock;
}

interface LastEntry {
  readonly position: number;
  readonly key: string | null;
}

/**
 * Stores a group of updates exactly once, however often the reply is lost, and waits until it is read back.
 */
export class GroupAppend {
  readonly #options: GroupAppendOptions;

  constructor(options: GroupAppendOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the reader has delivered the whole group.
   *
   * @throws HubgateError `transport-failed` if it is not stored, `transport-uncertain` if that is unknown
   */
  async store(group: readonly Update[]): Promise<void> {
    const { clock, sessions, handedOut, signals } = this.#options;
    await signals.sent;
    const name = randomBytes(12).toString('base64url');
    let since = handedOut.stored;
    const updates = group.flatMap(appendArguments);
    const limits = this.#limitsOf(group);
    const end = clock.monotonic() + RETRY_MS;
    let mayBeStored = false;
    for (;;) {
      const session = mayBeStored ? await sessions.next(end) : sessions.live();
      if (session === null) throw uncertain('Redis disconnected before it answered');
      // A history that has lost its end stores the group at earlier positions.
      since = Math.min(since, handedOut.stored);
      try {
        const last = await this.#append(session, [
          name,
          mayBeStored ? placeOf(since) : '',
          ...limits,
          ...updates,
        ]);
        await this.#readBack(last, end);
        return;
      } catch (error) {
        if (error instanceof HubgateError) throw error;
        const { message, isNotDone, isElsewhere } = refusalOf(error);
        if (isElsewhere) session.close();
        if (isNotDone && !mayBeStored) {
          const why = `The update could not be stored: Redis says ${message}`;
          throw new HubgateError('transport-failed', why, { cause: error });
        }
        // The reply is lost. The next attempt checks whether the group was stored.
        mayBeStored = true;
        if (!isNotDone) session.close();
        else if (!session.isLost) throw uncertain(`Redis says ${message}`);
      }
    }
  }

  #limitsOf(group: readonly Update[]): readonly string[] {
    const { maxLength, maxAgeMs } = this.#options;
    return [String(maxLength), String(maxAgeMs), String(group.length + EVICTED_EXTRA)];
  }

  /** The last entry of the group, when enough replicas have it; without a key if nothing was added. */
  async #append(session: Session, args: readonly string[]): Promise<LastEntry> {
    const { keys, replicas } = this.#options;
    const places = appendedKeys(keys);
    const [place, count] = await session.append(APPEND, places, args, replicas, WAIT_MS);
    if (count < replicas) throw uncertain(`only ${count} of ${replicas} replicas have the update`);
    const [at = '', key = ''] = String(place).split(' ');
    return { position: Number.parseInt(at, 10), key: key === '' ? null : key };
  }

  /** Other groups are waiting, so this one waits for its reader only until `end`. */
  async #readBack({ position, key }: LastEntry, end: number): Promise<void> {
    const { clock, handedOut, readBacks } = this.#options;
    const isThere = key === null ? handedOut.stored >= position : handedOut.has(position, key);
    if (isThere) return;
    const leftMs = Math.max(0, end - clock.monotonic());
    await readBacks.wait({ position, key }, leftMs, uncertain('it was not read back in time'));
  }
}
