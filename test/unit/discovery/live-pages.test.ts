import assert from 'node:assert/strict';
import { request as httpRequest, type RequestListener } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import zlib from 'node:zlib';
import fc from 'fast-check';
import { send } from '../../support/http.ts';
import { listen, type Site, startSite } from './site.ts';

const SCRIPT = /<script src="[^"]*\/live\.js[^>]*><\/script>/;

const live = (test: TestContext, app: RequestListener, site = '') =>
  startSite(test, app, { site: `${site}\n\tdiscovery {\n\t\tlive\n\t}` });

interface Bytes {
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly body: Buffer;
}

/** The bytes of an answer, which `send` would read as text. */
function bytesOf(url: string, headers: Record<string, string> = {}): Promise<Bytes> {
  return new Promise((resolve, reject) => {
    httpRequest(url, { headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.once('error', reject);
      response.once('end', () =>
        resolve({ headers: response.headers, body: Buffer.concat(chunks) }),
      );
    })
      .once('error', reject)
      .end();
  });
}

const html =
  (body: string | Buffer, fields: Record<string, string | string[]> = {}): RequestListener =>
  (_request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', ...fields }).end(body);
  };

const PAGE = '<!doctype html><html><head><title>x</title></head><body>é</body></html>';

describe('live pages', () => {
  it('have the script before the end of their head, and are otherwise unchanged', async (test) => {
    const site = await live(test, html(PAGE));
    const { body, headers } = await site.get('/page?x=1');
    const [script = ''] = SCRIPT.exec(body) ?? [];
    assert.ok(body.includes(`${script}</head>`));
    assert.equal(body.replace(script, ''), PAGE);
    assert.equal(headers['content-length'], undefined);
    assert.match(script, new RegExp(`data-hub="/.well-known/hub" data-origin="${site.origin}"`));
  });

  it('are selected by a matcher, independently of which changes are announced', async (test) => {
    const site = await startSite(test, html(PAGE), {
      site: '@wiki path /wiki/*\n\tdiscovery {\n\t\tlive @wiki {\n\t\t\twindow 2s\n\t\t}\n\t}',
    });
    assert.match((await site.get('/wiki/A')).body, SCRIPT);
    assert.equal((await site.get('/other')).body, PAGE);
  });

  it('are selected by the path that the client requested, whatever the site rewrites', async (test) => {
    const app: RequestListener = (request, response) => {
      if (request.url === '/index.php') html(PAGE)(request, response);
      else response.writeHead(502).end();
    };
    const stripped = await startSite(test, app, {
      site: 'discovery {\n\t\tlive /app/*\n\t}\n\thandle_path /app/* {\n\t\treverse_proxy localhost:{app}\n\t}',
    });
    assert.match((await stripped.get('/app/index.php')).body, SCRIPT);
    assert.equal((await stripped.get('/index.php')).body, PAGE);
    const whole = await startSite(test, app, {
      site: 'discovery /app/* {\n\t\tlive\n\t}\n\turi strip_prefix /app',
    });
    assert.match((await whole.get('/app/index.php')).body, SCRIPT);
    assert.equal((await whole.get('/index.php')).body, PAGE);
    for (const cache of ['', 'cache']) {
      const { get } = await startSite(test, app, {
        site: `@reading not path_regexp ^/admin/.*/edit/$
	discovery {
		live @reading
	}
	${cache}
	rewrite * /index.php`,
      });
      // The script of another page may fetch these if a library has navigated to them.
      const headers = [['Hub-Live', 'urn:1'] as const];
      const fetched = await get('/admin/pages/7/edit/', { headers });
      assert.deepEqual([fetched.status, fetched.body], [204, ''], cache);
      assert.match((await get('/news/', { headers })).body, SCRIPT, cache);
      assert.match((await get('/news/')).body, SCRIPT, cache);
      assert.equal((await get('/admin/pages/7/edit/')).body, PAGE, cache);
    }
  });

  it('stay apart from others in a cache if a field of the request selects them', async (test) => {
    const asked: (string | undefined)[] = [];
    const app: RequestListener = (request, response) => {
      const { 'if-none-match': held } = request.headers;
      asked.push(held);
      const fields = {
        'Content-Type': 'text/html',
        ETag: '"1"',
        'Cache-Control': 'public, no-cache',
      };
      // Most apps send no type with a 304.
      if (held === '"1"') response.writeHead(304, { ETag: '"1"' }).end();
      else response.writeHead(200, fields).end(PAGE);
    };
    const { get } = await startSite(test, app, {
      site: '@beta header X-Beta 1\n\tcache\n\tdiscovery {\n\t\tchanges public\n\t\tlive @beta\n\t}',
    });
    const beta = { headers: [['X-Beta', '1']] } as const;
    for (const order of [
      { path: '/a', requests: [{}, beta, {}, beta] },
      { path: '/b', requests: [beta, {}, beta, {}] },
    ]) {
      asked.length = 0;
      for (const request of order.requests) {
        const { body } = await get(order.path, request);
        if (request === beta) assert.match(body, SCRIPT, order.path);
        else assert.equal(body, PAGE, order.path);
      }
      // Each variant is requested once, and revalidated with the validator of the app.
      assert.deepEqual(asked, [undefined, undefined, '"1"', '"1"'], order.path);
    }
  });

  it('are in no cache, and neither are other pages, if the address of the client selects them', async (test) => {
    const app: RequestListener = (request, response) => {
      const type = request.url === '/image' ? 'image/png' : 'text/html';
      const fields = { 'Content-Type': type, 'Cache-Control': 'public, max-age=60' };
      response.writeHead(200, fields).end(PAGE);
    };
    for (const [address, isLive] of [
      ['127.0.0.0/8 ::1', true],
      ['192.0.2.1', false],
    ] as const) {
      const { get } = await startSite(test, app, {
        site: `@inside remote_ip ${address}\n\tcache\n\tdiscovery {\n\t\tlive @inside\n\t}`,
      });
      for (let round = 0; round < 2; round += 1) {
        const { body, headers } = await get('/a');
        assert.equal(SCRIPT.test(body), isLive);
        assert.match(String(headers['cache-status']), /detail=client/);
      }
      await get('/image');
      assert.match(String((await get('/image')).headers['cache-status']), /hit/);
    }
  });

  it('do not make a cache lose an image that it revalidates, by what client or field they are selected', async (test) => {
    for (const matcher of ['remote_ip 127.0.0.0/8 ::1', 'header X-Beta 1']) {
      const asked: (string | undefined)[] = [];
      const app: RequestListener = (request, response) => {
        const { 'if-none-match': held } = request.headers;
        asked.push(held);
        if (held === '"1"') response.writeHead(304, { ETag: '"1"' }).end();
        else {
          const fields = { 'Content-Type': 'image/png', ETag: '"1"' };
          response.writeHead(200, { ...fields, 'Cache-Control': 'public, no-cache' }).end('image');
        }
      };
      const { get } = await startSite(test, app, {
        site: `@some ${matcher}\n\tcache\n\tdiscovery {\n\t\tlive @some\n\t}`,
      });
      for (const value of ['1', '2', '1', '2']) {
        const { body } = await get('/image', { headers: [['X-Beta', value]] });
        assert.equal(body, 'image');
      }
      assert.deepEqual(asked, [undefined, '"1"', '"1"', '"1"'], matcher);
    }
  });

  it('are the same in a cache, whatever the destination of the request that the app has answered', async (test) => {
    const { get } = await startSite(test, html(PAGE, { 'Cache-Control': 'public, max-age=60' }), {
      site: 'cache\n\tdiscovery {\n\t\tlive\n\t}',
    });
    await get('/', { headers: [['Sec-Fetch-Dest', 'image']] });
    const { body, headers } = await get('/', { headers: [['Sec-Fetch-Dest', 'document']] });
    assert.match(String(headers['cache-status']), /hit/);
    assert.match(body, SCRIPT);
  });

  it('are selected by that path on error pages, too', async (test) => {
    const { get } = await startSite(test, html(PAGE), {
      site: `discovery {
		live /app/*
	}
	error /app/gone 410
	error /gone 410
	handle_errors {
		rewrite * /oops
		reverse_proxy localhost:{app}
	}`,
    });
    assert.match((await get('/app/gone')).body, SCRIPT);
    assert.equal((await get('/gone')).body, PAGE);
  });

  it('load a script that the hub serves, cached permanently under its version', async (test) => {
    const site = await live(test, html(PAGE));
    const [, src = ''] = /src="([^"]*)"/.exec((await site.get('/')).body) ?? [];
    const script = await site.get(src);
    assert.equal(script.headers['content-type'], 'text/javascript; charset=utf-8');
    assert.match(String(script.headers['cache-control']), /immutable/);
    const zipped = await bytesOf(site.origin + src, { 'Accept-Encoding': 'gzip, br' });
    assert.equal(zlib.gunzipSync(zipped.body).toString(), script.body);
    assert.ok(zipped.body.length < 14 * 1024, `${zipped.body.length} bytes`);
    const other = await site.get(src.replace(/v=.*/, 'v=old'));
    assert.equal(other.headers['cache-control'], 'no-cache');
    const again = await site.get(src, {
      headers: [['If-None-Match', String(script.headers.etag)]],
    });
    assert.equal(again.status, 304);
    for (const [accepted, coding] of [
      ['*', 'gzip'],
      ['br, *;q=0.5', 'gzip'],
      ['x-gzip', 'gzip'],
      ['gzip;q=0, *', 'gzip'],
      ['gzip;q=0', undefined],
      ['*;q=0', undefined],
      ['br', undefined],
    ] as const) {
      const { headers } = await bytesOf(site.origin + src, { 'Accept-Encoding': accepted });
      assert.equal(headers['content-encoding'], coding, accepted);
    }
    assert.equal((await site.get(src, { method: 'POST' })).status, 405);
  });

  it('lose the length, digest and range of the app, and have a validator of their own', async (test) => {
    const app: RequestListener = (request, response) => {
      const etag = '"v1"';
      if (request.headers['if-none-match'] === etag) {
        response.writeHead(304, { ETag: etag }).end();
        return;
      }
      response
        .writeHead(200, {
          'Content-Type': 'text/html',
          'Content-Length': String(Buffer.byteLength(PAGE)),
          'Accept-Ranges': 'bytes',
          'Content-Digest': 'sha-256=:x:',
          ETag: etag,
        })
        .end(PAGE);
    };
    const site = await live(test, app);
    const first = await site.get('/');
    for (const name of ['content-length', 'accept-ranges', 'content-digest']) {
      assert.equal(first.headers[name], undefined, name);
    }
    const tag = String(first.headers.etag);
    assert.match(tag, /^W\/"v1-lives\.[0-9a-f]{8}"$/);
    const second = await site.get('/', { headers: [['If-None-Match', tag]] });
    assert.deepEqual([second.status, second.headers.etag], [304, tag]);
    const older = tag.replace(/[0-9a-f]{8}"/, '00000000"');
    assert.equal((await site.get('/', { headers: [['If-None-Match', older]] })).status, 200);
    const head = await site.get('/', { method: 'HEAD' });
    assert.equal(head.headers['content-length'], undefined);
  });

  for (const [title, body, fields] of [
    ['fragments', '<li>one</li>', {}],
    ['what is not HTML', PAGE, { 'Content-Type': 'text/plain' }],
    ['what must not be transformed', PAGE, { 'Cache-Control': 'no-transform' }],
    ['downloads', PAGE, { 'Content-Disposition': 'attachment' }],
    ['UTF-16', PAGE, { 'Content-Type': 'text/html; charset="UTF-16LE"' }],
    ['unknown encodings', PAGE, { 'Content-Encoding': 'aws-chunked' }],
    ['pages whose policy forbids it', PAGE, { 'Content-Security-Policy': "script-src 'none'" }],
  ] as const) {
    it(`do not include ${title}`, async (test) => {
      const site = await live(test, html(body, fields));
      const answer = await site.get('/');
      assert.equal(answer.body, body);
      const told = site.log.find(({ fields: one }) => 'allow' in one);
      const isPolicy = 'Content-Security-Policy' in fields;
      assert.equal(told?.fields['allow'], isPolicy ? "script-src 'self'" : undefined);
    });
  }

  it('are named in the log without their query, which may contain a token', async (test) => {
    const app = html(PAGE, { 'Content-Security-Policy': "script-src 'none'" });
    const site = await live(test, app);
    await site.get('/page?access_token=s3cret');
    const told = site.log.find(({ message }) => message.includes('A page is not live'));
    assert.equal(told?.fields['path'], '/page');
    assert.ok(!JSON.stringify(site.log).includes('s3cret'));
  });

  it('are named in the log only if a visitor sees them', async (test) => {
    const policy = { 'Content-Security-Policy': "script-src 'none'" };
    const site = await live(test, (request, response) => {
      if (request.url !== '/missing') html(PAGE, policy)(request, response);
      else response.writeHead(404, { 'Content-Type': 'text/html', ...policy }).end(PAGE);
    });
    await site.get('/missing');
    await site.get('/image', { headers: [['Sec-Fetch-Dest', 'image']] });
    await site.get('/page', { headers: [['Sec-Fetch-Dest', 'document']] });
    const told = site.log.filter(({ message }) => message.includes('A page is not live'));
    assert.deepEqual(
      told.map(({ fields }) => fields['path']),
      ['/page'],
    );
  });

  it('obey the policy of a meta element, and use the nonce of a policy', async (test) => {
    const meta = `<html><head><meta http-equiv=Content-Security-Policy content="script-src 'none'"></head>`;
    const site = await live(test, (request, response) => {
      if (request.url === '/meta') html(meta)(request, response);
      else html(PAGE, { 'Content-Security-Policy': "script-src 'nonce-r4nd'" })(request, response);
    });
    assert.equal((await site.get('/meta')).body, meta);
    assert.match((await site.get('/nonce')).body, / nonce="r4nd"/);
  });

  it('load the script from their own site, whatever their addresses are relative to', async (test) => {
    const bases = {
      own: [
        '<base href="/app/">',
        '<base href=./>',
        '<base target=_blank>',
        '<!-- <base href=//a> -->',
      ],
      others: [
        '<base href="https://other.example/">',
        "<BASE target=_top HREF = '//other.example/'>",
        '<base href=/\\other.example/>',
        '<base href="/\t/other.example/">',
        '<base href="&#x2f;/other.example/">',
        '<base\ntarget=_top\nhref="ht\ntp://other.example/">',
        '<base href="/app/"><base href=" http:other.example">',
      ],
    };
    for (const [whose, elements] of Object.entries(bases)) {
      for (const element of elements) {
        const site = await live(test, html(`<!doctype html><title>t</title>${element}<body>`));
        const [script = ''] = SCRIPT.exec((await site.get('/page')).body) ?? [];
        const origin = whose === 'own' ? '' : site.origin.replace('http:', '');
        assert.ok(script.startsWith(`<script src="${origin}/.well-known/hub/live.js?v=`), element);
      }
    }
  });

  it('obey a policy that the Hubfile sets, and are compressed afterwards', async (test) => {
    const site = await live(test, html(PAGE), 'encode gzip {\n\t\tminimum_length 1\n\t}');
    const { body, headers } = await bytesOf(`${site.origin}/`, { 'Accept-Encoding': 'gzip' });
    assert.equal(headers['content-encoding'], 'gzip');
    assert.match(zlib.gunzipSync(body).toString(), SCRIPT);
    const strict = await live(
      test,
      html(PAGE),
      `header Content-Security-Policy "script-src 'none'"`,
    );
    assert.equal((await strict.get('/')).body, PAGE);
  });

  it('do not include images, scripts and responses to forms', async (test) => {
    for (const type of ['image/svg+xml', 'text/javascript']) {
      const { get } = await live(test, html(PAGE, { 'Content-Type': type }));
      assert.equal((await get('/')).body, PAGE);
    }
    const site = await live(test, html(PAGE));
    assert.equal((await site.get('/', { method: 'POST' })).body, PAGE);
  });

  it('are streamed: what the app has written is sent on at once', async (test) => {
    let finish = (): void => {};
    const app: RequestListener = (_request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Encoding': 'gzip' });
      const gzip = zlib.createGzip();
      gzip.pipe(response);
      gzip.write('<!doctype html><head><title>x</title></head><p>first');
      gzip.flush();
      finish = () => gzip.end('<p>last');
    };
    const site = await live(test, app);
    const gunzip = zlib.createGunzip();
    const text = await new Promise<string>((resolve, reject) => {
      let seen = '';
      gunzip.on('data', (chunk: Buffer) => {
        seen += chunk.toString();
        if (seen.includes('first')) finish();
      });
      gunzip.once('end', () => resolve(seen));
      httpRequest(`${site.origin}/`, { agent: false }, (response) => response.pipe(gunzip))
        .once('error', reject)
        .end();
    });
    assert.match(text, SCRIPT);
    assert.ok(text.endsWith('<p>last'));
  });

  it('escape a host name that a client made up', async (test) => {
    const site = await live(test, html(PAGE));
    const { body } = await site.get('/', { headers: [['Host', 'x"><script>alert(1)</script>']] });
    assert.ok(!body.includes('alert(1)'), body);
  });

  it('are byte for byte those of the app apart from the script: 2,000 documents in several encodings', async (test) => {
    const encoders: Record<string, (bytes: Buffer) => Buffer> = {
      identity: (bytes) => bytes,
      gzip: (bytes) => zlib.gzipSync(bytes),
      deflate: (bytes) => zlib.deflateSync(bytes),
      // What some apps send, and browsers accept.
      'raw deflate': (bytes) => zlib.deflateRawSync(bytes),
      br: (bytes) =>
        zlib.brotliCompressSync(bytes, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } }),
    };
    const decoders: Record<string, (bytes: Buffer) => Buffer> = {
      identity: (bytes) => bytes,
      gzip: (bytes) => zlib.gunzipSync(bytes),
      deflate: (bytes) => zlib.inflateSync(bytes),
      br: (bytes) => zlib.brotliDecompressSync(bytes),
    };
    const named = (encoding: string): string => encoding.replace('raw ', '');
    interface Sent {
      readonly bytes: Buffer;
      readonly encoding: string;
      readonly charset: string;
      readonly cut: number;
    }
    let sent: Sent | null = null;
    let injected = 0;
    const site: Site = await live(test, (_request, response) => {
      assert.ok(sent);
      const { bytes, encoding, charset, cut } = sent;
      const coded = (encoders[encoding] ?? assert.fail())(bytes);
      response.writeHead(200, {
        'Content-Type': `text/html${charset}`,
        ...(encoding === 'identity' ? {} : { 'Content-Encoding': named(encoding) }),
      });
      response.write(coded.subarray(0, cut));
      setImmediate(() => response.end(coded.subarray(cut)));
    });
    const piece = fc.oneof(
      fc.constantFrom(
        ...['<!doctype html>', '<html lang=x>', '<head>', '</head>', '<body>', '</body>', '<p>'],
        ...[
          '<title>a</title>',
          '<script>if (a < b) "</head>"</script>',
          '<!-- </head> -->',
          '\r\n',
        ],
        ...['<meta charset="x">', "<link href='>'>", '<style>', '</style>', '<template>', '<'],
      ),
      fc.string(),
      fc.uint8Array({ maxLength: 40 }),
    );
    const document = fc.record({
      begins: fc.constantFrom('', '', '\ufeff', ' ', '<!doctype html>', '<html>', '<head>'),
      pieces: fc.array(piece, { maxLength: 12 }),
      encoding: fc.constantFrom('identity', 'identity', 'gzip', 'deflate', 'raw deflate', 'br'),
      charset: fc.constantFrom(
        '',
        '; charset=utf-8',
        '; charset=ISO-8859-1',
        '; charset=Shift_JIS',
      ),
      cut: fc.nat(60),
    });
    await fc.assert(
      fc.asyncProperty(document, async ({ begins, pieces, encoding, charset, cut }) => {
        const bytes = Buffer.concat([begins, ...pieces].map((one) => Buffer.from(one)));
        sent = { bytes, encoding, charset, cut };
        const answer = await bytesOf(`${site.origin}/`, { 'Accept-Encoding': named(encoding) });
        const body = (decoders[named(encoding)] ?? assert.fail())(answer.body).toString('latin1');
        const [script] = SCRIPT.exec(body) ?? [];
        if (script !== undefined) injected += 1;
        assert.equal(
          script === undefined ? body : body.replace(script, ''),
          bytes.toString('latin1'),
        );
      }),
      { numRuns: 2_000 },
    );
    assert.ok(injected > 500, `${injected} of 2,000 were documents`);
  });

  it('are not active if the matcher of discovery does not match', async (test) => {
    const port = await listen(test, html(PAGE));
    const site = await startSite(test, html(PAGE), {
      site: `discovery /app/* {\n\t\tlive\n\t}`,
    });
    assert.match((await site.get('/app/x')).body, SCRIPT);
    assert.equal((await site.get('/other')).body, PAGE);
    assert.equal((await send(`http://localhost:${port}/`)).body, PAGE);
  });
});
