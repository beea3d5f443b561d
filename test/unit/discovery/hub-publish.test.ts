import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as httpRequest, type RequestListener } from 'node:http';
import { describe, it } from 'node:test';
import zlib from 'node:zlib';
import fc from 'fast-check';
import { WebSocket, WebSocketServer } from 'ws';
import { readHubPublish } from '../../../src/discovery/hub-publish.ts';
import { parseMembers } from '../../../src/http/structured-field.ts';
import { freePort } from '../../support/free-port.ts';
import { extendedConnect } from '../../support/raw-tunnel.ts';
import { fields as valuesOf, HUB, type Site, startSite } from './site.ts';

const BASE = 'https://example.com/shop?x=1';

const asked = (field: string, ...data: string[]) => readHubPublish([field], data, BASE);

describe('Hub-Publish (RFC 9651)', () => {
  it('names a topic, whether it is private, its type and id', () => {
    assert.deepEqual(asked('topic="/books/1"; private; type="change"; id="urn:1"', 'x').updates, [
      {
        topics: ['https://example.com/books/1'],
        private: true,
        type: 'change',
        id: 'urn:1',
        data: 'x',
      },
    ]);
  });

  it('may be repeated, in one field and in several', () => {
    const { updates, faults } = readHubPublish(
      ['topic="urn:a", topic="urn:b"; private', '("urn:c" "urn:d");body, https://example.com/e'],
      ['1', '2', '3', '4'],
      BASE,
    );
    assert.deepEqual(faults, []);
    assert.deepEqual(
      updates.map(({ topics, private: isPrivate, data }) => ({ topics, isPrivate, data })),
      [
        { topics: ['urn:a'], isPrivate: false, data: '1' },
        { topics: ['urn:b'], isPrivate: true, data: '2' },
        { topics: ['urn:c', 'urn:d'], isPrivate: false, data: null },
        { topics: ['https://example.com/e'], isPrivate: false, data: '4' },
      ],
    );
  });

  it('gives each member the data at its own position, even if others are invalid', () => {
    const { updates, faults } = asked(
      'topic="urn:secret"; privat, topic="urn:open", topic=1, topic="urn:last"; private',
      'a secret',
      'for all',
      'lost',
      'for some',
    );
    assert.equal(faults.length, 2);
    assert.deepEqual(
      updates.map(({ topics, private: isPrivate, data }) => [...topics, isPrivate, data]),
      [
        ['urn:open', false, 'for all'],
        ['urn:last', true, 'for some'],
      ],
    );
  });

  it('publishes nothing if the numbers of members and data differ', () => {
    const good = 'topic="urn:open"';
    for (const [fields, data] of [
      [
        ['topic="urn:secret"; private;;', good],
        ['a secret', 'for all'],
      ],
      [[good], ['a secret', 'for all']],
      [[`${good}, ${good}, ${good}`], ['a secret', 'for all']],
      [[Array.from({ length: 18 }, () => good).join()], Array.from({ length: 18 }, () => 'x')],
    ] as const) {
      const { updates, faults } = readHubPublish(fields, data, BASE);
      assert.deepEqual(updates, [], fields.join());
      assert.ok(faults.length > 0);
    }
    assert.equal(asked('topic="urn:a", topic="urn:b"', 'for both').updates.length, 2);
  });

  it('parses no more members than count', () => {
    const members = parseMembers('"/a",'.repeat(20_000), 17);
    assert.equal(members.length, 17);
  });

  it('parses every kind of value', () => {
    const [member] = parseMembers(
      'topic=%"caf%c3%a9"; a=:aGk=:; b=?0; c=-1.5; d="q\\"\\\\"; e=tok/en; f=@-12',
      1,
    );
    assert.deepEqual(member?.items, [{ kind: 'string', value: 'café' }]);
    assert.deepEqual(Object.fromEntries(member?.parameters ?? []), {
      a: { kind: 'bytes', value: 'hi' },
      b: { kind: 'boolean', value: false },
      c: { kind: 'number', value: -1.5 },
      d: { kind: 'string', value: 'q"\\' },
      e: { kind: 'token', value: 'tok/en' },
      f: { kind: 'date', value: -12 },
    });
  });

  for (const field of [
    'topic',
    'topic=',
    'topic="a',
    'topic="a",',
    'topic="a" "b"',
    'topic=("a"',
    'subject="a"',
    'topic=1',
    'topic=()',
    'topic="a"; private="yes"',
    'topic="a"; colour=red',
    'topic="é"',
    'topic=("a""b")',
  ]) {
    it(`refuses ${field}`, () => {
      const { updates, faults } = asked(field);
      // A token is a topic as any other.
      if (field === 'topic') assert.deepEqual(updates[0]?.topics, ['topic']);
      else assert.deepEqual([updates.length, faults.length], [0, 1], faults.join());
    });
  }

  it('is limited in number', () => {
    const many = Array.from({ length: 17 }, (_, index) => `topic="urn:${index}"`).join(', ');
    const { updates, faults } = asked(many);
    assert.deepEqual([updates.length, faults], [16, ['more than 16 updates']]);
    assert.equal(asked(`(${'"a" '.repeat(16)}"a")`).faults.length, 1);
  });

  it('parses any input in bounded time, and never throws', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom(...Array.from('topic=",;()? \\:%*a1-.')) }),
        (field) => {
          const { updates, faults } = asked(field);
          assert.ok(updates.length + faults.length >= 0);
        },
      ),
      { numRuns: 2_000 },
    );
  });
});

