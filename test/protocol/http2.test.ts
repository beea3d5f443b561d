import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import { after, describe, it } from 'node:test';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { FORM, ISSUER, PUBLISHER_KEY, signToken } from '../support/hub-server.ts';

const PATH = '/.well-known/hub';
const origin = `https://localhost:${await freePort()}`;
const gateway = await startGateway(
  { after },
  `${origin} {
	tls internal
	hub {
		anonymous
		transport memory
		write_timeout 2s
		issuer ${ISSUER} {
			publisher {
				jwt ${PUBLISHER_KEY}
			}
		}
	}
}
`,
);
const session = connect(origin, { ca: await gateway.root() });
after(() => session.close());

describe('the hub over TLS and HTTP/2', () => {
  it('B-150 B-153 B-155 B-161: streams events without connection fields', async () => {
    const stream = session.request({ ':path': `${PATH}?match=a&last_event_id=earliest` });
    const [headers] = await once(stream, 'response');
    assert.equal(headers[':status'], 200);
    assert.equal(headers['content-type'], 'text/event-stream');
    assert.equal(headers['hub-last-event-id'], 'earliest');
    for (const name of ['connection', 'keep-alive', 'transfer-encoding']) {
      assert.equal(name in headers, false, name);
    }
    const reading = readUntil(stream, '\n\n');
    assert.equal(await publish(session, 'topic=a&id=1&data=x'), 200);
    assert.equal(await reading, ':\nid: 1\ndata: x\n\n');
    stream.close(constants.NGHTTP2_CANCEL);
  });

  it('B-175: ends a stream with END_STREAM and no error', async () => {
    const stream = session.request({ ':path': `${PATH}?match=b` });
    stream.resume();
    await once(stream, 'close');
    assert.equal(stream.rstCode, constants.NGHTTP2_NO_ERROR);
    assert.equal(stream.readableEnded, true);
    assert.equal(session.closed, false);
  });

  it('F-417 F-419: has an https: identity', async () => {
    const META = `/.well-known/oauth-protected-resource${PATH}`;
    const metadata = session.request({ ':path': META });
    assert.match(await readUntil(metadata, '}'), new RegExp(`"resource":"${origin}${PATH}"`));
    const refused = session.request({ ':method': 'POST', ':path': PATH });
    const [headers] = await once(refused, 'response');
    assert.equal(headers['www-authenticate'], `Bearer resource_metadata="${origin}${META}"`);
    refused.close();
  });

  it('B-131 B-137: reads the content of a QUERY', async () => {
    const stream = session.request({
      ':method': 'QUERY',
      ':path': PATH,
      [FORM[0].toLowerCase()]: FORM[1],
    });
    stream.end('match=c');
    const [headers] = await once(stream, 'response');
    assert.equal(headers[':status'], 200);
    const reading = readUntil(stream, '\n\n');
    await publish(session, 'topic=c&id=c1');
    assert.equal(await reading, ':\nid: c1\ndata: \n\n');
    stream.close(constants.NGHTTP2_CANCEL);
  });
});

async function publish(session: ClientHttp2Session, body: string): Promise<number> {
  const type = 'urn:hub:authorization-detail';
  const token = await signToken(PUBLISHER_KEY, {
    iss: ISSUER,
    aud: origin + PATH,
    authorization_details: [{ type, actions: ['publish'], topics: [{ match: '*' }] }],
  });
  const stream = session.request({
    ':method': 'POST',
    ':path': PATH,
    authorization: `Bearer ${token}`,
    [FORM[0].toLowerCase()]: FORM[1],
  });
  stream.end(body);
  const [headers] = await once(stream, 'response');
  stream.close();
  return headers[':status'];
}

/** What arrives until it ends with that text. */
async function readUntil(stream: ClientHttp2Stream, end: string): Promise<string> {
  let text = '';
  for await (const chunk of stream.setEncoding('utf8').iterator({ destroyOnReturn: false })) {
    text += chunk;
    if (text.endsWith(end)) break;
  }
  return text;
}
