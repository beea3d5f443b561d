import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { certificateFamily, metricsText } from '../../../src/runtime/metrics.ts';
import type { CertificateInUse } from '../../../src/tls/certificate.ts';

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

function certificate(names: readonly string[], notAfter: number): CertificateInUse {
  return { names, authority: 'local', notAfter };
}

async function seriesOf(certificates: readonly CertificateInUse[]): Promise<string[]> {
  const text = await metricsText([certificateFamily(certificates)]);
  return text
    .split('\n')
    .filter((line) => line.startsWith('hubgate_certificate_not_after_seconds{'));
}
