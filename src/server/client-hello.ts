import type { Socket } from 'node:net';
import type { Clock } from '../kernel/clock.ts';
import { createSecureContext, type TLSSocket } from 'node:tls';
import { HubgateError } from '../kernel/error.ts';
import type { Certificate } from '../tls/certificate.ts';
import type { CertificateSource } from '../tls/certificates.ts';

/** The parts of a ClientHello (RFC 8446 §4.1.2) that decide which server takes the handshake. */
interface ClientHello {
  /** null if none was sent, or if the message cannot be read. In that case OpenSSL refuses it. */
  readonly serverName: string | null;
}

/** A longer message counts as one without a server name. Browsers send about 2 KB. */
const MAX_HELLO_BYTES = 16 * 1024;
/** So does one in more records. Browsers use one; the records are read again for each segment that arrives. */
const MAX_HELLO_RECORDS = 64;
/** Time until the message is complete; the same as for the whole handshake. */
const HELLO_TIMEOUT_MS = 10_000;

const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME_EXTENSION = 0;
const HOST_NAME = 0;
const VERSION_AND_RANDOM_BYTES = 2 + 32;

/**
 * Reads the first message of a connection, and puts it back for the TLS server. `isHttp`: it is the beginning of a
 * request without TLS.
 */
export function readClientHello(
  socket: Socket,
  clock: Clock,
  done: (hello: ClientHello, isHttp: boolean) => void,
): void {
  let received = Buffer.alloc(0);
  const cancel = clock.after(HELLO_TIMEOUT_MS, () => socket.destroy());
  const onData = (chunk: Buffer): void => {
    received = Buffer.concat([received, chunk]);
    const hello =
      received.length > MAX_HELLO_BYTES ? { serverName: null } : parseClientHello(received);
    if (hello === null) return;
    cancel();
    socket.off('data', onData).off('end', onEnd).off('close', cancel);
    socket.pause();
    socket.unshift(received);
    done(hello, isCapital(received[0] ?? 0));
  };
  const onEnd = (): void => void socket.destroy();
  socket.on('data', onData).once('end', onEnd).once('close', cancel);
  // Code that has read before (for example a PROXY protocol header) may have paused it.
  socket.resume();
}

/** A method begins with one, and no record of TLS does. */
function isCapital(byte: number): boolean {
  return byte >= 0x41 && byte <= 0x5a;
}

/** Reads a ClientHello from the first bytes of a connection; null if there are too few. */
export function parseClientHello(bytes: Buffer): ClientHello | null {
  const fragments: Buffer[] = [];
  let at = 0;
  let length = 0;
  /** Bytes of the message: at first of the part that contains its length. */
  let wanted = 4;
  for (;;) {
    if (length >= wanted) {
      const message = Buffer.concat(fragments);
      if (message[0] !== CLIENT_HELLO) return { serverName: null };
      wanted = 4 + message.readUIntBE(1, 3);
      if (length >= wanted) return { serverName: serverNameOf(message.subarray(4, wanted)) };
    }
    if (fragments.length === MAX_HELLO_RECORDS && bytes.length > at) return { serverName: null };
    if (bytes.length > at && bytes[at] !== HANDSHAKE_RECORD) return { serverName: null };
    if (bytes.length < at + 5) return null;
    const end = at + 5 + bytes.readUInt16BE(at + 3);
    if (end === at + 5) return { serverName: null };
    if (bytes.length < end) return null;
    fragments.push(bytes.subarray(at + 5, end));
    length += end - at - 5;
    at = end;
  }
}

function serverNameOf(body: Buffer): string | null {
  try {
    const session = vector(body, VERSION_AND_RANDOM_BYTES, 1);
    const ciphers = vector(body, session.end, 2);
    const compression = vector(body, ciphers.end, 1);
    const extensions = vector(body, compression.end, 2).content;
    for (let at = 0; at < extensions.length; ) {
      const { content, end } = vector(extensions, at + 2, 2);
      if (extensions.readUInt16BE(at) === SERVER_NAME_EXTENSION) return hostNameOf(content);
      at = end;
    }
    return null;
  } catch (error) {
    // A length that points beyond the end.
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/** RFC 6066 §3: a list of names. Host names are the only kind that was ever defined. */
function hostNameOf(extension: Buffer): string | null {
  const names = vector(extension, 0, 2).content;
  if (names[0] !== HOST_NAME) return null;
  return vector(names, 1, 2).content.toString('latin1') || null;
}

/** A variable-length vector (RFC 8446 §3.4) whose length takes `lengthBytes`. */
function vector(
  bytes: Buffer,
  at: number,
  lengthBytes: number,
): { readonly content: Buffer; readonly end: number } {
  const start = at + lengthBytes;
  const end = start + bytes.readUIntBE(at, lengthBytes);
  if (end > bytes.length) throw new RangeError('a vector goes beyond its message');
  return { content: bytes.subarray(start, end), end };
}

/** The only protocol that an authority offers when it validates a TLS-ALPN-01 challenge (RFC 8737 §4). */
export const ACME_TLS = 'acme-tls/1';

/**
 * Handshakes in which an authority validates a TLS-ALPN-01 challenge. OpenSSL selects the protocol before the
 * certificate in TLS 1.3, but after it in TLS 1.2. For TLS 1.2 the certificate of the challenge is prepared
 * in addition to the ordinary one until the protocol is known.
 */
export class ChallengeHandshakes {
  /** Connections that asked for the protocol before their certificate was selected. */
  readonly #asked = new WeakSet<TLSSocket>();
  /** Connections whose certificate was selected first, each with the certificate of a pending challenge. */
  readonly #prepared = new WeakMap<TLSSocket, Certificate | null>();
  /** Connections that got the certificate of a challenge because there is no ordinary one yet. */
  readonly #provisional = new WeakSet<TLSSocket>();

  /** Selects the protocol; null if the handshake is not one of an authority. */
  protocol(socket: TLSSocket, offered: readonly string[]): typeof ACME_TLS | 'refused' | null {
    if (offered.length !== 1 || offered[0] !== ACME_TLS) return null;
    const answer = this.#prepared.get(socket);
    if (answer === null) return 'refused';
    if (answer === undefined) this.#asked.add(socket);
    else socket.setKeyCert(createSecureContext(answer));
    return ACME_TLS;
  }

  /**
   * Selects the certificate.
   *
   * @throws HubgateError `no-challenge` if none is pending, or the error of the source
   */
  async certificate(
    socket: TLSSocket,
    serverName: string,
    source: CertificateSource,
  ): Promise<Certificate> {
    if (this.#asked.has(socket)) {
      const answer = await source.challengeFor(serverName);
      if (answer !== null) return answer;
      throw new HubgateError('no-challenge', 'No ACME challenge is pending for this name');
    }
    if (socket.getProtocol() === 'TLSv1.3') return source.certificateFor(serverName);
    const answer = await source.challengeFor(serverName);
    this.#prepared.set(socket, answer);
    try {
      return await source.certificateFor(serverName, answer === null);
    } catch (error) {
      if (answer === null) throw error;
      this.#provisional.add(socket);
      return answer;
    }
  }

  /** Whether the connection has no further use once its handshake is complete. */
  isOver(socket: TLSSocket): boolean {
    return socket.alpnProtocol === ACME_TLS || this.#provisional.has(socket);
  }
}
