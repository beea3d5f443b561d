import { type AsciiSet, refusal, type Syntax } from './parts.ts';

/** Distinct character classes in one pattern. Each costs one run of the engine over ASCII. */
const MAX_CLASSES = 64;
/** Largest number in `{n,m}`. */
const MAX_REPEAT = 1000;
const ASCII = String.fromCharCode(...Array.from({ length: 128 }, (_, code) => code));
const SPECIAL = /[\\[\]^$.*+?(){}|]/;
const QUANTIFIER = /(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})\??/y;
const ESCAPE = /\\(?:[pP]\{[^}]*\}|u\{[^}]*\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[A-Za-z]|.)/sy;

/**
 * Parses a custom group, an ECMAScript regular expression with the flag `v` (URL Pattern §2.2), into a tree
 * that can be matched in linear time.
 *
 * @throws HubgateError `invalid-pattern`: a syntax error, a look-around, a back-reference, an
 *   inline modifier, a repeat beyond 1000, or more than 64 character classes in the pattern
 */
export function parseGroupRegexp(body: string, classes: CharacterClasses): Syntax {
  requireSyntax(body);
  return new GroupParser(body, classes).parse();
}

/** The character classes of one pattern. */
export class CharacterClasses {
  readonly #sets = new Map<string, AsciiSet>();

  /** The ASCII characters of a class. The engine itself decides, so nothing is translated. */
  setOf(text: string): AsciiSet {
    const known = this.#sets.get(text);
    if (known !== undefined) return known;
    if (this.#sets.size === MAX_CLASSES) throw refusal(`more than ${MAX_CLASSES} classes`);
    const set = new Uint8Array(128);
    for (const found of ASCII.matchAll(new RegExp(text, 'gv'))) set[found.index] = 1;
    this.#sets.set(text, set);
    return set;
  }
}

/** The engine checks the syntax; it compiles nothing before the first match. */
function requireSyntax(body: string): void {
  try {
    void new RegExp(`(?:${body})`, 'v');
  } catch (error) {
    throw refusal('a group is not a regular expression', error);
  }
}

/** A recursive descent parser for a text that is known to be well-formed. */
class GroupParser {
  readonly #body: string;
  readonly #classes: CharacterClasses;
  #at = 0;

  constructor(body: string, classes: CharacterClasses) {
    this.#body = body;
    this.#classes = classes;
  }

  parse(): Syntax {
    return this.#choice();
  }

  #choice(): Syntax {
    const items = [this.#sequence()];
    while (this.#take('|')) items.push(this.#sequence());
    const [only] = items;
    return items.length === 1 && only !== undefined ? only : { kind: 'choice', items };
  }

  #sequence(): Syntax {
    const items: Syntax[] = [];
    for (;;) {
      const next = this.#body[this.#at];
      if (next === undefined || next === '|' || next === ')') return { kind: 'sequence', items };
      items.push(this.#repeated(this.#atom()));
    }
  }

  #repeated(item: Syntax): Syntax {
    QUANTIFIER.lastIndex = this.#at;
    const found = QUANTIFIER.exec(this.#body);
    if (found === null) return item;
    this.#at = QUANTIFIER.lastIndex;
    const [, sign, least, comma, most] = found;
    if (sign !== undefined) {
      return {
        kind: 'repeat',
        item,
        min: sign === '+' ? 1 : 0,
        max: sign === '?' ? 1 : Number.POSITIVE_INFINITY,
      };
    }
    const min = Number(least);
    const unbounded = comma !== undefined && most === '';
    const max = unbounded ? Number.POSITIVE_INFINITY : Number(comma === undefined ? least : most);
    if (min > MAX_REPEAT || (!unbounded && max > MAX_REPEAT)) {
      throw refusal(`a repeat beyond ${MAX_REPEAT}`);
    }
    return { kind: 'repeat', item, min, max };
  }

  #atom(): Syntax {
    if (this.#take('(')) return this.#group();
    if (this.#take('^')) return { kind: 'assert', at: 'start' };
    if (this.#take('$')) return { kind: 'assert', at: 'end' };
    if (this.#take('.')) return { kind: 'any' };
    const character = this.#body.charAt(this.#at);
    if (character === '[') return { kind: 'set', set: this.#classes.setOf(this.#classText()) };
    if (character === '\\') return this.#escape();
    if (SPECIAL.test(character)) throw refusal(`unexpected "${character}" in a group`);
    this.#at += 1;
    return { kind: 'char', code: character.charCodeAt(0) };
  }

  #group(): Syntax {
    const opener = /\?(?::|<(?![=!])[^>]*>)/y;
    opener.lastIndex = this.#at;
    if (!opener.test(this.#body)) throw refusal('look-arounds and modifiers are not supported');
    this.#at = opener.lastIndex;
    const inner = this.#choice();
    this.#at += 1;
    return inner;
  }

  #escape(): Syntax {
    ESCAPE.lastIndex = this.#at;
    const text = ESCAPE.exec(this.#body)?.[0] ?? '';
    this.#at += text.length;
    if (text === '\\b') return { kind: 'assert', at: 'word' };
    if (text === '\\B') return { kind: 'assert', at: 'not-word' };
    if (/^\\[1-9k]/.test(text)) throw refusal('back-references are not supported');
    return { kind: 'set', set: this.#classes.setOf(text) };
  }

  /** A class with its brackets; with the flag `v` classes may be nested. */
  #classText(): string {
    const start = this.#at;
    let depth = 0;
    do {
      const character = this.#body[this.#at];
      if (character === '\\') this.#at += 1;
      else if (character === '[') depth += 1;
      else if (character === ']') depth -= 1;
      this.#at += 1;
    } while (depth > 0 && this.#at < this.#body.length);
    const text = this.#body.slice(start, this.#at);
    if (text.includes('\\q')) throw refusal('strings in classes are not supported');
    return text;
  }

  #take(character: string): boolean {
    if (this.#body[this.#at] !== character) return false;
    this.#at += 1;
    return true;
  }
}
