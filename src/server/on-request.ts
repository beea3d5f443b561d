import type { UpgradeRequest } from '../http/exchange.ts';
import type { NodeRequest, NodeResponse } from '../http/node-exchange.ts';

/** Takes what either protocol has read and not refused. */
export type OnRequest = (
  request: NodeRequest,
  response: NodeResponse,
  upgrade: UpgradeRequest | null,
) => void;
