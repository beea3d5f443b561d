import { readFile } from 'node:fs/promises';
import { importPKCS8, SignJWT } from 'jose';
import { itemsOf, memberOf, textOf } from './api.ts';
import {
  changeSet,
  type DnsServiceModule,
  quoted,
  type RecordSet,
  unquoted,
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
      const { json } = await api(() => ({}), tokenUri).send('POST', '', {
        body: String(new URLSearchParams({ grant_type: GRANT, assertion })),
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
      });
      return textOf(memberOf(json, 'access_token')) ?? '';
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
    const change = (record: ZoneRecord, action: 'add' | 'remove'): Promise<void> => {
      const name = `${record.name}.`;
      const zone = `${zones}/${encodeURIComponent(record.zone)}`;
      const read = async (): Promise<RecordSet | null> => {
        const path = `${zone}/rrsets?type=TXT&name=${encodeURIComponent(name)}`;
        const { json } = await calls.send('GET', path);
        const known = memberOf(json, 'rrsets', 0);
        if (known === undefined) return null;
        const values = itemsOf(memberOf(known, 'rrdatas')).map((each) =>
          unquoted(textOf(each) ?? ''),
        );
        return { values, ttlSeconds: Number(memberOf(known, 'ttl')) };
      };
      const setOf = (set: RecordSet | null): unknown[] =>
        set === null
          ? []
          : [{ name, type: 'TXT', ttl: set.ttlSeconds, rrdatas: set.values.map(quoted) }];
      return changeSet(record, action, calls, read, async (after, before) => {
        const body = { deletions: setOf(before), additions: setOf(after) };
        const sent = await calls.send('POST', `${zone}/changes`, { body, accept: CONFLICTS });
        return !CONFLICTS.includes(sent.status);
      });
    };
    return {
      async findZone(name) {
        const { json } = await calls.send('GET', `${zones}?dnsName=${encodeURIComponent(name)}.`);
        const found = itemsOf(memberOf(json, 'managedZones')).find(
          (each) => memberOf(each, 'visibility') !== 'private',
        );
        return textOf(memberOf(found, 'name')) ?? null;
      },
      add: (record) => change(record, 'add'),
      remove: (record) => change(record, 'remove'),
    };
  },
};
