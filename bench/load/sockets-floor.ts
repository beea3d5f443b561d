// What a proxy on the sockets of this Node costs at least: heads are passed on as text, with two fields more on each
// side, and nothing is checked. Takes `port app-port [certificate key]`; with a certificate it speaks HTTP/1.1 over TLS.
// It understands nothing but requests without a body, and responses with a length, one after the other. Below
// /.well-known/ it opens a stream of events instead, and sends nothing on it. With 0 for the app's port, it sends
// whole responses from memory, as a cache might at best.
import { readFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';

const [port, appPort = '0', certificate, key] = process.argv.slice(2);
const READ_BYTES = 64 * 1024;
const HEAD_END = '\r\n\r\n';
const REQUEST_FIELDS = 'X-Forwarded-For: 127.0.0.1\r\nVia: 1.1 floor\r\n';
const RESPONSE_FIELDS = '\r\nVia: 1.1 floor\r\nLink: </.well-known/hub>; rel="hub"';
const STREAM =
  'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\r\n:\n';

/** Whole responses. */
const [small, page] = [stored('x', 1024), stored('z', 20 * 1024)];

function stored(byte: string, length: number): Buffer {
  const head =
    'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nVia: 1.1 floor\r\nAge: 1\r\n' +
    'Link: </.well-known/hub>; rel="hub", </>; rel="self"; hub-cursor="01234567-89ab-cdef-0123-456789abcdef"\r\n' +
    `Cache-Status: floor; hit; ttl=86399\r\nContent-Length: ${length}${HEAD_END}`;
  return Buffer.from(head + byte.repeat(length));
}

/** A connection to the app, with one request at a time. */
class Upstream {
  client: Socket | null = null;
  readonly #socket: Socket;
  #text = '';

  constructor() {
    this.#socket = connect({
      port: Number(appPort),
      noDelay: true,
      onread: {
        buffer: Buffer.allocUnsafeSlow(READ_BYTES),
        callback: (bytes, memory) => this.#read(Buffer.from(memory.buffer, 0, bytes)),
      },
    });
    this.#socket.on('error', () => {});
  }

  send(request: string, client: Socket): void {
    this.client = client;
    this.#socket.write(request, 'latin1');
  }

  #read(bytes: Buffer): boolean {
    this.#text += bytes.toString('latin1');
    const head = this.#text.indexOf(HEAD_END);
    if (head === -1) return true;
    const [, length = '0'] = /\r\ncontent-length: (\d+)/i.exec(this.#text.slice(0, head)) ?? [];
    const body = head + HEAD_END.length;
    if (this.#text.length < body + Number(length)) return true;
    const response = this.#text.slice(0, head) + RESPONSE_FIELDS + this.#text.slice(head);
    this.#text = '';
    idle.push(this);
    this.client?.write(response, 'latin1');
    return true;
  }
}

const idle: Upstream[] = [];

function serve(socket: Socket): void {
  let text = '';
  socket.setNoDelay(true).on('error', () => {});
  socket.on('data', (bytes: Buffer) => {
    text += bytes.toString('latin1');
    if (!text.endsWith(HEAD_END)) return;
    const request = text.slice(0, -2) + REQUEST_FIELDS + '\r\n';
    text = '';
    if (request.startsWith('GET /.well-known/')) socket.write(STREAM);
    else if (appPort === '0') socket.write(request.startsWith('GET /page ') ? page : small);
    else (idle.pop() ?? new Upstream()).send(request, socket);
  });
}

const server =
  certificate === undefined || key === undefined
    ? createServer(serve)
    : createTlsServer(
        { cert: readFileSync(certificate), key: readFileSync(key), ALPNProtocols: ['http/1.1'] },
        serve,
      );
server.listen(Number(port), '127.0.0.1');
process.on('SIGTERM', () => process.exit());
