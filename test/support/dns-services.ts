import { createHash, createPublicKey, verify } from 'node:crypto';
import { once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Owner } from './http.ts';

/** The TXT records of one account: its zones, and the values of each full name, without quotes. */
export class FakeZones {
  readonly zones: readonly string[];
  readonly #values = new Map<string, string[]>();
  /** Called before each change, to let somebody else be quicker. */
  beforeChange: () => void = () => {};

  constructor(...zones: readonly string[]) {
    this.zones = zones;
  }

  has(zone: string): boolean {
    return this.zones.includes(zone);
  }

  get(name: string): readonly string[] {
    return this.#values.get(name) ?? [];
  }

  set(name: string, values: readonly string[]): void {
    if (values.length === 0) this.#values.delete(name);
    else this.#values.set(name, [...values]);
  }
}

interface Call {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** Parsed, if it is JSON: what clients send that follow the documentation. */
  readonly json: ReturnType<typeof JSON.parse>;
  /** Where the fake is. */
  readonly origin: string;
}

type Reply = readonly [status: number, body?: unknown];
/** Answers a request as the published documentation of the API says; undefined is 404. */
export type FakeApi = (call: Call, zones: FakeZones) => Reply | undefined;

/** Starts the API of a company, and resolves to its address. */
export async function startDnsService(
  owner: Owner,
  zones: FakeZones,
  api: FakeApi,
): Promise<{ readonly url: string; readonly calls: readonly Call[] }> {
  const calls: Call[] = [];
  let origin = '';
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://fake');
    const call: Call = {
      method: request.method ?? '',
      path: decodeURIComponent(pathname),
      query: searchParams,
      headers: request.headers,
      text,
      json: /^[[{]/.test(text) ? JSON.parse(text) : undefined,
      origin,
    };
    calls.push(call);
    const [status, body = ''] = api(call, zones) ?? [404, { message: 'not found' }];
    response.writeHead(status).end(typeof body === 'string' ? body : JSON.stringify(body));
  };
  const server = createServer((request, response) => void respond(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  owner.after(() => {
    server.closeAllConnections();
    server.close();
  });
  origin = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
  return { url: origin, calls };
}

const quoted = (value: string): string => `"${value}"`;
const unquoted = (value: string): string => {
  // These APIs refuse a TXT value that is not written as in a zone file.
  if (!/^".*"$/.test(value)) throw new Error('not quoted');
  return value.slice(1, -1);
};
const fullName = (relative: string, zone: string): string =>
  relative === '@' || relative === '' ? zone : `${relative}.${zone}`;
const bearer =
  (token: string, api: FakeApi): FakeApi =>
  (call, zones) =>
    call.headers.authorization === `Bearer ${token}`
      ? api(call, zones)
      : [401, { message: `invalid token ${String(call.headers.authorization)}` }];

export const fakeCloudflare = (token: string): FakeApi =>
  bearer(token, ({ method, path, query, json }, zones) => {
    if (path === '/zones') {
      const result = zones.zones
        .filter((zone) => zone === query.get('name'))
        .map((name) => ({ id: `id-${name}`, name }));
      return [200, { success: true, result }];
    }
    const [, , record] = /^\/zones\/id-([^/]+)\/dns_records(?:\/(.+))?$/.exec(path) ?? [];
    if (method === 'GET') {
      const name = query.get('name') ?? '';
      const result = zones.get(name).map((value) => ({
        id: Buffer.from(`${name} ${value}`).toString('hex'),
        ...{ name, type: 'TXT', content: quoted(value) },
      }));
      return [200, { success: true, result }];
    }
    if (method === 'POST') {
      if (json.ttl < 60) return [400, { errors: [{ message: 'ttl must be at least 60' }] }];
      zones.set(json.name, [...zones.get(json.name), unquoted(json.content)]);
      return [200, { success: true, result: {} }];
    }
    const [name = '', value] = Buffer.from(record ?? '', 'hex')
      .toString()
      .split(' ');
    zones.set(
      name,
      zones.get(name).filter((known) => known !== value),
    );
    return [200, { success: true }];
  });

export const fakeDigitalocean = (token: string): FakeApi =>
  bearer(token, ({ method, path, query, json }, zones) => {
    const [, zone = '', records, id] =
      /^\/domains\/([^/]+)(\/records)?(?:\/(.+))?$/.exec(path) ?? [];
    if (!zones.has(zone)) return undefined;
    if (records === undefined) return [200, { domain: { name: zone } }];
    if (method === 'GET') {
      const name = query.get('name') ?? '';
      const domain_records = zones.get(name).map((data) => ({
        id: Number.parseInt(
          createHash('md5').update(`${name} ${data}`).digest('hex').slice(0, 8),
          16,
        ),
        ...{ type: 'TXT', name, data },
      }));
      return [200, { domain_records }];
    }
    if (method === 'POST') {
      const name = fullName(json.name, zone);
      zones.set(name, [...zones.get(name), json.data]);
      return [201, { domain_record: {} }];
    }
    const name = `_acme-challenge.${zone}`;
    const isIt = (data: string): boolean =>
      String(
        Number.parseInt(createHash('md5').update(`${name} ${data}`).digest('hex').slice(0, 8), 16),
      ) === id;
    zones.set(
      name,
      zones.get(name).filter((data) => !isIt(data)),
    );
    return [204];
  });

export const fakeHetzner = (token: string): FakeApi =>
  bearer(token, ({ path, json }, zones) => {
    const [, zone = '', relative, action] =
      /^\/zones\/([^/]+)(?:\/rrsets\/([^/]+)\/TXT\/actions\/(add|remove)_records)?$/.exec(path) ??
      [];
    if (!zones.has(zone)) return undefined;
    if (relative === undefined) return [200, { zone: { id: 1, name: zone } }];
    const name = fullName(relative, zone);
    const values = json.records.map(({ value }: { readonly value: string }) => unquoted(value));
    const known = zones.get(name);
    if (action === 'add') {
      if (json.ttl < 60) return [422, { error: { message: 'invalid ttl' } }];
      zones.set(name, [...new Set([...known, ...values])]);
    } else {
      if (!values.every((value: string) => known.includes(value))) return [422, {}];
      zones.set(
        name,
        known.filter((value) => !values.includes(value)),
      );
    }
    return [201, { action: { status: 'running' } }];
  });

export const fakeDesec =
  (token: string): FakeApi =>
  ({ method, path, headers, json }, zones) => {
    if (headers.authorization !== `Token ${token}`) return [401, { detail: 'Invalid token.' }];
    const [, zone = '', , relative] =
      /^\/domains\/([^/]+)\/(rrsets\/(?:([^/]+)\/TXT\/)?)?$/.exec(path) ?? [];
    if (!zones.has(zone)) return undefined;
    if (method === 'PUT') {
      for (const { subname, ttl, records } of json) {
        if (ttl < 3600) return [400, [{ ttl: ['Ensure this value is greater than 3600.'] }]];
        zones.set(fullName(subname, zone), records.map(unquoted));
      }
      return [200, json];
    }
    if (relative === undefined) return [200, { name: zone, minimum_ttl: 3600 }];
    const records = zones.get(fullName(relative, zone));
    return records.length === 0 ? undefined : [200, { ttl: 3600, records: records.map(quoted) }];
  };

export const fakeGandi = (token: string): FakeApi =>
  bearer(token, ({ method, path, json }, zones) => {
    const [, zone = '', relative] =
      /^\/domains\/([^/]+)(?:\/records\/([^/]+)\/TXT)?$/.exec(path) ?? [];
    if (!zones.has(zone)) return undefined;
    if (relative === undefined) return [200, { fqdn: zone }];
    const name = fullName(relative, zone);
    if (method === 'DELETE') {
      zones.set(name, []);
      return [204];
    }
    if (method === 'PUT') {
      if (json.rrset_ttl < 300) return [400, { message: 'rrset_ttl must be at least 300' }];
      zones.set(name, json.rrset_values.map(unquoted));
      return [201, { message: 'DNS Record Created' }];
    }
    const values = zones.get(name);
    return values.length === 0
      ? undefined
      : [200, { rrset_name: relative, rrset_ttl: 300, rrset_values: values.map(quoted) }];
  });

export const fakeOvh =
  (key: string, secret: string, consumer: string): FakeApi =>
  ({ method, path, query, headers, text, json, origin }, zones) => {
    if (path === '/auth/time') return [200, String(Math.floor(Date.now() / 1000) - 500)];
    const time = String(headers['x-ovh-timestamp']);
    const search = query.size > 0 ? `?${query.toString()}` : '';
    const signed = `${secret}+${consumer}+${method}+${origin}${path}${search}+${text}+${time}`;
    const signature = `$1$${createHash('sha1').update(signed).digest('hex')}`;
    const isInTime = Math.abs(Number(time) - (Date.now() / 1000 - 500)) < 60;
    const isKnown = headers['x-ovh-application'] === key && headers['x-ovh-consumer'] === consumer;
    if (!isKnown || !isInTime || headers['x-ovh-signature'] !== signature) {
      return [403, { message: 'This credential is not valid' }];
    }
    const [, zone = '', rest = ''] = /^\/domain\/zone\/([^/]+)(?:\/(.+))?$/.exec(path) ?? [];
    if (!zones.has(zone)) return undefined;
    if (rest === '' || rest === 'refresh') return [200, { name: zone }];
    const all = zones.get(`_acme-challenge.${zone}`);
    if (rest === 'record' && method === 'GET') {
      const isIt = query.get('subDomain') === '_acme-challenge' && query.get('fieldType') === 'TXT';
      return [
        200,
        isIt
          ? all.map((value) => Number.parseInt(Buffer.from(value).toString('hex').slice(0, 8), 16))
          : [],
      ];
    }
    if (rest === 'record') {
      const name = fullName(json.subDomain, zone);
      zones.set(name, [...zones.get(name), json.target]);
      return [200, { id: 1 }];
    }
    const id = Number(rest.replace('record/', ''));
    const value = all.find(
      (each) => Number.parseInt(Buffer.from(each).toString('hex').slice(0, 8), 16) === id,
    );
    if (value === undefined) return undefined;
    if (method === 'GET') return [200, { id, target: quoted(value) }];
    zones.set(
      `_acme-challenge.${zone}`,
      all.filter((each) => each !== value),
    );
    return [200, 'null'];
  };

export const fakeAzure =
  (tenant: string, client: string, secret: string): FakeApi =>
  ({ method, path, query, headers, text, json }, zones) => {
    if (path === `/${tenant}/oauth2/v2.0/token`) {
      const form = new URLSearchParams(text);
      const isKnown = form.get('client_id') === client && form.get('client_secret') === secret;
      const isAsked =
        form.get('grant_type') === 'client_credentials' &&
        (form.get('scope') ?? '').endsWith('/.default');
      return isKnown && isAsked
        ? [200, { access_token: 'of-azure' }]
        : [401, { error: 'invalid_client' }];
    }
    if (headers.authorization !== 'Bearer of-azure') return [401, {}];
    if (query.get('api-version') !== '2018-05-01') return [400, { error: 'api-version' }];
    const [, zone = '', relative] =
      /^\/subscriptions\/s1\/resourceGroups\/g1\/providers\/Microsoft\.Network\/dnsZones\/([^/]+)(?:\/TXT\/(.+))?$/.exec(
        path,
      ) ?? [];
    if (!zones.has(zone)) return undefined;
    if (relative === undefined) return [200, { name: zone }];
    const name = fullName(relative, zone);
    if (method !== 'GET') zones.beforeChange();
    const values = zones.get(name);
    const etag = createHash('sha1').update(values.join()).digest('hex');
    const isOther =
      (headers['if-none-match'] === '*' && values.length > 0) ||
      (headers['if-match'] !== undefined && headers['if-match'] !== etag);
    if (isOther) return [412, { code: 'PreconditionFailed' }];
    if (method === 'PUT') {
      zones.set(
        name,
        json.properties.TXTRecords.map(({ value }: { readonly value: string[] }) => value.join('')),
      );
      return [201, {}];
    }
    if (method === 'DELETE') {
      zones.set(name, []);
      return [200];
    }
    if (values.length === 0) return undefined;
    const TXTRecords = values.map((value) => ({ value: [value] }));
    return [200, { etag, properties: { TTL: 120, TXTRecords } }];
  };

export const fakeGoogle =
  (email: string, publicKey: string): FakeApi =>
  ({ method, path, query, headers, text, json, origin }, zones) => {
    if (path === '/token') {
      const [head = '', body = '', signature = ''] = (
        new URLSearchParams(text).get('assertion') ?? ''
      ).split('.');
      const claims = JSON.parse(Buffer.from(body, 'base64url').toString());
      const isSigned = verify(
        'sha256',
        Buffer.from(`${head}.${body}`),
        createPublicKey(publicKey),
        Buffer.from(signature, 'base64url'),
      );
      const isMeant =
        claims.iss === email && claims.aud === `${origin}/token` && claims.exp - claims.iat <= 3600;
      return isSigned && isMeant
        ? [200, { access_token: 'of-google' }]
        : [401, { error: 'invalid_grant' }];
    }
    if (headers.authorization !== 'Bearer of-google') return [401, {}];
    if (path === '/projects/p1/managedZones') {
      const zone = zones.zones.find((each) => `${each}.` === query.get('dnsName'));
      if (zone === undefined) return [200, {}];
      const inside = { name: `private-${zone}`, dnsName: `${zone}.`, visibility: 'private' };
      const outside = { name: `zone-${zone}`, dnsName: `${zone}.`, visibility: 'public' };
      return [200, { managedZones: [inside, outside] }];
    }
    const [, zone = '', what] =
      /^\/projects\/p1\/managedZones\/zone-([^/]+)\/(rrsets|changes)$/.exec(path) ?? [];
    if (!zones.has(zone)) return undefined;
    if (what === 'rrsets') {
      const name = (query.get('name') ?? '').replace(/\.$/, '');
      const rrdatas = zones.get(name).map(quoted);
      return [
        200,
        rrdatas.length === 0 ? {} : { rrsets: [{ name, type: 'TXT', ttl: 120, rrdatas }] },
      ];
    }
    if (method === 'POST') zones.beforeChange();
    const setOf = (sets: readonly { readonly rrdatas: readonly string[] }[]): string[] =>
      (sets[0]?.rrdatas ?? []).map(unquoted);
    const name = (json.deletions[0] ?? json.additions[0]).name.replace(/\.$/, '');
    const [before, after] = [setOf(json.deletions), setOf(json.additions)];
    if (zones.get(name).join() !== before.join())
      return [412, { error: { message: 'Precondition not met' } }];
    zones.set(name, after);
    return [200, { status: 'pending' }];
  };

export const fakeRoute53 =
  (keyId: string): FakeApi =>
  ({ method, path, query, headers, text }, zones) => {
    const scope = new RegExp(
      `^AWS4-HMAC-SHA256 Credential=${keyId}/\\d{8}/us-east-1/route53/aws4_request, SignedHeaders=\\S*host\\S*, Signature=[0-9a-f]{64}$`,
    );
    if (!scope.test(String(headers.authorization)) || headers['x-amz-date'] === undefined) {
      return [
        403,
        '<ErrorResponse><Error><Message>The security token is invalid</Message></Error></ErrorResponse>',
      ];
    }
    if (path === '/2013-04-01/hostedzonesbyname') {
      // The list begins at the name, in the order of names.
      const listed = zones.zones.map(
        (zone) =>
          `<HostedZone><Id>/hostedzone/PRIVATE</Id><Name>${zone}.</Name><Config><PrivateZone>true</PrivateZone></Config></HostedZone><HostedZone><Id>/hostedzone/Z-${zone}</Id><Name>${zone}.</Name><Config><PrivateZone>false</PrivateZone></Config></HostedZone>`,
      );
      return [
        200,
        `<?xml version="1.0"?><ListHostedZonesByNameResponse><HostedZones>${listed.join('')}</HostedZones></ListHostedZonesByNameResponse>`,
      ];
    }
    const [, zone = ''] = /^\/2013-04-01\/hostedzone\/Z-([^/]+)\/rrset\/?$/.exec(path) ?? [];
    if (!zones.has(zone)) return undefined;
    const setOf = (name: string): string => {
      const values = zones
        .get(name)
        .map((value) => `<ResourceRecord><Value>&quot;${value}&quot;</Value></ResourceRecord>`);
      return `<Name>${name}.</Name><Type>TXT</Type><TTL>120</TTL><ResourceRecords>${values.join('')}</ResourceRecords>`;
    };
    if (method === 'GET') {
      const name = query.get('name') ?? '';
      const shown =
        zones.get(name).length > 0
          ? setOf(name)
          : `<Name>www.${zone}.</Name><Type>A</Type><TTL>60</TTL><ResourceRecords><ResourceRecord><Value>192.0.2.1</Value></ResourceRecord></ResourceRecords>`;
      return [
        200,
        `<ListResourceRecordSetsResponse><ResourceRecordSets><ResourceRecordSet>${shown}</ResourceRecordSet></ResourceRecordSets></ListResourceRecordSetsResponse>`,
      ];
    }
    zones.beforeChange();
    for (const [, action, set = ''] of text.matchAll(
      /<Change><Action>(DELETE|CREATE)<\/Action><ResourceRecordSet>(.*?)<\/ResourceRecordSet><\/Change>/g,
    )) {
      const [, name = ''] = /<Name>(.*?)\.<\/Name>/.exec(set) ?? [];
      const isWrong = action === 'DELETE' ? set !== setOf(name) : zones.get(name).length > 0;
      if (isWrong)
        return [
          400,
          '<ErrorResponse><Error><Code>InvalidChangeBatch</Code><Message>the values do not match</Message></Error></ErrorResponse>',
        ];
      const values = [...set.matchAll(/<Value>&quot;(.*?)&quot;<\/Value>/g)].map(
        ([, value = '']) => value,
      );
      zones.set(name, action === 'DELETE' ? [] : values);
    }
    return [200, '<ChangeResourceRecordSetsResponse/>'];
  };
