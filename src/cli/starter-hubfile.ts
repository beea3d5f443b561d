import { formatHubfile } from '../hubfile/format.ts';
import { HubgateError } from '../kernel/error.ts';
import { requireUrl } from '../kernel/parse.ts';

/** The contents of a first Hubfile. */
export interface Starter {
  readonly site: string;
  readonly upstream: string;
  /** Whether clients without a token may subscribe to public updates. */
  readonly anonymous: boolean;
}

/** A single plain word of a Hubfile, without braces, quotes or similar characters. */
const WORD = /^[^\s{}"`#\\,]+$/;
const ADDRESS = /^(?:(https?):\/\/)?(\[[^\]]*\]|[^:/]*)(?::(\d+))?$/;

/**
 * A Hubfile for an app behind a hub. Its keys are `HUB_PUBLISHER_JWT_KEY` and
 * `HUB_SUBSCRIBER_JWT_KEY` of the environment.
 *
 * @throws {HubgateError} `invalid-argument` for an address or an upstream of several words
 */
export function starterHubfile({ site, upstream, anonymous }: Starter, howToRun: string): string {
  const origin = originOf(site);
  if (!WORD.test(upstream)) {
    throw new HubgateError('invalid-argument', `"${upstream}" is not the address of an app`);
  }
  const app = /^\d+$/.test(upstream) ? `localhost:${upstream}` : upstream;
  // A site on port 443 needs privileges anyway.
  const redirects =
    requireUrl(origin).port === ''
      ? ''
      : '# Port 80 would need privileges.\nauto_https disable_redirects';
  const options = isLocal(origin)
    ? `{
	# Certificates and history stay in this project.
	storage .hubgate
	${redirects}
}

`
    : '';
  const access = anonymous
    ? '# Clients without a token may subscribe to public updates.\nanonymous'
    : '# Only clients with a token may subscribe.';
  const cookie = origin.startsWith('https:')
    ? ''
    : '# Browsers refuse cookies named __Secure-… over plain HTTP.\ncookie_name hub_access_token';
  return formatHubfile(`# hubgate init wrote this file. To start with its keys: ${howToRun}
${options}${site} {
	# POST to publish, GET to subscribe, on /.well-known/hub.
	hub {
		# The issuer of accepted tokens, and the key that verifies them.
		issuer ${origin} {
			publisher {
				jwt {env.HUB_PUBLISHER_JWT_KEY}
			}
			subscriber {
				jwt {env.HUB_SUBSCRIBER_JWT_KEY}
			}
		}
		${access}
		${cookie}
		# Clients that reconnect can catch up on these updates.
		transport lmdb {
			size 100000
		}
	}

	# Everything else goes to the app. A Link header on its pages names the hub.
	reverse_proxy ${app}
}
`);
}

/** Whether the name of a site leads only to this machine. */
function isLocal(origin: string): boolean {
  const { hostname } = requireUrl(origin);
  return /^(?:localhost|.*\.localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
}

/** The URL of a site, which is the issuer of its tokens. */
export function originOf(site: string): string {
  const [whole, scheme, host = '', port] = (WORD.test(site) && ADDRESS.exec(site)) || [];
  if (whole === undefined || whole === '') {
    throw new HubgateError('invalid-argument', `"${site}" is not an address of a site`);
  }
  const isPort = host === '' && port !== '443';
  const isPlain = scheme === 'http' || (scheme === undefined && (port === '80' || isPort));
  const named = host === '' ? 'localhost' : host.replace(/^\*\./, '');
  const isUsual = port === undefined || port === (isPlain ? '80' : '443');
  return `${isPlain ? 'http' : 'https'}://${named}${isUsual ? '' : `:${port}`}`;
}

/** The settings that `token --dev` and `reverse-proxy --dev` share: the hub on a developer's machine. */
export const DEV = {
  /** A port that needs no privileges. */
  site: 'localhost:8443',
  issuer: 'https://localhost',
  hubPath: '/.well-known/hub',
  keyVariable: 'HUB_PUBLISHER_JWT_KEY',
  subscriberKeyVariable: 'HUB_SUBSCRIBER_JWT_KEY',
  /** Publicly known: a hub warns if it is configured with this key. */
  demoSecret: '!ChangeThisHubJWTSecretKey!',
  /** 2100-01-01. */
  expiresAtMs: 4_102_444_800_000,
} as const;
