// What the servers of bare Node in this folder listen on: plain HTTP, or TLS with HTTP/1.1 and HTTP/2.
import { readFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import {
  createServer as createHttp2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import { createServer as createTlsServer } from 'node:tls';

export interface BareServer {
  readonly port: string | undefined;
  /** Files. With them, the server speaks TLS, HTTP/1.1 and HTTP/2. */
  readonly certificate: string | undefined;
  readonly key: string | undefined;
  readonly onRequest: RequestListener;
  readonly onStream: (stream: ServerHttp2Stream, fields: IncomingHttpHeaders) => void;
}

/** Serves until SIGTERM. */
export function serve({ port, certificate, key, onRequest, onStream }: BareServer): void {
  const plain = createServer(onRequest);
  plain.keepAliveTimeout = 60_000;
  if (certificate === undefined || key === undefined) {
    plain.listen(Number(port), '127.0.0.1');
  } else {
    const http2 = createHttp2Server().on('stream', onStream);
    createTlsServer(
      {
        cert: readFileSync(certificate),
        key: readFileSync(key),
        ALPNProtocols: ['h2', 'http/1.1'],
      },
      (socket) => {
        const server = socket.alpnProtocol === 'h2' ? http2 : plain;
        server.emit('connection', socket);
      },
    ).listen(Number(port), '127.0.0.1');
  }
  process.on('SIGTERM', () => process.exit());
}
