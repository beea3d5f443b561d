import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import http, { type IncomingMessage } from 'node:http';
import http2 from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import { portOf } from '../unit/http/exchange-server.ts';
import { startCaddy } from '../support/caddy.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { removeWith } from '../support/temporary-directory.ts';

const TEXT =
  '<!doctype html><html><head><title>x</title></head><body>0123456789</body></html>'.repeat(40);
const DATE = new Date(1_700_000_000_000).toUTCString();

type Fields = Readonly<Record<string, string>>;

interface Answer {
  readonly status: number;
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly bytes: number;
}

type Ask = (path: string, method: string, headers: Fields) => Promise<Answer>;

const cleanUps: (() => unknown)[] = [];
const owner = { after: (cleanUp: () => unknown) => void cleanUps.unshift(cleanUp) };
let port = 0;
let tlsPort = 0;
let ca = '';
let root = '';

/** An app that answers as apps do: it compares validators and knows ranges. */
function app(request: IncomingMessage, response: http.ServerResponse): void {
  const path = request.url ?? '';
  const isWeak = path.includes('weak');
  const etag = isWeak ? 'W/"v1"' : '"v1"';
  const validators = { ETag: etag, 'Last-Modified': DATE, 'Cache-Control': 'max-age=60' };
  if ((request.headers['if-none-match'] ?? '').includes('"v1"')) {
    response.writeHead(304, validators).end();
    return;
  }
  const fields: Record<string, string> = { ...validators, 'Content-Type': 'text/html' };
  if (path.includes('image')) fields['Content-Type'] = 'image/png';
  const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
  if (range !== null && request.method === 'GET') {
    const part = TEXT.slice(Number(range[1]), Number(range[2]) + 1);
    fields['Content-Range'] = `bytes ${range[1]}-${range[2]}/${TEXT.length}`;
    response.writeHead(206, { ...fields, 'Content-Length': part.length }).end(part);
    return;
  }
  response.writeHead(200, { ...fields, 'Content-Length': TEXT.length, 'Accept-Ranges': 'bytes' });
  response.end(request.method === 'HEAD' ? undefined : TEXT);
}

const PRODUCERS = `
	handle_path /plain/* {
		root * ROOT
		file_server browse
	}
	handle_path /beside/* {
		root * ROOT
		file_server {
			precompressed gzip
		}
	}
	handle_path /encoded/* {
		encode gzip
		root * ROOT
		file_server browse
	}
	handle_path /both/* {
		encode gzip
		root * ROOT
		file_server {
			precompressed gzip
		}
	}
	handle /proxied/* {
		encode gzip
		reverse_proxy 127.0.0.1:APP
	}
	handle /said/* {
		encode gzip
		respond "${'said '.repeat(200)}"
	}
	handle /scarcely/* {
		encode gzip
		respond "short"
	}
`;

before(async () => {
  const base = await mkdtemp(join(tmpdir(), 'hubgate-representations-'));
  removeWith(owner, base);
  root = join(base, 'public');
  await mkdir(join(root, 'directory'), { recursive: true });
  for (const name of ['page.html', 'picture.png']) await writeFile(join(root, name), TEXT);
  await writeFile(join(root, 'page.html.gz'), gzipSync(TEXT));
  await writeFile(join(root, 'short.html'), '<p>short</p>');
  for (let entry = 0; entry < 20; entry += 1) {
    await writeFile(join(root, 'directory', `entry-${entry}`), '');
  }
  const server = http.createServer(app);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  owner.after(() => server.close());
  port = await freePort();
  const producers = PRODUCERS.replaceAll('ROOT', root).replaceAll('APP', String(portOf(server)));
  const live = `
	handle /live/proxied/* {
		encode gzip
		reverse_proxy 127.0.0.1:${portOf(server)}
	}
	handle_path /live/files/* {
		encode gzip
		root * ${root}
		file_server
	}
`;
  const hub = `
	hub {
		issuer https://issuer.example.com {
			publisher {
				jwt 0123456789abcdef0123456789abcdef
			}
		}
		anonymous
		cookie_name hub_token
	}
	discovery /live/* {
		live
	}
`;
  tlsPort = await freePort();
  const site = `${hub}${live}${producers}}\n`;
  const { root: authority } = await startGateway(
    owner,
    `http://localhost:${port} {\n${site}https://localhost:${tlsPort} {\n\ttls internal\n${site}`,
  );
  ca = await authority();
});
after(async () => {
  for (const cleanUp of cleanUps) await cleanUp();
});

const overHttp1 =
  (origin: string): Ask =>
  async (path, method, headers) => {
    const request = http.request(`${origin}${path}`, { method, headers, agent: false }).end();
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    let bytes = 0;
    response.on('data', (chunk: Buffer) => (bytes += chunk.length));
    await once(response, 'end');
    return { status: response.statusCode ?? 0, headers: response.headers, bytes };
  };

const overHttp2: Ask = async (path, method, headers) => {
  const session = http2.connect(`https://localhost:${tlsPort}`, { ca });
  const stream = session.request({ ':path': path, ':method': method, ...headers });
  const [answered] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders];
  let bytes = 0;
  stream.on('data', (chunk: Buffer) => (bytes += chunk.length));
  await once(stream, 'close');
  session.close();
  const fields = { ...answered } as NodeJS.Dict<string | string[]>;
  return { status: Number(answered[':status']), headers: fields, bytes };
};

