import type { HeaderOperation, RouteConfig } from './config.ts';
import type { Report } from './problem.ts';
import type { Shape } from './shape.ts';

/**
 * What a handler's configuration is: the first face of a directive, which both others know. Whoever
 * walks over configurations asks it instead of knowing the kinds; what is left out, there is none of.
 */
export interface HandlerData<Handler extends { readonly kind: string }> {
  /** Its members but `kind`, for YAML, JSON and workers; `inner` is the shape of routes in it. */
  shape(inner: Shape<readonly RouteConfig[]>): Shape<Omit<Handler, 'kind'>>;
  /** Routes that a request goes through where the handler stands. */
  nested?(handler: Handler): readonly RouteConfig[];
  /** Routes that take over from an answer that the handler was given. */
  answering?(handler: Handler): readonly RouteConfig[];
  /** Of the handlers side by side with one group, only the first that matches runs. */
  group?(handler: Handler): number;
  /** Parts with a `pattern` in RE2 syntax, whose place is known by the part. */
  patterns?(handler: Handler): readonly object[];
  /** Changes of the response's fields, made before discovery sees them. */
  responseFields?(handler: Handler): readonly HeaderOperation[];
  /** Files that are read while the gateway is built; a change of one is a change of the configuration. */
  files?(handler: Handler): readonly ReadFile[];
  /** Where it sends requests on to, each with the part that names it. */
  upstreams?(handler: Handler): readonly { readonly about: object; readonly upstream: string }[];
  /** The facts of an exchange's identity that it establishes: request fields, and the user. */
  establishes?(handler: Handler): { readonly fields: readonly string[]; readonly user: boolean };
  /** Further request fields by which it tells the app what has been established. */
  writesIdentity?(handler: Handler): readonly string[];
  /** Requests that pass it carry credentials. */
  readonly identifies?: true;
  /** What no single field shows. Placeholders are resolved; nothing is opened. */
  check?(handler: Handler, report: Report): void;
}

/** A file, named by a field of a part of the configuration. */
export interface ReadFile {
  readonly about: object;
  readonly field: string;
  readonly path: string;
  /** What must be in it: certificates of authorities, as PEM. */
  readonly holds: 'roots';
}
