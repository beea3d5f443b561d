// What a gateway could reach at best for stored responses: Node alone, with the bytes of a hit. Takes `port app-port
// [certificate key]`.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import {
  createServer as createHttp2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import { createServer as createTlsServer } from 'node:tls';

const [port = '0', _appPort, certificate, key] = process.argv.slice(2);
const small = Buffer.alloc(1024, 'x');
const page = Buffer.alloc(20 * 1024, 'z');
const fields = {
  'Content-Type': 'text/plain',
  Link: '</.well-known/hub>; rel="hub", </>; rel="self"; hub-cursor="01234567-89ab-cdef-0123-456789abcdef"',
  Via: '1.1 hubgate',
  Age: '1',
  'Cache-Status': 'hubgate; hit; ttl=86399',
};

const plain = createServer((request, response) => {
  const body = request.url === '/page' ? page : small;
  response.writeHead(200, { ...fields, 'Content-Length': body.length });
  response.end(body);
});
plain.keepAliveTimeout = 60_000;

function onStream(stream: ServerHttp2Stream, { ':path': path }: IncomingHttpHeaders): void {
  const body = path === '/page' ? page : small;
  stream.respond({ ':status': 200, ...fields, 'Content-Length': body.length });
  stream.end(body);
}

if (certificate === undefined || key === undefined) {
  plain.listen(Number(port), '127.0.0.1');
} else {
  const http2 = createHttp2Server().on('stream', onStream);
  createTlsServer(
    { cert: readFileSync(certificate), key: readFileSync(key), ALPNProtocols: ['h2', 'http/1.1'] },
    (socket) => {
      const server = socket.alpnProtocol === 'h2' ? http2 : plain;
      server.emit('connection', socket);
    },
  ).listen(Number(port), '127.0.0.1');
}
process.on('SIGTERM', () => process.exit());