const seen = async (site: Site, path = '/'): Promise<string> => {
  const reader = await site.stream('match=*', {
    headers: [['Authorization', `Bearer ${await site.token()}`]],
  });
  const answer = await site.get(path);
  for (const name of ['hub-publish', 'hub-data']) assert.deepEqual(valuesOf(answer, name), []);
  await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
  await reader.untilId('urn:end');
  reader.close();
  return reader.text.split('id: urn:end')[0] ?? '';
};

describe('an app that publishes through its response', () => {
  it('sets a header, which never reaches the client', async (test) => {
    const app: RequestListener = (_request, response) => {
      response.setHeader('Hub-Publish', 'topic="/books/1"; private; type="change"; id="urn:mine"');
      response.setHeader('Hub-Data', '{"title":"a, b"}');
      response.end('ok');
    };
    const text = await seen(await startSite(test, app));
    assert.match(text, /id: urn:mine\n/);
    assert.match(text, /event: change\n/);
    assert.match(text, /data: \{"title":"a, b"\}\n/);
  });

  it('has unreadable fields logged, without the query of the request', async (test) => {
    const site = await startSite(test, (_request, response) => {
      response.setHeader('Hub-Publish', 'topic=').end();
    });
    await site.get('/a?authorization=s3cret');
    const told = site.log.find(({ message }) => message.includes('Hub-Publish'));
    assert.equal(told?.fields['path'], '/a');
    assert.ok(!JSON.stringify(site.log).includes('s3cret'));
  });

  it('may publish the body of the response, up to 64 KiB', async (test) => {
    const app: RequestListener = (request, response) => {
      response.setHeader('Hub-Publish', 'topic="urn:body"; id="urn:mine"; body');
      response.end(request.url === '/large' ? 'x'.repeat(65_537) : 'the body');
    };
    const site = await startSite(test, app);
    const reader = await site.stream('match=*');
    assert.equal((await site.get('/')).body, 'the body');
    await reader.untilId('urn:mine');
    assert.match(reader.text, /data: the body\n/);
    assert.equal((await site.get('/large')).body.length, 65_537);
    assert.ok(site.log.some(({ message }) => message.startsWith('The body was not published')));
  });

  for (const coding of ['gzip', 'br', 'zstd']) {
    const isUnknown = coding === 'zstd' && !('zstdDecompressSync' in zlib);
    const skip = isUnknown && 'this Node has no zstd';
    it(`may publish a body that the site encodes: ${coding}`, { skip }, async (test) => {
      const app: RequestListener = (request, response) => {
        request.resume();
        const isChange = request.method === 'POST';
        if (!isChange) response.setHeader('Hub-Publish', 'topic="urn:body"; body');
        response.setHeader('Content-Type', 'application/json');
        response.end(isChange ? '{"id":2}' : '{"id":1}');
      };
      const site = await startSite(test, app, {
        site: `encode ${coding} {
		minimum_length 1
	}
	discovery {
		changes public {
			data body
		}
	}`,
      });
      const reader = await site.stream('match=*');
      const headers = [['Accept-Encoding', coding]] as const;
      for (const [index, method] of ['GET', 'POST'].entries()) {
        const answer = await site.get('/', { method, headers });
        assert.equal(answer.headers['content-encoding'], coding);
        await reader.until(({ ids }) => ids.length === index + 1);
      }
      assert.match(reader.text, /^data: ?\{"id":1\}$[^]*^data: ?\{"id":2\}$/m);
    });
  }

  it('sends a trailer', async (test) => {
    const app: RequestListener = (_request, response) => {
      response.setHeader('Trailer', 'Hub-Publish, Hub-Data, X-Sum');
      response.write('streamed');
      response.addTrailers({
        'Hub-Publish': 'topic="urn:t"; id="urn:trailer"',
        'Hub-Data': '7',
        'X-Sum': '3',
      });
      response.end();
    };
    const site = await startSite(test, app);
    const trailers = await new Promise<readonly string[]>((resolve, reject) => {
      const request = httpRequest(site.origin, { agent: false }, (response) => {
        response.resume().once('end', () => resolve(response.rawTrailers));
      });
      request.once('error', reject).end();
    });
    assert.deepEqual(trailers, ['X-Sum', '3']);
    const text = await seen(site);
    assert.match(text, /id: urn:trailer\n/);
    assert.match(text, /data: 7\n/);
  });

  it('learns of refusals only through the log, with the position', async (test) => {
    const app: RequestListener = (_request, response) => {
      response.setHeader('Hub-Publish', [
        'topic="/.well-known/hub/subscriptions/x"',
        'topic=oops"',
        'topic="*"',
        'topic="urn:good"; id="urn:good"',
      ]);
      response.end('ok');
    };
    const site = await startSite(test, app);
    const text = await seen(site);
    assert.match(text, /id: urn:good\n/);
    assert.equal([...text.matchAll(/^id: /gm)].length, 1);
    const told = site.log.filter(({ level }) => level === 'warn');
    assert.equal(told.length, 3, JSON.stringify(told));
    assert.match(String(told[0]?.fields['fault']), /at character 11/);
  });

  it('is ignored with publish off, on responses of the gateway itself, and with discovery off', async (test) => {
    const app: RequestListener = (_request, response) => {
      response.setHeader('Hub-Publish', 'topic="urn:a"');
      response.end('ok');
    };
    for (const site of [
      'discovery {\n\t\tpublish off\n\t}',
      'discovery off',
      'header Hub-Publish topic="urn:b"\n\trespond /own "own"',
    ]) {
      const path = site.startsWith('header') ? '/own' : '/';
      assert.equal(await seen(await startSite(test, app, { site }), path), ':\n');
    }
  });

  it('publishes nothing in the head of a tunnel, over HTTP/1.1 or HTTP/2', async (test) => {
    const tls = await freePort();
    const site = await startSite(test, (_request, response) => response.end(), {
      hubfile: `http://localhost:{port}, https://localhost:${tls} {${HUB}\t}
	tls internal
	reverse_proxy localhost:{app}\n}\n`,
      prepare(server) {
        const sockets = new WebSocketServer({ server });
        sockets.on('headers', (lines) => {
          lines.push('Hub-Publish: topic="urn:a"', 'Hub-Data: x');
        });
        test.after(() => sockets.close());
      },
    });
    const reader = await site.stream('match=*', {
      headers: [['Authorization', `Bearer ${await site.token()}`]],
    });
    const socket = new WebSocket(site.origin.replace('http', 'ws'));
    await once(socket, 'open');
    socket.terminate();
    const { stream } = await extendedConnect(tls, '/', true);
    stream.destroy();
    await site.publish({ topic: 'urn:end', data: 'x', id: 'urn:end' });
    await reader.untilId('urn:end');
    reader.close();
    assert.equal([...reader.text.matchAll(/^id: /gm)].length, 1, reader.text);
  });

  it('keeps the field names in the profile mercure', async (test) => {
    const app: RequestListener = (_request, response) => {
      response.setHeader('Hub-Publish', 'topic="urn:a"; id="urn:m"');
      response.end('ok');
    };
    const hub = HUB.replace('hub {', 'hub /.well-known/hub {');
    const site = await startSite(test, app, {
      hubfile: `http://localhost:{port} {${hub}\t\tanonymous\n\t\tprofile mercure\n\t}
	reverse_proxy localhost:{app}\n}\n`,
    });
    const stream = await site.stream('match=*');
    await site.get('/');
    await stream.untilId('urn:m');
  });
});
