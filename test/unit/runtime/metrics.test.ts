import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { certificateFamily, metricsText, ProcessMeasures } from '../../../src/runtime/metrics.ts';
import type { CertificateInUse } from '../../../src/tls/certificate.ts';
import { programPath } from '../../support/program.ts';
import { RecordedLog } from '../../support/recorded-log.ts';
import { TestClock } from '../../support/test-clock.ts';

describe('certificate metrics', () => {
  it('are limited in number, and those that expire first are reported', async () => {
    const many = Array.from({ length: 1000 }, (_, n) => certificate([`n${n}.test`], 2_000_000 - n));
    const lines = await seriesOf(many);
    assert.equal(lines.length, 200);
    assert.ok(lines[0]?.includes('n999.test'));
    assert.ok(lines[199]?.includes('n800.test'));
    const [long] = await seriesOf([
      certificate(
        Array.from({ length: 100 }, () => 'name.test'),
        1,
      ),
    ]);
    assert.ok(long !== undefined && long.length < 400);
  });

  it('have one series if several certificates have the same names: the one that expires first', async () => {
    const lines = await seriesOf([certificate(['a.test'], 5000), certificate(['a.test'], 3000)]);
    assert.deepEqual(lines, [
      'hubgate_certificate_not_after_seconds{names="a.test",authority="local"} 3',
    ]);
  });
});

describe('the file descriptors of a process', () => {
  it('are logged when few are left, and when there are enough again', (test) => {
    const prlimit = programPath(test, 'prlimit', 'util-linux');
    if (prlimit === null) return;
    const limitTo = (soft: string): void => {
      execFileSync(prlimit, ['--pid', String(process.pid), `--nofile=${soft}:`]);
    };
    const log = new RecordedLog();
    const { lines } = log;
    const clock = new TestClock();
    const [, before = ''] =
      /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    limitTo('200');
    test.after(() => limitTo(before));
    const measures = new ProcessMeasures(clock, log);
    test.after(() => measures.close());
    const open: number[] = [];
    test.after(() => open.splice(0).forEach((descriptor) => closeSync(descriptor)));
    const openUpTo = (last: number): void => {
      while ((open.at(-1) ?? 0) < last) open.push(openSync('/dev/null', 'r'));
    };
    openUpTo(170);
    clock.advance(10_000);
    const said = (): readonly unknown[] =>
      lines.map(({ message, fields }) => [message.split('.')[0], fields['open'], fields['limit']]);
    assert.deepEqual(said(), []);
    // At the limit itself, not even the limit can be read.
    openUpTo(199);
    clock.advance(20_000);
    const few = ['Few file descriptors are left', 200, 200];
    assert.deepEqual(said(), [few]);
    const closed = open.splice(100);
    for (const descriptor of closed) closeSync(descriptor);
    clock.advance(20_000);
    assert.deepEqual(said(), [few, ['There are enough file descriptors again', closed[0], 200]]);
  });
});

function certificate(names: readonly string[], notAfter: number): CertificateInUse {
  return { names, authority: 'local', notAfter };
}

async function seriesOf(certificates: readonly CertificateInUse[]): Promise<string[]> {
  const text = await metricsText([certificateFamily(certificates)]);
  return text
    .split('\n')
    .filter((line) => line.startsWith('hubgate_certificate_not_after_seconds{'));
}
