import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { Command, Option } from 'commander';
import { parseJsonObject } from '../../kernel/parse.ts';
import { HubgateError } from '../../kernel/error.ts';
import { systemClock } from '../../kernel/clock.ts';
import { TRANSPORT_KINDS, type TransportConfig, transportKinds } from '../../config/transports.ts';
import {
  type History,
  type DatedUpdate,
  openHistoryOf,
  setUpOf,
  setUpOfHub,
} from '../../runtime/history-names.ts';
import { readBoltFile } from '../bolt-file.ts';
import {
  type ConfigSource,
  environmentOf,
  unreadable,
  withConfigSource,
} from '../config-source.ts';
import { unwritable, writeNew } from '../new-file.ts';
import { counted, createProgress, EXIT, onTerminal, type Output, printable } from '../terminal.ts';
import { readUnchecked, storageOf } from '../read-config.ts';
import { checkStoredUpdate, PublicationError } from '../../hub/publication.ts';
import type { Update } from '../../hub/update.ts';

interface HistoryFlags extends ConfigSource {
  readonly hub?: string;
  readonly json?: true;
}

interface ImportFlags extends HistoryFlags {
  readonly fromBolt?: true;
  readonly bucket: string;
  readonly skipExisting?: true;
  readonly append?: true;
}

interface InitFlags extends HistoryFlags {
  readonly transport?: TransportConfig['kind'];
  readonly schema: string;
  readonly role?: string;
}

/** Updates that are imported in one transaction. */
const IMPORTED_AT_ONCE = 256;
/** Most characters in one transaction, unless a single update has more. */
const IMPORTED_CHARACTERS = 4 * 1024 * 1024;

/** `hubgate history`: lets the operator export and import what a hub stores. */
export function historyCommand(output: Output): Command {
  const history = new Command('history').description(
    'inspect, back up and repair the history of a hub',
  );
  for (const command of [
    statsCommand(output),
    exportCommand(output),
    importCommand(output),
    compactCommand(output),
    verifyCommand(output),
    initCommand(output),
  ]) {
    history.addCommand(
      withConfigSource(command).option('--hub <name>', 'the name of the hub or of its site'),
    );
  }
  return history;
}

function statsCommand(output: Output): Command {
  return new Command('stats')
    .description(
      'print the number of updates and presence events, their size, and the oldest and newest time',
    )
    .option('--json', 'print it as JSON')
    .action((flags: HistoryFlags) =>
      withHistory(flags, async (history) => {
        const stats = await history.stats();
        const [oldest, newest] = [stats.oldestAt, stats.newestAt].map((at) =>
          at === null ? null : new Date(at).toISOString(),
        );
        const { updates, events, position, bytes, lastEventId: last } = stats;
        const end = { position, last_event_id: last };
        const shown = { updates, presence_events: events, ...end, oldest, newest, bytes };
        if (flags.json === true) output.result(printable(JSON.stringify(shown)));
        else {
          for (const [name, value] of Object.entries(shown)) {
            output.result(printable(`${name.padEnd(15)} ${value ?? '-'}`));
          }
        }
      }),
    );
}

function exportCommand(output: Output): Command {
  return new Command('export')
    .description('write all updates as lines of JSON; the gateway may run')
    .argument('[file]', 'output file; "-" is standard output', '-')
    .action((file: string, flags: HistoryFlags) =>
      withHistory(flags, async (history) => {
        const { updates, events } = await history.stats();
        const progress = createProgress('exported', updates + events);
        const counts = new EntryCounts();
        const lines = async function* (): AsyncIterable<string> {
          for await (const entries of history.entries()) {
            yield entries.map((entry) => `${toHistoryLine(entry)}\n`).join('');
            counts.add(entries);
            progress.at(counts.total);
          }
        };
        try {
          if (file === '-') await pipeline(lines, process.stdout, { end: false });
          else await writeNew(file, lines());
        } catch (error) {
          throw error instanceof HubgateError ? error : unwritable(file, error);
        } finally {
          progress.end();
        }
        output.note(counts.said('exported'));
      }),
    );
}

