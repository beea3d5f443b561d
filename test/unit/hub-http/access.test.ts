import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { noteCredentials } from '../../../src/hub-http/access.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

describe('what is noted of the credentials of a request', () => {
  for (const [method, fields] of [
    ['GET', { origin: 'https://page.example' }],
    ['POST', { authorization: 'Bearer token' }],
    ['POST', { origin: 'https://page.example', 'sec-fetch-site': 'same-origin' }],
  ] as const) {
    it(`needs no map of variables for a ${method} with ${Object.keys(fields).join()}`, () => {
      const exchange = fakeExchange({ method, headers: HeaderList.of(fields) });
      // Reading them creates the map, which would be garbage of each request.
      Object.defineProperty(exchange, 'variables', { get: () => assert.fail('they are read') });
      noteCredentials(exchange);
    });
  }

  it('is no variable that a placeholder could show', () => {
    const headers = HeaderList.of({
      origin: 'https://page.example',
      authorization: 'Bearer token',
    });
    const exchange = fakeExchange({ method: 'POST', headers });
    noteCredentials(exchange);
    assert.equal(exchange.variables.size, 0);
  });
});
