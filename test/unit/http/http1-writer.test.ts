import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { describe, it } from 'node:test';
import { Http1Writer } from '../../../src/http/http1-writer.ts';
import { acceptedConnection } from '../../support/accepted-connection.ts';

/** The two ends of a connection. */
interface Ends {
  readonly accepted: Socket;
  readonly client: Socket;
}

function message(text: string): Http1Writer {
  const out = new Http1Writer();
  out.text(text);
  return out;
}

/** What arrives when everything that was written has been sent. */
async function received({ accepted, client }: Ends): Promise<string> {
  accepted.end();
  let text = '';
  client
    .setEncoding('latin1')
    .on('data', (chunk: string) => (text += chunk))
    .resume();
  await once(client, 'end');
  return text;
}

describe('an HTTP/1.1 message', () => {
  it('has any token as the name of a field, and any bytes but control characters as a value (RFC 9110 §5.5)', async (test) => {
    const ends = await acceptedConnection(test, false);
    const out = message('start\r\n');
    assert.equal(out.field('X-A', 'a\tb \xe9'), true);
    assert.equal(out.field('x', ''), true);
    for (let byte = 0; byte < 0x120; byte += 1) {
      const char = String.fromCharCode(byte);
      const isControl = (byte < 0x20 && byte !== 9) || byte === 0x7f;
      assert.equal(new Http1Writer().field('x', `a${char}b`), !isControl && byte < 0x100, char);
      const isToken = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]$/.test(char);
      assert.equal(new Http1Writer().field(`a${char}`, ''), isToken, char);
    }
    out.bytes(Buffer.from([1, 2]));
    assert.equal(out.length, 26);
    out.sendTo(ends.accepted);
    assert.equal(await received(ends), 'start\r\nX-A: a\tb \xe9\r\nx: \r\n\x01\x02');
  });

  it('has no field that ends its line early', async (test) => {
    const ends = await acceptedConnection(test, false);
    const out = message('start\r\n');
    for (const [name, value] of [
      ['X-A\r\nX-B', '1'],
      ['X-A: 1\r\nX-B', '1'],
      ['', '1'],
      ['X-A', '1\r\nX-B: 1'],
      ['X-A', '1\n'],
      ['X-A', '\u010d\u010a'],
    ] as const) {
      assert.equal(out.field(name, value), false);
    }
    out.sendTo(ends.accepted);
    assert.equal(await received(ends), 'start\r\n');
  });

  it('may be longer than the memory that is used again', async (test) => {
    const ends = await acceptedConnection(test, false);
    const out = message('a'.repeat(30_000));
    out.text('b'.repeat(30_000));
    out.bytes(Buffer.alloc(100_000, 'c'));
    out.sendTo(ends.accepted);
    const text = await received(ends);
    assert.equal(text, 'a'.repeat(30_000) + 'b'.repeat(30_000) + 'c'.repeat(100_000));
  });

  it('is not overwritten by later ones while it waits: for a socket, for its turn, or for the client', async (test) => {
    const ends = await acceptedConnection(test, false);
    const expected: string[] = [];
    const send = (text: string): void => {
      expected.push(text);
      message(text).sendTo(ends.accepted);
    };
    // The client reads nothing, so that the system takes a part of one of them, and then nothing.
    for (let i = 0; ends.accepted.writableLength === 0; i += 1)
      send(String(i).padStart(4, '.').repeat(4_000));
    for (let i = 0; i < 50; i += 1) send(`waiting ${i};`.repeat(1_700));
    ends.accepted.cork();
    for (let i = 0; i < 50; i += 1) send(`corked ${i};`);
    ends.accepted.uncork();
    const kept = message('kept;');
    kept.keep();
    message('discarded').discard();
    const other = await acceptedConnection(test, false);
    message('on another connection').sendTo(other.accepted);
    kept.text('with more;'.repeat(20));
    kept.sendTo(ends.accepted);
    expected.push('kept;', 'with more;'.repeat(20));
    assert.equal(await received(ends), expected.join(''));
    assert.equal(await received(other), 'on another connection');
  });

  for (const isTls of [false, true]) {
    it(`leaves its memory to the next one as soon as it is sent, ${isTls ? 'over TLS' : 'without TLS'}`, async (test) => {
      const ends = await acceptedConnection(test, isTls);
      let expected = '';
      for (let i = 0; i < 300; i += 1) {
        const text = `${i};`.repeat(3_000);
        expected += text;
        message(text).sendTo(ends.accepted);
        message('overwritten'.repeat(1_800)).discard();
        await new Promise(setImmediate);
      }
      assert.equal(await received(ends), expected);
    });
  }
});
