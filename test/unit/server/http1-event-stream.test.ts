import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { framed } from '../../../src/hub/event-stream.ts';
import { Http1Writer } from '../../../src/http/http1-writer.ts';
import { Http1EventStream } from '../../../src/server/http1-event-stream.ts';

const HEAD = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';

/** A stream on the gateway's side of a connection, what its client has received, and each write to the socket. */
async function openStream(test: TestContext) {
  const server = net.createServer().listen(0, '127.0.0.1');
  test.after(() => server.close());
  await once(server, 'listening');
  const client = net.connect((server.address() as net.AddressInfo).port, '127.0.0.1');
  test.after(() => client.destroy());
  const [socket] = (await once(server, 'connection')) as [Socket];
  test.after(() => socket.destroy());
  let received = '';
  client.setEncoding('latin1').on('data', (text: string) => (received += text));
  const writes: number[] = [];
  const write = socket._write.bind(socket);
  socket._write = (chunk: Buffer, encoding, done) => {
    writes.push(chunk.length);
    write(chunk, encoding, done);
  };
  const writev = socket._writev?.bind(socket);
  socket._writev = (chunks, done) => {
    writes.push(-chunks.length);
    writev?.(chunks, done);
  };
  const head = new Http1Writer();
  head.text(HEAD);
  const stream = new Http1EventStream(socket, head, null);
  return { stream, socket, client, writes, received: () => received };
}

function chunk(text: string): Buffer {
  const event = Buffer.from(text);
  return framed([event], event.length, 'chunked');
}

describe('an event stream over HTTP/1.1', () => {
  it('writes its head and its first events at once', async (test) => {
    const { stream, client, writes, received } = await openStream(test);
    const [opening, event] = [chunk(':\n'), chunk('data: a\n\n')];
    assert.equal(stream.write(opening), true);
    assert.equal(stream.write(event), true);
    assert.deepEqual(writes, []);
    await once(client, 'data');
    assert.deepEqual(writes, [HEAD.length + opening.length + event.length]);
    assert.equal(received(), `${HEAD}${opening.toString()}${event.toString()}`);
  });

  it('writes its head although no event follows', async (test) => {
    const { client, received } = await openStream(test);
    await once(client, 'data');
    assert.equal(received(), HEAD);
  });

  it('writes a large event behind its head without copying it', async (test) => {
    const { stream, client, writes, received } = await openStream(test);
    const event = chunk(`data: ${'x'.repeat(20_000)}\n\n`);
    stream.write(event);
    const later = chunk('data: b\n\n');
    stream.write(later);
    while (received().length < HEAD.length + event.length + later.length)
      await once(client, 'data');
    assert.deepEqual(writes, [HEAD.length, event.length, later.length]);
    assert.equal(received(), `${HEAD}${event.toString()}${later.toString()}`);
  });

  it('ends in the turn in which it began', async (test) => {
    const { stream, client, received } = await openStream(test);
    const event = chunk('data: a\n\n');
    stream.write(event);
    stream.end();
    await once(client, 'end');
    assert.equal(received(), `${HEAD}${event.toString()}0\r\n\r\n`);
  });

  it('writes nothing if its connection is cut in that turn', async (test) => {
    const { stream, client, writes, received } = await openStream(test);
    stream.write(chunk('data: a\n\n'));
    stream.destroy();
    await once(client, 'close');
    await turn();
    assert.deepEqual(writes, []);
    assert.equal(received(), '');
  });
});
