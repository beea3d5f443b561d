import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  defaultLogEncoding,
  defaultLogMembers,
  type LogChange,
  type LogMembers,
  TIME_FORMATS,
} from '../../../src/config/log-encoding.ts';
import { compileLogLines, type LogLines } from '../../../src/runtime/log-lines.ts';

function linesWith(members: Partial<LogMembers>): LogLines {
  return compileLogLines('caddy', {
    ...defaultLogEncoding,
    members: { ...defaultLogMembers, ...members },
  });
}

function changed(change: LogChange, value: unknown): unknown {
  const filters = [{ field: 'request>it', change }];
  const { fields } = compileLogLines('caddy', { ...defaultLogEncoding, filters });
  return fields({ request: { it: value, other: 1 } })['request'];
}

describe('the lines of a log', () => {
  it('have the time in each format', () => {
    const at = new Date(Date.UTC(2026, 1, 3, 4, 5, 6, 78));
    const times = TIME_FORMATS.map((timeFormat) => linesWith({ timeFormat }).time(at));
    assert.deepEqual(times, [
      '1770091506.078',
      '1770091506078',
      '1770091506078000000',
      '"2026-02-03T04:05:06.078Z"',
      '"2026-02-03T04:05:06Z"',
      '"2026-02-03T04:05:06.078Z"',
      '"2026/02/03 04:05:06"',
      '"2026/02/03 04:05:06.078"',
      '"2026/02/03 04:05:06.078000000"',
      '"03/Feb/2026:04:05:06 +0000"',
    ]);
  });

  it('have durations in each format', () => {
    const textsOf = (durations: readonly number[]): unknown[] =>
      durations.map(
        (duration) => linesWith({ durationFormat: 'string' }).fields({ duration })['duration'],
      );
    assert.deepEqual(textsOf([0, 0.000_162, 0.0123, 1.5, 62.5, 3600]), [
      '0s',
      '162µs',
      '12.3ms',
      '1.5s',
      '1m2.5s',
      '1h0m0s',
    ]);
    // They are rounded to the next unit.
    assert.deepEqual(textsOf([0.000_999_999_9, 0.999_999_9, 59.999_999_9, 3599.999_999_9]), [
      '1ms',
      '1s',
      '1m0s',
      '1h0m0s',
    ]);
    const line = { 'http.server.request.duration': 0.0123 };
    assert.deepEqual(linesWith({ durationFormat: 'ms' }).fields(line), {
      'http.server.request.duration': 12.3,
    });
    assert.deepEqual(linesWith({ durationFormat: 'nano' }).fields(line), {
      'http.server.request.duration': 12_300_000,
    });
  });

  it('keep the first bits of addresses, and leave other text', () => {
    const mask: LogChange = { kind: 'ip_mask', ipv4: 20, ipv6: 44 };
    const masked = (value: string): unknown => Object(changed(mask, value)).it;
    assert.equal(masked('192.0.255.3'), '192.0.240.0');
    assert.equal(masked('192.0.2.3:80,10.1.2.3'), '192.0.0.0:80, 10.1.0.0');
    assert.equal(masked('2001:db8:1234:5678::9'), '2001:db8:1230::');
    assert.equal(masked('[2001:db8:ffff::1]:443'), '[2001:db8:fff0::]:443');
    assert.equal(masked('::ffff:192.0.2.1'), '::');
    assert.equal(masked('fe80::1%eth0'), 'fe80::');
    assert.equal(masked('somebody'), 'somebody');
    const onlyNew: LogChange = { kind: 'ip_mask', ipv4: null, ipv6: 0 };
    assert.deepEqual(changed(onlyNew, ['10.0.0.1', '::1']), { it: ['10.0.0.1', '::'], other: 1 });
  });

  it('have changed parameters and cookies', () => {
    const pairs = [
      { kind: 'delete', name: 'a b' },
      { kind: 'replace', name: 'c', value: 'x' },
      { kind: 'hash', name: 'd' },
    ] as const;
    const query = changed({ kind: 'query', pairs }, '/p?a%20b=1&c=2&c=3&d=4&e');
    assert.deepEqual(query, { it: '/p?c=x&c=x&d=4b227777&e', other: 1 });
    assert.deepEqual(changed({ kind: 'query', pairs }, '/p?a+b=1'), { it: '/p', other: 1 });
    const cookies = changed({ kind: 'cookie', pairs }, ['a b=1; c=2; e=3', 'd=4']);
    assert.deepEqual(cookies, { it: ['c=x; e=3', 'd=4b227777'], other: 1 });
  });

  it('find fields whatever the case of their names, and do not change the fields that they were given', () => {
    const filters = [
      { field: 'request>headers>X-Secret', change: { kind: 'delete' } },
      { field: 'status', change: { kind: 'rename', name: 'code' } },
      { field: 'absent>deeper', change: { kind: 'delete' } },
    ] as const;
    const { fields } = compileLogLines('caddy', { ...defaultLogEncoding, filters });
    const line = { request: { headers: { 'x-secret': ['1'] } }, status: 200 };
    assert.deepEqual(fields(line), { request: { headers: {} }, code: 200 });
    assert.deepEqual(line.request.headers, { 'x-secret': ['1'] });
  });
});
