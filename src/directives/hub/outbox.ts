import type { OutboxConfig } from '../../config/config.ts';
import { defaultOutbox } from '../../config/defaults.ts';
import type { Cursor } from '../../hubfile/cursor.ts';
import { list, name } from '../../hubfile/values.ts';
import { Secret } from '../../kernel/secret.ts';

/**
 *     outbox <url> {
 *         table <name>
 *         topics <topic or pattern…>
 *         origins <origin…>
 *         password_file <file>
 *         tls_trust_pool <pem file>
 *     }
 */
export function outbox(cursor: Cursor): OutboxConfig {
  const url = new Secret(cursor.argument('a URL such as postgres://USER@HOST:5432/DATABASE').text);
  return cursor.options<OutboxConfig>(
    { ...defaultOutbox, url },
    {
      table: (option) => ({ table: name(option, 'the name of a table') }),
      topics: (option) => ({ topics: list(option, 'a topic or a URL Pattern') }),
      origins: (option) => ({ origins: list(option, 'an origin') }),
      password_file: (option) => ({ passwordFile: name(option, 'a file') }),
      tls_trust_pool: (option) => ({ trustPoolFile: name(option, 'a PEM file') }),
    },
  );
}
