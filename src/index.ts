/** hubgate as a library: creates a gateway from a configuration. */
export type {
  BindAddress,
  Config,
  GlobalOptions,
  HubConfig,
  IssuerConfig,
  KeySource,
  SiteAddress,
  SiteConfig,
} from './config/config.ts';
// From the registry, which fills these types.
export type { HandlerConfig, RequestMatcher, RouteConfig } from './directives/registry.ts';
export { ConfigError, type Place, type Problem } from './config/problem.ts';
export { HubgateError } from './kernel/error.ts';
export { type Logger, silentLogger } from './kernel/log.ts';
export { Secret } from './kernel/secret.ts';
export { mintToken, type MintedToken, type MintRequest } from './auth/mint.ts';
export { signingKey } from './auth/key.ts';
export {
  type GrantedTopic,
  signToken,
  type SignTokenOptions,
} from './auth/mint.ts';
export {
  type BoundListener,
  type Gateway,
  type GatewayStatus,
  type PreparedLoad,
  type ReloadReport,
  type ReportWanted,
} from './runtime/gateway.ts';
export type { GatewayOptions } from './runtime/resources.ts';
export type { RunningHub } from './runtime/hub-families.ts';
export type { PeerWorkers, Signal } from './runtime/peer-workers.ts';
export { createGateway } from './load-config.ts';
export { parseHubfile, type ParseOptions } from './parse-hubfile.ts';
export type { ReverseProxyConfig } from './proxy/proxy-config.ts';
