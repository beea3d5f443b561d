import type { MatchCondition, RequestMatcher } from '../../config/routes.ts';
import {
  isAddressRange,
  lowerCaseHost,
  PRIVATE_RANGES,
  TRY_POLICIES,
} from '../../config/well-formed.ts';
import { PROTOCOLS } from '../connection.ts';
import { defaultFile } from '../file.ts';
import { isPathPattern } from '../request-line.ts';

/** A constant in an expression. */
export type Constant =
  | string
  | readonly Constant[]
  | { readonly [member: string]: Constant | undefined };

/** The matchers that an expression can call, and whether they take strings or a map. */
export const MATCHER_FUNCTIONS: Readonly<Record<string, 'texts' | 'map'>> = {
  client_ip: 'texts',
  file: 'map',
  header: 'map',
  header_regexp: 'texts',
  host: 'texts',
  method: 'texts',
  path: 'texts',
  path_regexp: 'texts',
  protocol: 'texts',
  query: 'map',
  remote_ip: 'texts',
  vars: 'map',
  vars_regexp: 'texts',
};

/** The condition of a call; null if the arguments are invalid. */
export function conditionOf(name: string, args: readonly Constant[]): MatchCondition | null {
  const [first] = args;
  if (MATCHER_FUNCTIONS[name] === 'map') {
    if (typeof first !== 'object' || Array.isArray(first)) return null;
    return ofMembers(name, Object.entries(first));
  }
  const texts = args.filter((one) => typeof one === 'string');
  if (texts.length !== args.length || texts.length === 0) return null;
  return ofTexts(name, texts);
}

function ofTexts(name: string, texts: readonly string[]): MatchCondition | null {
  const [first = ''] = texts;
  switch (name) {
    case 'path':
      return texts.every(isPathPattern) ? { kind: 'path', paths: texts } : null;
    case 'method':
      return { kind: 'method', methods: texts.map((text) => text.toUpperCase()) };
    case 'host':
      return { kind: 'host', hosts: texts.map(lowerCaseHost) };
    case 'protocol':
      return PROTOCOLS.some((one) => one === first) ? { kind: 'protocol', protocol: first } : null;
    case 'remote_ip':
    case 'client_ip': {
      const ranges = texts.flatMap((one) => (one === 'private_ranges' ? PRIVATE_RANGES : [one]));
      return ranges.every(isAddressRange) ? { kind: name, ranges } : null;
    }
    case 'path_regexp': {
      const [pattern = '', capture = null] = texts.toReversed();
      return texts.length > 2 ? null : { kind: name, name: capture, pattern };
    }
    case 'header_regexp':
    case 'vars_regexp': {
      if (texts.length !== 2 && texts.length !== 3) return null;
      const [pattern = '', subject = '', capture = null] = texts.toReversed();
      return name === 'header_regexp'
        ? { kind: name, name: capture, header: subject, pattern }
        : { kind: name, name: capture, variable: subject, pattern };
    }
    default:
      return null;
  }
}

function ofMembers(
  name: string,
  members: readonly (readonly [string, Constant | undefined])[],
): MatchCondition | null {
  const lists = members.map(([key, value]) => [key, textsOf(value)] as const);
  if (name === 'file') return ofFile(new Map(lists));
  const conditions: MatchCondition[] = [];
  for (const [key, values] of lists) {
    if (values === null) return null;
    if (name === 'query') conditions.push({ kind: 'query', name: key, values });
    else if (name === 'vars') conditions.push({ kind: 'vars', variable: key, values });
    else conditions.push({ kind: 'header', name: key, values });
  }
  const [only] = conditions;
  // All of them must hold. Expressed as the negation of their negations.
  return conditions.length === 1 && only !== undefined ? only : allOf(conditions);
}

/** One condition for several: not the negation of all of them. */
function allOf(conditions: RequestMatcher): MatchCondition {
  return { kind: 'not', matchers: [[{ kind: 'not', matchers: [conditions] }]] };
}

function ofFile(members: ReadonlyMap<string, readonly string[] | null>): MatchCondition | null {
  const known = ['root', 'try_files', 'try_policy', 'split_path'];
  if ([...members].some(([key, values]) => values === null || !known.includes(key))) return null;
  const [policy = defaultFile.policy] = members.get('try_policy') ?? [];
  const found = TRY_POLICIES.find((one) => one === policy);
  if (found === undefined) return null;
  return {
    ...defaultFile,
    root: members.get('root')?.[0] ?? null,
    files: members.get('try_files') ?? defaultFile.files,
    policy: found,
    splitPath: members.get('split_path') ?? [],
  };
}

function textsOf(value: Constant | undefined): readonly string[] | null {
  if (typeof value === 'string') return [value];
  if (!Array.isArray(value)) return null;
  const texts = value.filter((one) => typeof one === 'string');
  return texts.length === value.length ? texts : null;
}
