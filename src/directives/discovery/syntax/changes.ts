import type { ChangesConfig } from '../../../config/config.ts';
import { defaultChanges } from '../../../config/defaults.ts';
import type { Cursor } from '../../../hubfile/cursor.ts';
import { type Scope, takeMatcher } from '../../../hubfile/scope.ts';
import { badValue, duration, list, oneOf } from '../../../hubfile/values.ts';

const METHOD = /^[A-Z][A-Z-]{0,31}$/;
/** RFC 9110 §9.2.1. */
const SAFE = ['GET', 'HEAD', 'OPTIONS', 'TRACE', 'QUERY', 'CONNECT'];

/**
 *     changes [<matcher>] [public|private] {
 *         on <method…>
 *         topic <topic…>
 *         also [<matcher>] <topic…>
 *         public|private
 *         data change|none|body
 *         window <duration>
 *         sync|async
 *         watch <interval>
 *         ignore <regexp…>
 *     }
 */
export function changes(cursor: Cursor, scope: Scope): ChangesConfig {
  const matcher = takeMatcher(cursor, scope);
  let mode: ChangesConfig['mode'] | null = null;
  const modeOf = (option: Cursor, chosen: ChangesConfig['mode']): Pick<ChangesConfig, 'mode'> => {
    if (mode !== null && mode !== chosen)
      option.fail(option.span, 'conflicting-option', 'changes are either sync or async');
    mode = chosen;
    return { mode: chosen };
  };
  const visibility = cursor.left === 0 ? null : oneOf(cursor, ['public', 'private']);
  const settings = cursor.options<ChangesConfig>(
    { ...defaultChanges, matcher, visibility },
    {
      on: (option) => ({ methods: methods(option) }),
      topic: (option) => ({ topics: list(option, 'a topic') }),
      also: (option, sofar) => also(option, sofar, scope),
      public: (option, { visibility: said }) => chosen(option, said, 'public'),
      private: (option, { visibility: said }) => chosen(option, said, 'private'),
      data: (option) => ({ data: oneOf(option, ['change', 'none', 'body']) }),
      window: (option) => ({ windowMs: duration(option) }),
      sync: (option) => modeOf(option, 'sync'),
      async: (option) => modeOf(option, 'async'),
      watch: (option) => ({ watchMs: interval(option) }),
      ignore: (option, sofar) => ({
        ignore: [...sofar.ignore, ...list(option, 'a regular expression')],
      }),
    },
    { repeatable: ['also', 'ignore'] },
  );
  return settings;
}

function interval(cursor: Cursor): number {
  const word = cursor.peek();
  const ms = duration(cursor);
  return ms >= 1000 || word === undefined
    ? ms
    : badValue(cursor, word, 'an interval of at least 1s');
}

/** A path with `*` is not a topic: the topics after it are announced for requests to such paths. */
function also(
  cursor: Cursor,
  sofar: ChangesConfig,
  scope: Scope,
): Pick<ChangesConfig, 'also'> | Pick<ChangesConfig, 'alsoFor'> {
  const first = cursor.peek()?.text ?? '';
  if (!first.startsWith('@') && !/^\/.*\*/.test(first)) {
    return { also: [...sofar.also, ...list(cursor, 'a topic')] };
  }
  const matcher = takeMatcher(cursor, scope);
  const bound = { matcher, topics: list(cursor, 'a topic') };
  return { alsoFor: [...sofar.alsoFor, bound] };
}

function chosen(
  cursor: Cursor,
  said: ChangesConfig['visibility'],
  visibility: 'public' | 'private',
): Pick<ChangesConfig, 'visibility'> {
  if (said === null || said === visibility) return { visibility };
  return cursor.fail(cursor.span, 'conflicting-option', 'changes are either public or private');
}

function methods(cursor: Cursor): readonly string[] {
  return cursor.several('an unsafe method such as POST').map((word) => {
    if (METHOD.test(word.text) && !SAFE.includes(word.text)) return word.text;
    return badValue(cursor, word, 'an unsafe method such as POST, in upper case');
  });
}
