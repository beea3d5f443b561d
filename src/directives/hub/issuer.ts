import type {
  IssuerConfig,
  JwksKeySource,
  KeySource,
  StaticKeySource,
} from '../../config/config.ts';
import { defaultJwks } from '../../config/defaults.ts';
import { Secret } from '../../kernel/secret.ts';
import type { Cursor } from '../../hubfile/cursor.ts';
import { duration, flag, name, text } from '../../hubfile/values.ts';

/**
 *     issuer <id> {
 *         authorization_server
 *         publisher {
 *             jwt <key> [<algorithm>]
 *         }
 *         subscriber {
 *             jwks_uri <url> [<algorithm…>] {
 *                 refresh <duration>
 *                 cooldown <duration>
 *                 timeout <duration>
 *             }
 *         }
 *     }
 */
export function issuer(cursor: Cursor): IssuerConfig {
  const id = text(cursor, 'the id of an issuer, as in the iss claim of its tokens');
  const empty: IssuerConfig = { id, authorizationServer: false, publisher: null, subscriber: null };
  return cursor.options(empty, {
    authorization_server: () => ({ authorizationServer: flag() }),
    publisher: (option) => ({ publisher: keySource(option) }),
    subscriber: (option) => ({ subscriber: keySource(option) }),
  });
}

/** The block of `publisher` or `subscriber`: one of the two kinds of keys. */
function keySource(cursor: Cursor): KeySource | null {
  cursor.block();
  const empty: { readonly source: KeySource | null } = { source: null };
  const { source } = cursor.options(empty, {
    jwt: (option, sofar) => ({ source: only(option, sofar.source, jwt) }),
    jwks_uri: (option, sofar) => ({ source: only(option, sofar.source, jwksUri) }),
  });
  return source;
}

function only(
  cursor: Cursor,
  known: KeySource | null,
  read: (cursor: Cursor) => KeySource,
): KeySource {
  if (known === null) return read(cursor);
  return cursor.fail(cursor.span, 'mutually-exclusive', 'jwt and jwks_uri are mutually exclusive');
}

export function jwt(cursor: Cursor): StaticKeySource {
  const key = new Secret(cursor.argument('a key').text);
  const algorithm = cursor.optional()?.text ?? null;
  return cursor.origins.of(cursor.span, { kind: 'jwt', key, algorithm });
}

export function jwksUri(cursor: Cursor): JwksKeySource {
  const uri = name(cursor, 'the URL of a JWK Set');
  const algorithms = cursor.rest().map((word) => word.text);
  const start: JwksKeySource = { ...defaultJwks, uri, algorithms };
  return cursor.options(start, {
    refresh: (option) => ({ refreshMs: duration(option) }),
    cooldown: (option) => ({ cooldownMs: duration(option) }),
    timeout: (option) => ({ timeoutMs: duration(option) }),
  });
}