function importCommand(output: Output): Command {
  return new Command('import')
    .description('append updates from an export')
    .argument('[file]', 'input file; "-" is standard input', '-')
    .option('--from-bolt', 'the file is the bolt history of a stopped reference hub')
    .option('--bucket <name>', 'its bucket_name', 'updates')
    .option('--skip-existing', 'skip updates whose id is already in the history')
    .addOption(
      new Option('--append', 'append all updates, even if the history is not empty').conflicts(
        'skipExisting',
      ),
    )
    .action(async (file: string, flags: ImportFlags) => {
      // A file that cannot be read leaves no empty history behind.
      const entries = await begun(entriesOf(file, flags));
      try {
        await withHistory({ ...flags, create: true }, async (history) => {
          const existing = await existingIds(history, file, flags);
          let skipped = 0;
          const progress = createProgress('imported', null);
          const counts = new EntryCounts();
          let characters = 0;
          let group: DatedUpdate[] = [];
          const store = async (): Promise<void> => {
            await history.add(group);
            counts.add(group);
            progress.at(counts.total);
            group = [];
            characters = 0;
          };
          try {
            for await (const { entry, size } of entries) {
              if (existing.has(entry.update.id)) {
                skipped += 1;
                continue;
              }
              group.push(entry);
              characters += size;
              const isFull = group.length === IMPORTED_AT_ONCE || characters >= IMPORTED_CHARACTERS;
              if (isFull) await store();
            }
            if (group.length > 0) await store();
          } finally {
            progress.end();
            output.note(counts.said('imported'));
            if (skipped > 0)
              output.note(
                `${skipped} ${skipped === 1 ? 'was skipped: the history has its id' : 'were skipped: the history has their ids'}`,
              );
          }
        });
      } finally {
        await entries.return();
      }
    });
}

/** How many updates and presence events were exported or imported. */
class EntryCounts {
  total = 0;
  #events = 0;

  add(entries: readonly DatedUpdate[]): void {
    this.total += entries.length;
    this.#events += entries.filter(({ update }) => update.presence === true).length;
  }

