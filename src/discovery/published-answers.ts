import { ignore } from '../kernel/error.ts';
import {
  about,
  type Exchange,
  type RequestHook,
  type ResponseHead,
  type BodyWrapper,
} from '../http/exchange.ts';
import { decompressZstd, isZlib } from '../http/encoders.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import { orNull } from '../kernel/parse.ts';
import {
  type AnnouncedHub,
  type Announce,
  isSeeOther,
  waitForStored,
  withoutQuery,
} from './announced-hub.ts';
import { type AskedUpdate, DATA_FIELD, PUBLISH_FIELD, readHubPublish } from './hub-publish.ts';
import { requestUrl } from '../http/request-path.ts';
import zlib from 'node:zlib';
import { Writable } from 'node:stream';

export interface PublishedAnswersOptions {
  readonly hub: AnnouncedHub;
  /** Whether responses to a request may publish. */
  readonly concerns: (exchange: Exchange) => boolean;
  readonly announce: Announce;
  readonly clock: Clock;
}

/**
 * Publishes the updates that the app's responses request in `Hub-Publish`, in the head or in the trailers.
 */
export function createPublishedAnswers({
  hub,
  concerns,
  announce,
  clock,
}: PublishedAnswersOptions): RequestHook {
  const read = (exchange: Exchange, headers: HeaderList): readonly AskedUpdate[] => {
    const fields = headers.getAll(PUBLISH_FIELD);
    if (fields.length === 0) return [];
    const base = requestUrl(exchange)?.href ?? 'https://hub.invalid/';
    const { updates, faults } = readHubPublish(fields, headers.getAll(DATA_FIELD), base);
    for (const fault of faults) {
      hub.announcements.refused += 1;
      const details = about(exchange, { field: PUBLISH_FIELD, fault });
      exchange.log.warn('The app sent an invalid Hub-Publish field', details);
    }
    return updates;
  };
  const publish = async (
    exchange: Exchange,
    update: AskedUpdate,
    body: string | null,
  ): Promise<void> => {
    const data = update.data ?? body;
    if (data === null) {
      hub.announcements.refused += 1;
      exchange.log.warn('The body was not published: it is too large, incomplete or not UTF-8', {
        field: PUBLISH_FIELD,
        topics: update.topics.map(withoutQuery),
      });
    } else if ((await announce({ ...update, data }, exchange.log, PUBLISH_FIELD)) === 'unavailable')
      hub.announcements.refused += 1;
  };

  return (exchange) => {
    if (!concerns(exchange)) return;
    exchange.onHead((head) => {
      if (head.source !== 'upstream' || head.status < 200 || head.opensTunnel === true) {
        return undefined;
      }
      // Trailers count only after a head that the app has sent.
      exchange.onTrailers((trailers) => {
        for (const update of read(exchange, trailers)) void publish(exchange, update, null);
      });
      const updates = read(exchange, head.headers);
      if (updates.length === 0) return undefined;
      const ofBody = updates.filter(({ data }) => data === null);
      const ready = updates.filter(({ data }) => data !== null);
      const isComplete = ofBody.length === 0 || hasNoBody(exchange, head);
      const stored = (isComplete ? updates : ready).map((update) => publish(exchange, update, ''));
      if (isComplete) {
        return isSeeOther(head) ? waitForStored(Promise.all(stored), clock) : undefined;
      }
      return readAlong(head, (text) => {
        for (const update of ofBody) void publish(exchange, update, text);
      });
    });
  };
}

function hasNoBody({ method }: Exchange, { status }: ResponseHead): boolean {
  return method === 'HEAD' || status === 204 || status === 205 || status === 304;
}

/** Bytes of a body that can become the data of an update, both encoded and decoded. */
export const MAX_DATA_BYTES = 64 * 1024;

/**
 * Reads a copy of a body that goes to the client.
 *
 * @param done called once, however the body ends: with its text, or null if it is too large, aborted, or not
 * text
 */
export function readAlong(
  { headers }: ResponseHead,
  done: (text: string | null) => void,
): BodyWrapper {
  const encoding = (headers.combined('content-encoding') ?? 'identity').trim().toLowerCase();
  return copyBody(MAX_DATA_BYTES, (bytes) =>
    done(bytes === null ? null : decoded(bytes, encoding)),
  );
}

function decoded(bytes: Buffer, encoding: string): string | null {
  return orNull(() => new TextDecoder('utf-8', { fatal: true }).decode(inflate(bytes, encoding)));
}

/** From at most 64 KiB to at most 64 KiB, which takes less than a millisecond. */
function inflate(bytes: Buffer, encoding: string): Buffer {
  const limit = { maxOutputLength: MAX_DATA_BYTES };
  switch (encoding) {
    case 'identity':
      return bytes;
    case 'gzip':
    case 'x-gzip':
      return zlib.gunzipSync(bytes, limit);
    case 'deflate':
      return isZlib(bytes) ? zlib.inflateSync(bytes, limit) : zlib.inflateRawSync(bytes, limit);
    case 'br':
      return zlib.brotliDecompressSync(bytes, limit);
    case 'zstd':
      return decompressZstd(bytes, MAX_DATA_BYTES);
    default:
      throw new TypeError('an encoding that nobody here knows');
  }
}

/**
 * Copies a body that goes to the client.
 *
 * @param maxBytes limit of the copy
 * @param done called once, however the body ends: with its bytes as they were sent, or null if it is too
 * large or aborted
 */
function copyBody(maxBytes: number, done: (bytes: Buffer | null) => void): BodyWrapper {
  return (body) => {
    const chunks: Buffer[] = [];
    let size = 0;
    let complete = false;
    const copying = new Writable({
      write(chunk: Buffer, _encoding, written) {
        size += chunk.length;
        if (size <= maxBytes) chunks.push(chunk);
        else chunks.length = 0;
        body.write(chunk, written);
      },
      final(ended) {
        complete = true;
        body.end();
        ended();
      },
    });
    body.once('close', () => copying.destroy());
    // `close` notifies the writer. Without a listener, the error would end the process.
    copying.on('error', ignore);
    copying.once('close', () => done(complete && size <= maxBytes ? Buffer.concat(chunks) : null));
    return copying;
  };
}
