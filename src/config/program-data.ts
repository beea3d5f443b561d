// Types do not bind a program in JavaScript. So what a program passes to the library is read with the shapes of
// configuration files, and a wrong value is reported with its place.

import { HubgateError } from '../kernel/error.ts';
import { Secret } from '../kernel/secret.ts';
import { ConfigError, type UnplacedProblem } from './problem.ts';
import {
  attempt,
  type DataNode,
  type DataValue,
  type Reading,
  type Shape,
  ShapeProblem,
  type SourceRange,
} from './shape.ts';

/** Values at these places may be keys, so that no message shows them. */
const SECRET_PLACE = /(?:key|publisher|subscriber|secret|urls?|redis|postgres)\b/i;

/**
 * Reads what a program in JavaScript passes. Members that are undefined count as left out.
 *
 * @param code of the error; by default it is a ConfigError
 * @param shown the place of a value in the program's own data, for a place such as `issuers[0].id`
 * @throws HubgateError that names each wrong value and what is expected there
 */
export function readGiven<T>(
  data: unknown,
  shape: Pick<Shape<T>, 'read'>,
  code: string | null = null,
  shown: (place: string) => string = (place) => place,
): T {
  const places: GivenPlace[] = [];
  const problems: UnplacedProblem[] = [];
  const reading: Reading = {
    report({ start: at }, { message, ...finding }) {
      const place = shown(places[at]?.path ?? '');
      const said = SECRET_PLACE.test(place)
        ? message.replace(/, not ".*$/s, ', not a text')
        : message;
      problems.push({
        ...finding,
        message: place === '' ? said : `${place.slice(0, 200)}: ${said}`,
      });
    },
    mark: () => {},
    site: () => {},
    inClear: true,
  };
  const value = attempt(reading, () => shape.read(givenNode(data, places), reading));
  if (value !== undefined && problems.length === 0) return value;
  if (code === null) throw new ConfigError(problems);
  throw new HubgateError(code, problems.map(({ message }) => message).join('; '));
}

/** Data that contains itself has levels without end. Each of 64 nested routes has up to four. */
const MAX_DEPTH = 300;

/** Where a value is. */
export interface GivenPlace {
  /** From the top, such as `issuers[0].id`. */
  readonly path: string;
  /** The object or list that contains it, and its name or number there; null for the top. */
  readonly holder: object | null;
  readonly name: string;
}

const TOP: GivenPlace = { path: '', holder: null, name: '' };

/** A node whose range is the number of its place in `places`. What no shape asks for is not looked at. */
export function givenNode(
  data: unknown,
  places: GivenPlace[],
  place: GivenPlace = TOP,
  depth = 0,
): DataNode {
  const number = places.push(place) - 1;
  const at = { start: number, end: number + 1 };
  return {
    ...at,
    get value() {
      return givenValue(data, place, places, at, depth);
    },
  };
}

function givenValue(
  data: unknown,
  place: GivenPlace,
  places: GivenPlace[],
  at: SourceRange,
  depth: number,
): DataValue {
  const { path } = place;
  if (depth > MAX_DEPTH) {
    throw new ShapeProblem(at, 'bad-value', `expected data of at most ${MAX_DEPTH} levels`);
  }
  if (data instanceof Secret) {
    if (data.isText) return data.reveal();
    return givenValue({ base64: data.bytes().toString('base64') }, place, places, at, depth);
  }
  if (Array.isArray(data)) {
    return Array.from(data, (one, index) => {
      const inside = { path: `${path}[${index}]`, holder: data, name: `${index}` };
      return givenNode(one, places, inside, depth + 1);
    });
  }
  switch (typeof data) {
    case 'string':
    case 'number':
    case 'boolean':
      return data;
    case 'undefined':
      return null;
    case 'object':
      if (data === null) return null;
      return new Map(
        Object.entries(data)
          .filter(([, value]) => value !== undefined)
          .map(([name, value]) => {
            const inside = { path: path === '' ? name : `${path}.${name}`, holder: data, name };
            return [name, { key: at, value: givenNode(value, places, inside, depth + 1) }];
          }),
      );
    default:
      throw new ShapeProblem(at, 'bad-value', `expected data, not a value of type ${typeof data}`);
  }
}

/**
 * Checks options of a program that are functions, or objects with functions. Others are unknown.
 *
 * @param members the names of the functions in each; none for a function
 * @throws HubgateError `invalid-argument`
 */
export function requireFunctions(
  options: unknown,
  members: Readonly<Record<string, readonly string[]>>,
): void {
  if (typeof options !== 'object' || options === null) {
    throw new HubgateError('invalid-argument', 'The options are not an object with members');
  }
  for (const [member, value] of Object.entries(options)) {
    const names = members[member];
    if (names === undefined) {
      throw new HubgateError('invalid-argument', `The option "${member}" is unknown`);
    }
    const isFunction = (name: string): boolean =>
      typeof Reflect.get(Object(value), name) === 'function';
    const fits = names.length === 0 ? typeof value === 'function' : names.every(isFunction);
    if (fits || value === undefined) continue;
    const expected = names.length === 0 ? 'a function' : `an object with ${names.join(', ')}`;
    throw new HubgateError('invalid-argument', `${member}: expected ${expected}`);
  }
}

/** The functions of a logger and of a clock, for {@link requireFunctions}. */
export const LOG_FUNCTIONS = ['debug', 'info', 'warn', 'error', 'child'];
export const CLOCK_FUNCTIONS = ['now', 'monotonic', 'after'];