  said(done: 'exported' | 'imported'): string {
    const updates = counted(this.total - this.#events, 'update');
    if (this.#events > 0)
      return `${updates} and ${counted(this.#events, 'presence event')} were ${done}`;
    return `${updates} ${this.total === 1 ? 'was' : 'were'} ${done}`;
  }
}

/**
 * The ids that are not imported again. They need about 100 bytes of memory for each stored update.
 *
 * @throws HubgateError `history-not-empty` if there are updates and no flag decides about them
 */
async function existingIds(
  history: History,
  file: string,
  { skipExisting, append }: ImportFlags,
): Promise<ReadonlySet<string>> {
  const ids = new Set<string>();
  const { updates } = await history.stats();
  if (append === true || updates === 0) return ids;
  if (skipExisting !== true && !(await mustSkip(updates, file))) return ids;
  for await (const entries of history.entries())
    for (const { update } of entries) ids.add(update.id);
  return ids;
}

async function mustSkip(updates: number, file: string): Promise<boolean> {
  if (!process.stdin.isTTY || file === '-') {
    const message = `This history has ${counted(updates, 'update')} already: pass --skip-existing to skip those it has, or --append to add all`;
    throw new HubgateError('history-not-empty', message);
  }
  const question = `This history has ${counted(updates, 'update')}. Skip those it has (yes, no)`;
  return !/^no?$/i.test(await onTerminal((ask) => ask(question, 'yes')));
}

interface ImportedEntry {
  readonly entry: DatedUpdate;
  /** In characters. */
  readonly size: number;
}

async function* entriesOf(file: string, flags: ImportFlags): AsyncGenerator<ImportedEntry, void> {
  const isBolt = flags.fromBolt === true;
  const parse = isBolt ? parseReferenceUpdate : parseHistoryLine;
  let line = 0;
  for await (const text of isBolt ? boltTexts(file, flags.bucket) : textLines(file)) {
    line += 1;
    if (text.trim() === '') continue;
    yield { entry: parse(text, line, systemClock.now()), size: text.length };
  }
}

/** Reads the first item, so that an error of the source is thrown at once. */
async function begun<T>(items: AsyncGenerator<T, void>): Promise<AsyncGenerator<T, void>> {
  const first = await items.next();
  return (async function* () {
    if (first.done !== true) yield first.value;
    yield* items;
  })();
}

/** From Node 24 on, `readline` also ends a line at U+2028 and U+2029, which may be in a text of JSON. */
async function* textLines(file: string): AsyncIterable<string> {
  const input = file === '-' ? process.stdin : createReadStream(file);
  input.setEncoding('utf8');
  try {
    let begun: string[] = [];
    for await (const text of input) {
      const [end = '', ...others] = String(text).split('\n');
      begun.push(end);
      for (const next of others) {
        yield begun.join('');
        begun = [next];
      }
    }
    yield begun.join('');
  } catch (cause) {
    throw unreadable(file, cause);
  }
}

function* boltTexts(file: string, bucket: string): Generator<string> {
  if (file === '-') {
    throw new HubgateError('invalid-argument', 'A bolt file must be a file, not standard input');
  }
  try {
    for (const value of readBoltFile(file, bucket)) yield value.toString('utf8');
  } catch (cause) {
    throw cause instanceof HubgateError ? cause : unreadable(file, cause);
  }
}

function compactCommand(output: Output): Command {
  return new Command('compact')
    .description('return the space of removed updates to the disk; stop the gateway first')
    .option('--json', 'print it as JSON')
    .action((flags: HistoryFlags) =>
      withHistory(flags, async (history) => {
        const { beforeBytes, afterBytes } = await history.compact();
        if (flags.json === true)
          output.result(JSON.stringify({ bytes_before: beforeBytes, bytes: afterBytes }));
        else output.result(`${beforeBytes} bytes before, ${afterBytes} bytes now`);
      }),
    );
}

function verifyCommand(output: Output): Command {
  return new Command('verify')
    .description('read and check all updates; exit with 1 if something is damaged')
    .option('--json', 'print it as JSON')
    .action((flags: HistoryFlags) =>
      withHistory(flags, async (history) => {
        const { updates, events } = await history.stats();
        const progress = createProgress('checked', updates + events);
        const faults = await history.verify((checked) => progress.at(checked));
        progress.end();
        if (faults.length > 0) process.exitCode = EXIT.failed;
        if (flags.json === true) {
          return output.result(
            printable(JSON.stringify({ updates, presence_events: events, faults })),
          );
        }
        for (const { position, message } of faults)
          output.result(printable(`${position}: ${message}`));
        const checked = `${counted(updates, 'update')} and ${counted(events, 'presence event')}`;
        output.note(`${checked}, ${faults.length} of them damaged`);
      }),
    );
}

function initCommand(output: Output): Command {
  return new Command('init')
    .description(
      'print what the owner of a database executes, if the gateway may not create tables',
    )
    .addOption(
      new Option(
        '--transport <kind>',
        'without a configuration: the kind of the transport',
      ).choices(TRANSPORT_KINDS),
    )
    .option('--schema <name>', 'without a configuration: the schema of the tables', 'hubgate')
    .option('--role <name>', 'the role that the gateway connects as')
    .action(async ({ transport, schema, role: wanted, ...flags }: InitFlags) => {
      const role = wanted ?? null;
      if (transport !== undefined) {
        const { postgres } = transportKinds;
        const settings =
          transport === 'postgres'
            ? { ...postgres.defaults, schema }
            : transportKinds[transport].defaults;
        output.result(await setUpOf(settings, role));
        return;
      }
      const config = readUnchecked(flags, environmentOf(flags));
      const where = { storage: storageOf(config), role };
      output.result(await setUpOfHub(config, flags.hub ?? null, where));
    });
}

async function withHistory(
  { create = false, ...flags }: HistoryFlags & { readonly create?: boolean },
  use: (history: History) => Promise<void>,
): Promise<void> {
  const config = readUnchecked(flags, environmentOf(flags));
  const around = { storage: storageOf(config), clock: systemClock, create };
  const history = await openHistoryOf(config, flags.hub ?? null, around);
  try {
    await use(history);
  } finally {
    await history.close();
  }
}

/** An update as a line of JSON; `at` is the time at which it was accepted. */
export function toHistoryLine({ at, update }: DatedUpdate): string {
  return printable(JSON.stringify({ ...update, at: new Date(at).toISOString() }));
}

/**
 * @param now time of acceptance for a line that does not contain it
 * @throws HubgateError `invalid-argument` with the number of the line
 */
export function parseHistoryLine(text: string, line: number, now: number): DatedUpdate {
  const refuse = (what: string): never => {
    throw new HubgateError('invalid-argument', `Line ${line} is not an update: ${what}`);
  };
  const fields = parseJsonObject(text) ?? refuse('it is not a JSON object');
  const { id, topics, data = '', private: secret = false, type = null, retry = null } = fields;
  const { presence } = fields;
  if (typeof id !== 'string' || id === '') return refuse('"id" is missing');
  if (!isTexts(topics) || topics.length === 0) return refuse('"topics" is not a list of texts');
  if (typeof data !== 'string') return refuse('"data" is not text');
  if (typeof secret !== 'boolean') return refuse('"private" is neither true nor false');
  if (type !== null && typeof type !== 'string') return refuse('"type" is not text');
  if (retry !== null && typeof retry !== 'string') return refuse('"retry" is not text');
  if (presence !== undefined && presence !== true) return refuse('"presence" is not true');
  const at = typeof fields['at'] === 'string' ? Date.parse(fields['at']) : now;
  if (Number.isNaN(at)) return refuse('"at" is not a time');
  const update: Update = { id, topics, data, private: secret, type, retry };
  try {
    checkStoredUpdate(update);
  } catch (error) {
    if (error instanceof PublicationError) refuse(error.message);
    throw error;
  }
  return { at, update: presence === undefined ? update : { ...update, presence } };
}

/**
 * Reads an update in the format of the reference hub's store.
 *
 * @throws HubgateError `invalid-argument` with the number of the update
 */
export function parseReferenceUpdate(text: string, number: number, now: number): DatedUpdate {
  const fields = parseJsonObject(text) ?? {};
  const { ID: id, Topics: topics, Data: data, Private: secret, Type: type, Retry: retry } = fields;
  const line = {
    id,
    topics,
    data,
    private: secret,
    type: type === '' ? null : type,
    retry: typeof retry === 'number' && retry > 0 ? String(retry) : null,
  };
  return parseHistoryLine(JSON.stringify(line), number, now);
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}
