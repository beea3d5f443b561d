import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ConfigError } from '../../../src/config/problem.ts';
import { diskIo } from '../../../src/hubfile/disk.ts';
import { formatHubfile } from '../../../src/hubfile/format.ts';
import { directives } from '../../../src/directives/registry.ts';
import { loadConfig } from '../../../src/load-config.ts';
import { createCertificateFiles, withFiles } from '../../support/certificate-files.ts';
import { documentedBlocks, PAGES } from '../../support/documented-blocks.ts';

const blocks = PAGES.flatMap(documentedBlocks)
  // The YAML that is Prometheus' own.
  .filter(({ text }) => !text.startsWith('# prometheus.yml'))
  .flatMap(({ language, text, place }) =>
    language === 'hubfile' || language === 'yaml' ? [{ language, text, place } as const] : [],
  );
const env = {
  DATABASE_URL: 'postgres://app@db.example/app',
  GATEWAY_SECRET: 'a secret',
  ZEROSSL_KEY_ID: 'an-id',
  TSIG_KEY: 'YS1rZXktb2Ytc29tZS1ieXRlcw==',
  MERCURE_PUBLISHER_JWT_KEY: 'a-publisher-key-of-more-than-32-bytes-0123',
  MERCURE_SUBSCRIBER_JWT_KEY: 'a-subscriber-key-of-more-than-32-bytes-012',
  HUB_PUBLISHER_JWT_KEY: 'a-publisher-key-of-more-than-32-bytes-0123',
  HUB_SUBSCRIBER_JWT_KEY: 'a-subscriber-key-of-more-than-32-bytes-012',
};

describe('the Hubfiles of the documents', () => {
  const { site } = createCertificateFiles();
  for (const { language, text, place } of blocks) {
    it(`the ${language} example at ${place} is valid and formatted`, () => {
      const io = withFiles(
        { ...diskIo(env), read: () => Buffer.from(text) },
        { '/etc/ssl/example.crt': site.cert, '/etc/ssl/example.key': site.key },
      );
      try {
        const { warnings } = loadConfig('example', io, language);
        // The certificate that stands in for theirs has another name.
        const standIn = 'certificate-for-others';
        const expected = [
          'debugger',
          'empty-import',
          'local-certificate',
          'reference-hub',
          standIn,
          // Of a gateway that was started here, or is installed.
          'history-left-behind',
        ];
        const others = warnings.filter(({ code }) => !expected.includes(code));
        assert.deepEqual(others, []);
      } catch (error) {
        assert.ok(!(error instanceof ConfigError), String(error));
        throw error;
      }
      if (language === 'hubfile') assert.equal(formatHubfile(text), text);
    });
  }

  it('include an example of every directive', () => {
    const examples = blocks.map(({ text }) => text).join('\n');
    for (const name of Object.keys(directives)) {
      assert.match(examples, new RegExp(`^\\t+${name}\\b`, 'm'), name);
    }
  });
});
