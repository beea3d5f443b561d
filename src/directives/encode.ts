import { ignore } from '../kernel/error.ts';
import { type ResponseMatcher, responseMatcher } from '../config/shape-routes.ts';
import { defaultsOf, list, object, type Of, optional, withDefault } from '../config/shape.ts';
import { count as countShape, oneOf, size as sizeShape } from '../config/shape-values.ts';
import { readResponseMatcher } from '../hubfile/named-matchers.ts';
import { oneStep } from '../hubfile/scope.ts';
import { choiceOf, count, oneOf as oneWord, size } from '../hubfile/values.ts';
import { Writable } from 'node:stream';
import { breakOff } from '../http/body-end.ts';
import {
  brotli,
  type Encoder,
  type Encoding,
  gzip,
  hasRoomFor,
  startEncoder,
  zstd,
} from '../http/encoders.ts';
import type { Handler } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { CALLS_BACK_WHEN_SENT } from '../http/body-memory.ts';
import { compileResponseMatcher } from '../http/header-operations.ts';
import { negotiatedEncoding, recode } from '../http/representation.ts';
import type { HandlerDirective } from './directive.ts';

/** As levels of the zstd library. */
const ZSTD_LEVELS = { fastest: 1, default: 3, better: 7, best: 11 } as const;

type EncodingName = (typeof ENCODINGS)[number];

const ZSTD_WORDS = ['fastest', 'default', 'better', 'best'] as const;
const ENCODINGS = ['gzip', 'br', 'zstd'] as const;

const members = {
  /** In order of preference. */
  encodings: withDefault(list(oneOf(...ENCODINGS), { min: 1 }), ['br', 'gzip']),
  /** Bytes. */
  minimumLength: withDefault(sizeShape(), 512),
  /** From 1, the fastest, to 9; null means 6. */
  gzipLevel: optional(countShape({ min: 1, max: 9 })),
  zstdLevel: withDefault(oneOf(...ZSTD_WORDS), 'default'),
  /** The responses to encode; null means those with a type that is text or similar. */
  match: optional<ResponseMatcher>(responseMatcher),
};

export interface EncodeConfig extends Of<typeof members> {
  readonly kind: 'encode';
}

const USAGE = `
encode [<matcher>] [zstd] [br] [gzip] {
    zstd [fastest|default|better|best]
    br
    gzip [<level>]
    minimum_length <size>
    match {
        status <status…>
        header <field> [<value>]
    }
}
`;

export const encode: HandlerDirective<EncodeConfig> = {
  data: { shape: () => object(members) },
  /** Without named encodings: br, then gzip. */
  syntax: {
    usage: USAGE,
    summary: 'compresses text in responses',
    read: oneStep((cursor) => {
      const encodings = cursor.rest().map((word) => choiceOf(cursor, word, ENCODINGS));
      const start: EncodeConfig = { kind: 'encode', ...defaultsOf(members), encodings };
      const also = (encoding: EncodingName, sofar: EncodeConfig) => ({
        encodings: [...sofar.encodings, encoding],
      });
      const settings = cursor.options(start, {
        gzip: (option, sofar) => ({
          ...also('gzip', sofar),
          ...(option.left === 0 ? {} : { gzipLevel: count(option, { min: 1, max: 9 }) }),
        }),
        br: (_, sofar) => also('br', sofar),
        zstd: (option, sofar) => ({
          ...also('zstd', sofar),
          ...(option.left === 0 ? {} : { zstdLevel: oneWord(option, ZSTD_WORDS) }),
        }),
        match: (option) => ({ match: readResponseMatcher(option) }),
        minimum_length: (option) => ({ minimumLength: size(option) }),
      });
      if (settings.encodings.length === 0) {
        return { ...settings, encodings: members.encodings.standard };
      }
      return { ...settings, encodings: [...new Set(settings.encodings)] };
    }),
  },
  compile,
};

