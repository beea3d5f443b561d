import type { Writable } from 'node:stream';
import type {
  BodyWrapper,
  Dependence,
  Exchange,
  ResponseHead,
  UpstreamVisit,
} from '../http/exchange.ts';
import { discarding } from '../http/deferred-body.ts';
import { GatewayRequest, isBodyless, wrapped } from '../http/exchange-response.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Identity } from '../http/identity.ts';
import { copiedVariables } from '../http/request-variables.ts';
import type { TraceContext } from '../http/trace-context.ts';
import { copyYielding, SINGLE, withPreset } from '../http/header-operations.ts';
import type { Logger } from '../kernel/log.ts';

/** The destination of the response. */
export interface FetchSink {
  /**
   * Returns the stream for the body, or the head with which the response goes to the client of the request.
   */
  take(head: ResponseHead): { readonly body: Writable } | { readonly pass: ResponseHead };
  /** The body is complete; its end follows. */
  trailers(trailers: HeaderList): void;
  /** The response was aborted, possibly before it began. */
  broken(): void;
}

/**
 * The request to the app on behalf of one or more clients: it has the client of the first request, but its
 * own body, response and end. Changes that later handlers make to the head are applied here, so
 * the result is what they would have sent.
 */
export class FetchExchange extends GatewayRequest implements Exchange {
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  readonly originalHost: string;
  host: string;
  readonly originalTarget: string;
  readonly rawTarget: string | null;
  target: string;
  readonly headers: HeaderList;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly clientAddress: string;
  /**
   * The preset fields of the request itself, and those that later handlers add. Only the latter
   * become part of the stored response.
   */
  readonly preset: HeaderList;
  readonly identity: Identity;
  readonly variables: Map<string, string>;
  readonly standsFor: Exchange;
  /** Request fields that decided something on the way, in lower case. */
  readonly decidingFields = new Set<string>();
  /**
   * Names of preset fields, in lower case, that later handlers have removed or changed. The response is delivered
   * without them.
   */
  readonly replacedPreset = new Set<string>();
  /** Something else on which the response depends, so that it cannot be shared; null if there is nothing. */
  unsharedBy: Extract<Dependence, string> | null = null;
  readonly #parent: Exchange;
  readonly #sink: FetchSink;
  readonly #isAlone: boolean;
  /** The preset fields of the request itself. */
  readonly #inherited: readonly (readonly [name: string, value: string])[];
  /** Those of them that the transforms of the head see. */
  #shown: readonly (readonly [name: string, value: string])[] = [];
  /** The variables that handlers in front have set. */
  readonly #variablesBefore: ReadonlyMap<string, string>;
  /** What only a field of the request to the app depends on. */
  readonly #ofFields: { readonly field: string; readonly on: Dependence }[] = [];
  /** The body of the response that goes to the client of the request; null if the sink has taken it. */
  #passed: Writable | null = null;
  #upstream: UpstreamVisit | null = null;

  /** @param isBackground no client waits for the response */
  constructor(parent: Exchange, headers: HeaderList, sink: FetchSink, isBackground: boolean) {
    super();
    this.#parent = parent;
    this.standsFor = parent.standsFor ?? parent;
    this.#sink = sink;
    this.#isAlone = isBackground;
    this.scheme = parent.scheme;
    this.httpVersion = parent.httpVersion;
    this.originalHost = parent.originalHost;
    this.host = parent.host;
    this.preset = parent.preset.clone();
    this.#inherited = [...this.preset];
    this.#variablesBefore = new Map(parent.variables);
    this.originalTarget = parent.originalTarget;
    this.rawTarget = parent.rawTarget;
    this.target = parent.target;
    this.headers = headers;
    this.remoteAddress = parent.remoteAddress;
    this.remotePort = parent.remotePort;
    this.clientAddress = parent.clientAddress;
    this.identity = parent.identity;
    this.variables = isBackground ? copiedVariables(parent) : parent.variables;
  }

  readonly dependsOn = (on: Dependence, field?: string): void => {
    this.#parent.dependsOn?.(on, field);
    const known = this.#resolved(on);
    if (known === null) return;
    if (field === undefined) this.#note(known);
    else this.#ofFields.push({ field, on: known });
  };

