import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isOrigin } from '../../../src/config/check-hub.ts';

describe('isOrigin (H-500)', () => {
  for (const text of [
    '*',
    'null',
    'https://example.com',
    'http://localhost:8080',
    'https://*.example.com',
    'capacitor://localhost',
    'https://[::1]:8443',
  ]) {
    it(`accepts ${text}`, () => assert.ok(isOrigin(text)));
  }
  for (const text of [
    '',
    'example.com',
    'https://',
    'https://example.com/',
    'https://example.com/path',
    'https://example.com?q',
    'https://example.com#f',
    'https://user:password@example.com',
    'https://user@example.com',
    'https://example.com:0',
    'https://example.com:99999',
    'https://example.com:port',
    'https://*.*.example.com',
    'https://exam ple.com',
  ]) {
    it(`refuses "${text}"`, () => assert.ok(!isOrigin(text)));
  }
});
