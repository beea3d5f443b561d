import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { noteCredentials } from '../../../src/hub-http/access.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

describe('what is noted of the credentials of a request', () => {
  for (const [method, authorization] of [
    ['GET', []],
    ['POST', ['Bearer token']],
  ] as const) {
    it(`needs no map of variables for a ${method}`, () => {
      const exchange = fakeExchange({ method, headers: HeaderList.of({ authorization }) });
      // Reading them creates the map, which would be garbage of each request.
      Object.defineProperty(exchange, 'variables', { get: () => assert.fail('they are read') });
      noteCredentials(exchange);
    });
  }

  it('is a variable for a publication without an Authorization of its client', () => {
    for (const authorization of [[], ['Basic dTpw']]) {
      const exchange = fakeExchange({ method: 'POST', headers: HeaderList.of({ authorization }) });
      noteCredentials(exchange);
      assert.equal(exchange.variables.size, 1);
    }
  });
});
