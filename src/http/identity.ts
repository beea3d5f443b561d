import type { ClientCertificate } from './client-certificate.ts';

const NOBODY: ReadonlyMap<string, readonly string[]> = new Map();

/**
 * The identity behind a request, as far as a handler has established it for this very request.
 * Nothing that a client merely says is in it, so whatever hands out tokens reads this and no field.
 */
export class Identity {
  #user: string | null = null;
  /** The certificate that the client has proven itself by to this very site; null where it has not. */
  certificate: ClientCertificate | null = null;
  /** By lower-case name. */
  #fields: Map<string, readonly string[]> | null = null;

  /** The user whose password `basic_auth` has checked; null where it has not. */
  get user(): string | null {
    return this.#user;
  }

  set user(user: string | null) {
    this.#user = user;
  }

  /**
   * The values that an authorizing service has given a request field: none where it names nobody,
   * and undefined where no service has been asked for this request.
   */
  field(name: string): readonly string[] | undefined {
    return (this.#fields ?? NOBODY).get(name.toLowerCase());
  }

  /** Says what an authorizing service has answered. */
  establish(field: string, values: readonly string[]): void {
    this.#fields ??= new Map();
    this.#fields.set(field.toLowerCase(), values);
  }

  /** Takes back what an earlier service has said of a field. */
  withdraw(field: string): void {
    this.#fields?.delete(field.toLowerCase());
  }

  /** Nothing has been established. */
  get isUnknown(): boolean {
    return this.#user === null && this.#fields === null && this.certificate === null;
  }

  /** Different for different identities. */
  get key(): string {
    const fields = [...(this.#fields ?? NOBODY)].sort(([one], [other]) => (one < other ? -1 : 1));
    return JSON.stringify([this.#user, fields, this.certificate?.fingerprint ?? null]);
  }
}
