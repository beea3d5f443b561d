import { once } from 'node:events';
import { connect } from 'node:http2';
import type { Answer, RawRequest } from '../support/http.ts';
import type { ComparedRequest } from './cases.ts';

/** Fields of a connection, which HTTP/2 does not have (RFC 9113 §8.2.2). */
const OF_CONNECTION = /^(?:connection|upgrade|transfer-encoding|te|expect|host|keep-alive)$/i;

/** Whether a request can be sent over HTTP/2 as it is. */
export function isOfHttp2({ method, target, headers }: ComparedRequest): boolean {
  const hasOwn = headers.some(([name]) => OF_CONNECTION.test(name));
  return method !== 'CONNECT' && target.startsWith('/') && !target.includes('#') && !hasOwn;
}

/** Sends a request over a connection of its own, and reads the whole answer with its trailers. */
export async function sendHttp2(
  port: number,
  { method = 'GET', target = '/', headers = [], body }: RawRequest,
  authority: string,
): Promise<Answer> {
  const servername = authority.replace(/:\d+$/, '');
  const session = connect(`https://127.0.0.1:${port}`, { servername, rejectUnauthorized: false });
  try {
    await once(session, 'connect');
    const fields: Record<string, string[]> = {};
    for (const [name, value] of headers) (fields[name.toLowerCase()] ??= []).push(value);
    const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
    const stream = session.request(
      {
        ':method': method,
        ':path': target,
        ':authority': authority,
        ...fields,
        ...length,
      },
      { endStream: body === undefined },
    );
    const trailers: Record<string, string> = {};
    stream.on('trailers', (found) => {
      for (const [name, value] of Object.entries(found))
        trailers[`trailer ${name}`] = String(value);
    });
    if (body !== undefined) stream.end(body);
    const [head] = await once(stream, 'response');
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    const { ':status': status, ...rest } = head;
    const text = Buffer.concat(chunks).toString('utf8');
    return {
      status: Number(status),
      headers: { ...rest, ...trailers },
      rawHeaders: [],
      body: text,
    };
  } finally {
    session.destroy();
  }
}
