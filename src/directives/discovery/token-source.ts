import type {
  TokenExchangeConfig,
  TokenGrantsConfig,
  TokenMintConfig,
} from '../../config/config.ts';
import { defaultTokenExchange, defaultTokenMint } from '../../config/shape-hub.ts';
import { Secret } from '../../kernel/secret.ts';
import type { Cursor, OptionTable } from '../../hubfile/cursor.ts';
import { duration, list, name, oneOf } from '../../hubfile/values.ts';

type Draft<Source, Needed extends keyof Source> = Omit<Source, Needed> & {
  readonly [Field in Needed]: Source[Field] | null;
};

export function tokenSource(cursor: Cursor): TokenMintConfig | TokenExchangeConfig {
  return oneOf(cursor, ['mint', 'exchange']) === 'mint' ? mint(cursor) : exchange(cursor);
}

function mint(cursor: Cursor): TokenMintConfig {
  const empty: Draft<TokenMintConfig, 'issuer' | 'key'> = {
    ...defaultTokenMint,
    issuer: null,
    key: null,
  };
  const draft = cursor.options(empty, {
    issuer: (option) => ({ issuer: name(option, 'the id of an issuer') }),
    key: (option) => ({ key: new Secret(name(option, 'a key')) }),
    alg: (option) => ({ algorithm: name(option, 'an algorithm') }),
    kid: (option) => ({ keyId: name(option, 'the id of the key') }),
    ttl: (option) => ({ ttlMs: duration(option) }),
    ...GRANTS,
  });
  const { issuer, key } = draft;
  if (issuer === null) return missing(cursor, 'issuer');
  if (key === null) return missing(cursor, 'key');
  const complete = { ...draft, issuer, key };
  cursor.origins.follow(complete, draft);
  return complete;
}

function exchange(cursor: Cursor): TokenExchangeConfig {
  const empty: Draft<TokenExchangeConfig, 'endpoint' | 'clientId' | 'clientSecret'> = {
    ...defaultTokenExchange,
    endpoint: null,
    clientId: null,
    clientSecret: null,
  };
  const draft = cursor.options(empty, {
    endpoint: (option) => ({ endpoint: name(option, 'a URL') }),
    client_id: (option) => ({ clientId: name(option, 'the id of the client') }),
    client_secret: (option) => ({ clientSecret: new Secret(name(option, 'a secret')) }),
    subject_token: (option) => ({ subjectToken: name(option, 'a text with placeholders') }),
    ...GRANTS,
  });
  const { endpoint, clientId, clientSecret } = draft;
  if (endpoint === null) return missing(cursor, 'endpoint');
  if (clientId === null) return missing(cursor, 'client_id');
  if (clientSecret === null) return missing(cursor, 'client_secret');
  const complete = { ...draft, endpoint, clientId, clientSecret };
  cursor.origins.follow(complete, draft);
  return complete;
}

const GRANTS: OptionTable<TokenGrantsConfig> = {
  subscribe: (option) => ({ subscribe: list(option, 'a topic') }),
  subscribe_urlpattern: (option) => ({ subscribeUrlPattern: list(option, 'a URL Pattern') }),
  publish: (option) => ({ publish: list(option, 'a topic') }),
  publish_urlpattern: (option) => ({ publishUrlPattern: list(option, 'a URL Pattern') }),
  payload: (option) => ({ payload: name(option, 'JSON') }),
  keep_fields: () => ({ keepFields: true }),
};

function missing(cursor: Cursor, option: string): never {
  const kind = cursor.line.words[1]?.text ?? '';
  return cursor.fail(cursor.span, 'missing-option', `token ${kind} needs ${option}`);
}
