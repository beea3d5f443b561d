import type { HandlerData } from '../../config/handler-data.ts';
import { byKind, list, object } from '../../config/shape.ts';
import { headerName } from '../../config/shape-options.ts';
import { name } from '../../config/shape-values.ts';
import { type ReverseProxyConfig, reverseProxy } from '../reverse-proxy/data.ts';

export interface ForwardAuthConfig {
  readonly kind: 'forward_auth';
  readonly proxy: ReverseProxyConfig;
  readonly uri: string;
  readonly copyHeaders: readonly { readonly from: string; readonly to: string }[];
}

export const forwardAuth: HandlerData<ForwardAuthConfig> = {
  shape: (inner) =>
    object(
      {
        proxy: byKind({ reverse_proxy: reverseProxy.shape(inner) }),
        uri: name('a path'),
        copyHeaders: list(object({ from: headerName, to: headerName })),
      },
      { copyHeaders: [] },
    ),
  answering: ({ proxy }) => reverseProxy.answering?.(proxy) ?? [],
  patterns: ({ proxy }) => reverseProxy.patterns?.(proxy) ?? [],
  upstreams: ({ proxy }) => reverseProxy.upstreams?.(proxy) ?? [],
  files: ({ proxy }) => reverseProxy.files?.(proxy) ?? [],
  establishes: ({ copyHeaders }) => ({ fields: copyHeaders.map(({ to }) => to), user: false }),
  identifies: true,
  check: ({ proxy }, report) => reverseProxy.check?.(proxy, report),
};
