import { HubgateError } from '../../kernel/error.ts';

/** The language of a component as a tree: a regular expression without captures. */
export type Syntax =
  | { readonly kind: 'char'; readonly code: number }
  /** One character of a set of ASCII characters. */
  | { readonly kind: 'set'; readonly set: AsciiSet }
  | { readonly kind: 'any' }
  | { readonly kind: 'sequence'; readonly items: readonly Syntax[] }
  | { readonly kind: 'choice'; readonly items: readonly Syntax[] }
  /** `max` may be Infinity. */
  | { readonly kind: 'repeat'; readonly item: Syntax; readonly min: number; readonly max: number }
  | { readonly kind: 'assert'; readonly at: 'start' | 'end' | 'word' | 'not-word' };

/** 128 flags. The URL parser leaves only ASCII in a component. */
export type AsciiSet = Uint8Array;

/** Literal text. */
export function literal(text: string): readonly Syntax[] {
  return Array.from(text, (character) => ({ kind: 'char', code: character.codePointAt(0) ?? 0 }));
}

/**
 * The error of a pattern that is malformed, or that cannot be matched in linear time. Its code is
 * `invalid-pattern`.
 */
export function refusal(why: string, cause?: unknown): HubgateError {
  return new HubgateError('invalid-pattern', `invalid URL Pattern: ${why}`, { cause });
}
