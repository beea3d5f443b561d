import { Agent } from 'node:https';
import { isIP } from 'node:net';
import { rootCertificates } from 'node:tls';
import type * as Acme from 'acme-client';
import type { Authorization, Client, Order } from 'acme-client';
import type { AcmeOptions } from '../../config/config.ts';
import type { DnsChallengeConfig } from '../../config/dns-challenge.ts';
import { type Clock, wait } from '../../kernel/clock.ts';
import { AcmeError } from './acme-error.ts';
import type { ChallengeType } from './challenges.ts';
import { problemOf, requestDirectory, type RequestOptions } from './directory-request.ts';
import { createPrivateKey, generateKeyPair, hash } from 'node:crypto';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { HubgateError } from '../../kernel/error.ts';
import { orNull, parseJsonObject, requireUrl } from '../../kernel/parse.ts';
import { createPrivate, fileName, readIfPresent, writePrivate } from '../storage.ts';
import { memberOf } from './dns/services/api.ts';

/** An account with an authority, and how to reach that authority. */
export interface AcmeAccount {
  /** URL of the directory. */
  readonly directory: string;
  readonly email: string | null;
  /** Root of a private directory, PEM; trusted in addition to the public ones. */
  readonly root: string | null;
  readonly externalAccount: AcmeOptions['externalAccount'];
  /** At least one, in the order of the attempts. */
  readonly challenges: readonly ChallengeType[];
  /** How `dns-01` writes its records. */
  readonly dns: DnsChallengeConfig | null;
  /** Whether the external account is used even if the authority does not require one. */
  readonly alwaysBind: boolean;
}

export interface AcmeClientOptions {
  readonly account: AcmeAccount;
  readonly storage: string;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Makes the response available to the authority. The returned function removes it. */
  readonly publish: (proof: ChallengeProof) => Promise<() => Promise<void>>;
}

/** What an authority expects to find, and where. */
export interface ChallengeProof {
  readonly type: ChallengeType;
  /** DNS name without `*.`, or IP address. */
  readonly name: string;
  readonly token: string;
  /** The key authorization; for `dns-01`, its digest (RFC 8555 §8.4). */
  readonly keyAuthorization: string;
}

/** A certificate as the authority issued it, PEM. */
export interface IssuedChain {
  readonly chain: string;
  readonly key: string;
}

/** Internals of acme-client: the one method through which a client sends its requests. */
interface ClientInside {
  readonly http: {
    request(url: string, method: string, options?: RequestOptions): Promise<unknown>;
    maxBadNonceRetries: number;
  };
}

/**
 * Loads acme-client when it is first needed. The library is CommonJS. In the bundle its namespace has only
 * `default`; Node's own loader also finds the names. So only `default` is used.
 */
async function loadAcmeClient(): Promise<Pick<typeof Acme, 'Client' | 'crypto'>> {
  const { default: library } = await import('acme-client');
  return library;
}

/** How often a request is sent again because its nonce was already used. */
const MAX_NONCE_RETRIES = 10;
const FIRST_POLL_MS = 250;
const MAX_POLL_MS = 5000;

/**
 * Orders a certificate for one DNS name or IP address, and proves control of it with this type of challenge.
 * Creates the account if there is none.
 *
 * @throws AcmeError, or the reason of the signal
 */
export async function orderCertificate(
  name: string,
  type: ChallengeType,
  options: AcmeClientOptions,
): Promise<IssuedChain> {
  const { root } = options.account;
  const agent = new Agent({
    keepAlive: true,
    ...(root === null ? {} : { ca: [...rootCertificates, root] }),
  });
  const order = new CertificateOrder(name, type, options, agent);
  try {
    return await order.run();
  } catch (error) {
    if (!(error instanceof AcmeError) || error.problem !== 'accountDoesNotExist') throw error;
    // The authority no longer knows the account. This happens when a private authority starts afresh.
    await order.forgetAccount();
    return await order.run();
  } finally {
    agent.destroy();
  }
}

