import type { ManagedCertificate } from '../acme/managed-certificate.ts';

/** A configuration that serves: it takes the orders that an older one has under way. */
export interface Successor {
  /** Holds the certificate of a name, if the name is still one of its own and allowed; else null. */
  adopt(name: string): Promise<ManagedCertificate | null>;
}

/** Those that may take over what a configuration that goes has under way. */
export class Handover {
  readonly #all = new Set<Successor>();

  /** From now on it is asked; the returned function ends that. */
  add(successor: Successor): () => void {
    this.#all.add(successor);
    return () => void this.#all.delete(successor);
  }

  /** Asks the newest first; null where none takes it. */
  async adopt(name: string): Promise<ManagedCertificate | null> {
    for (const successor of [...this.#all].reverse()) {
      const adopted = await successor.adopt(name);
      if (adopted !== null) return adopted;
    }
    return null;
  }
}
