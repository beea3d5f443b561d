import type { ClientCertificate } from './client-certificate.ts';

const NOBODY: ReadonlyMap<string, readonly string[]> = new Map();

/**
 * The identity behind a request, as a handler has established it for this very request. It contains nothing
 * that a client merely claims. Code that issues tokens reads this class and never a field of the request.
 */
export class Identity {
  #user: string | null = null;
  /** The certificate with which the client has proven its identity to this very site; null without one. */
  certificate: ClientCertificate | null = null;
  /** By lower-case name. */
  #fields: Map<string, readonly string[]> | null = null;

  /** The user whose password `basic_auth` has verified; null without one. */
  get user(): string | null {
    return this.#user;
  }

  set user(user: string | null) {
    this.#user = user;
  }

  /**
   * The values of a request field from an authorizing service: empty if the service names no user, undefined
   * if no service has been asked for this request.
   */
  field(name: string): readonly string[] | undefined {
    return (this.#fields ?? NOBODY).get(name.toLowerCase());
  }

  /** Records the response of an authorizing service. */
  establish(field: string, values: readonly string[]): void {
    this.#fields ??= new Map();
    this.#fields.set(field.toLowerCase(), values);
  }

  /** Removes the values of a field from an earlier service. */
  withdraw(field: string): void {
    this.#fields?.delete(field.toLowerCase());
  }

  /** Whether no identity has been established. */
  get isUnknown(): boolean {
    return this.#user === null && this.#fields === null && this.certificate === null;
  }

  /** A key that differs for different identities. */
  get key(): string {
    const fields = [...(this.#fields ?? NOBODY)].sort(([one], [other]) => (one < other ? -1 : 1));
    return JSON.stringify([this.#user, fields, this.certificate?.fingerprint ?? null]);
  }
}
