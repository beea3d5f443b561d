import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  ChunkedReader,
  isFieldValue,
  isToken,
  readFields,
} from '../../../src/http/http1-syntax.ts';
import { codeOf } from '../../../src/kernel/error.ts';

const MAX_TRAILER_BYTES = 1024;

function fields(text: string): string[] {
  return readFields(text, 0, text.length).toRaw();
}

/** The body and trailer fields of a message that arrives in pieces of `size` bytes, and what follows it. */
function chunked(text: string, size: number) {
  const reader = new ChunkedReader(MAX_TRAILER_BYTES);
  const bytes = Buffer.from(text, 'latin1');
  let body = '';
  for (let at = 0; at < bytes.length; at += size) {
    const piece = bytes.subarray(at, at + size);
    const read = reader.read(piece, 0, (data) => {
      body += data.toString('latin1');
    });
    if (reader.isDone) {
      return { body, trailers: reader.trailers.toRaw(), rest: bytes.toString('latin1', at + read) };
    }
    assert.equal(read, piece.length);
  }
  return { body, trailers: reader.trailers.toRaw(), rest: null };
}

describe('Field lines (RFC 9112 §5)', () => {
  it('reads names, and values without the white space around them, in order and case', () => {
    const text =
      'Host: a.example\r\nX-A:1\r\nx-a: \t two  words \t\r\nEmpty:\r\nBytes: \xe9\xff\r\n';
    assert.deepEqual(fields(text), [
      ...['Host', 'a.example', 'X-A', '1', 'x-a', 'two  words', 'Empty', '', 'Bytes', '\xe9\xff'],
    ]);
    assert.deepEqual(fields(''), []);
  });

  const refused = [
    ...[': a\r\n', 'Name\r\n', 'Na me: a\r\n', 'Name : a\r\n', ' Name: a\r\n', '\tName: a\r\n'],
    ...['Name: a\n', 'Name: a\rb\r\n', 'Name: a\0b\r\n', 'Name: a\x7f\r\n', 'Name: a\x1b\r\n'],
    ...[
      'Name: a\r\n folded\r\n',
      'Name: a',
      'Name: a\r',
      'N\xe4me: a\r\n',
      'Name: a\n\r\n',
      '\r\n',
    ],
  ];
  for (const text of refused) {
    it(`refuses ${JSON.stringify(text)}`, () => {
      assert.throws(
        () => fields(text),
        (error) => codeOf(error) === 'bad-http1-syntax',
      );
    });
  }
});

describe('Chunked bodies (RFC 9112 §7.1)', () => {
  for (const size of [1, 2, 3, 5, 7, 1000]) {
    it(`reads one that arrives in pieces of ${size} bytes, and leaves what follows`, () => {
      const body = '5\r\nhello\r\n00A;name="va;lue"\r\n0123\r\n6789\r\n0\r\n';
      assert.deepEqual(chunked(`${body}\r\nGET / HTTP/1.1`, size), {
        body: 'hello0123\r\n6789',
        trailers: [],
        rest: 'GET / HTTP/1.1',
      });
      assert.deepEqual(chunked(`${body}A: 1\r\nB: \r\n\r\nnext`, size), {
        body: 'hello0123\r\n6789',
        trailers: ['A', '1', 'B', ''],
        rest: 'next',
      });
    });

    const refused = [
      ...['\r\n', ' 5\r\nhello\r\n', '5 \r\nhello\r\n', '5\nhello\r\n', '5\r\nhelloX\r\n'],
      ...['5\r\nhello\n0\r\n', '-1\r\n', '+5\r\nhello\r\n', '0x5\r\nhello\r\n', 'g\r\n', ';a\r\n'],
      ...[
        '5;\r\nhello\r\n',
        '5;a=\r\nhello\r\n',
        '5;: a\r\nhello\r\n',
        '5;a="b\r\nhello\r\n',
        '5;a;\r\nhello\r\n',
        '5;a\nhello\r\n',
        '5;\0\r\nhello\r\n',
        '0\r\n\n',
        '0\r\nA : 1\r\n\r\n',
        '0\r\nA: 1\n\r\n\r\n',
      ],
      ...['20000000000000\r\n', `${'0'.repeat(17)}5\r\nhello\r\n`, '5\r\rhello\r\n'],
    ];
    for (const text of refused) {
      it(`refuses ${JSON.stringify(text)} in pieces of ${size} bytes`, () => {
        assert.throws(
          () => chunked(text, size),
          (error) => codeOf(error) === 'bad-http1-syntax',
        );
      });
    }

    it(`limits extensions and trailer fields in pieces of ${size} bytes`, () => {
      const isTooLarge = (error: unknown) => codeOf(error) === 'http1-too-large';
      assert.throws(() => chunked(`5;${'a'.repeat(16 * 1024)}\r\nhello\r\n`, size), isTooLarge);
      const many = '1;aaaaaaaaa\r\nx\r\n'.repeat(2000);
      assert.throws(() => chunked(many, size), isTooLarge);
      const trailers = `A: ${'a'.repeat(MAX_TRAILER_BYTES)}\r\n`;
      assert.throws(() => chunked(`0\r\n${trailers}\r\n`, size), isTooLarge);
      assert.throws(() => chunked(`0\r\n${trailers}`, size), isTooLarge);
    });
  }
});

describe('A token and a field value (RFC 9110 §5.5, §5.6.2)', () => {
  it('can be any token as a name, and any bytes but control characters as a value', () => {
    for (let byte = 0; byte < 0x120; byte += 1) {
      const char = String.fromCharCode(byte);
      assert.equal(isToken(`a${char}`), /^[!#$%&'*+\-.^_`|~0-9A-Za-z]$/.test(char), String(byte));
      const isControl = (byte < 0x20 && byte !== 9) || byte === 0x7f;
      assert.equal(isFieldValue(`a${char}b`), !isControl && byte < 0x100, String(byte));
    }
    assert.equal(isToken(''), false);
  });
});
