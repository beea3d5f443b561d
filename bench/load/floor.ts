// What a proxy on this Node costs: Node's own servers, and the HTTP client undici, with nothing in between.
// Takes `port app-port [certificate key]`; with a certificate it speaks TLS, HTTP/1.1 and
// HTTP/2. Below /.well-known/ it opens a stream of events instead, and sends nothing on it.
import type { RequestListener } from 'node:http';
import type { ServerHttp2Stream } from 'node:http2';
import { Pool } from 'undici';
import { serve } from './bare-server.ts';

const [port, appPort = '0', certificate, key] = process.argv.slice(2);
const pool = new Pool(`http://127.0.0.1:${appPort}`, { pipelining: 1 });

interface Answer {
  head(status: number, fields: Record<string, string | string[]>): void;
  data(chunk: Buffer): void;
  end(): void;
  fail(): void;
}

function pass(method: string, path: string, headers: string[], answer: Answer): void {
  pool.dispatch(
    { method, path, headers },
    {
      onRequestStart: () => {},
      onResponseStart: (_controller, status, fields) =>
        answer.head(status, fields as Record<string, string | string[]>),
      onResponseData: (_controller, chunk) => answer.data(chunk),
      onResponseEnd: () => answer.end(),
      onResponseError: () => answer.fail(),
    },
  );
}

const onRequest: RequestListener = (request, response) => {
  const { method = 'GET', url = '/' } = request;
  if (url.startsWith('/.well-known/')) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    response.write(':\n');
    return;
  }
  pass(method, url, request.rawHeaders, {
    head: (status, fields) => void response.writeHead(status, fields),
    data: (chunk) => void response.write(chunk),
    end: () => void response.end(),
    fail: () => void response.destroy(),
  });
};

function onStream(stream: ServerHttp2Stream, fields: NodeJS.Dict<string | string[]>): void {
  const headers = Object.entries(fields).flatMap(([name, value]) =>
    name.startsWith(':') || value === undefined ? [] : [name, String(value)],
  );
  headers.push('host', String(fields[':authority']));
  pass(String(fields[':method']), String(fields[':path']), headers, {
    head: (status, { connection: _connection, 'keep-alive': _keepAlive, ...rest }) =>
      stream.respond({ ':status': status, ...rest }),
    data: (chunk) => void stream.write(chunk),
    end: () => void stream.end(),
    fail: () => stream.close(),
  });
}

serve({ port, certificate, key, onRequest, onStream });