const PROTOCOLS: Readonly<Record<string, Ask>> = {
  'HTTP/1.1': (path, method, headers) =>
    overHttp1(`http://localhost:${port}`)(path, method, headers),
  'HTTP/2': overHttp2,
};

/** Paths, and what a client may have stored of each before it asks again. */
const PATHS = [
  '/plain/page.html',
  '/plain/directory/',
  '/beside/page.html',
  '/beside/picture.png',
  '/encoded/page.html',
  '/encoded/picture.png',
  '/encoded/short.html',
  '/encoded/directory/',
  '/both/page.html',
  '/both/short.html',
  '/proxied/page',
  '/proxied/weak',
  '/proxied/image',
  '/said/x',
  '/scarcely/x',
  '/live/proxied/page',
  '/live/proxied/image',
  '/live/files/page.html',
  '/live/files/picture.png',
  '/.well-known/hub/live.js',
];

/** What a 206 and a 304 say as their 200 does (RFC 9110 §15.3.7, §15.4.5). */
const SHARED = ['etag', 'cache-control', 'vary', 'content-location', 'expires'] as const;

function pick(headers: Answer['headers'], names: readonly string[]): Answer['headers'] {
  return Object.fromEntries(names.map((name) => [name, headers[name]]));
}

const HEAD_FIELDS = [
  ...SHARED,
  'content-type',
  'content-encoding',
  'content-length',
  'accept-ranges',
  'last-modified',
  'link',
];

for (const [protocol, ask] of Object.entries(PROTOCOLS)) {
  for (const coding of ['', 'gzip', 'identity']) {
    const accepted: Fields = coding === '' ? {} : { 'accept-encoding': coding };
    describe(`a representation over ${protocol} for "Accept-Encoding: ${coding}"`, () => {
      for (const path of PATHS) {
        it(`of ${path} has the same head for GET, HEAD, 206 and 304`, async () => {
          const whole = await ask(path, 'GET', accepted);
          assert.equal(whole.status, 200);
          const head = await ask(path, 'HEAD', accepted);
          assert.deepEqual(
            pick(head.headers, HEAD_FIELDS),
            pick(whole.headers, HEAD_FIELDS),
            'HEAD has the fields of GET (RFC 9110 §9.3.2)',
          );
          assert.equal(head.bytes, 0);
          if (whole.headers['content-length'] !== undefined) {
            assert.equal(whole.headers['content-length'], String(whole.bytes));
          }
          const { etag } = whole.headers;
          if (etag !== undefined) {
            const same = await ask(path, 'GET', { ...accepted, 'if-none-match': String(etag) });
            assert.equal(same.status, 304);
            assert.equal(same.bytes, 0);
            const shared = path.includes('image') ? ['etag', 'cache-control'] : SHARED;
            assert.deepEqual(pick(same.headers, shared), pick(whole.headers, shared), '304');
            for (const name of ['content-length', 'content-encoding', 'content-range']) {
              assert.equal(same.headers[name], undefined, `${name} of a 304`);
            }
          }
          const part = await ask(path, 'GET', { ...accepted, range: 'bytes=2-5' });
          if (part.status !== 206) return;
          assert.equal(part.bytes, 4);
          assert.equal(part.headers['content-length'], '4');
          const others = SHARED.filter((name) => name !== 'etag');
          assert.deepEqual(pick(part.headers, others), pick(whole.headers, others), '206');
          const { 'content-encoding': partCoding } = part.headers;
          // Bytes of the plain representation have its validator, with which they can be put together.
          if (partCoding === undefined && !path.includes('/live/')) {
            const plain = await ask(path, 'GET', { 'accept-encoding': 'identity' });
            assert.equal(part.headers.etag, plain.headers.etag);
          }
        });
      }
    });
  }
}

describe('the head of a representation in Caddy and in hubgate', () => {
  it('is the same except as RFC 9110 requires', async (test) => {
    const origin = await startCaddy(
      test,
      `\thandle_path /encoded/* {\n\t\tencode gzip\n\t\troot * ${root}\n\t\tfile_server\n\t}\n`,
    );
    if (origin === null) return;
    const path = '/encoded/page.html';
    const gzip = { 'accept-encoding': 'gzip' };
    for (const asked of [overHttp1(origin), overHttp1(`http://localhost:${port}`)]) {
      // Not compared: of these Caddy's 206 and 304 have no Vary, its HEAD says 20 bytes, and its encoded
      // response has the strong validator of the plain one (RFC 9110 §15.3.7, §15.4.5, §8.6, §8.8.3).
      const whole = await asked(path, 'GET', gzip);
      assert.equal(whole.headers['content-encoding'], 'gzip');
      assert.equal(whole.headers.vary, 'Accept-Encoding');
      const conditional = { ...gzip, 'if-none-match': String(whole.headers.etag) };
      assert.equal((await asked(path, 'GET', conditional)).status, 304);
      const part = await asked(path, 'GET', { ...gzip, range: 'bytes=2-5' });
      assert.deepEqual([part.status, part.headers['content-encoding']], [206, undefined]);
    }
  });
});
