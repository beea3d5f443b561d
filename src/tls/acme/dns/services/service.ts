import { type Authorize, apiError, type DnsApi, itemsOf, memberOf, textOf } from './api.ts';

/** A TXT record of one zone. */
export interface ZoneRecord {
  /** The zone as `findZone` returned it. */
  readonly zone: string;
  /** The full name, without a trailing dot. */
  readonly name: string;
  /** The name without that of the zone; `@` for the zone itself. */
  readonly relativeName: string;
  /** Base64url, without quotes. */
  readonly value: string;
  readonly ttlSeconds: number;
}

interface ZoneFinder {
  /** How the API names the zone with exactly this name; null if the account has none. */
  findZone(name: string): Promise<string | null>;
}

/** An API with actions for single values. */
interface ValueService extends ZoneFinder {
  /** Adds a value, and keeps the other values of the name. Adding it twice has no effect. */
  add(record: ZoneRecord): Promise<void>;
  /** Removes exactly this value. One that does not exist is not an error. */
  remove(record: ZoneRecord): Promise<void>;
}

/** An API whose records have one value and an id each. */
interface RecordService extends ZoneFinder {
  /** The ids of the records with this name and value. */
  idsOf(record: ZoneRecord): Promise<readonly string[]>;
  create(record: ZoneRecord): Promise<unknown>;
  delete(record: ZoneRecord, id: string): Promise<unknown>;
  /** Called after a change; absent if there is nothing to do then. */
  changed?(record: ZoneRecord): Promise<unknown>;
}

/** An API that knows only the set of all values of a name. */
interface SetService extends ZoneFinder {
  /** The set; null if there is none. */
  read(record: ZoneRecord): Promise<RecordSet | null>;
  /**
   * Replaces the set `before`, or removes it if `after` is null. Resolves to false if the set is not `before` any
   * more.
   */
  write(record: ZoneRecord, after: RecordSet | null, before: RecordSet | null): Promise<boolean>;
}

/** What the API of a company can do. All methods throw AcmeError `acme-dns-failed`. */
export type DnsService = ValueService | RecordService | SetService;

/** The value of an option of the service; an empty text if it is not given. */
type Credential = (name: string) => string;

/** How a service is used: where its API is, and how requests are authorized. */
export interface DnsServiceModule {
  /** The address of the API. */
  baseUrl(credential: Credential): string;
  /** The shortest TTL that every customer may use; absent if there is none. */
  readonly minTtlSeconds?: number;
  create(tools: ServiceTools): DnsService;
}

interface ServiceTools {
  readonly credential: Credential;
  /** The API; without `baseUrl` at the address of the configuration. */
  readonly api: (authorize: Authorize, baseUrl?: string) => DnsApi;
}

/** Some APIs show values as they are in a zone file. */
export function quoted(value: string): string {
  return `"${value}"`;
}

export function unquoted(value: string): string {
  return value.replace(/^"(.*)"$/, '$1');
}

/** The values of a name, as an API that knows only whole sets shows them. */
export interface RecordSet {
  readonly values: readonly string[];
  readonly ttlSeconds: number;
  /** Identifies this state of the set, if the API says so. */
  readonly tag?: string | undefined;
}

/** The set in a part of an answer, with its values as in a zone file; null if there is no such part. */
export function recordSetOf(part: unknown, values: string, ttl: string): RecordSet | null {
  if (part === null || part === undefined) return null;
  return {
    values: itemsOf(memberOf(part, values)).map((each) => unquoted(textOf(each) ?? '')),
    ttlSeconds: Number(memberOf(part, ttl)),
  };
}

/** The ids of the records in a list that have this value in a field. */
export function idsWith(list: unknown, field: string, value: string): readonly string[] {
  return itemsOf(list)
    .filter((record) => unquoted(textOf(memberOf(record, field)) ?? '') === value)
    .flatMap((record) => textOf(memberOf(record, 'id')) ?? []);
}

/** Times that a set is read again because somebody else changed it meanwhile. */
const MAX_CONFLICTS = 5;

/** Adds a value to a name, or removes it, and keeps the other values of the name. */
export async function changeRecord(
  service: DnsService,
  kind: string,
  record: ZoneRecord,
  action: 'add' | 'remove',
): Promise<void> {
  if ('read' in service) return changeSet(service, kind, record, action);
  if ('add' in service) return service[action](record);
  const ids = await service.idsOf(record);
  if ((ids.length === 0) === (action === 'remove')) return;
  if (action === 'add') await service.create(record);
  for (const id of ids) await service.delete(record, id);
  await service.changed?.(record);
}

/**
 * A name and its wildcard use the same name, so another order may change the set at the same moment; `write` refuses
 * then, and the set is read again.
 */
async function changeSet(
  service: SetService,
  kind: string,
  record: ZoneRecord,
  action: 'add' | 'remove',
): Promise<void> {
  const { value, ttlSeconds } = record;
  for (let attempt = 0; attempt < MAX_CONFLICTS; attempt += 1) {
    const before = await service.read(record);
    const values = before?.values ?? [];
    if (values.includes(value) === (action === 'add')) return;
    const left = action === 'add' ? [...values, value] : values.filter((known) => known !== value);
    const after =
      left.length === 0 ? null : { values: left, ttlSeconds: before?.ttlSeconds ?? ttlSeconds };
    if (await service.write(record, after, before)) return;
  }
  const message = `reports a conflict ${MAX_CONFLICTS} times: something else changes the record too`;
  throw apiError(kind, message);
}
