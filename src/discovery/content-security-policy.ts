import { requireUrl } from '../kernel/parse.ts';

/** The properties of the live script that matter to a policy. */
export interface PolicyQuestion {
  readonly origin: string;
  readonly script: URL;
  readonly hub: URL;
}

/** The nonce that the script needs, if any, or what the policies would have to allow. */
export type PolicyAnswer =
  | {
      readonly kind: 'allowed';
      readonly nonce: string | null;
      /** Whether the script must declare that it trusts what it parses (Trusted Types). */
      readonly trusted: boolean;
    }
  | { readonly kind: 'forbidden'; readonly allow: string };

/** Most policies of a page. An app may send as many as fit into its head. */
const MAX_POLICIES = 64;

type Policy = ReadonlyMap<string, readonly string[]>;

/** Whether all policies allow a page to fetch itself, follow the hub and run the script (CSP Level 3). */
export function askPolicies(policies: readonly string[], question: PolicyQuestion): PolicyAnswer {
  const some = policies.slice(0, MAX_POLICIES + 1);
  const written = some.flatMap((text) => text.split(',', MAX_POLICIES + 1));
  // Policies that are not examined may forbid anything.
  if (written.length > MAX_POLICIES) {
    return { kind: 'forbidden', allow: `no more than ${MAX_POLICIES} policies` };
  }
  const parsed = written.map(parsePolicy);
  const nonce = parsed.map((policy) => nonceOf(scriptSources(policy) ?? [])).find(Boolean) ?? null;
  const trusted = parsed.some((policy) => policy.has('require-trusted-types-for'));
  for (const policy of parsed) {
    const allow = missing(policy, nonce, question) ?? (trusted ? untrusted(policy) : null);
    if (allow !== null) return { kind: 'forbidden', allow };
  }
  return { kind: 'allowed', nonce, trusted };
}

/** The policy of a `meta` element; null for any other element. */
export function metaPolicy(element: string): string | null {
  if (!/http-equiv\s*=\s*["']?\s*content-security-policy["'\s/>]/i.test(element)) return null;
  const [, double, single] = /content\s*=\s*(?:"([^"]*)"|'([^']*)')/i.exec(element) ?? [];
  return (double ?? single ?? '').replace(/&(?:#39|#x27|apos);/gi, "'");
}

function parsePolicy(text: string): Policy {
  const policy = new Map<string, readonly string[]>();
  for (const directive of text.split(';')) {
    const [name = '', ...values] = directive.trim().split(/\s+/);
    // CSP3 §2.2.1: of several directives with the same name, the first one applies.
    if (name !== '' && !policy.has(name.toLowerCase())) policy.set(name.toLowerCase(), values);
  }
  return policy;
}

function scriptSources(policy: Policy): readonly string[] | undefined {
  return policy.get('script-src-elem') ?? policy.get('script-src') ?? policy.get('default-src');
}

function nonceOf(sources: readonly string[]): string | undefined {
  return sources.map((source) => /^'nonce-([\w+/=-]+)'$/i.exec(source)?.[1]).find(Boolean);
}

/** What the policy would have to allow; null if nothing is missing. */
function missing(policy: Policy, nonce: string | null, question: PolicyQuestion): string | null {
  const { script, hub, origin } = question;
  const sandbox = policy.get('sandbox');
  if (sandbox !== undefined) {
    for (const flag of ['allow-scripts', 'allow-same-origin']) {
      if (!sandbox.includes(flag)) return `sandbox ${flag}`;
    }
  }
  const scripts = scriptSources(policy);
  if (scripts !== undefined && !runs(scripts, nonce, question)) {
    return `script-src ${sourceOf(script, origin)}`;
  }
  const connections = policy.get('connect-src') ?? policy.get('default-src');
  if (connections === undefined) return null;
  for (const url of [requireUrl(origin), hub]) {
    if (!allows(connections, url, origin)) return `connect-src ${sourceOf(url, origin)}`;
  }
  return null;
}

/** The page is fetched as text and parsed; a policy with this name permits that. */
function untrusted(policy: Policy): string | null {
  const names = policy.get('trusted-types');
  const isAllowed = names === undefined || names.includes('*') || names.includes('hubgate');
  return isAllowed ? null : 'trusted-types hubgate';
}

function runs(sources: readonly string[], nonce: string | null, question: PolicyQuestion): boolean {
  if (nonce !== null && nonceOf(sources) === nonce) return true;
  // CSP3 §6.7.2.4: hosts and 'self' are then ignored.
  if (sources.some((source) => source.toLowerCase() === "'strict-dynamic'")) return false;
  return allows(sources, question.script, question.origin);
}

function allows(sources: readonly string[], url: URL, origin: string): boolean {
  return sources.some((source) => {
    const text = source.toLowerCase();
    if (text === "'self'") return url.origin === origin;
    if (text === '*') return true;
    if (/^[a-z][a-z0-9+.-]*:$/.test(text)) return url.protocol === text;
    return isHost(source, url);
  });
}

/** A host source (CSP3 §2.3.1): `[scheme://]host[:port][/path]`, where `*` is any host. */
function isHost(source: string, url: URL): boolean {
  const match = /^(?:([a-z][a-z0-9+.-]*):\/\/)?([^/:']+)(?::(\d+|\*))?(\/[^?#]*)?$/i.exec(source);
  if (match === null) return false;
  const [, scheme, host = '', port, path] = match;
  if (scheme !== undefined && `${scheme.toLowerCase()}:` !== url.protocol) return false;
  const name = host.toLowerCase();
  const sameHost = name.startsWith('*.')
    ? url.hostname.endsWith(name.slice(1))
    : name === '*' || url.hostname === name;
  const actual = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port;
  const samePort = port === '*' || (port === undefined ? url.port === '' : port === actual);
  const samePath =
    path === undefined ||
    (path.endsWith('/') ? url.pathname.startsWith(path) : url.pathname === path);
  return sameHost && samePort && samePath;
}

function sourceOf(url: URL, origin: string): string {
  return url.origin === origin ? "'self'" : url.origin;
}
