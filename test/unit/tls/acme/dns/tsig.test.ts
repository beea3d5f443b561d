import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  CLASS,
  decodeResponse,
  encodeName,
  encodeRecord,
  encodeRequest,
  textData,
  TYPE,
  uint16,
} from '../../../../../src/tls/acme/dns/message.ts';
import {
  openResponse,
  signRequest,
  type TsigKey,
} from '../../../../../src/tls/acme/dns/rfc2136.ts';

const KEY: TsigKey = {
  name: 'Key.Example.',
  algorithm: 'hmac-sha256',
  secret: Buffer.alloc(32, 'k'),
};
const NOW = 1_700_000_000_000;
const QUERY = { id: 4711, kind: 'query', name: 'example.com', update: null } as const;

describe('DNS messages (RFC 1035 §4.1, RFC 2136 §2)', () => {
  it('an update names the zone and the record to add', () => {
    const data = textData('value');
    const update = { name: 'A.example.com', type: TYPE.TXT, class: CLASS.IN, ttl: 60, data };
    const message = encodeRequest({ id: 1, kind: 'update', name: 'example.com', update });
    assert.equal(
      message.toString('hex'),
      '000128000001000000010000076578616d706c6503636f6d00000600010161076578616d706c6503636f6d00001000010000003c00060576616c7565',
    );
  });

  it('invalid names are refused (§2.3.4)', () => {
    for (const name of ['', 'a..b', `${'a'.repeat(64)}.b`, Array(130).fill('a').join('.')]) {
      assert.throws(() => encodeName(name), RangeError, name);
    }
    assert.throws(() => textData('x'.repeat(256)), RangeError);
  });

  it('a name may point to an earlier one, but not in a circle (§4.1.4)', () => {
    const head = Buffer.from('0001818000010001000000000161c00c', 'hex');
    const circle = Buffer.concat([head, Buffer.from('00060001', 'hex')]);
    assert.throws(() => decodeResponse(circle), RangeError);
    const question = Buffer.concat([encodeName('example.com'), uint16(6), uint16(1)]);
    const answer = Buffer.from('c00c00060001000000010000', 'hex');
    const counts = Buffer.from('000181800001000100000000', 'hex');
    const { answers } = decodeResponse(Buffer.concat([counts, question, answer]));
    assert.equal(answers[0]?.name, 'example.com');
  });

  it('any input yields a response or a RangeError', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (bytes, looksLikeOne) => {
        const message = Buffer.from(bytes);
        if (looksLikeOne && message.length >= 12) message.set([0x80, 0, 0, 1, 0, 1, 0, 1, 0, 1], 2);
        try {
          decodeResponse(message);
        } catch (error) {
          assert.ok(error instanceof RangeError, String(error));
        }
      }),
      { numRuns: 2000 },
    );
  });
});

describe('signatures (RFC 8945)', () => {
  it('a response that is signed for this request is accepted', () => {
    const request = signRequest(encodeRequest(QUERY), KEY, NOW);
    assert.equal(openResponse(answer(request.mac), request, KEY, NOW).code, 0);
  });

  it('a response is rejected for a changed byte, another request, another key, another time, or no signature', () => {
    const request = signRequest(encodeRequest(QUERY), KEY, NOW);
    const good = answer(request.mac);
    const changed = Buffer.from(good);
    changed.writeUInt8(0x03 | changed.readUInt8(3), 3);
    const other = signRequest(encodeRequest({ ...QUERY, name: 'example.org' }), KEY, NOW);
    const bare = Buffer.from('126781800000000000000000', 'hex');
    for (const [message, now, why] of [
      [changed, NOW, /signature of the response is wrong/],
      [answer(other.mac), NOW, /signature of the response is wrong/],
      [answer(request.mac, { ...KEY, secret: Buffer.alloc(32, 'x') }), NOW, /is wrong/],
      [answer(request.mac, { ...KEY, name: 'other.' }), NOW, /another key/],
      [answer(request.mac, { ...KEY, algorithm: 'hmac-sha512' }), NOW, /another key/],
      [good, NOW + 301_000, /BADTIME/],
      [bare, NOW, /not signed/],
    ] as const) {
      assert.throws(() => openResponse(message, request, KEY, now), why);
    }
    const unsigned = Buffer.concat([Buffer.from('12678185', 'hex'), Buffer.alloc(8)]);
    assert.equal(openResponse(unsigned, request, KEY, NOW).code, 5, 'a refusal needs no key');
  });
});

/** A response without records, signed as a server does it (RFC 8945 §5.3.1). */
function answer(requestMac: Buffer, key = KEY): Buffer {
  const message = Buffer.concat([uint16(4711), Buffer.from('8180', 'hex'), Buffer.alloc(8)]);
  const time = Buffer.alloc(6);
  time.writeUIntBE(NOW / 1000, 0, 6);
  const mac = createHmac(key.algorithm.slice('hmac-'.length), key.secret)
    .update(Buffer.concat([uint16(requestMac.length), requestMac, message]))
    .update(Buffer.concat([encodeName(key.name), uint16(CLASS.ANY), Buffer.alloc(4)]))
    .update(Buffer.concat([encodeName(key.algorithm), time, uint16(300), Buffer.alloc(4)]))
    .digest();
  const data = Buffer.concat([
    ...[encodeName(key.algorithm), time, uint16(300), uint16(mac.length), mac],
    ...[uint16(4711), Buffer.alloc(4)],
  ]);
  const record = encodeRecord({
    ...{ name: key.name, type: TYPE.TSIG, class: CLASS.ANY, ttl: 0, data },
  });
  const signed = Buffer.concat([message, record]);
  signed.writeUInt16BE(1, 10);
  return signed;
}