const COMPRESSIBLE =
  /^(?:text\/|application\/(?:[\w.-]+\+)?(?:json|xml|javascript)|application\/(?:x-javascript|ld\+json|manifest\+json|wasm|graphql|x-ndjson|atom\+xml|rss\+xml|xhtml\+xml)|image\/(?:svg\+xml|bmp|x-icon|vnd\.microsoft\.icon)|font\/(?:ttf|otf|collection)|application\/(?:vnd\.ms-fontobject|x-font-ttf|x-font-opentype))/i;

/** `encode [<matcher>] [zstd] [br] [gzip] [{ … }]` */
function compile(config: EncodeConfig): Handler {
  const { minimumLength, match } = config;
  const matches = match === null ? null : compileResponseMatcher(match);
  const offered = encodingsOf(config);
  const names = [...offered.keys()];
  return (exchange, next) => {
    exchange.onHead((head) => {
      if (exchange.upgrade !== null) return undefined;
      return recode(exchange, head, {
        vary: ['Accept-Encoding'],
        concerns: (headers) =>
          (matches === null ? isTextLike(headers) : matches(head.status, headers)) &&
          isEligible(headers, minimumLength),
        begin: (headers) => {
          const accepted = exchange.headers.combined('accept-encoding') ?? '';
          const name = negotiatedEncoding(accepted, names);
          const encoding = name === null ? undefined : offered.get(name);
          if (name === null || encoding === undefined) return null;
          const { clientAddress } = exchange;
          if (!hasRoomFor(encoding, clientAddress)) return null;
          headers.set('Content-Encoding', name);
          return (body) => compressed(body, startEncoder(encoding, clientAddress));
        },
        // The bytes differ from the origin's, so the tag is no longer valid for them (RFC 9110 §8.8.1).
        retag: (etag) => (etag.startsWith('"') ? `W/${etag}` : etag),
      });
    });
    return next();
  };
}

function isEligible(headers: HeaderList, minimumLength: number): boolean {
  const type = headers.get('content-type') ?? '';
  // Compressors hold back data that an event stream must send at once.
  if (/^text\/event-stream/i.test(type)) return false;
  if (headers.has('content-encoding')) return false;
  if (/no-transform/i.test(headers.combined('cache-control') ?? '')) return false;
  const length = headers.get('content-length');
  return length === undefined || Number(length) >= minimumLength;
}

function isTextLike(headers: HeaderList): boolean {
  return COMPRESSIBLE.test(headers.get('content-type') ?? '');
}

function encodingsOf({ encodings, gzipLevel, zstdLevel }: EncodeConfig): Map<string, Encoding> {
  const offered = new Map<string, Encoding>();
  for (const name of encodings) {
    const zstdIfKnown = name === 'zstd' ? zstd(ZSTD_LEVELS[zstdLevel]) : null;
    if (name === 'gzip') offered.set(name, gzip(gzipLevel));
    else if (name === 'br') offered.set(name, brotli);
    else if (zstdIfKnown !== null) offered.set(name, zstdIfKnown);
  }
  return offered;
}

/** An encoder calls back when it no longer reads a chunk. */
class CompressedBody extends Writable {
  readonly [CALLS_BACK_WHEN_SENT] = true;
}

/** Compresses into `body`. Written data is sent in the same turn of the event loop. */
function compressed(body: Writable, encoder: Encoder): Writable {
  let flushing: NodeJS.Immediate | undefined;
  const flush = (): void => {
    flushing = undefined;
    if (!encoder.destroyed && !encoder.writableEnded) encoder.flush();
  };
  encoder.pipe(body);
  const plain = new CompressedBody({
    write: (chunk: Buffer, encoding, done) => {
      encoder.write(chunk, encoding, done);
      flushing ??= setImmediate(flush);
    },
    final: (done) => {
      clearImmediate(flushing);
      encoder.end(done);
    },
  });
  // A client that has left reads no more, and the garbage collector does not free the encoder's memory.
  body.once('close', () => {
    clearImmediate(flushing);
    encoder.destroy();
    plain.destroy();
  });
  encoder.once('error', (error) => {
    plain.destroy(error);
    breakOff(body);
  });
  // `close` notifies the writer. Without a listener, the error would end the process.
  plain.on('error', ignore);
  return plain;
}
