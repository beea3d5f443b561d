import { object } from '../config/shape.ts';
import { oneStep } from '../hubfile/scope.ts';
import { answer } from '../http/answer.ts';
import type { HandlerDirective } from './directive.ts';

export interface MetricsConfig {
  readonly kind: 'metrics';
}

const USAGE = `
metrics [<matcher>] [{
    disable_openmetrics
}]
`;

export const metrics: HandlerDirective<MetricsConfig> = {
  data: { answersAll: () => true, shape: () => object({}) },
  syntax: {
    usage: USAGE,
    summary: 'responds with the metrics of the gateway, for Prometheus',
    read: oneStep((cursor) => {
      // The older format is the only one here.
      cursor.options({}, { disable_openmetrics: () => ({}) });
      return { kind: 'metrics' };
    }),
  },
  /** Requests that arrive while the metrics are being collected get the same text. */
  compile(_config, { metrics }) {
    let collecting: ReturnType<typeof metrics> | null = null;
    return async (exchange) => {
      collecting ??= metrics().finally(() => {
        collecting = null;
      });
      const { type, text } = await collecting;
      answer(exchange, 200, { 'content-type': type, 'cache-control': 'no-store' }, text);
    };
  },
};