  /** A variable counts only as long as it has its value from in front of the cache. */
  #resolved(on: Dependence): Dependence | null {
    if (typeof on === 'string' || !('variable' in on)) return on;
    const value = this.variables.get(on.variable);
    const isOfBefore = value !== undefined && value === this.#variablesBefore.get(on.variable);
    return isOfBefore ? 'client' : null;
  }

  #note(on: Dependence): void {
    if (typeof on === 'string') this.unsharedBy = on;
    else if ('field' in on) this.decidingFields.add(on.field.toLowerCase());
    else if ('preset' in on && this.#inherits(on.preset)) this.replacedPreset.add(on.preset);
  }

  /**
   * Notes on what the response depends according to its `Vary`, and to the fields that decided something. These are
   * fields of the request that the app has received. Handlers may have written them because of the client's own fields.
   *
   * @param names in lower case
   */
  noteVary(names: readonly string[]): void {
    const all = new Set([...names, ...this.decidingFields]);
    // A field may be made from one that is itself written here, so the set grows meanwhile.
    for (const name of all) {
      for (const { field, on } of this.#ofFields) {
        if (field !== name) continue;
        this.#note(on);
        if (typeof on === 'object' && 'field' in on) all.add(on.field.toLowerCase());
      }
    }
  }

  get id(): string {
    return this.#parent.id;
  }

  get log(): Logger {
    return this.#parent.log;
  }

  /** Whether the handlers would have done the same for another client of the same response. */
  isSameFor({ headers }: Exchange): boolean {
    this.noteVary([]);
    if (this.unsharedBy !== null) return false;
    const own = this.#parent.headers;
    for (const name of this.decidingFields) {
      if (own.combined(name) !== headers.combined(name)) return false;
    }
    return true;
  }

  /**
   * Hands on what handlers have set for a response that never began: another response is sent instead, such as that
   * of an error.
   *
   * @param exchange its own client, or another one that gets the same error: without cookies, and without transforms,
   * which belong to one request
   */
  handOn(exchange: Exchange): void {
    if (this.begun) return;
    if (exchange === this.#parent) {
      exchange.preset.deleteWhere(() => true);
      for (const [name, value] of this.preset) exchange.preset.append(name, value);
      copyYielding(this.preset, exchange.preset);
      this.moveTransforms(exchange);
      return;
    }
    for (const [name, value] of this.#inherited) {
      if (!hasField(this.preset, name, value)) exchange.preset.delete(name);
    }
    for (const [name, value] of this.preset) {
      const isKnown = this.#isInherited(name, value);
      if (!isKnown && name.toLowerCase() !== 'set-cookie') exchange.preset.append(name, value);
    }
  }

  get responseBytes(): number {
    return this.#parent.responseBytes;
  }

  get tlsVersion(): string | null {
    return this.#parent.tlsVersion;
  }

  get upstream(): UpstreamVisit | null {
    return this.#upstream;
  }

  set upstream(visit: UpstreamVisit | null) {
    this.#upstream = visit;
    if (!this.#isAlone) this.#parent.upstream = visit;
  }

  get trace(): TraceContext | null {
    return this.#parent.trace;
  }

  takeOver(head: ResponseHead): void {
    this.#parent.takeOver(head);
  }

  override withhold(names: readonly string[]): void {
    super.withhold(names);
    if (!this.#isAlone) this.#parent.withhold(names);
  }

  inform(status: number, headers: HeaderList): void {
    if (!this.#isAlone && !this.begun) this.#parent.inform(status, headers);
  }

  /** The transforms see the head with all fields with which the client receives it. */
  protected addPreset(head: ResponseHead): void {
    const shown = this.#inherited.filter(([name, value]) => {
      const key = name.toLowerCase();
      const isReplaced = head.isBesidePreset !== true && head.headers.has(key);
      const isKept = hasField(this.preset, name, value);
      const isShown = !NOT_SHOWN.has(key) && !isReplaced;
      if (key !== 'vary' && (!isKept || (isReplaced && !NOT_SHOWN.has(key)))) {
        this.replacedPreset.add(key);
      }
      return isKept && isShown && !this.replacedPreset.has(key);
    });
    const preset = this.preset.clone();
    preset.deleteWhere((key, value) => {
      if (!NOT_SHOWN.has(key) || this.replacedPreset.has(key)) return false;
      return this.#isInherited(key, value);
    });
    copyYielding(this.preset, preset);
    withPreset(head, preset);
    this.#shown = shown;
  }

  #inherits(key: string): boolean {
    return this.#inherited.some(([name]) => name.toLowerCase() === key);
  }

  #isInherited(name: string, value: string): boolean {
    const key = name.toLowerCase();
    return this.#inherited.some(([one, other]) => one.toLowerCase() === key && other === value);
  }

  /** Removes the preset fields of the request itself again, unless a handler has changed them. */
  #removeInherited(headers: HeaderList): void {
    for (const [name, value] of this.#shown) {
      if (!hasField(headers, name, value)) this.replacedPreset.add(name.toLowerCase());
    }
    for (const [name, value] of this.#shown) {
      const key = name.toLowerCase();
      if (!this.replacedPreset.has(key)) removeField(headers, key, value);
      else if (hasField(headers, name, value)) this.unsharedBy = 'client';
    }
  }

  protected send(head: ResponseHead, wrappers: readonly BodyWrapper[]): Writable {
    this.#removeInherited(head.headers);
    const taken = this.#sink.take(head);
    if ('pass' in taken) {
      removePreset(this.#parent, this.replacedPreset);
      // What a wrapper adds to an empty content must not end with the head.
      const { pass } = taken;
      this.#passed = this.#parent.begin(wrappers.length === 0 ? pass : { ...pass, isWhole: false });
      return wrapped(this.#passed, wrappers);
    }
    const { body } = taken;
    return isBodyless(this.originalMethod, head) ? discarding(body) : wrapped(body, wrappers);
  }

  protected finish(body: Writable, trailers: HeaderList): void {
    if (this.#passed !== null) this.#parent.end(body, trailers);
    else {
      this.#sink.trailers(trailers);
      body.end();
    }
  }

  protected breakOff(): void {
    if (this.#passed !== null) this.#parent.abort(this.#passed);
    else this.#sink.broken();
  }
}

/** Preset fields that the client of a response gets beside its own, or instead of them, whatever handlers do. */
const NOT_SHOWN: ReadonlySet<string> = new Set([...SINGLE, 'vary']);

/** Removes the preset fields that a response replaces from the request that receives it. */
export function removePreset({ preset }: Exchange, names: Iterable<string>): void {
  for (const name of names) preset.delete(name);
}

function hasField(headers: HeaderList, name: string, value: string): boolean {
  return headers.getAll(name).includes(value);
}

/** Removes the first field with this name, in lower case, and this value. */
function removeField(headers: HeaderList, name: string, value: string): void {
  let isRemoved = false;
  headers.deleteWhere((key, other) => {
    if (isRemoved || key !== name || other !== value) return false;
    isRemoved = true;
    return true;
  });
}
