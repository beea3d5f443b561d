import type { Secret } from '../kernel/secret.ts';
import { list, nullable, type Shape } from './shape.ts';
import { count, duration, flag, name, oneOf, secret } from './shape-values.ts';

/** What an option takes, for who reads it from a Hubfile. */
export type OptionInput =
  | { readonly kind: 'flag' }
  | { readonly kind: 'count'; readonly min: number }
  | { readonly kind: 'duration' }
  | { readonly kind: 'name'; readonly expected: string }
  | { readonly kind: 'choice'; readonly choices: readonly string[] }
  | { readonly kind: 'secrets'; readonly expected: string }
  /** A word that stands for 0, or another one with a number behind it. */
  | { readonly kind: 'degree'; readonly none: string; readonly some: string };

/** One option of a transport, once for every notation. */
export interface TransportOption<Value> {
  /** In a Hubfile. */
  readonly word: string;
  readonly input: OptionInput;
  /** In YAML and JSON. */
  readonly shape: Shape<Value>;
}

export function flagOption(word: string): TransportOption<boolean> {
  return { word, input: { kind: 'flag' }, shape: flag };
}

export function countOption(word: string, { min = 0 } = {}): TransportOption<number> {
  return { word, input: { kind: 'count', min }, shape: count({ min }) };
}

/** Milliseconds. */
export function durationOption(word: string): TransportOption<number> {
  return { word, input: { kind: 'duration' }, shape: duration() };
}

/** A text that is not empty; null when it is left out. */
export function nameOption(word: string, expected: string): TransportOption<string | null> {
  return { word, input: { kind: 'name', expected }, shape: nullable(name(expected)) };
}

export function choiceOption<const Choice extends string>(
  word: string,
  ...choices: readonly Choice[]
): TransportOption<Choice> {
  return { word, input: { kind: 'choice', choices }, shape: oneOf(...choices) };
}

/** Texts that may hold a password. */
export function secretsOption(word: string, expected: string): TransportOption<readonly Secret[]> {
  return { word, input: { kind: 'secrets', expected }, shape: list(secret, { min: 1 }) };
}

/** `none` is 0, `some <n>` is n. */
export function degreeOption(word: string, none: string, some: string): TransportOption<number> {
  return { word, input: { kind: 'degree', none, some }, shape: count() };
}
