import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import {
  announcesHub,
  hubFields,
  hubLink,
  hubTiming,
  linkedPages,
} from '../../../src/discovery/link.ts';
import { selfLink } from '../../../src/http/field-values.ts';
import { HeaderList, utf8Field } from '../../../src/http/header-list.ts';
import { extendedConnect } from '../../support/raw-tunnel.ts';
import { freePort } from '../../support/free-port.ts';
import { deferred, fields, HUB, startSite } from './site.ts';
import { removeWith } from '../../support/temporary-directory.ts';

describe('the hub fields of responses', () => {
  it('are formatted once per update', () => {
    const hub = { target: '/h', relation: 'hub', contentType: null, type: null };
    const fieldsFor = hubFields(hub);
    const first = fieldsFor('urn:a');
    assert.equal(fieldsFor('urn:a'), first);
    assert.deepEqual(first, {
      link: '</h>; rel="hub"; last-event-id="urn:a"',
      timing: 'hub;desc="/h?last_event_id=urn%3Aa"',
    });
    assert.equal(fieldsFor('urn:b').link, '</h>; rel="hub"; last-event-id="urn:b"');
    assert.equal(fieldsFor(null).link, '</h>; rel="hub"');
    assert.equal(fieldsFor(null), fieldsFor(null));
  });
});

