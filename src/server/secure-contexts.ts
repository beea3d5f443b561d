import { createSecureContext, type SecureContext, type SecureContextOptions } from 'node:tls';
import type { Certificate } from '../tls/certificate.ts';

/** Contexts, and server names, that are kept; a catch-all site has a certificate for each name that is asked for. */
export const MAX_CONTEXTS = 1_000;

/**
 * The secure contexts of one handshake policy, one for each certificate. Making one parses chain and
 * key, which costs more than the rest of the handshake, and it stays as long as any connection that
 * was made with it.
 */
export class SecureContexts {
  readonly #options: SecureContextOptions;
  readonly #create: (options: SecureContextOptions) => SecureContext;
  /** By the chain. The one that was made first is the first. */
  readonly #contexts = new Map<string, SecureContext>();
  /** The chain that was last presented for a server name. */
  readonly #chains = new Map<string, string>();

  /** `create` is Node's own where it is not given. */
  constructor(
    options: SecureContextOptions,
    create: (options: SecureContextOptions) => SecureContext = createSecureContext,
  ) {
    this.#options = options;
    this.#create = create;
  }

  /** Lets go of the context of the certificate that the name had before. */
  contextFor(serverName: string, { cert, key }: Certificate): SecureContext {
    const before = this.#chains.get(serverName);
    if (before !== undefined && before !== cert) this.#contexts.delete(before);
    if (before !== cert) keep(this.#chains, serverName, cert);
    const known = this.#contexts.get(cert);
    if (known !== undefined) return known;
    const context = this.#create({ ...this.#options, cert, key });
    keep(this.#contexts, cert, context);
    return context;
  }
}

function keep<T>(map: Map<string, T>, key: string, value: T): void {
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > MAX_CONTEXTS && oldest !== undefined) map.delete(oldest);
}
