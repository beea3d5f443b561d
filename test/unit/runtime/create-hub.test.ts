import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createHub, type HubOptions } from '../../../src/hub.ts';

const issuers = [{ id: 'https://issuer.example' }];

describe('createHub, called from JavaScript', () => {
  for (const [missing, options] of [
    ['issuers', undefined],
    ['issuers', {}],
    ['id of each issuer', { issuers: [{}] }],
    ['key, or jwksUri, of each role', { issuers: [{ id: 'a', publisher: {} }] }],
    ['redis.urls', { issuers, redis: { stream: 'a' } }],
    ['redis.stream', { issuers, redis: { urls: ['redis://127.0.0.1:1'] } }],
    ['postgres.url', { issuers, postgres: { stream: 'a' } }],
    ['postgres.stream', { issuers, postgres: { url: 'postgres://127.0.0.1:1' } }],
  ] as const) {
    it(`names the missing option ${missing} of ${JSON.stringify(options)}`, async () => {
      await assert.rejects(createHub(options as unknown as HubOptions), {
        code: 'missing-option',
        message: `createHub needs the option ${missing}`,
      });
    });
  }
});
