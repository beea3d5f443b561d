import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createParser } from 'eventsource-parser';
import fc from 'fast-check';
import { openStream } from '../support/http.ts';
import { startHub } from '../support/hub-server.ts';

/** What an independent parser makes of a stream. */
interface Parsed {
  readonly events: { id: string | undefined; event: string | undefined; data: string }[];
  readonly retries: number[];
  readonly errors: string[];
}

function parse(text: string): Parsed {
  const parsed: Parsed = { events: [], retries: [], errors: [] };
  const parser = createParser({
    onEvent: ({ id, event, data }) => parsed.events.push({ id, event, data }),
    onRetry: (retry) => parsed.retries.push(retry),
    onError: ({ message }) => parsed.errors.push(message),
  });
  parser.feed(text);
  return parsed;
}

const hostile = fc.string({
  unit: fc.oneof(
    {
      weight: 3,
      arbitrary: fc.constantFrom('\n', '\r', '\r\n', '\0', ':', ' ', '\u2028', '\u0085'),
    },
    { weight: 3, arbitrary: fc.constantFrom('id: x', 'event: x', 'data: x', 'retry: 1', '\n\n') },
    { weight: 2, arbitrary: fc.string({ unit: 'binary', maxLength: 4 }) },
    { weight: 2, arbitrary: fc.constantFrom('a', '1', 'é', '\u{1F600}') },
  ),
  maxLength: 8,
});
const tame = fc.constantFrom('a', '12', 'message', 'urn:x', 'with space', 'é');
const field = fc.tuple(
  fc.constantFrom('topic', 'data', 'data', 'id', 'type', 'retry', 'private', 'event'),
  fc.oneof(hostile, tame),
);
const encoded = fc
  .array(field, { maxLength: 6 })
  .map((fields) => new URLSearchParams([['topic', 'urn:a'], ...fields]).toString());
/** Bodies that no client library would send. */
const raw = fc
  .array(
    fc.oneof(
      fc.constantFrom('topic=a', 'data=', 'id=', 'type=', 'retry=', '&', '=', '%', '%0', '+'),
      fc.constantFrom(
        '%0A',
        '%0d',
        '%0D%0A',
        '\n',
        '\r',
        '%00',
        '%C2%85',
        '%E2%80%A8',
        '%EF%BB%BF',
      ),
      fc.constantFrom('data: x', 'id: y', '%0A%0Adata:%20z', '%FF', '%C3', '%A9', '%3A'),
      hostile,
    ),
    { maxLength: 14 },
  )
  .map((parts) => `topic=urn:b&${parts.join('')}`);

describe('a publisher can write data, but never control the protocol (A.5, security)', () => {
  for (const [what, body, runs] of [
    ['encoded fields', encoded, 400],
    ['raw bodies', raw, 400],
  ] as const) {
    it(`A-63: no sequence of ${what} injects a field, an event or a comment`, async (test) => {
      const hub = await startHub(test);
      const headers = [await hub.subscriber('*')];
      const stream = await openStream(test, `${hub.url}?match=*`, { headers });
      const events: Parsed['events'] = [];
      const retries: number[] = [];
      let refused = 0;
      const property = fc.asyncProperty(body, async (form) => {
        const answer = await hub.post(form);
        if (answer.status !== 200) {
          assert.equal(answer.status, 400, form);
          refused += 1;
          return;
        }
        const fields = decodeForm(form);
        const data = (fields.get('data') ?? '').replace(/\r\n|\r/g, '\n');
        events.push({ id: answer.body, event: fields.get('type') || undefined, data });
        const retry = Number(fields.get('retry') ?? 0);
        if (retry > 0) retries.push(retry);
      });
      await fc.assert(property, { seed: 20, numRuns: runs });
      await hub.post('topic=urn:end&id=urn:end');
      await stream.untilId('urn:end');
      events.push({ id: 'urn:end', event: undefined, data: '' });

      assert.deepEqual(parse(stream.text), { events, retries, errors: [] });
      // Both kinds must have occurred for this to say anything.
      assert.ok(events.length > runs / 10 && refused > runs / 10, `${events.length}, ${refused}`);
    });
  }
});

/** The platform's own decoder as the oracle. */
function decodeForm(form: string): URLSearchParams {
  // Node's decoder mangles what is not ASCII beside a broken escape, so it gets escapes only.
  const ascii = form.replace(/[^\0-\x7f]/gu, (character) => encodeURIComponent(character));
  // The "&" keeps it from taking a leading "?" for the mark of a query.
  return new URLSearchParams(`&${ascii}`);
}
