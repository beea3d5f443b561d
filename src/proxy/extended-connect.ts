import { hash, randomBytes } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { ServerHttp2Stream } from 'node:http2';
import { attemptTimeout } from '../kernel/connection-attempts.ts';
import { endStream } from '../http/body-end.ts';
import type { Exchange } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import { ForwardError } from './forward-error.ts';
import type { ForwardSink } from './forwarding.ts';
import {
  joinEnds,
  passBoth,
  tlsOptions,
  type TunnelEnds,
  UpgradeExchange,
  type UpgradeSink,
  type UpgradeTarget,
} from './upgrade-request.ts';
import { upstreamReads } from './upstream-reads.ts';

/** RFC 6455 §1.3. */
const ACCEPT_SUFFIX = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** RFC 8441: an extended CONNECT becomes an HTTP/1.1 upgrade. */
export function switchHttp2(
  exchange: Exchange,
  stream: ServerHttp2Stream,
  target: UpgradeTarget,
  sink: UpgradeSink,
): Promise<TunnelEnds | null> {
  const { address, settings } = target;
  const key = randomBytes(16).toString('base64');
  const fields = target.headers.clone();
  fields.set('Connection', 'Upgrade');
  fields.set('Upgrade', 'websocket');
  fields.set('Sec-WebSocket-Key', key);
  if (!fields.has('sec-websocket-version')) fields.set('Sec-WebSocket-Version', '13');
  const open = address.protocol === 'https:' ? httpsRequest : httpRequest;
  const upstreamRequest = open({
    method: 'GET',
    host: address.hostname,
    port: address.port,
    path: target.path,
    headers: fields.toRecord(),
    agent: false,
    ...upstreamReads.socketOptions,
    ...(address.socketPath === null ? {} : { socketPath: address.socketPath }),
    // Node's types do not have it here.
    ...{ autoSelectFamilyAttemptTimeout: attemptTimeout(settings.dialTimeoutMs) },
    ...(address.protocol === 'https:'
      ? { ...tlsOptions(target), rejectUnauthorized: !settings.tlsInsecureSkipVerify }
      : {}),
  });
  upstreamRequest.end();
  return new Promise((resolve, reject) => {
    upstreamRequest.once('upgrade', (response, upstream, early) => {
      const accept = hash('sha1', `${key}${ACCEPT_SUFFIX}`, 'base64');
      if (response.headers['sec-websocket-accept'] !== accept) {
        upstream.destroy();
        reject(
          new ForwardError('upstream-broken', 'sent', new Error('wrong Sec-WebSocket-Accept')),
        );
        return;
      }
      try {
        const head = sink.switched(HeaderList.fromRaw(response.rawHeaders));
        head.headers.delete('sec-websocket-accept');
        const client = exchange.begin({ ...head, status: 200, opensTunnel: true });
        if (early.length > 0) upstream.unshift(early);
        passBoth({ from: stream, to: client, isView: true }, upstream, target.clock);
        upstream.on('error', () => exchange.abort());
        upstream.once('close', () => endStream(stream));
        joinEnds(stream, upstream, target.clock);
        resolve({ client: stream, upstream });
      } catch (error) {
        upstream.destroy();
        reject(error);
      }
    });
    const refusals = refusalsOnly(sink);
    new UpgradeExchange(upstreamRequest, target, exchange, refusals, resolve, reject).start();
  });
}

/**
 * RFC 9113 §8.5: any 2xx tells the client that its tunnel is open. If an app responds to a WebSocket request
 * with an ordinary page, the client would read the page as WebSocket frames.
 */
function refusalsOnly(sink: UpgradeSink): ForwardSink {
  return {
    onInformation: (status, headers, received) => sink.onInformation(status, headers, received),
    onHead: (status, headers, received) => {
      if (status < 300) {
        throw new ForwardError(
          'upstream-broken',
          'sent',
          new Error(`${status} instead of a switch of protocols`),
        );
      }
      return sink.onHead(status, headers, received);
    },
    onEnd: (body, trailers) => sink.onEnd(body, trailers),
  };
}
