import { type DnsServiceModule, quoted, type ZoneRecord } from './service.ts';

/** There is no such name, or it has no such value. */
const NOT_THERE = [404, 422];

/** Hetzner Cloud API: actions that add values to a name or remove them. The token needs read and write. */
export const hetzner: DnsServiceModule = {
  minTtlSeconds: 60,
  baseUrl: () => 'https://api.hetzner.cloud/v1',
  create({ credential, api }) {
    const calls = api(() => ({ authorization: `Bearer ${credential('api_token')}` }));
    const pathOf = ({ zone, relativeName }: ZoneRecord): string =>
      `/zones/${encodeURIComponent(zone)}/rrsets/${encodeURIComponent(relativeName)}/TXT`;
    return {
      findZone: (name) => calls.zoneAt(`/zones/${encodeURIComponent(name)}`, name),
      async add(record) {
        const body = { records: [{ value: quoted(record.value) }], ttl: record.ttlSeconds };
        await calls.send('POST', `${pathOf(record)}/actions/add_records`, { body });
      },
      async remove(record) {
        const body = { records: [{ value: quoted(record.value) }] };
        const path = `${pathOf(record)}/actions/remove_records`;
        await calls.send('POST', path, { body, accept: NOT_THERE });
      },
    };
  },
};
