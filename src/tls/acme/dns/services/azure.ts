import { itemsOf, memberOf, textOf } from './api.ts';
import type { DnsServiceModule, ZoneRecord } from './service.ts';

const VERSION = 'api-version=2018-05-01';
/** Somebody else has changed the set since it was read. */
const PRECONDITION_FAILED = 412;

/**
 * Azure DNS (resource provider Microsoft.Network/dnsZones), as an application with the role "DNS Zone
 * Contributor". `authority_host` and `api_url` are for the clouds of governments.
 */
export const azure: DnsServiceModule = {
  baseUrl: () => 'https://management.azure.com',
  create({ credential, api }) {
    const authority = credential('authority_host') || 'https://login.microsoftonline.com';
    let token: Promise<string> | null = null;
    const login = (): Promise<string> => {
      const path = `/${encodeURIComponent(credential('tenant_id'))}/oauth2/v2.0/token`;
      return api(() => ({}), authority).accessToken(path, {
        grant_type: 'client_credentials',
        client_id: credential('client_id'),
        client_secret: credential('client_secret'),
        scope: 'https://management.azure.com/.default',
      });
    };
    const calls = api(async () => ({ authorization: `Bearer ${await (token ??= login())}` }));
    const group =
      `/subscriptions/${encodeURIComponent(credential('subscription_id'))}` +
      `/resourceGroups/${encodeURIComponent(credential('resource_group_name'))}`;
    const zoneOf = (zone: string): string =>
      `${group}/providers/Microsoft.Network/dnsZones/${encodeURIComponent(zone)}`;
    const pathOf = ({ zone, relativeName }: ZoneRecord): string =>
      `${zoneOf(zone)}/TXT/${encodeURIComponent(relativeName)}?${VERSION}`;
    return {
      findZone: (name) => calls.zoneAt(`${zoneOf(name)}?${VERSION}`, name),
      async read(record) {
        const known = await calls.find(pathOf(record));
        if (known === null) return null;
        // A value longer than 255 bytes is in several parts.
        const values = itemsOf(memberOf(known, 'properties', 'TXTRecords')).map((each) =>
          itemsOf(memberOf(each, 'value')).join(''),
        );
        const tag = textOf(memberOf(known, 'etag'));
        return { values, ttlSeconds: Number(memberOf(known, 'properties', 'TTL')), tag };
      },
      async write(record, after, before) {
        const condition = before === null ? { 'if-none-match': '*' } : ifMatch(before.tag);
        const options = { headers: condition, accept: [PRECONDITION_FAILED] };
        const TXTRecords = (after?.values ?? []).map((value) => ({ value: [value] }));
        const { status } =
          after === null
            ? await calls.send('DELETE', pathOf(record), options)
            : await calls.send('PUT', pathOf(record), {
                ...options,
                body: { properties: { TTL: after.ttlSeconds, TXTRecords } },
              });
        return status !== PRECONDITION_FAILED;
      },
    };
  },
};

function ifMatch(tag: string | undefined): Readonly<Record<string, string>> {
  return tag === undefined ? {} : { 'if-match': tag };
}
