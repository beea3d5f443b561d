import { isUtf8 } from 'node:buffer';
import { inspect } from 'node:util';

const REDACTED = '[redacted]';
const PLACEHOLDERS_ONLY = /^(?:\{(?:env|file)\.[^{}]+\})+$/;

/**
 * A value that must not be printed. Configuration, logs and errors show `[redacted]` instead. A value that
 * consists only of placeholders (`{env.JWT_KEY}`) reveals nothing, so it is printed as written.
 */
export class Secret {
  readonly #value: string | Buffer;

  /** @param value text, or the bytes of a key, which count as text if they are valid UTF-8 */
  constructor(value: string | Uint8Array) {
    this.#value = typeof value === 'string' ? value : textOrBytes(value);
  }

  /** Whether the value can be used as text. */
  get isText(): boolean {
    return typeof this.#value === 'string';
  }

  /** The value itself. Call this where the value is used, never where it is passed on. */
  reveal(): string {
    // The value as text, with one character per byte if it is not valid UTF-8. Use it for comparisons, never
    // as a key.
    return typeof this.#value === 'string' ? this.#value : this.#value.toString('latin1');
  }

  /** The bytes of a key: those of its file, or of its text in UTF-8. */
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

/** Names of header fields and parameters whose values grant access. This is the only such list. */
const SECRET_NAME =
  /^(?:proxy-)?authorization$|^(?:set-)?cookie$|^code$|api[-_]?key|(?:access|private)[-_]key|secret|passw(?:or)?d|token|session[-_]?id|credential|(?:^|[-_])(?:auth|jwt|sig|signature)$/i;

/**
 * Whether the value of a header field or parameter with this name must not be printed: not in a log, not in
 * the configuration that the admin API shows, and not in a message.
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

/** Names are decoded as the hub and apps decode them: `%61uthorization` means `authorization`. */
function decoded(name: string): string {
  const [[read] = ['']] = new URLSearchParams(`${name}=`);
  return read;
}
