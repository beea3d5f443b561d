import { isUtf8 } from 'node:buffer';
import { inspect } from 'node:util';

const REDACTED = '[redacted]';
const PLACEHOLDERS_ONLY = /^(?:\{(?:env|file)\.[^{}]+\})+$/;

/**
 * A value that must not be printed. It travels through configuration, logs and errors as
 * `[redacted]`; a value made of placeholders alone (`{env.JWT_KEY}`) discloses nothing and prints
 * as it was written.
 */
export class Secret {
  readonly #value: string | Buffer;

  /** @param value a text; or the bytes of a key, which count as text where they are UTF-8 */
  constructor(value: string | Uint8Array) {
    this.#value = typeof value === 'string' ? value : textOrBytes(value);
  }

  /** Whether it can be used where a text is wanted. */
  get isText(): boolean {
    return typeof this.#value === 'string';
  }

  /** The value itself. Call it where the value is used, never where it is passed along. */
  reveal(): string {
    // One character for each byte of what is not text: good to compare, never to use as a key.
    return typeof this.#value === 'string' ? this.#value : this.#value.toString('latin1');
  }

  /** The bytes of a key: those of the file that it came from, or of the text in UTF-8. */
  bytes(): Buffer {
    return typeof this.#value === 'string' ? Buffer.from(this.#value, 'utf8') : this.#value;
  }

  toString(): string {
    const value = this.#value;
    return typeof value === 'string' && PLACEHOLDERS_ONLY.test(value) ? value : REDACTED;
  }

  toJSON(): string {
    return this.toString();
  }

  [inspect.custom](): string {
    return this.toString();
  }
}

function textOrBytes(bytes: Uint8Array): string | Buffer {
  const copy = Buffer.from(bytes);
  return isUtf8(copy) ? copy.toString('utf8') : copy;
}

/** Names of header fields and parameters whose values open doors: the only list of them. */
const SECRET_NAME =
  /^(?:proxy-)?authorization$|^(?:set-)?cookie$|^code$|api[-_]?key|(?:access|private)[-_]key|secret|passw(?:or)?d|token|session[-_]?id|credential|(?:^|[-_])(?:auth|jwt|sig|signature)$/i;

/**
 * Whether what a header field or a parameter of this name holds must not be printed: not in a log,
 * not in the configuration that the admin API shows, not in the excerpt of a message.
 */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name);
}

/** A URL or a request target without user info and without the values of secret parameters. */
export function withoutSecretParts(url: string, sign: string): string {
  return url
    .replaceAll(/(?<=:\/\/)[^\s/@"`]+(?=@)/g, sign)
    .replaceAll(
      /([?&#;])([^=&#;?\s"]{1,256})=([^&#;\s"]+)/g,
      (all, before: string, name: string) =>
        isSecretName(decoded(name)) ? `${before}${name}=${sign}` : all,
    );
}

/** A name is read as hub and app read it: `%61uthorization` is `authorization`. */
function decoded(name: string): string {
  const [[read] = ['']] = new URLSearchParams(`${name}=`);
  return read;
}
