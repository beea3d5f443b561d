import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { bindAddressText, parseBindAddress } from '../../../src/config/bind-address.ts';
import type { BindAddress } from '../../../src/index.ts';

const good: Record<string, BindAddress> = {
  '127.0.0.1': { kind: 'host', host: '127.0.0.1' },
  '::1': { kind: 'host', host: '::1' },
  localhost: { kind: 'host', host: 'localhost' },
  'host-1.example': { kind: 'host', host: 'host-1.example' },
  'unix//run/hubgate.sock': { kind: 'unix', path: '/run/hubgate.sock', mode: 0o600 },
  'unix/hubgate.sock': { kind: 'unix', path: 'hubgate.sock', mode: 0o600 },
  'unix//run/a b.sock|0660': { kind: 'unix', path: '/run/a b.sock', mode: 0o660 },
  'fd/3': { kind: 'fd', fd: 3 },
  'fd/12': { kind: 'fd', fd: 12 },
};

describe('the address on which a site listens', () => {
  for (const [text, bind] of Object.entries(good)) {
    it(`${text} is read and written`, () => {
      assert.deepEqual(parseBindAddress(text), bind);
      assert.equal(bindAddressText(bind), text);
    });
  }

  it('a network may stand before an address of it', () => {
    const local = { kind: 'host', host: '127.0.0.1' };
    assert.deepEqual(parseBindAddress('tcp/127.0.0.1'), local);
    assert.deepEqual(parseBindAddress('tcp4/127.0.0.1'), local);
    assert.deepEqual(parseBindAddress('tcp6/[::1]'), { kind: 'host', host: '::1' });
  });

  it('IPv6 may be in brackets, and a mode may omit its leading zero', () => {
    assert.deepEqual(parseBindAddress('[::1]'), { kind: 'host', host: '::1' });
    assert.deepEqual(parseBindAddress('unix//a|666'), { kind: 'unix', path: '/a', mode: 0o666 });
  });

  for (const text of [
    '',
    '127.0.0.1:80',
    '[127.0.0.1]',
    '[::1]:80',
    'a..b',
    'tcp4/::1',
    'tcp6/127.0.0.1',
    'udp/127.0.0.1',
    'unix/',
    'unix//',
    'unix//run/',
    'unix//a|rw',
    'unix//a|0460',
    'unix/@a',
    'unix//a|0999',
    'unix//a|01777',
    'unix//a|0660|0660',
    'unix//a\0b',
    `unix//${'a'.repeat(107)}`,
    'fd/',
    'fd/2',
    'fd/03',
    'fd/3x',
    'fd/-3',
  ]) {
    it(`${JSON.stringify(text)} is refused`, () => assert.equal(parseBindAddress(text), null));
  }
});