describe('discovery: the Link header (RFC 8288, hubfile §3)', () => {
  it('announces the hub and the cursor on responses of the app', async (test) => {
    const site = await startSite(test, (_, response) => response.end('a page'));
    const before = await site.get('/');
    assert.deepEqual(fields(before, 'link'), [
      '</.well-known/hub>; rel="hub"; last-event-id="earliest"',
    ]);
    const id = await site.publish({ topic: 'https://example.com/a', data: '1' });
    const after = await site.get('/');
    assert.deepEqual(fields(after, 'link'), [
      `</.well-known/hub>; rel="hub"; last-event-id="${id}"`,
    ]);
    assert.equal(after.body, 'a page');
  });

  it('takes the cursor when the request arrives, not when the app responds', async (test) => {
    const [rendering, arrived] = [deferred(), deferred()];
    const site = await startSite(test, (_, response) => {
      arrived.resolve();
      void rendering.promise.then(() => response.end('a slow page'));
    });
    const answer = site.get('/');
    await arrived.promise;
    await site.publish({ topic: 'https://example.com/a', data: '1', id: 'published-meanwhile' });
    rendering.resolve();
    assert.match(fields(await answer, 'link').join(), /last-event-id="earliest"/);
  });

  it('writes an id with quotes and with characters beyond ASCII (RFC 9110 §5.6.4)', async (test) => {
    const site = await startSite(test, (_, response) => response.end());
    await site.publish({ topic: 'https://example.com/a', id: 'a "quoted" \\ Grüße 日' });
    const [link = ''] = fields(await site.get('/'), 'link');
    assert.equal(
      Buffer.from(link, 'latin1').toString('utf8'),
      '</.well-known/hub>; rel="hub"; last-event-id="a \\"quoted\\" \\\\ Grüße 日"',
    );
  });

  it('appends to the links of the app and never replaces them', async (test) => {
    const site = await startSite(test, (_, response) => {
      response.setHeader('Link', [
        '</style.css>; rel=preload',
        '<https://x/>; title="rel=hub"',
        // RFC 8288 §3.3: only the first rel of a link counts.
        '</a>; rel="next"; rel="hub"',
      ]);
      response.end();
    });
    const links = fields(await site.get('/'), 'link');
    assert.deepEqual(links.slice(0, 2), [
      '</style.css>; rel=preload',
      '<https://x/>; title="rel=hub"',
    ]);
    assert.match(links[3] ?? '', /last-event-id/);
  });

  it('leaves the response unchanged if the app announces a hub itself', async (test) => {
    const own = '<https://hub.example/>; title="a"; rel="preload HUB"';
    const site = await startSite(test, (_, response) => {
      response.setHeader('Link', own);
      response.end();
    });
    assert.deepEqual(fields(await site.get('/'), 'link'), [own]);
  });

  it('is left out on 304, on event streams and on responses of the gateway itself', async (test) => {
    const site = await startSite(
      test,
      (incoming, response) => {
        if (incoming.url === '/stream') {
          response.setHeader('Content-Type', 'text/event-stream; charset=utf-8');
        } else response.statusCode = 304;
        response.end();
      },
      { site: 'respond /own "from the gateway"' },
    );
    for (const path of ['/stream', '/not-modified', '/own', '/.well-known/hub/subscriptions']) {
      const answer = await site.get(path);
      assert.doesNotMatch(fields(answer, 'link').join(), /rel="hub"/, path);
      assert.deepEqual(fields(answer, 'server-timing'), [], path);
    }
  });

  it('is left out on informational responses', async (test) => {
    const site = await startSite(test, (_, response) => {
      response.writeEarlyHints({ link: '</a.css>; rel=preload', 'hub-access-token': 'secret' });
      response.end('done');
    });
    const outgoing = request(site.origin);
    outgoing.end();
    const hints: IncomingMessage['headers'][] = [];
    outgoing.on('information', ({ headers }) => hints.push(headers));
    const [response]: IncomingMessage[] = await once(outgoing, 'response');
    response?.resume();
    assert.deepEqual(
      hints.map(({ link, ...rest }) => ({ link, names: Object.keys(rest).sort() })),
      [{ link: '</a.css>; rel=preload', names: ['via'] }],
      'the token header does not reach the client in a 103 either',
    );
    assert.match(String(response?.headers.link), /rel="hub"/);
  });

  it('is left out on upgrades, and so is the cookie', async (test) => {
    const tls = await freePort();
    const site = await startSite(test, (_, response) => response.end(), {
      hubfile: `http://localhost:{port}, https://localhost:${tls} {${HUB}\t}
	tls internal
	reverse_proxy localhost:{app}\n}\n`,
      prepare(server) {
        const sockets = new WebSocketServer({ server });
        sockets.on('headers', (lines) => lines.push('Hub-Access-Token: secret'));
        test.after(() => sockets.close());
      },
    });
    const socket = new WebSocket(site.origin.replace('http', 'ws'));
    const [answer]: IncomingMessage[] = await once(socket, 'upgrade');
    const headers = answer?.headers ?? assert.fail('no answer');
    socket.terminate();
    const tunnel = await extendedConnect(tls, '/', true);
    tunnel.stream.destroy();
    assert.equal(tunnel.headers[':status'], 200);
    for (const received of [headers, tunnel.headers]) {
      assert.deepEqual(
        ['link', 'hub-access-token', 'set-cookie', 'server-timing'].filter(
          (one) => one in received,
        ),
        [],
      );
    }
  });

  it('carries the configured attributes, rel="self", or no cursor', async (test) => {
    const site = await startSite(test, (_, response) => response.end(), {
      site: `discovery {
			self
			content_type application/ld+json
			type message
			no_last_event_id
		}`,
    });
    assert.deepEqual(fields(await site.get('/books?page=2'), 'link'), [
      '</.well-known/hub>; rel="hub"; type="message"; content-type="application/ld+json"',
      '</books?page=2>; rel="self"',
    ]);
  });

  it('is added to the files of a site as well', async (test) => {
    const directory = await mkdtemp(join(tmpdir(), 'hubgate-files-'));
    removeWith(test, directory);
    await writeFile(join(directory, 'page.html'), 'a file');
    const site = await startSite(test, (_, response) => response.end(), {
      site: `handle /page.html {\n\t\troot ${directory}\n\t\tfile_server\n\t}`,
    });
    const answer = await site.get('/page.html');
    assert.equal(answer.body, 'a file');
    assert.match(fields(answer, 'link').join(), /rel="hub"/);
    assert.match(fields(answer, 'server-timing').join(), /^hub;/);
  });

  it('is limited by the matcher, and off with discovery off', async (test) => {
    const page = await startSite(test, (_, response) => response.end(), {
      site: 'discovery /app/*',
    });
    assert.equal(fields(await page.get('/app/1'), 'link').length, 1);
    assert.equal(fields(await page.get('/other'), 'link').length, 0);
    const off = await startSite(test, (_, response) => response.end(), { site: 'discovery off' });
    assert.equal(fields(await off.get('/'), 'link').length, 0);
  });

  it('announces another site’s hub with its cursor, and a hub elsewhere without', async (test) => {
    const hubfile = `http://hub.localhost:{port} {
	hub {
		issuer https://issuer.example {
			publisher {
				jwt "a publisher key of more than 32 bytes, for tests"
			}
		}
		anonymous
		transport memory
	}
}
http://app.localhost:{port} {
	discovery {
		hub hub.localhost
	}
	reverse_proxy localhost:{app}
}
http://far.localhost:{port} {
	discovery {
		hub https://hub.example.net/.well-known/mercure
	}
	reverse_proxy localhost:{app}
}
`;
    const site = await startSite(test, (_, response) => response.end(), { hubfile });
    const { port } = new URL(site.origin);
    const linksOf = async (host: string) =>
      fields(await site.get('/', { headers: [['Host', `${host}:${port}`]] }), 'link');
    assert.deepEqual(await linksOf('app.localhost'), [
      `<http://hub.localhost:${port}/.well-known/hub>; rel="hub"; last-event-id="earliest"`,
    ]);
    assert.deepEqual(await linksOf('far.localhost'), [
      '<https://hub.example.net/.well-known/mercure>; rel="mercure"',
    ]);
  });

  it('is exposed to the origins of cors_origins, with a Vary field (Fetch §3.2.3)', async (test) => {
    const site = await startSite(
      test,
      (incoming, response) => {
        response.setHeader('Access-Control-Allow-Origin', '*');
        if (incoming.url === '/own') {
          response.setHeader('Access-Control-Expose-Headers', 'ETag, link');
        }
        response.end();
      },
      { hub: 'anonymous\n\t\tcors_origins https://admin.example' },
    );
    const asked = (path: string, origin: string) =>
      site.get(path, { headers: [['Origin', origin]] });
    const allowed = await asked('/', 'https://admin.example');
    assert.deepEqual(fields(allowed, 'access-control-expose-headers'), ['Link']);
    assert.deepEqual(fields(allowed, 'vary'), ['Origin']);
    const own = await asked('/own', 'https://admin.example');
    assert.deepEqual(fields(own, 'access-control-expose-headers'), ['ETag, link']);
    const stranger = await asked('/', 'https://evil.example');
    assert.deepEqual(fields(stranger, 'access-control-expose-headers'), []);
    assert.deepEqual(fields(stranger, 'vary'), ['Origin']);
  });

  it('is repeated in Server-Timing for scripts in documents only', async (test) => {
    const site = await startSite(test, (incoming, response) => {
      response.setHeader(
        'Content-Type',
        incoming.url === '/' ? 'text/html; charset=utf-8' : 'application/json',
      );
      response.end();
    });
    await site.publish({ topic: 'https://example.com/a', id: 'é "1"' });
    assert.deepEqual(fields(await site.get('/'), 'server-timing'), [
      'hub;desc="/.well-known/hub?last_event_id=%C3%A9%20%221%22"',
    ]);
    assert.deepEqual(fields(await site.get('/data'), 'server-timing'), []);
  });
});

