import type { DnsApi } from './api.ts';

/** A TXT record of one zone. */
export interface ZoneRecord {
  /** The zone as `findZone` returned it. */
  readonly zone: string;
  readonly zoneName: string;
  /** The full name, without a trailing dot. */
  readonly name: string;
  /** The name without that of the zone; `@` for the zone itself. */
  readonly relativeName: string;
  /** Base64url, without quotes. */
  readonly value: string;
  readonly ttlSeconds: number;
}

/** What the API of a company can do. All methods throw AcmeError `acme-dns-failed`. */
export interface DnsService {
  /** How the API names the zone with exactly this name; null if the account has none. */
  findZone(name: string): Promise<string | null>;
  /** Adds a value, and keeps the other values of the name. Adding it twice has no effect. */
  add(record: ZoneRecord): Promise<void>;
  /** Removes exactly this value. One that does not exist is not an error. */
  remove(record: ZoneRecord): Promise<void>;
}

/** The value of an option of the service; an empty text if it is not given. */
type Credential = (name: string) => string;

/** How a service is used: where its API is, and how requests are authorized. */
export interface DnsServiceModule {
  /** The address of the API. */
  baseUrl(credential: Credential): string;
  /** Creates the service. `signal` ends its requests. */
  create(tools: ServiceTools): DnsService;
}

interface ServiceTools {
  readonly credential: Credential;
  readonly signal: AbortSignal;
  /** The API; without `baseUrl` at the address of the configuration. */
  readonly api: (
    authorize: ConstructorParameters<typeof DnsApi>[0]['authorize'],
    baseUrl?: string,
  ) => DnsApi;
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
}

/** Times that a set is read again because somebody else changed it meanwhile. */
const MAX_CONFLICTS = 5;

/**
 * Adds or removes one value of a set. A name and its wildcard use the same name, so another order may change the
 * set at the same moment; `write` refuses then, and the set is read again.
 *
 * @param read the set; null if there is none
 * @param write null removes the set; it resolves to false if the set is not `before` any more
 */
export async function changeSet(
  { value, ttlSeconds }: ZoneRecord,
  action: 'add' | 'remove',
  api: DnsApi,
  read: () => Promise<RecordSet | null>,
  write: (after: RecordSet | null, before: RecordSet | null) => Promise<boolean>,
): Promise<void> {
  for (let attempt = 0; attempt < MAX_CONFLICTS; attempt += 1) {
    const before = await read();
    const values = before?.values ?? [];
    if (values.includes(value) === (action === 'add')) return;
    const left = action === 'add' ? [...values, value] : values.filter((known) => known !== value);
    const after =
      left.length === 0 ? null : { values: left, ttlSeconds: before?.ttlSeconds ?? ttlSeconds };
    if (await write(after, before)) return;
  }
  throw api.error(
    `reports a conflict ${String(MAX_CONFLICTS)} times: something else changes the record too`,
  );
}
