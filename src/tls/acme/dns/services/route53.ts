import aws4 from 'aws4';
import {
  type DnsServiceModule,
  quoted,
  type RecordSet,
  unquoted,
  type ZoneRecord,
} from './service.ts';

const VERSION = '/2013-04-01';
/** The service has one region for the whole world. */
const REGION = 'us-east-1';
/** A change whose DELETE does not name the set as it is, or whose CREATE meets another one. */
const INVALID_CHANGE = 400;

/**
 * Amazon Route 53, API 2013-04-01, with Signature Version 4. The user needs ListHostedZonesByName,
 * ListResourceRecordSets and ChangeResourceRecordSets. `hosted_zone_id` makes the first one unnecessary.
 */
export const route53: DnsServiceModule = {
  baseUrl: () => 'https://route53.amazonaws.com',
  create({ credential, api }) {
    const calls = api(({ method, url, body }) => {
      const sessionToken = credential('session_token');
      const { headers = {} } = aws4.sign(
        {
          service: 'route53',
          region: credential('region') || REGION,
          host: url.host,
          path: `${url.pathname}${url.search}`,
          method,
          body,
          ...(body === '' ? {} : { headers: { 'content-type': 'text/xml' } }),
        },
        {
          accessKeyId: credential('access_key_id'),
          secretAccessKey: credential('secret_access_key'),
          ...(sessionToken === '' ? {} : { sessionToken }),
        },
      );
      const fields = Object.entries(headers).map(([name, value]) => [name, String(value)] as const);
      // What fetch sets itself.
      return Object.fromEntries(
        fields.filter(([name]) => !/^(?:host|content-length)$/i.test(name)),
      );
    });
    const pathOf = ({ zone }: ZoneRecord): string =>
      `${VERSION}/hostedzone/${encodeURIComponent(zone)}/rrset`;
    return {
      async findZone(name) {
        const known = credential('hosted_zone_id');
        const query = `?maxitems=10&dnsname=${encodeURIComponent(name)}`;
        const { text } =
          known === ''
            ? await calls.send('GET', `${VERSION}/hostedzonesbyname${query}`)
            : await calls.send('GET', `${VERSION}/hostedzone/${encodeURIComponent(known)}`);
        const zone = elements(text, 'HostedZone').find(
          (each) =>
            elements(each, 'Name')[0] === `${name}.` && elements(each, 'PrivateZone')[0] !== 'true',
        );
        return zone === undefined
          ? null
          : (elements(zone, 'Id')[0] ?? '').replace(/^\/hostedzone\//, '');
      },
      async read(record) {
        const query = `?maxitems=1&name=${encodeURIComponent(record.name)}&type=TXT`;
        const { text } = await calls.send('GET', `${pathOf(record)}${query}`);
        const [set = ''] = elements(text, 'ResourceRecordSet');
        // The list begins at the name, or after it if the name has no records.
        const [name, type] = [elements(set, 'Name')[0], elements(set, 'Type')[0]];
        if (name !== `${record.name}.` || type !== 'TXT') return null;
        return {
          values: elements(set, 'Value').map((each) => unquoted(unescaped(each))),
          ttlSeconds: Number(elements(set, 'TTL')[0]),
        };
      },
      async write(record, after, before) {
        const changes =
          changeOf('DELETE', record.name, before) + changeOf('CREATE', record.name, after);
        const body = `<?xml version="1.0" encoding="UTF-8"?><ChangeResourceRecordSetsRequest xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><ChangeBatch><Changes>${changes}</Changes></ChangeBatch></ChangeResourceRecordSetsRequest>`;
        const sent = await calls.send('POST', `${pathOf(record)}/`, {
          body,
          accept: [INVALID_CHANGE],
        });
        if (sent.status !== INVALID_CHANGE) return true;
        if (sent.text.includes('InvalidChangeBatch')) return false;
        throw calls.error(`refuses the change: ${elements(sent.text, 'Message')[0] ?? ''}`);
      },
    };
  },
};

function changeOf(action: 'CREATE' | 'DELETE', name: string, set: RecordSet | null): string {
  if (set === null) return '';
  const values = set.values.map(
    (value) => `<ResourceRecord><Value>${escaped(quoted(value))}</Value></ResourceRecord>`,
  );
  return `<Change><Action>${action}</Action><ResourceRecordSet><Name>${escaped(name)}.</Name><Type>TXT</Type><TTL>${String(set.ttlSeconds)}</TTL><ResourceRecords>${values.join('')}</ResourceRecords></ResourceRecordSet></Change>`;
}

/**
 * The content of the elements of a name, in their order. Enough for the documents of this API: they have no
 * attributes on these elements, no elements of the same name inside each other, and no CDATA.
 */
function elements(xml: string, name: string): string[] {
  const [open, close] = [`<${name}>`, `</${name}>`];
  return xml
    .split(open)
    .slice(1)
    .map((part) => part.slice(0, Math.max(0, part.indexOf(close))));
}

const ENTITIES: readonly (readonly [string, string])[] = [
  ['&', '&amp;'],
  ['<', '&lt;'],
  ['>', '&gt;'],
  ['"', '&quot;'],
];

function escaped(text: string): string {
  return ENTITIES.reduce((left, [plain, entity]) => left.replaceAll(plain, entity), text);
}

function unescaped(text: string): string {
  return ENTITIES.toReversed().reduce(
    (left, [plain, entity]) => left.replaceAll(entity, plain),
    text.replaceAll('&#34;', '"'),
  );
}
