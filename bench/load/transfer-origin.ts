// The apps behind the gateways of `transfer`, in one process: HTTP/1.1 with WebSocket, gRPC (HTTP/2 without
// TLS) and FastCGI. Each takes what it is sent and answers a word; a WebSocket echoes.
import { createServer } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import { createServer as createTcpServer } from 'node:net';
import { WebSocketServer } from 'ws';

const [http1 = '0', grpc = '0', fastcgi = '0'] = process.argv.slice(2);
const WINDOW_BYTES = 4 * 1024 * 1024;

const server = createServer((request, response) => {
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
