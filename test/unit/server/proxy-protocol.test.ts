import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { HubgateError } from '../../../src/kernel/error.ts';
import {
  MAX_V1_BYTES,
  MAX_V2_PAYLOAD_BYTES,
  parseProxyHeader,
  type ProxyHeader,
} from '../../../src/server/proxy-protocol.ts';

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');
const NEXT = Buffer.from('GET / HTTP/1.1\r\n\r\n', 'latin1');

function version2(
  command: number,
  family: number,
  payload: Buffer,
  length = payload.length,
): Buffer {
  const head = Buffer.from([command, family, length >> 8, length & 0xff]);
  return Buffer.concat([SIGNATURE, head, payload]);
}

const V4 = Buffer.from('c0000201c6336402dc0401bb', 'hex');
const V6 = Buffer.from(
  '20010db800000000000000000000000120010db8000000000000000000000002dc0401bb',
  'hex',
);
/** A type, a length and a value (§2.2). */
const EXTENSION = Buffer.from('04000361626305000100', 'hex');

const good: Record<string, readonly [bytes: Buffer, source: ProxyHeader['source']]> = {
  TCP4: [v1('PROXY TCP4 192.0.2.1 198.51.100.2 56324 443'), { address: '192.0.2.1', port: 56_324 }],
  TCP6: [
    v1('PROXY TCP6 2001:DB8:0:0:0:0:0:1 2001:db8::2 0 65535'),
    { address: '2001:db8::1', port: 0 },
  ],
  'TCP6 with an IPv4 address': [
    v1('PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.2 56324 443'),
    { address: '192.0.2.1', port: 56_324 },
  ],
  UNKNOWN: [v1('PROXY UNKNOWN'), null],
  'UNKNOWN with addresses, as long as can be': [
    v1(`PROXY UNKNOWN ${'f'.repeat(MAX_V1_BYTES - 16)}`),
    null,
  ],
  'binary TCP over IPv4': [version2(0x21, 0x11, V4), { address: '192.0.2.1', port: 56_324 }],
  'binary TCP over IPv6': [version2(0x21, 0x21, V6), { address: '2001:db8::1', port: 56_324 }],
  'binary with extensions': [
    version2(0x21, 0x11, Buffer.concat([V4, EXTENSION])),
    { address: '192.0.2.1', port: 56_324 },
  ],
  'binary UNIX': [version2(0x21, 0x31, Buffer.alloc(216, 0x61)), null],
  'binary UNSPEC': [version2(0x21, 0x00, Buffer.alloc(0)), null],
  'binary UNSPEC with extensions': [version2(0x21, 0x00, EXTENSION), null],
  'binary LOCAL': [version2(0x20, 0x00, Buffer.alloc(0)), null],
  'binary LOCAL with an address': [version2(0x20, 0x11, V4), null],
  'binary LOCAL of a family that nobody knows': [version2(0x20, 0x77, Buffer.alloc(3)), null],
  'the longest binary one': [version2(0x20, 0x00, Buffer.alloc(MAX_V2_PAYLOAD_BYTES)), null],
};

