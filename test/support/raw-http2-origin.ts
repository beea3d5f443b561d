import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { FLAG, FRAME, type Frame, frame } from './http2-frames.ts';

/** An HTTP/2 upstream of frames, with prior knowledge. */
export interface RawHttp2Origin {
  readonly url: string;
  /** Connections that have been made. */
  connections(): number;
  /** Streams that have been opened, as `<connection>/<stream>`. */
  readonly requests: readonly string[];
  [Symbol.asyncDispose](): Promise<void>;
}

const PREFACE_BYTES = 24;
const FRAME_HEAD = 9;

/** `onFrame` runs for each frame of a client; settings are exchanged before. */
export async function rawHttp2Origin(
  onFrame: (socket: Socket, frame: Frame, connection: number) => void,
): Promise<RawHttp2Origin> {
  const sockets = new Set<Socket>();
  const requests: string[] = [];
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    const connection = connections;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
    socket.write(frame(FRAME.settings, 0, 0));
    let bytes = Buffer.alloc(0);
    let at = PREFACE_BYTES;
    socket.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= at + FRAME_HEAD) {
        const end = at + FRAME_HEAD + bytes.readUIntBE(at, 3);
        if (bytes.length < end) return;
        const [type = 0, flags = 0] = bytes.subarray(at + 3);
        const stream = bytes.readUInt32BE(at + 5);
        const payload = bytes.subarray(at + FRAME_HEAD, end);
        at = end;
        if (type === FRAME.settings && (flags & FLAG.ack) === 0) {
          socket.write(frame(FRAME.settings, FLAG.ack, 0));
        }
        if (type === FRAME.headers) requests.push(`${connection}/${stream}`);
        onFrame(socket, { type, flags, stream, payload }, connection);
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    url: `h2c://127.0.0.1:${address.port}`,
    connections: () => connections,
    requests,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}