class CertificateOrder {
  readonly #name: string;
  readonly #type: ChallengeType;
  readonly #options: AcmeClientOptions;
  readonly #agent: Agent;
  readonly #file: string;

  constructor(name: string, type: ChallengeType, options: AcmeClientOptions, agent: Agent) {
    this.#name = name;
    this.#type = type;
    this.#options = options;
    this.#agent = agent;
    this.#file = accountFile(options.storage, options.account);
  }

  async run(): Promise<IssuedChain> {
    const client = await this.#client();
    const value = this.#name;
    const order = await client.createOrder({
      identifiers: [{ type: isIP(value) === 0 ? 'dns' : 'ip', value }],
    });
    for (const authorization of await client.getAuthorizations(order)) {
      if (authorization.status !== 'valid') await this.#prove(client, order, authorization);
    }
    const ready = await this.#until(() => client.getOrder(order), ['pending'], order);
    if (ready.status === 'invalid') throw failed('acme-refused', ready.error, value);
    const key = await generateKey();
    const { crypto } = await loadAcmeClient();
    const [, request] = await crypto.createCsr({ altNames: [value] }, key);
    const sent = await client.finalizeOrder(ready, request);
    const done = await this.#until(() => client.getOrder(sent), ['ready', 'processing'], sent);
    if (done.status !== 'valid') throw failed('acme-refused', done.error, value);
    return { chain: await client.getCertificate(done), key };
  }

  /** The next run creates the account again, with the same key. */
  async forgetAccount(): Promise<void> {
    const { key } = await openAccountKey(this.#file);
    await writePrivate(this.#file, text({ key, url: null }));
  }

  async #client(): Promise<Client> {
    const { key, url } = await openAccountKey(this.#file);
    if (url !== null) return this.#connect(key, { accountUrl: url });
    const { email, externalAccount } = this.#options.account;
    const bound =
      externalAccount !== null && (await this.#bindingWanted())
        ? {
            externalAccountBinding: {
              kid: externalAccount.keyId,
              hmacKey: externalAccount.macKey.reveal(),
            },
          }
        : {};
    const client = await this.#connect(key, bound);
    const contact = email === null ? {} : { contact: [`mailto:${email}`] };
    try {
      await client.createAccount({ termsOfServiceAgreed: true, ...contact });
    } catch (error) {
      // If an account with this key exists, the library updates it at once. Some servers refuse an update
      // that changes nothing. By then the URL of the account is known, and nothing else is needed.
      if (!hasAccount(client)) throw error;
    }
    await writePrivate(this.#file, text({ key, url: client.getAccountUrl() }));
    return client;
  }

  async #connect(
    accountKey: string,
    rest: Omit<ConstructorParameters<typeof Client>[0], 'directoryUrl' | 'accountKey'>,
  ): Promise<Client> {
    // Imported only now: a gateway that orders nothing loads neither the library nor its HTTP client.
    const { Client: AcmeClient } = await loadAcmeClient();
    const { directory } = this.#options.account;
    const client = new AcmeClient({ directoryUrl: directory, accountKey, ...rest });
    // The library sends through one global axios instance. All clients would share its settings, and it
    // repeats failed requests for over a minute. So roots, deadline and retries are implemented here instead.
    // The library's types do not declare the member; the version is pinned, and tests issue certificates
    // through it.
    const { http } = client as unknown as ClientInside;
    http.request = (address, method, request = {}) => this.#send(address, method, request);
    http.maxBadNonceRetries = MAX_NONCE_RETRIES;
    return client;
  }

  #send(url: string, method: string, request: RequestOptions) {
    const { clock, signal } = this.#options;
    return requestDirectory(url, method, request, { agent: this.#agent, clock, signal });
  }

  /**
   * If there are several directories, the key is for those that require an external account (RFC 8555
   * §7.1.1).
   */
  async #bindingWanted(): Promise<boolean> {
    const { alwaysBind, directory } = this.#options.account;
    if (alwaysBind) return true;
    const { data } = await this.#send(directory, 'get', {});
    return memberOf(data, 'meta', 'externalAccountRequired') === true;
  }

  async #prove(client: Client, order: Order, authorization: Authorization): Promise<void> {
    const offered = authorization.challenges.find(
      ({ type }: { readonly type: string }) => type === this.#type,
    );
    if (offered === undefined) {
      const message = `The authority offers no ${this.#type} challenge for ${this.#name}`;
      throw new AcmeError('acme-challenge-failed', message);
    }
    const withdraw = await this.#options.publish({
      type: this.#type,
      name: authorization.identifier.value,
      token: offered.token,
      keyAuthorization: await client.getChallengeKeyAuthorization(offered),
    });
    try {
      await client.completeChallenge(offered);
      const part = { ...order, authorizations: [authorization.url] };
      const read = async (): Promise<Authorization> =>
        (await client.getAuthorizations(part))[0] ?? authorization;
      const { status, challenges } = await this.#until(read, ['pending'], authorization);
      if (status === 'valid') return;
      const error = challenges.find(({ error: why }) => why !== undefined)?.error;
      throw failed('acme-challenge-failed', error, this.#name);
    } finally {
      await withdraw();
    }
  }

  /** Polls until the status is none of these; the signal bounds the wait. */
  async #until<T extends { readonly status: string }>(
    read: () => Promise<T>,
    pending: readonly string[],
    first: T,
  ): Promise<T> {
    const { clock, signal } = this.#options;
    let delayMs = FIRST_POLL_MS;
    for (let current = first; ; current = await read()) {
      if (!pending.includes(current.status)) return current;
      await wait(delayMs, clock, signal);
      delayMs = Math.min(delayMs * 2, MAX_POLL_MS);
    }
  }
}

