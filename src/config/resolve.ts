import { isUtf8 } from 'node:buffer';
import { isAbsolute, resolve } from 'node:path';
import { Secret } from '../kernel/secret.ts';
import type { Config, StaticKeySource } from './config.ts';
import { type GivenPlace, givenNode } from './program-data.ts';
import {
  EMPTY_KEY,
  type Report,
  UNSET_VARIABLE,
  whyUnreadable,
  warning,
  error,
} from './problem.ts';
import { attempt, type Reading, type Shape } from './shape.ts';

/** The sources of the values for `{env.X}` and `{file.X}`. */
export interface PlaceholderSources {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The content of the file at an absolute path; throws if it cannot be read. */
  readonly readFile: (path: string) => Uint8Array;
  /** Directory that relative paths start from: that of the Hubfile. */
  readonly directory: string;
  /** A file that has a value for a variable that is not set; null if none is known. */
  readonly envFileWith?: (variable: string) => string | null;
  /** Called for files that cannot be read, and for variables that are not set. */
  readonly report: Report;
}

/** A configuration in which all placeholders of this kind are resolved. */
export interface ResolvedConfig {
  readonly config: Config;
  /** Absolute paths of the files whose content is in it. */
  readonly files: readonly string[];
  /** The original object or list from which a resolved one was created. */
  readonly originOf: (part: object) => object;
  /** Reports about the original parts, for checks of the resolved configuration. */
  readonly report: Report;
}

/**
 * `{file.match.relative}` is a result of the matcher `file`, and `{file.base}` a part of the path of a request. Neither
 * is a file with that name.
 */
const PLACEHOLDER =
  /(?<!\\)\{(env|file)\.(?!(?:base|ext|match\.(?:relative|absolute|type|remainder))\})([^{}]+)\}/g;
/** A string of CEL, perhaps a raw one, or a placeholder outside of one. */
const PLACEHOLDER_IN_CEL = new RegExp(
  String.raw`[rR]?"""[^]*?"""|[rR]?'''[^]*?'''|[rR]"[^"]*"|[rR]'[^']*'|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|${PLACEHOLDER.source}`,
  'g',
);
const SET_IT = 'set it, or name a file that sets it with --envfile';
const LONE_ENV = /^\{env\.([^{}]+)\}$/;
const LONE_FILE = /^\{file\.([^{}]+)\}$/;
/** Largest file that can be a value, in bytes. */
const MAX_VALUE = 1024 * 1024;

/**
 * Replaces `{env.X}` and `{file.X}` in every text and secret, once. An unset variable is empty. A key that
 * becomes empty counts as not configured, an empty algorithm as not given.
 */
export function resolvePlaceholders(config: Config, sources: PlaceholderSources): ResolvedConfig {
  const resolver = new Resolver(sources);
  const resolved = resolver.config(config);
  const originOf = (part: object): object => resolver.origins.get(part) ?? part;
  const report: Report = (about, problem, where) => {
    const other = where?.other === undefined ? {} : { other: originOf(where.other) };
    if (about === null) return sources.report(null, problem, { ...where, ...other });
    const origin = originOf(about);
    const written = (text: string): string => asWritten(text, about, origin);
    const { message, hint } = problem;
    const advice = hint === undefined ? {} : { hint: written(hint) };
    const said = { ...problem, message: written(message), ...advice };
    sources.report(origin, said, { ...where, ...other });
  };
  return { config: resolved, files: [...resolver.files], originOf, report };
}

/** Shorter values are no secrets, and replacing them would change unrelated text. */
const SHORTEST_HIDDEN = 4;

/** A message about a part in which values from placeholders, which may be secrets, are as the part was written. */
function asWritten(message: string, resolved: object, origin: object): string {
  const written = new Map(Object.entries(origin));
  return Object.entries(resolved).reduce((text, [name, value]) => {
    const given: unknown = written.get(name);
    // Host names are public.
    const isFilled =
      name !== 'host' && typeof value === 'string' && typeof given === 'string' && value !== given;
    return isFilled && value.length >= SHORTEST_HIDDEN ? text.replaceAll(value, () => given) : text;
  }, message);
}

/**
 * Reports each text that lacks its form once the placeholders in it have their values. Above all, a variable that is not
 * set must not make the name of a directory empty, which would stand for the working directory.
 */
