import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import type { Owner } from './http.ts';

/** What a name has: addresses, or services with their places. */
export type DnsAnswer =
  | { readonly kind: 'a' | 'aaaa'; readonly addresses: readonly string[] }
  | {
      readonly kind: 'srv';
      readonly services: readonly { priority: number; port: number; target: string }[];
    }
  | 'no-such-name'
  | 'failure';

const TYPES: Readonly<Record<number, string>> = { 1: 'a', 28: 'aaaa', 33: 'srv' };
const NO_ERROR = 0;
const SERVER_FAILURE = 2;
const NAME_ERROR = 3;
const HEAD_BYTES = 12;

/** A server of names on loopback (RFC 1035) that answers what the test says. */
export async function startDnsServer(
  test: Owner,
  answer: (name: string, type: string) => DnsAnswer,
): Promise<{ readonly address: string; readonly questions: readonly string[] }> {
  const questions: string[] = [];
  const socket = createSocket('udp4');
  socket.on('message', (query, from) => {
    const { name, end } = nameAt(query);
    const type = TYPES[query.readUInt16BE(end)] ?? 'other';
    questions.push(`${type} ${name}`);
    socket.send(reply(query, end + 4, answer(name, type), type), from.port, from.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  test.after(() => socket.close());
  return { address: `127.0.0.1:${socket.address().port}`, questions };
}

function nameAt(query: Buffer): { name: string; end: number } {
  const labels: string[] = [];
  let at = HEAD_BYTES;
  for (let size = query[at] ?? 0; size > 0; size = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + size));
    at += 1 + size;
  }
  return { name: labels.join('.').toLowerCase(), end: at + 1 };
}

function reply(query: Buffer, end: number, answer: DnsAnswer, type: string): Buffer {
  const code =
    answer === 'failure' ? SERVER_FAILURE : answer === 'no-such-name' ? NAME_ERROR : NO_ERROR;
  const records = typeof answer === 'string' || answer.kind !== type ? [] : recordsOf(answer);
  const head = Buffer.from(query.subarray(0, HEAD_BYTES));
  head.writeUInt16BE(0x8180 | code, 2);
  head.writeUInt16BE(records.length, 6);
  head.writeUInt32BE(0, 8);
  return Buffer.concat([head, query.subarray(HEAD_BYTES, end), ...records]);
}

function recordsOf(answer: Exclude<DnsAnswer, string>): Buffer[] {
  if (answer.kind === 'srv') {
    return answer.services.map(({ priority, port, target }) => {
      const numbers = Buffer.alloc(6);
      numbers.writeUInt16BE(priority, 0);
      numbers.writeUInt16BE(port, 4);
      return record(33, Buffer.concat([numbers, encodedName(target)]));
    });
  }
  if (answer.kind === 'a') {
    return answer.addresses.map((one) => record(1, Buffer.from(one.split('.').map(Number))));
  }
  // Only what ends in one number, such as ::1.
  return answer.addresses.map((one) => {
    const bytes = Buffer.alloc(16);
    bytes.writeUInt16BE(Number.parseInt(one.replace('::', ''), 16), 14);
    return record(28, bytes);
  });
}

function record(type: number, data: Buffer): Buffer {
  const head = Buffer.alloc(12);
  // The name is that of the question.
  head.writeUInt16BE(0xc00c, 0);
  head.writeUInt16BE(type, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
}

function encodedName(name: string): Buffer {
  const labels = name.split('.').filter((label) => label !== '');
  const parts = labels.map((label) => Buffer.from(`${String.fromCharCode(label.length)}${label}`));
  return Buffer.concat([...parts, Buffer.from([0])]);
}