describe('discovery: the parts of a Link field', () => {
  const link = { relation: 'hub', lastEventId: 'x', contentType: null, type: null };

  it('adds the cursor to a hub URL that has a query', () => {
    assert.equal(
      hubTiming({ ...link, target: 'https://h/?a=1' }),
      'hub;desc="https://h/?a=1&last_event_id=x"',
    );
    assert.equal(hubLink({ ...link, target: '/h', lastEventId: null }), '</h>; rel="hub"');
  });

  it('lets no request target start another link or name another host (RFC 3986 §4.2)', () => {
    assert.equal(selfLink('/a?b=c%20d'), '</a?b=c%20d>; rel="self"');
    assert.equal(
      selfLink('/a>; rel="hub", <https://evil/'),
      '</a%3E;%20rel=%22hub%22,%20%3Chttps://evil/>; rel="self"',
    );
    assert.equal(selfLink('//evil.example/x'), '</.//evil.example/x>; rel="self"');
    assert.equal(selfLink('/\xc3\xa9'), '</%C3%A9>; rel="self"');
    assert.equal(selfLink('*'), null);
  });

  it('is read as text', () => {
    const headers = HeaderList.of({ Link: utf8Field('</größe>; rel="canonical"') });
    assert.deepEqual(linkedPages(headers), ['/größe']);
  });

  it('recognises a relation whatever else the field contains, in linear time', () => {
    const announces = (field: string): boolean =>
      announcesHub(HeaderList.of({ link: field }), 'hub');
    for (const field of [
      '<a>; rel=hub',
      '<a>;REL = "x hub y"',
      '<a;rel=no>; title="<;,"; rel="hub"',
      '<a>; rel=self, <b>; rel=hub',
    ]) {
      assert.equal(announces(field), true, field);
    }
    for (const field of [
      '<a;rel=hub>; rel=self',
      '<a>; title="; rel=hub"',
      '<a>; title="\\"; rel=hub"',
      '<a>; xrel=hub',
      '<a>; rel*=hub',
      '',
      `<a>; title="${'\\"'.repeat(100_000)}\\`,
      '<'.repeat(100_000),
      '"\\'.repeat(100_000),
    ]) {
      assert.equal(announces(field), false, field.slice(0, 80));
    }
  });
});