const bad: Record<string, Buffer> = {
  nothing: Buffer.from('GET / HTTP/1.1\r\n', 'latin1'),
  TLS: Buffer.from('160301', 'hex'),
  'small letters': v1('proxy TCP4 192.0.2.1 198.51.100.2 1 2'),
  'another family': v1('PROXY TCP5 192.0.2.1 198.51.100.2 1 2'),
  'no family': v1('PROXY '),
  UDP: v1('PROXY UDP4 192.0.2.1 198.51.100.2 1 2'),
  'too few words': v1('PROXY TCP4 192.0.2.1 198.51.100.2 1'),
  'too many words': v1('PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3'),
  'two spaces': v1('PROXY TCP4  192.0.2.1 198.51.100.2 1 2'),
  'a space at the end': v1('PROXY TCP4 192.0.2.1 198.51.100.2 1 2 '),
  'a tab': v1('PROXY TCP4\t192.0.2.1 198.51.100.2 1 2'),
  'IPv6 in TCP4': v1('PROXY TCP4 ::1 198.51.100.2 1 2'),
  'IPv4 in TCP6': v1('PROXY TCP6 192.0.2.1 2001:db8::2 1 2'),
  'an octal address': v1('PROXY TCP4 192.0.2.010 198.51.100.2 1 2'),
  'a zone': v1('PROXY TCP6 fe80::1%eth0 fe80::2 1 2'),
  'a name': v1('PROXY TCP4 localhost 198.51.100.2 1 2'),
  'a port with a zero before it': v1('PROXY TCP4 192.0.2.1 198.51.100.2 01 2'),
  'a port with a sign': v1('PROXY TCP4 192.0.2.1 198.51.100.2 +1 2'),
  'a port beyond 16 bits': v1('PROXY TCP4 192.0.2.1 198.51.100.2 65536 2'),
  'a line that ends with LF': Buffer.from('PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n', 'latin1'),
  'a line that ends with CR': Buffer.from('PROXY TCP4 192.0.2.1 198.51.100.2 1 2\rX', 'latin1'),
  'a control character': v1('PROXY UNKNOWN \x01'),
  'a byte beyond ASCII': v1('PROXY UNKNOWN \xff'),
  'a line one byte too long': v1(`PROXY UNKNOWN ${'f'.repeat(MAX_V1_BYTES - 15)}`),
  'a line without end': Buffer.from(`PROXY UNKNOWN ${'f'.repeat(200)}`, 'latin1'),
  'binary, version 1': version2(0x11, 0x11, V4),
  'binary, version 3': version2(0x31, 0x11, V4),
  'binary, another command': version2(0x22, 0x11, V4),
  'binary, datagrams': version2(0x21, 0x12, V4),
  'binary, another family': version2(0x21, 0x41, V4),
  'binary, an address that is too short': version2(0x21, 0x11, V4.subarray(0, 11)),
  'binary, IPv4 for IPv6': version2(0x21, 0x21, V4),
  'binary, too long': version2(0x20, 0x00, Buffer.alloc(0), MAX_V2_PAYLOAD_BYTES + 1),
  'binary, a broken signature': Buffer.concat([SIGNATURE.subarray(0, 11), Buffer.from('X')]),
};

describe('PROXY protocol header', () => {
  for (const [name, [bytes, source]] of Object.entries(good)) {
    it(`${name}: yields the source, alone, with data after it, and however it is split`, () => {
      const whole = Buffer.concat([bytes, NEXT]);
      for (let end = 0; end < bytes.length; end += 1) {
        assert.equal(parseProxyHeader(whole.subarray(0, end)), null, `${end} bytes`);
      }
      for (let end = bytes.length; end <= whole.length; end += 1) {
        assert.deepEqual(parseProxyHeader(whole.subarray(0, end)), {
          source,
          length: bytes.length,
        });
      }
    });
  }

  for (const [name, bytes] of Object.entries(bad)) {
    it(`${name}: is refused`, () => {
      assert.throws(
        () => parseProxyHeader(bytes),
        (error) => error instanceof HubgateError && error.code === 'bad-proxy-header',
      );
    });
  }

  it('is read, awaited or refused for any bytes, and never awaited beyond its size limit', () => {
    const samples = [...Object.values(good).map(([bytes]) => bytes), ...Object.values(bad)];
    const mutated = fc
      .tuple(
        fc.constantFrom(...samples),
        fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { maxLength: 4 }),
        fc.uint8Array({ maxLength: 8192 }),
      )
      .map(([sample, changes, more]) => {
        const bytes = Buffer.concat([sample, more]);
        for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
        return bytes;
      });
    fc.assert(
      fc.property(mutated, fc.nat(), (bytes, at) => {
        const read = attempt(bytes);
        if (read === null) assert.ok(bytes.length < 16 + MAX_V2_PAYLOAD_BYTES);
        else if (read !== 'refused') {
          assert.ok(read.length <= 16 + MAX_V2_PAYLOAD_BYTES && read.length <= bytes.length);
          // What has been understood is not understood otherwise when more comes.
          assert.deepEqual(attempt(bytes.subarray(0, read.length)), read);
        }
        const early = attempt(bytes.subarray(0, at % bytes.length));
        if (early !== null) assert.deepEqual(read, early);
      }),
      { numRuns: 5000 },
    );
  });
});

function attempt(bytes: Buffer): ProxyHeader | null | 'refused' {
  try {
    return parseProxyHeader(bytes);
  } catch (error) {
    if (error instanceof HubgateError && error.code === 'bad-proxy-header') return 'refused';
    throw error;
  }
}

function v1(line: string): Buffer {
  return Buffer.from(`${line}\r\n`, 'latin1');
}
