import type { HandlerData } from '../config/routes.ts';
import { list, object } from '../config/shape.ts';
import { oneOf, size as sizeShape } from '../config/shape-values.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { type DirectiveSyntax, step, takeMatcher } from '../hubfile/scope.ts';
import { choiceOf, size } from '../hubfile/values.ts';
import { Writable } from 'node:stream';
import zlib from 'node:zlib';
import { breakOff } from '../http/body-end.ts';
import type { Handler } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { negotiatedEncoding, recode } from '../http/representation.ts';
import type { HandlerDirective } from './directive.ts';

export interface EncodeConfig {
  readonly kind: 'encode';
  /** In the order of preference. */
  readonly encodings: readonly Encoding[];
  /** Bytes. */
  readonly minimumLength: number;
}

type Encoding = 'gzip' | 'br' | 'zstd';

const data: HandlerData<EncodeConfig> = {
  shape: () =>
    object(
      { encodings: list(oneOf('gzip', 'br', 'zstd'), { min: 1 }), minimumLength: sizeShape() },
      { encodings: ['br', 'gzip'], minimumLength: 512 },
    ),
};

declare module '../config/routes.ts' {
  interface HandlerKinds {
    encode: EncodeConfig;
  }
}

const ENCODINGS: readonly Encoding[] = ['gzip', 'br', 'zstd'];

const USAGE = `
encode [<matcher>] [zstd] [br] [gzip] {
    zstd
    br
    gzip
    minimum_length <size>
}
`;

/** Without named encodings: br, then gzip. */
const syntax: DirectiveSyntax = {
  usage: USAGE,
  summary: 'compresses text in responses',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const encodings = cursor.rest().map((word) => choiceOf(cursor, word, ENCODINGS));
    const start: { encodings: readonly Encoding[]; minimumLength: number } = {
      encodings,
      minimumLength: 512,
    };
    const also = (encoding: Encoding) => (_: Cursor, sofar: typeof start) => ({
      encodings: [...sofar.encodings, encoding],
    });
    const settings = cursor.options(
      start,
      {
        gzip: also('gzip'),
        br: also('br'),
        zstd: also('zstd'),
        minimum_length: (option) => ({ minimumLength: size(option) }),
      },
      {
        unsupported: {
          match: 'hubgate encodes only text-like types; use a matcher to limit requests',
        },
      },
    );
    cursor.end();
    const chosen: readonly Encoding[] =
      settings.encodings.length > 0 ? [...new Set(settings.encodings)] : ['br', 'gzip'];
    return [step(cursor, matcher, { kind: 'encode', ...settings, encodings: chosen })];
  },
};

type Encoder = zlib.Gzip | zlib.BrotliCompress;

/** Brotli's own default of 11 takes tens of milliseconds for a page. */
const BROTLI_QUALITY = 4;

const COMPRESSIBLE =
  /^(?:text\/|application\/(?:[\w.-]+\+)?(?:json|xml|javascript)|application\/(?:x-javascript|ld\+json|manifest\+json|wasm|graphql|x-ndjson|atom\+xml|rss\+xml|xhtml\+xml)|image\/(?:svg\+xml|bmp|x-icon|vnd\.microsoft\.icon)|font\/(?:ttf|otf|collection)|application\/(?:vnd\.ms-fontobject|x-font-ttf|x-font-opentype))/i;

/** `encode [<matcher>] [zstd] [br] [gzip] [{ minimum_length <bytes> }]` */
function compile({ encodings, minimumLength }: EncodeConfig): Handler {
  const offered = encodings.filter((one) => one !== 'zstd' || createZstd() !== null);
  return (exchange, next) => {
    exchange.onHead((head) => {
      if (exchange.upgrade !== null) return undefined;
      return recode(exchange, head, {
        vary: ['Accept-Encoding'],
        concerns: (headers) => isEligible(headers, minimumLength),
        begin: (headers) => {
          const accepted = exchange.headers.combined('accept-encoding') ?? '';
          const encoding = negotiatedEncoding(accepted, offered);
          if (encoding === null) return null;
          headers.set('Content-Encoding', encoding);
          return (body) => compressed(body, createEncoder(encoding));
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
  if (/^text\/event-stream/i.test(type) || !COMPRESSIBLE.test(type)) return false;
  if (headers.has('content-encoding')) return false;
  if (/no-transform/i.test(headers.combined('cache-control') ?? '')) return false;
  const length = headers.get('content-length');
  return length === undefined || Number(length) >= minimumLength;
}

function createEncoder(encoding: Encoding): Encoder {
  switch (encoding) {
    case 'gzip':
      return zlib.createGzip();
    case 'br':
      return zlib.createBrotliCompress({
        params: { [zlib.constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY },
      });
    case 'zstd':
      return createZstd() ?? zlib.createGzip();
  }
}

/** Zstandard was added in Node 22.15; the types here are those of Node 20. */
function createZstd(): Encoder | null {
  const create: unknown = Reflect.get(zlib, 'createZstdCompress');
  // A function of Node with the same signature as the similar ones.
  return typeof create === 'function' ? (create as typeof zlib.createGzip)() : null;
}

/** Compresses into `body`. Written data is sent in the same turn of the event loop. */
function compressed(body: Writable, encoder: Encoder): Writable {
  let flushing: NodeJS.Immediate | undefined;
  const flush = (): void => {
    flushing = undefined;
    if (!encoder.destroyed && !encoder.writableEnded) encoder.flush();
  };
  encoder.pipe(body);
  const plain = new Writable({
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
  plain.on('error', () => {});
  return plain;
}

export const encode: HandlerDirective<EncodeConfig> = { data, syntax, compile };
