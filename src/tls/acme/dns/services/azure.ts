import { itemsOf, memberOf, textOf } from './api.ts';
import { changeSet, type DnsServiceModule, type RecordSet, type ZoneRecord } from './service.ts';

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
    const login = async (): Promise<string> => {
      const body = new URLSearchParams({
        grant_type: 'client_credentials',
        client_id: credential('client_id'),
        client_secret: credential('client_secret'),
        scope: 'https://management.azure.com/.default',
      });
      const path = `/${encodeURIComponent(credential('tenant_id'))}/oauth2/v2.0/token`;
      const { json } = await api(() => ({}), authority).send('POST', path, {
        body: String(body),
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
      });
      return textOf(memberOf(json, 'access_token')) ?? '';
    };
    const calls = api(async () => ({ authorization: `Bearer ${await (token ??= login())}` }));
    const group =
      `/subscriptions/${encodeURIComponent(credential('subscription_id'))}` +
      `/resourceGroups/${encodeURIComponent(credential('resource_group_name'))}`;
    const zoneOf = (zone: string): string =>
      `${group}/providers/Microsoft.Network/dnsZones/${encodeURIComponent(zone)}`;
    const change = (record: ZoneRecord, action: 'add' | 'remove'): Promise<void> => {
      const { zone, relativeName } = record;
      const path = `${zoneOf(zone)}/TXT/${encodeURIComponent(relativeName)}?${VERSION}`;
      let tag: string | undefined;
      const read = async (): Promise<RecordSet | null> => {
        const known = await calls.find(path);
        tag = textOf(memberOf(known, 'etag'));
        if (known === null) return null;
        // A value longer than 255 bytes is in several parts.
        const values = itemsOf(memberOf(known, 'properties', 'TXTRecords')).map((each) =>
          itemsOf(memberOf(each, 'value')).join(''),
        );
        return { values, ttlSeconds: Number(memberOf(known, 'properties', 'TTL')) };
      };
      return changeSet(record, action, calls, read, async (after, before) => {
        const condition =
          before === null ? { 'if-none-match': '*' } : tag === undefined ? {} : { 'if-match': tag };
        const options = { headers: condition, accept: [PRECONDITION_FAILED] };
        const TXTRecords = (after?.values ?? []).map((value) => ({ value: [value] }));
        const { status } =
          after === null
            ? await calls.send('DELETE', path, options)
            : await calls.send('PUT', path, {
                ...options,
                body: { properties: { TTL: after.ttlSeconds, TXTRecords } },
              });
        return status !== PRECONDITION_FAILED;
      });
    };
    return {
      async findZone(name) {
        return (await calls.find(`${zoneOf(name)}?${VERSION}`)) === null ? null : name;
      },
      add: (record) => change(record, 'add'),
      remove: (record) => change(record, 'remove'),
    };
  },
};
