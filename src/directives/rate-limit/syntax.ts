import type { Cursor } from '../../hubfile/cursor.ts';
import { type DirectiveSyntax, step, takeMatcher } from '../../hubfile/scope.ts';
import { badValue, count, duration, text } from '../../hubfile/values.ts';
import { isZoneName, MAX_WINDOW_MS, MIN_WINDOW_MS, type RateZoneConfig } from './data.ts';

const USAGE = `
rate_limit [<matcher>] {
    zone <name> {
        key <text>
        events <n>
        window <duration>
    }
}
`;

export const rateLimit: DirectiveSyntax = {
  usage: USAGE,
  summary: 'refuses who sends too many requests',
  after: 'try_files',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const start: { zones: readonly RateZoneConfig[] } = { zones: [] };
    cursor.block();
    const { zones } = cursor.options(
      start,
      { zone: (option, sofar) => ({ zones: [...sofar.zones, zone(option)] }) },
      {
        repeatable: ['zone'],
        unsupported: {
          distributed: 'nodes share their counts where the hub of the site has transport redis',
          storage: 'nodes share their counts where the hub of the site has transport redis',
          jitter: 'Retry-After is what it takes',
          sweep_interval: 'what is over is forgotten by itself',
        },
      },
    );
    if (zones.length === 0 && cursor.line.block?.length === 0) {
      const hint = 'for example zone api { events 100; window 1m }, each on a line of its own';
      cursor.fail(cursor.span, 'expected-argument', 'rate_limit needs a zone', hint);
    }
    cursor.end();
    return [step(cursor, matcher, { kind: 'rate_limit', zones })];
  },
};

interface Draft {
  readonly key: string;
  readonly events: number | null;
  readonly windowMs: number | null;
}

function zone(cursor: Cursor): RateZoneConfig {
  const name = cursor.argument('a name');
  if (!isZoneName(name.text)) badValue(cursor, name, 'a name of letters, digits, _, - and .');
  const start: Draft = { key: '{client_ip}', events: null, windowMs: null };
  const { key, events, windowMs } = cursor.options(
    start,
    {
      key: (option) => ({ key: text(option, 'a key such as {client_ip}') }),
      events: (option) => ({ events: count(option, { min: 1 }) }),
      window: (option) => ({ windowMs: windowLength(option) }),
    },
    { unsupported: { match: 'write a matcher before the block: rate_limit @api { … }' } },
  );
  if (events === null || windowMs === null) {
    const hint = 'for example events 100 and window 1m';
    return cursor.fail(cursor.span, 'missing-option', 'a zone needs events and window', hint);
  }
  return cursor.origins.of(cursor.span, { name: name.text, key, events, windowMs });
}

function windowLength(option: Cursor): number {
  const word = option.peek();
  const ms = duration(option);
  const isPossible = ms >= MIN_WINDOW_MS && ms <= MAX_WINDOW_MS;
  return isPossible || word === undefined
    ? ms
    : badValue(option, word, 'a duration from 100ms to 24h');
}
