import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectTcp, createServer, type Socket } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { connect } from 'node:tls';
import { parseClientHello, readClientHello } from '../../../src/server/client-hello.ts';
import { TestClock } from '../../support/test-clock.ts';

const NAME = 'strict.example.com';

describe('the first message of a TLS client (RFC 8446 §4.1.2)', () => {
  it('is complete with its last byte, and contains the server name', async (test) => {
    const hello = await helloOf(test, { servername: NAME });
    for (let length = 0; length < hello.length; length += 1) {
      assert.equal(parseClientHello(hello.subarray(0, length)), null, String(length));
    }
    assert.deepEqual(parseClientHello(hello), { serverName: NAME });
    assert.deepEqual(parseClientHello(Buffer.concat([hello, Buffer.from('more')])), {
      serverName: NAME,
    });
  });

  it('may have no server name, as when connecting to an address', async (test) => {
    assert.deepEqual(parseClientHello(await helloOf(test, {})), { serverName: null });
  });

  it('may be spread over several records (RFC 8446 §5.1)', async (test) => {
    const hello = await helloOf(test, { servername: NAME });
    const message = hello.subarray(5);
    const records = recordsOf(message, Math.ceil(message.length / 64));
    assert.deepEqual(parseClientHello(Buffer.concat(records)), { serverName: NAME });
    assert.equal(parseClientHello(Buffer.concat(records.slice(0, -1))), null);
  });

  it('costs no more for each small record that never completes it', (test) => {
    const records = recordsOf(Buffer.from([1, 0, 0xff, 0xff, ...Buffer.alloc(60)]), 1);
    const endless = Buffer.concat(records);
    const { mock } = test.mock.method(Buffer, 'concat');
    assert.equal(parseClientHello(endless), null);
    assert.equal(mock.callCount(), 1);
  });

  it('counts as having no server name if it takes more than 64 records', async (test) => {
    const { client, accepted } = await pair(test);
    client.write(Buffer.concat(recordsOf(Buffer.from([1, 0, 0xff, 0xff, ...Buffer.alloc(61)]), 1)));
    const { serverName } = await new Promise<{ serverName: string | null }>((resolve) =>
      readClientHello(accepted, new TestClock(), resolve),
    );
    assert.equal(serverName, null);
  });

  it('is not waited for if a different message begins', () => {
    for (const bytes of [
      'GET / HTTP/1.1\r\n',
      '\x80\x2e\x01',
      '\x16\x03\x01\x00\x00',
      '\x16\x03\x01\x00\x04\x02\x00\x00\x00',
    ]) {
      assert.deepEqual(parseClientHello(Buffer.from(bytes, 'latin1')), { serverName: null }, bytes);
    }
  });

  it('yields no server name, and throws nothing, if a length is wrong', async (test) => {
    const hello = await helloOf(test, { servername: NAME });
    for (let at = 0; at < hello.length; at += 1) {
      for (const value of [0, 1, 0x7f, 0xff]) {
        const broken = Buffer.from(hello);
        broken[at] = value;
        assert.notEqual(parseClientHello(broken)?.serverName, '');
      }
    }
  });

  it('is put back for the next reader; if it is too long, it counts as having no server name', async (test) => {
    const { client, accepted } = await pair(test);
    const sent = Buffer.concat([
      Buffer.from([22, 3, 1, 0x3f, 0xff, 1, 0, 0xff, 0xff]),
      Buffer.alloc(17_000),
    ]);
    client.write(sent);
    const { serverName } = await new Promise<{ serverName: string | null }>((resolve) =>
      readClientHello(accepted, new TestClock(), resolve),
    );
    assert.equal(serverName, null);
    let received = Buffer.alloc(0);
    accepted.on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      if (received.length === sent.length) client.end();
    });
    accepted.resume();
    await once(accepted, 'end');
    assert.ok(received.equals(sent));
  });

  it('must arrive within 10 s', async (test) => {
    const { client, accepted } = await pair(test);
    const clock = new TestClock();
    readClientHello(accepted, clock, () => assert.fail('nothing came'));
    client.write(Buffer.from([22, 3, 1]));
    await once(accepted, 'data');
    clock.advance(9999);
    assert.equal(accepted.destroyed, false);
    clock.advance(1);
    assert.equal(accepted.destroyed, true);
  });
});

/** A message in handshake records of `size` bytes each. */
function recordsOf(message: Buffer, size: number): Buffer[] {
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    const part = message.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, 0, part.length, ...part]));
  }
  return records;
}

/** What Node's own client sends first. */
async function helloOf(
  test: TestContext,
  options: { readonly servername?: string },
): Promise<Buffer> {
  const { port, connection } = await listen(test);
  const client = connect({ host: '127.0.0.1', port, ...options });
  client.on('error', () => client.destroy());
  test.after(() => client.destroy());
  const accepted = await connection;
  const [hello] = await once(accepted, 'data');
  assert.ok(Buffer.isBuffer(hello));
  return hello;
}

async function pair(test: TestContext): Promise<{ client: Socket; accepted: Socket }> {
  const { port, connection } = await listen(test);
  const client = connectTcp({ host: '127.0.0.1', port });
  test.after(() => client.destroy());
  client.on('error', () => client.destroy());
  return { client, accepted: await connection };
}

async function listen(test: TestContext): Promise<{ port: number; connection: Promise<Socket> }> {
  const server = createServer();
  const connection = once(server, 'connection').then(([socket]) => {
    // The event's argument, which `once` does not type.
    const accepted = socket as Socket;
    test.after(() => accepted.destroy());
    return accepted;
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => server.close());
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return { port: address.port, connection };
}
