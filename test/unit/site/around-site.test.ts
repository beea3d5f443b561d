import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HttpError } from '../../../src/http/errors.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { answerErrors } from '../../../src/site/site.ts';
import { PROTOCOLS, serveExchanges } from '../http/exchange-server.ts';

describe('an error thrown outside the routes of a site', () => {
  const thrown = [
    ['an error', new Error('a fault'), 500],
    ['an HTTP error', new HttpError(429, 'too many'), 429],
  ] as const;
  for (const { name, ask, port } of PROTOCOLS) {
    for (const [what, error, status] of thrown) {
      it(`gets a response: ${what}, over ${name}`, async () => {
        const site = answerErrors(() => {
          throw error;
        }, systemClock);
        await using server = await serveExchanges((exchange) => site(exchange));
        assert.equal((await ask(port(server))).status, status);
      });
    }
  }
});
