// The least that a gateway of Node can do for `transfer`: Node's own servers, the HTTP client undici, and
// pipes. What hubgate takes beyond it is its own; what this takes is Node's.
import { createReadStream, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, request as httpRequest } from 'node:http';
import {
  connect,
  createSecureServer,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Stream,
} from 'node:http2';
import type { ServerResponse } from 'node:http';
import type { Duplex, Writable } from 'node:stream';
import { Pool } from 'undici';

const [plain, tls, grpc, app, grpcApp, file = '', cert = '', key = ''] = process.argv.slice(2);
const pair = { cert: readFileSync(cert), key: readFileSync(key) };
const WINDOW_BYTES = 1024 * 1024;
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'transfer-encoding', 'expect', 'upgrade']);

const pool = new Pool(`http://127.0.0.1:${app}`, { headersTimeout: 0, bodyTimeout: 0 });

function endToEnd(fields: Readonly<Record<string, string | string[] | undefined>>): {
  [name: string]: string | string[];
} {
  const kept: { [name: string]: string | string[] } = {};
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && !name.startsWith(':') && !HOP_BY_HOP.has(name)) kept[name] = value;
  }
  return kept;
}

function take(
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
): void {
  const body: Writable = response;
  body.on('error', () => {});
  if (request.url === '/large.bin') {
    response.writeHead(200);
    createReadStream(file).pipe(body);
    return;
  }
  const { method = 'GET', url = '/' } = request;
  const hasBody = method !== 'GET' && method !== 'HEAD';
  const sent = { method, path: url, headers: endToEnd(request.headers) };
  pool
    .stream({ ...sent, body: hasBody ? request : null }, ({ statusCode, headers }) => {
      response.writeHead(statusCode, endToEnd(headers));
      return body;
    })
    .catch(() => body.destroy());
}

const http1 = createServer(take);
http1.keepAliveTimeout = 60_000;
http1.on('upgrade', (request: IncomingMessage, client: Duplex) => {
  const asked = httpRequest({ port: app, host: '127.0.0.1', headers: request.headers }).end();
  asked.on('upgrade', ({ rawHeaders }, upstream) => {
    let head = 'HTTP/1.1 101 Switching Protocols\r\n';
    for (let i = 0; i < rawHeaders.length; i += 2)
      head += `${rawHeaders[i]}: ${rawHeaders[i + 1]}\r\n`;
    client.write(`${head}\r\n`);
    client.on('error', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
    upstream.pipe(client).pipe(upstream);
  });
});
http1.listen(Number(plain), '127.0.0.1');

createSecureServer({ ...pair, allowHTTP1: true, settings: { initialWindowSize: WINDOW_BYTES } })
  .on('session', (session) => session.setLocalWindowSize(WINDOW_BYTES))
  .on('request', take)
  .listen(Number(tls), '127.0.0.1');

const calls = connect(`http://127.0.0.1:${grpcApp}`);
createSecureServer(pair)
  .on('stream', (stream: ServerHttp2Stream, fields) => {
    const call = calls.request({
      ...endToEnd(fields),
      ':method': 'POST',
      ':path': fields[':path'],
    });
    let trailers = {};
    call.on('trailers', (received) => (trailers = endToEnd(received)));
    stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    call.on('response', (received) => {
      const head = { ...endToEnd(received), ':status': received[':status'] };
      stream.respond(head, { waitForTrailers: true });
      call.pipe(stream);
    });
    stream.on('error', () => call.destroy());
    call.on('error', () => stream.destroy());
    stream.pipe(call);
  })
  .listen(Number(grpc), '127.0.0.1');

process.on('SIGTERM', () => process.exit());
