import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { addressSet, clientAddress, forwardedFields } from '../../../src/http/forwarded.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { piecesOf } from '../../support/counted-pieces.ts';

describe('a set of addresses', () => {
  const set = addressSet(['10.0.0.0/8', '203.0.113.7', '2001:db8::/32', 'private_ranges']);

  for (const [address, expected] of [
    ['10.255.0.1', true],
    ['11.0.0.1', false],
    ['203.0.113.7', true],
    ['203.0.113.8', false],
    ['2001:db8:1::1', true],
    ['2001:db9::1', false],
    ['192.168.1.1', true],
    ['::1', true],
    ['::ffff:10.0.0.1', true],
    ['0x0a.1.2.3', false],
    ['010.0.0.1', false],
    ['10.0.0', false],
    ['', false],
    ['10.0.0.1, 10.0.0.2', false],
  ] as const) {
    it(`${expected ? 'holds' : 'does not hold'} ${address || 'nothing'}`, () => {
      assert.equal(set(address), expected);
    });
  }

  for (const range of [
    '10.0.0.0/33',
    'example.com',
    '10.0.0.0/',
    '010.0.0.0/8',
    '::/129',
    '10.0.0.0/8/8',
  ]) {
    it(`refuses ${range}`, () => {
      assert.throws(() => addressSet([range]), { code: 'invalid-address-range' });
    });
  }
});

describe('the address of the client', () => {
  const trusted = addressSet(['10.0.0.0/8']);
  const of = (peer: string, ...values: string[]): string =>
    clientAddress(peer, HeaderList.of({ 'X-Forwarded-For': values }), trusted, ['x-forwarded-for']);

  it('is formatted as sockets format it, however the field spells it', () => {
    for (const [spelled, address] of [
      ['192.0.2.1', '192.0.2.1'],
      ['::ffff:192.0.2.1', '192.0.2.1'],
      ['::FFFF:C000:201', '192.0.2.1'],
      ['[0:0:0:0:0:ffff:192.0.2.1]:80', '192.0.2.1'],
      ['2001:DB8:0:0::1', '2001:db8::1'],
      ['[2001:db8::0:1]', '2001:db8::1'],
      ['fe80::1%eth0', 'fe80::1'],
    ] as const) {
      assert.equal(of('10.0.0.1', spelled), address, spelled);
      // A trusted proxy may spell another one so.
      assert.equal(of('10.0.0.1', `${spelled}, ::ffff:10.0.0.2`), address, spelled);
    }
  });

  it('is searched for in at most 64 entries, and no other entry is parsed', () => {
    let looks = 0;
    const counting = (address: string): boolean => {
      looks += 1;
      return trusted(address);
    };
    const headers = HeaderList.of({ 'X-Forwarded-For': ['10.0.0.1,'.repeat(8_000), '10.0.0.2'] });
    const pieces = piecesOf(() => {
      clientAddress('10.0.0.9', headers, counting, ['x-forwarded-for']);
    });
    assert.equal(pieces, 0);
    assert.ok(looks <= 65, `${looks} looks`);
    assert.equal(of('10.0.0.9', `198.51.100.1,${'10.0.0.1,'.repeat(62)}10.0.0.2`), '198.51.100.1');
    assert.equal(of('10.0.0.9', `198.51.100.1,${'10.0.0.1,'.repeat(63)}10.0.0.2`), '10.0.0.1');
    assert.equal(of('10.0.0.9', '198.51.100.1', ''), '10.0.0.9');
  });

  it('is that of the peer when the peer is not trusted', () => {
    assert.equal(of('203.0.113.1', '198.51.100.1'), '203.0.113.1');
  });
  it('is the first untrusted one from the right', () => {
    assert.equal(of('10.0.0.1', '1.1.1.1, 198.51.100.1, 10.0.0.2'), '198.51.100.1');
    assert.equal(of('10.0.0.1', '1.1.1.1', '198.51.100.1'), '198.51.100.1');
  });
  it('is the leftmost when all are trusted', () => {
    assert.equal(of('10.0.0.1', '10.0.0.3, 10.0.0.2'), '10.0.0.3');
  });
  it('is read without ports and brackets', () => {
    assert.equal(of('10.0.0.1', '198.51.100.1:4711'), '198.51.100.1');
    assert.equal(of('10.0.0.1', '[2001:db8::1]:443'), '2001:db8::1');
  });
  it('is searched for only up to an invalid address', () => {
    assert.equal(of('10.0.0.1', '1.1.1.1, unknown'), '10.0.0.1');
    assert.equal(of('10.0.0.1', '1.1.1.1, 0x7f.1, 10.0.0.9'), '10.0.0.9');
  });
  it('is that of the peer without such a field', () => {
    assert.equal(of('10.0.0.1'), '10.0.0.1');
  });
  it('comes from the first configured field that has an address', () => {
    const headers = HeaderList.of({
      'X-Real': '198.51.100.2',
      'X-Forwarded-For': '198.51.100.1',
      'X-Unknown': '198.51.100.3, unknown',
    });
    const from = (...fields: string[]) => clientAddress('10.0.0.1', headers, trusted, fields);
    assert.equal(from('x-none', 'x-real', 'x-forwarded-for'), '198.51.100.2');
    assert.equal(from('x-unknown', 'x-forwarded-for'), '198.51.100.1');
    assert.equal(from('x-unknown'), '10.0.0.1');
  });
});

describe('the fields that only a trusted proxy may send', () => {
  const names = ['forwarded', 'x-forwarded-anything', 'x-real-ip', 'x-other'];

  it('are Forwarded and X-Forwarded-*', () => {
    const found = names.filter(forwardedFields(['x-forwarded-for']));
    assert.deepEqual(found, ['forwarded', 'x-forwarded-anything']);
  });
  it('are also the configured ones with the address of the client', () => {
    const found = names.filter(forwardedFields(['x-real-ip', 'x-forwarded-for']));
    assert.deepEqual(found, ['forwarded', 'x-forwarded-anything', 'x-real-ip']);
  });
});
