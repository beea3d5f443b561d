import { readFile } from 'node:fs/promises';
import { importPKCS8, SignJWT } from 'jose';
import { itemsOf, memberOf, textOf } from './api.ts';
import {
  type DnsServiceModule,
  quoted,
  type RecordSet,
  recordSetOf,
  type ZoneRecord,
} from './service.ts';

const SCOPE = 'https://www.googleapis.com/auth/ndev.clouddns.readwrite';
const GRANT = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
/** In seconds; the longest that Google allows. */
const ASSERTION_SECONDS = 3600;
/** The set is not the one that the change says, or another one exists already. */
const CONFLICTS = [409, 412];

/**
 * Google Cloud DNS API v1, as the service account whose key is in the file `gcp_application_default`, with the role
 * "DNS Administrator".
 */
export const googleCloudDns: DnsServiceModule = {
  baseUrl: () => 'https://dns.googleapis.com/dns/v1',
  create({ credential, api }) {
    let token: Promise<string> | null = null;
    const login = async (): Promise<string> => {
      const account: unknown = JSON.parse(
        await readFile(credential('gcp_application_default'), 'utf8'),
      );
      const tokenUri = textOf(memberOf(account, 'token_uri')) ?? '';
      const key = await importPKCS8(textOf(memberOf(account, 'private_key')) ?? '', 'RS256');
      const assertion = await new SignJWT({ scope: SCOPE })
        .setProtectedHeader({ alg: 'RS256', typ: 'JWT' })
        .setIssuer(textOf(memberOf(account, 'client_email')) ?? '')
        .setAudience(tokenUri)
        .setIssuedAt()
        .setExpirationTime(`${String(ASSERTION_SECONDS)}s`)
        .sign(key);
      return api(() => ({}), tokenUri).accessToken('', { grant_type: GRANT, assertion });
    };
    const authorization = async (): Promise<string> => {
      token ??= login();
      try {
        return `Bearer ${await token}`;
      } catch (error) {
        throw calls.error(
          'needs gcp_application_default, the file with the key of a service account',
          error,
        );
      }
    };
    const calls = api(async () => ({ authorization: await authorization() }));
    const zones = `/projects/${encodeURIComponent(credential('gcp_project'))}/managedZones`;
    const zoneOf = ({ zone }: ZoneRecord): string => `${zones}/${encodeURIComponent(zone)}`;
    const listOf = (record: ZoneRecord, set: RecordSet | null): unknown[] => {
      if (set === null) return [];
      const rrdatas = set.values.map(quoted);
      return [{ name: `${record.name}.`, type: 'TXT', ttl: set.ttlSeconds, rrdatas }];
    };
    return {
      async findZone(name) {
        const { json } = await calls.send('GET', `${zones}?dnsName=${encodeURIComponent(name)}.`);
        const found = itemsOf(memberOf(json, 'managedZones')).find(
          (each) => memberOf(each, 'visibility') !== 'private',
        );
        return textOf(memberOf(found, 'name')) ?? null;
      },
      async read(record) {
        const query = `?type=TXT&name=${encodeURIComponent(`${record.name}.`)}`;
        const { json } = await calls.send('GET', `${zoneOf(record)}/rrsets${query}`);
        return recordSetOf(memberOf(json, 'rrsets', 0), 'rrdatas', 'ttl');
      },
      async write(record, after, before) {
        const body = { deletions: listOf(record, before), additions: listOf(record, after) };
        const path = `${zoneOf(record)}/changes`;
        const { status } = await calls.send('POST', path, { body, accept: CONFLICTS });
        return !CONFLICTS.includes(status);
      },
    };
  },
};
