import {
  type OptionInput,
  TRANSPORT_KINDS,
  type TransportConfig,
  transportKinds,
  type TransportOption,
} from '../../config/transports.ts';
import { Secret } from '../../kernel/secret.ts';
import type { Cursor, OptionTable } from '../../hubfile/cursor.ts';
import { choiceOf, count, duration, flag, name, oneOf } from '../../hubfile/values.ts';

/** Transports of other hubs, and the closest equivalents. */
const INSTEAD: Readonly<Record<string, string>> = { bolt: 'lmdb', local: 'memory' };

/** `transport <kind> { … }`; the usage of `hub` lists the options of each kind. */
export function transport(cursor: Cursor): TransportConfig {
  const word = cursor.argument(`one of ${TRANSPORT_KINDS.join(', ')}`);
  const instead = Object.hasOwn(INSTEAD, word.text) ? INSTEAD[word.text] : undefined;
  if (instead !== undefined) {
    const message = `transport ${word.text} is not supported by hubgate`;
    cursor.fail(word.span, 'unsupported-transport', message, `use transport ${instead}`);
  }
  const { defaults, options } = transportKinds[choiceOf(cursor, word, TRANSPORT_KINDS)];
  return cursor.options<TransportConfig>(defaults, tableOf(options));
}

function tableOf(options: object): OptionTable<TransportConfig> {
  const entries = Object.entries<TransportOption<unknown>>({ ...options });
  return Object.fromEntries(
    entries.flatMap(([field, { word, input }]) => {
      const words = input.kind === 'secrets' ? [word, `${word}s`] : [word];
      return words.map((each) => [
        each,
        (option: Cursor, sofar: TransportConfig) => {
          refuseSecond(option, Reflect.get(sofar, field), input, words);
          return { [field]: read(option, input) };
        },
      ]);
    }),
  );
}

/** `url` and `urls` are one option. */
function refuseSecond(
  cursor: Cursor,
  value: unknown,
  input: OptionInput,
  words: readonly string[],
): void {
  if (input.kind !== 'secrets' || !Array.isArray(value) || value.length === 0) return;
  cursor.fail(cursor.span, 'mutually-exclusive', `${words.join(' and ')} are mutually exclusive`);
}

function read(cursor: Cursor, input: OptionInput): unknown {
  switch (input.kind) {
    case 'flag':
      return flag();
    case 'count':
      return count(cursor, { min: input.min });
    case 'duration':
      return duration(cursor);
    case 'name':
      return name(cursor, input.expected);
    case 'choice':
      return oneOf(cursor, input.choices);
    case 'secret':
      return new Secret(cursor.argument(input.expected).text);
    case 'secrets':
      return cursor.several(input.expected).map(({ text }) => new Secret(text));
    case 'degree':
      return oneOf(cursor, [input.none, input.some]) === input.none ? 0 : count(cursor, { min: 1 });
  }
}
