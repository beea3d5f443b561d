import type { Cursor } from '../../hubfile/cursor.ts';
import { type DirectiveSyntax, step, takeMatcher } from '../../hubfile/scope.ts';
import { badValue } from '../../hubfile/values.ts';
import { Secret } from '../../kernel/secret.ts';
import { type BasicAuthAccount, isRealm, isUserName } from './data.ts';

const USAGE = `
basic_auth [<matcher>] [bcrypt|argon2id] [<realm>] {
    <user> <hash>
}
`;

export const basicAuth: DirectiveSyntax = {
  usage: USAGE,
  summary: 'asks for a user and a password (HTTP basic authentication)',
  oldNames: ['basicauth'],
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const first = cursor.peek();
    // Which algorithm it is stands in each hash; that word of a Caddyfile says no more.
    if (first?.text === 'bcrypt' || first?.text === 'argon2id') cursor.optional();
    const word = cursor.optional();
    if (word !== undefined && !isRealm(word.text)) {
      badValue(cursor, word, 'a realm in plain characters, without quotes');
    }
    cursor.block();
    const accounts = cursor
      .lines()
      .flatMap((line) => cursor.problems.attempt(() => account(line)) ?? []);
    if (accounts.length === 0 && cursor.line.block?.length === 0) {
      const hint = 'write a user and what hubgate hash-password gives for the password';
      cursor.fail(cursor.span, 'expected-argument', `${cursor.name} needs an account`, hint);
    }
    cursor.end();
    const realm = word?.text ?? 'restricted';
    return [step(cursor, matcher, { kind: 'basic_auth', realm, accounts })];
  },
};

/** Nothing of the line but the user is ever shown. */
function account(line: Cursor): BasicAuthAccount {
  const [user] = line.line.words;
  if (user === undefined || !isUserName(user.text)) {
    return line.fail(line.span, 'bad-value', 'a user is a name without a colon');
  }
  const hash = line.argument('the hash of a password');
  line.end();
  return line.origins.of(line.span, { user: user.text, hash: new Secret(hash.text) });
}
