// `urlpattern-polyfill` parses a URL Pattern. hubgate's own code matches it, in time that is linear in the
// parts of each component.

import { type Budget, unlimitedBudget } from '../../kernel/scheduler.ts';
import { bytesOf, type Component, matchesComponent, sizeOf } from './component.ts';
import { readPattern } from './library.ts';
import { originKey, type UrlComponentName, type UrlComponents } from '../topic.ts';

/** The most selective component first. */
const ORDER: readonly UrlComponentName[] = [
  'pathname',
  'hostname',
  'protocol',
  'port',
  'search',
  'hash',
  'username',
  'password',
];

/** Cost of checking a component before its program runs, in steps. */
const COMPONENT_STEPS = 2;

/**
 * Memory of a pattern without its programs, and of each character of its text, which may be escaped and is
 * a part of several strings, in bytes: measured and rounded up.
 */
const PATTERN_BYTES = 1_000;
const CHARACTER_BYTES = 16;

/** A URL Pattern (WHATWG). It gives the results of the standard in linear time. */
export class UrlPattern {
  readonly #components: Readonly<Record<UrlComponentName, Component>>;
  /** {@link originKey} of every URL that matches; null when the pattern leaves the origin open. */
  readonly origin: string | null;
  /** The beginning of the path of every URL that matches. */
  readonly pathPrefix: string;
  /** Instructions of its programs. */
  readonly size: number;
  /** Its memory in bytes, at most. */
  readonly bytes: number;

  /**
   * @param text constructor string; case-sensitive except in protocol and host
   * @param base base URL of a relative pattern
   * @throws HubgateError `invalid-pattern`: malformed, a look-around, a back-reference, too large
   */
  constructor(text: string, base: string) {
    const components = readPattern(text, base);
    const { protocol, hostname, port, pathname } = components;
    this.#components = components;
    this.origin = [protocol, hostname, port].every(({ rest }) => rest === null)
      ? originKey({ protocol: protocol.prefix, hostname: hostname.prefix, port: port.prefix })
      : null;
    this.pathPrefix = pathname.prefix;
    this.size = ORDER.reduce((sum, name) => sum + sizeOf(components[name]), 0);
    this.bytes = ORDER.reduce(
      (sum, name) => sum + bytesOf(components[name]),
      PATTERN_BYTES + text.length * CHARACTER_BYTES,
    );
  }

  /** Subtracts the cost from `budget`. One test costs at most about 200,000 steps per component. */
  test(url: UrlComponents, budget: Budget = unlimitedBudget()): boolean {
    for (const name of ORDER) {
      budget.spend(COMPONENT_STEPS);
      if (!matchesComponent(this.#components[name], url[name], budget)) return false;
    }
    return true;
  }

  /** The first component in which a URL differs, for explanations; null if it matches. */
  mismatch(url: UrlComponents): UrlComponentName | null {
    const differs = (name: UrlComponentName): boolean =>
      !matchesComponent(this.#components[name], url[name], unlimitedBudget());
    return ORDER.find(differs) ?? null;
  }
}