function hasAccount(client: Client): boolean {
  // The library throws if there is no account URL yet.
  return Boolean(orNull(() => client.getAccountUrl()));
}

function failed(code: string, error: unknown, name: string): AcmeError {
  const { type, detail } = problemOf(error);
  return new AcmeError(code, detail ?? `The authority refuses ${name}`, { problem: type });
}

interface AccountKey {
  /** PKCS #8, PEM. */
  readonly key: string;
  /** URL of the account; null until the authority has returned it. */
  readonly url: string | null;
}

/**
 * The file with an account's key and URL, `<storage>/acme/<directory host>/account-<digest>.json`, 0600. Two accounts
 * with the same directory, address and id of an external key (RFC 8555 §7.3.4) are the same.
 */
function accountFile(storage: string, { directory, email, externalAccount }: AcmeAccount): string {
  const identity = JSON.stringify([directory, email, externalAccount?.keyId ?? null]);
  const digest = hash('sha256', identity, 'hex').slice(0, 16);
  const host = fileName([requireUrl(directory).host]);
  return join(storage, 'acme', host, `account-${digest}.json`);
}

/** The existing key, or a new one. If several processes ask at once, all get the same key. */
async function openAccountKey(file: string): Promise<AccountKey> {
  const present = await readAccountKey(file);
  if (present !== null) return present;
  await createPrivate(file, text({ key: await generateKey(), url: null }));
  const made = await readAccountKey(file);
  if (made === null) {
    throw new HubgateError('account-unusable', `${file} is not an ACME account; remove it`);
  }
  return made;
}

/** null if there is none. A damaged file is moved away, because it would prevent each renewal. */
async function readAccountKey(file: string): Promise<AccountKey | null> {
  const content = await readIfPresent(file);
  if (content === null) return null;
  const { key, url } = parseJsonObject(content) ?? {};
  if (typeof key === 'string' && isPrivateKey(key)) {
    return { key, url: typeof url === 'string' ? url : null };
  }
  await rename(file, `${file}.damaged`);
  return null;
}

function isPrivateKey(pem: string): boolean {
  return orNull(() => createPrivateKey(pem).type) === 'private';
}

/** A new P-256 key, PKCS #8 in PEM. */
async function generateKey(): Promise<string> {
  const { privateKey } = await promisify(generateKeyPair)('ec', { namedCurve: 'P-256' });
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function text(account: AccountKey): string {
  return `${JSON.stringify(account, null, 2)}\n`;
}