export function checkForms(
  { config, originOf, report }: ResolvedConfig,
  shape: Shape<Config>,
): void {
  const sites = config.sites.filter((site) => originOf(site) !== site);
  const places: GivenPlace[] = [];
  const reading: Reading = {
    report({ start }, { message, ...finding }) {
      const { holder = null, name = '' } = places[start] ?? {};
      if (holder === null) return;
      const value: unknown = Reflect.get(holder, name);
      const isText = typeof value === 'string' || value instanceof Secret;
      // The reader of the text, or another check, reports everything else.
      if (!isText || Object.is(value, Reflect.get(originOf(holder), name))) return;
      const isEmpty = value === '' || (value instanceof Secret && value.reveal() === '');
      const given = isEmpty ? 'an empty text' : 'the value of this placeholder';
      const said = message.replace(/, not ["\d].*$/s, `, not ${given}`);
      report(holder, { ...finding, message: said }, Array.isArray(holder) ? {} : { field: name });
    },
    mark: () => {},
    site: () => {},
    inClear: true,
  };
  attempt(reading, () => shape.read(givenNode({ ...config, sites }, places), reading));
}

class Resolver {
  readonly files = new Set<string>();
  readonly origins = new WeakMap<object, object>();
  readonly #sources: PlaceholderSources;
  readonly #contents = new Map<string, Uint8Array | null>();
  readonly #unset = new Set<string>();

  constructor(sources: PlaceholderSources) {
    this.#sources = sources;
  }

  config(config: Config): Config {
    // A configuration is plain data, so its copy has the same type.
    return this.#value(config, config) as Config;
  }

  /** A deep copy with everything resolved. Parts without changes are not copied. */
  #value(value: unknown, about: object, name?: string): unknown {
    if (typeof value === 'string') return this.#text(value, about, name);
    if (typeof value !== 'object' || value === null) return value;
    if (value instanceof Secret) {
      if (name === 'key') return this.#key(value, about);
      const looked = this.#text(value.reveal(), about, name);
      return looked === value.reveal() ? value : new Secret(looked);
    }
    if (Array.isArray(value)) {
      const items: readonly unknown[] = value;
      return this.#same(
        items,
        items.map((item) => this.#value(item, value)),
      );
    }
    const members = Object.fromEntries(
      Object.entries(value).map(([key, member]) => [key, this.#value(member, value, key)]),
    );
    return isStaticKey(value)
      ? this.#staticKey(value, this.#replace(value, members))
      : this.#replace(value, members);
  }

  /** A key from an unset variable must not become an empty secret. */
  #staticKey(written: StaticKeySource, resolved: StaticKeySource): StaticKeySource | null {
    const { key, algorithm } = resolved;
    if (key.reveal() !== '') {
      return this.#replace(resolved, { algorithm: algorithm === '' ? null : algorithm });
    }
    const variable = LONE_ENV.exec(written.key.reveal())?.[1];
    const message =
      variable === undefined
        ? 'this key is empty'
        : `the environment variable ${variable} is not set, so this key is empty`;
    const hint = variable === undefined ? undefined : this.#howToSet(variable);
    this.#sources.report(written, warning(EMPTY_KEY, message, hint));
    return null;
  }

  /** A key consists of bytes, so a file that is not text is used as it is. */
  #key(key: Secret, about: object): Secret {
    const text = key.reveal();
    const lone = LONE_FILE.exec(text)?.[1];
    const content = lone === undefined ? null : this.#content(lone, about);
    if (content !== null && !isUtf8(content)) return new Secret(content);
    // Whoever uses the key reports that it is empty.
    const variable = LONE_ENV.exec(text)?.[1];
    if (variable !== undefined) return new Secret(this.#variable(variable) ?? '');
    const looked = this.#text(text, about, 'key');
    return looked === text ? key : new Secret(looked);
  }

  #text(text: string, about: object, field: string | undefined): string {
    if (!text.includes('{env.') && !text.includes('{file.')) return text;
    const valueOf = (kind: string, name: string): string =>
      kind === 'env' ? this.#given(name, about, field) : this.#file(name, about);
    if (!isExpression(about)) {
      return text.replaceAll(PLACEHOLDER, (_, kind: string, name: string) => valueOf(kind, name));
    }
    // In CEL, a value is a text and never code. `constant` compares it with numbers, too.
    return text.replaceAll(PLACEHOLDER_IN_CEL, (part, kind?: string, name?: string) => {
      if (kind !== undefined && name !== undefined) {
        return `constant(${JSON.stringify(valueOf(kind, name))})`;
      }
      const isRaw = /^[rR]/.test(part);
      const filled = part.replaceAll(PLACEHOLDER, (_, kind: string, name: string) =>
        isRaw ? valueOf(kind, name) : escapedInCel(valueOf(kind, name)),
      );
      if (!isRaw || filled === part) return filled;
      // A raw string has no escapes, so the value could end it.
      const quotes = /^.(?:"""|'''|.)/.exec(part)?.[0].length ?? 0;
      return JSON.stringify(filled.slice(quotes, 1 - quotes));
    });
  }

  /** An unset variable may be the cause of an error, with which it is then shown. */
  #given(name: string, about: object, field: string | undefined): string {
    const value = this.#variable(name);
    if (value === undefined && !this.#unset.has(name)) {
      this.#unset.add(name);
      const message = `the environment variable ${name} is not set`;
      const where = field === undefined ? {} : { field };
      const origin = this.origins.get(about) ?? about;
      this.#sources.report(origin, warning(UNSET_VARIABLE, message, this.#howToSet(name)), where);
    }
    return value ?? '';
  }

  #howToSet(name: string): string {
    const file = this.#sources.envFileWith?.(name) ?? null;
    return file === null ? SET_IT : `${file} sets it: add --envfile ${file}`;
  }

  #variable(name: string): string | undefined {
    return Object.hasOwn(this.#sources.env, name) ? this.#sources.env[name] : undefined;
  }

  #file(name: string, about: object): string {
    const content = this.#content(name, about);
    // The configuration is refused anyway. An empty value would only cause further errors.
    if (content === null) return `{file.${name}}`;
    if (isUtf8(content))
      return Buffer.from(content)
        .toString('utf8')
        .replace(/\r?\n$/, '');
    const message = `{file.${name}} is not UTF-8 text`;
    const hint = 'a binary file can only be a key, and must be the whole value';
    this.#sources.report(this.origins.get(about) ?? about, error('not-utf8', message, hint));
    return `{file.${name}}`;
  }

  /** Returns null if the file cannot be read, which is then reported. */
  #content(name: string, about: object): Uint8Array | null {
    const path = isAbsolute(name) ? name : resolve(this.#sources.directory, name);
    const known = this.#contents.get(path);
    if (known !== undefined) return known;
    this.files.add(path);
    try {
      const content = this.#sources.readFile(path);
      if (content.length > MAX_VALUE) throw new Error(`it is larger than ${MAX_VALUE} bytes`);
      this.#contents.set(path, content);
      return content;
    } catch (thrown) {
      // Reported once, however often it is named.
      this.#contents.set(path, null);
      const message = `cannot read {file.${name}}: ${whyUnreadable(thrown)}`;
      this.#sources.report(this.origins.get(about) ?? about, error('unreadable-file', message));
      return null;
    }
  }

  /** The object with changed members, or the object itself if no member differs. */
  #replace<Part extends object>(part: Part, changes: Partial<Part>): Part {
    const changed = Object.entries(changes).some(
      ([name, value]) => !Object.is(value, Reflect.get(part, name)),
    );
    if (!changed) return part;
    return this.#copyOf(Object.freeze({ ...part, ...changes }), part);
  }

  #same<Item>(before: readonly Item[], after: readonly Item[]): readonly Item[] {
    if (after.every((item, index) => Object.is(item, before[index]))) return before;
    return this.#copyOf(Object.freeze(after), before);
  }

  #copyOf<Part extends object>(copy: Part, before: object): Part {
    this.origins.set(copy, this.origins.get(before) ?? before);
    return copy;
  }
}

/** The matcher that contains an expression of CEL. */
function isExpression(part: object): boolean {
  return 'kind' in part && part.kind === 'expression';
}

/** A value inside a string of CEL, which it cannot end. */
function escapedInCel(value: string): string {
  return value.replace(/["'`\\\p{Cc}]/gu, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}

/** Nothing else in a configuration is of this kind. */
function isStaticKey(part: object): part is StaticKeySource {
  return 'kind' in part && part.kind === 'jwt';
}
