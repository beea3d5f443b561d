// The apps behind the gateways of `transfer`, in one process: HTTP/1.1 with WebSocket, gRPC (HTTP/2 without
// TLS) and FastCGI. Each takes what it is sent and answers a word; a WebSocket echoes. `/chunks/SIZE` is
// answered in chunks of that size, and `/git/` by `git http-backend`.
import { spawn } from 'node:child_process';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import { createServer as createTcpServer } from 'node:net';
import { WebSocketServer } from 'ws';

const [http1 = '0', grpc = '0', fastcgi = '0', directory = ''] = process.argv.slice(2);
const WINDOW_BYTES = 4 * 1024 * 1024;

const CHUNKED_BYTES = 100 * 1024 * 1024;

function sendChunks(size: number, response: ServerResponse): void {
  const chunk = Buffer.alloc(size, 'c');
  let left = CHUNKED_BYTES;
  const fill = (): void => {
    while (left > 0) {
      left -= size;
      if (!response.write(chunk)) {
        response.once('drain', fill);
        return;
      }
    }
    response.end();
  };
  fill();
}

/**
 * RFC 3875, as far as git needs it. The response waits for the end of the request: git writes its head at once, and
 * a server of Go throws a part of the body away when it is answered before it has read everything.
 */
function runGit(request: IncomingMessage, response: ServerResponse): void {
  const { pathname, search } = new URL(request.url ?? '/', 'http://localhost');
  const { headers } = request;
  const program = spawn('git', ['http-backend'], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: {
      ...process.env,
      GIT_PROJECT_ROOT: directory,
      GIT_HTTP_EXPORT_ALL: '1',
      REQUEST_METHOD: request.method,
      PATH_INFO: pathname.slice('/git'.length),
      QUERY_STRING: search.slice(1),
      CONTENT_TYPE: headers['content-type'] ?? '',
      CONTENT_LENGTH: headers['content-length'] ?? '',
      HTTP_CONTENT_ENCODING: headers['content-encoding'] ?? '',
      GIT_PROTOCOL: String(headers['git-protocol'] ?? ''),
    },
  });
  program.stdin.on('error', () => {});
  request.pipe(program.stdin);
  let head = Buffer.alloc(0);
  const onData = (chunk: Buffer): void => {
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end < 0) return;
    program.stdout.off('data', onData).pause();
    const lines = head.toString('latin1', 0, end).split('\r\n');
    const fields = lines.map((line): [string, string] => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon), line.slice(colon + 1).trim()];
    });
    const status = fields.find(([name]) => name === 'Status')?.[1] ?? '200';
    const answer = (): void => {
      response.writeHead(Number.parseInt(status, 10), Object.fromEntries(fields));
      response.write(head.subarray(end + 4));
      program.stdout.pipe(response);
    };
    if (request.readableEnded) answer();
    else request.once('end', answer);
  };
  program.stdout.on('data', onData);
}

const server = createServer((request, response) => {
  const [, kind, size] = request.url?.split('/') ?? [];
  if (kind === 'git') {
    runGit(request, response);
    return;
  }
  if (kind === 'chunks') {
    sendChunks(Number(size), response);
    return;
  }
  request.resume().once('end', () => response.end('taken'));
});
server.keepAliveTimeout = 60_000;
new WebSocketServer({ server, perMessageDeflate: false }).on('connection', (socket) => {
  socket.on('message', (message) => socket.send(message));
});
server.listen(Number(http1), '127.0.0.1');

createHttp2Server()
  .on('session', (session) => session.setLocalWindowSize(WINDOW_BYTES))
  .on('stream', (stream) => {
    stream.on('error', () => {});
    stream.resume().once('end', () => {
      stream.respond(
        { ':status': 200, 'content-type': 'application/grpc' },
        { waitForTrailers: true },
      );
      stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      stream.end(Buffer.alloc(5));
    });
  })
  .listen(Number(grpc), '127.0.0.1');

const RECORD_HEADER_BYTES = 8;
const STDIN = 5;

createTcpServer((socket) => {
  socket.on('error', () => {});
  const header = Buffer.alloc(RECORD_HEADER_BYTES);
  let [inHeader, inContent] = [0, 0];
  socket.on('data', (bytes) => {
    for (let at = 0; at < bytes.length; ) {
      if (inContent > 0) {
        const skipped = Math.min(inContent, bytes.length - at);
        inContent -= skipped;
        at += skipped;
        continue;
      }
      const copied = bytes.copy(header, inHeader, at);
      inHeader += copied;
      at += copied;
      if (inHeader < RECORD_HEADER_BYTES) return;
      inHeader = 0;
      const length = header.readUInt16BE(4);
      inContent = length + header.readUInt8(6);
      if (header.readUInt8(1) === STDIN && length === 0) socket.end(ANSWER);
    }
  });
}).listen(Number(fastcgi), '127.0.0.1');

const OUTPUT = Buffer.from('Content-Type: text/plain\r\n\r\ntaken');
const ANSWER = Buffer.concat([
  Buffer.from([1, 6, 0, 1, 0, OUTPUT.length, 0, 0]),
  OUTPUT,
  Buffer.from([1, 3, 0, 1, 0, 8, 0, 0]),
  Buffer.alloc(8),
]);

process.on('SIGTERM', () => process.exit());
