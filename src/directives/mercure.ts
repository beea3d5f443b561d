import type { HubConfig } from '../config/config.ts';
import { defaultHub } from '../config/shape-hub.ts';
import { transportKinds } from '../config/transports.ts';
import type { Cursor, OptionTable } from '../hubfile/cursor.ts';
import { count, flag, list, name } from '../hubfile/values.ts';
import { OPTIONS, readHub } from './hub.ts';
import { transport } from './hub/transport.ts';
import type { Directive } from './directive.ts';

const USAGE = `
mercure [@<matcher>] [<path>] {
    <options of hub…>
    transport bolt [{ path <file>; size <n>; cleanup_frequency <n> }]
    transport local
    ui
    topic_selector_cache <n>
    cors_allowed_origins|publish_allowed_origins <origin…>
}
`;

export const mercure: Directive = {
  /**
   * Reads a configuration of the reference hub as `hub { profile mercure; … }`. Options that hubgate has in
   * another form become the nearest equivalent, with a warning about the difference.
   */
  syntax: {
    usage: USAGE,
    summary: 'a hub, configured as in a Caddyfile with Mercure',
    after: 'hub',
    read: (cursor, scope) => readHub(cursor, scope, { ...defaultHub, profile: 'mercure' }, TABLE),
  },
};

const TABLE: OptionTable<HubConfig> = {
  ...OPTIONS,
  transport: (cursor) => ({ transport: nearestTransport(cursor) }),
  ui: (cursor) => {
    warn(cursor, 'ui is called debugger in hubgate; its page is at HUB/debug/');
    return { debugger: flag() };
  },
  topic_selector_cache: (cursor) => ({ topicMatcherCache: count(cursor, { min: -(2 ** 31) }) }),
  cors_allowed_origins: (cursor) => ({ corsOrigins: list(cursor, 'an origin') }),
  publish_allowed_origins: (cursor) => ({ publishOrigins: list(cursor, 'an origin') }),
};

function nearestTransport(cursor: Cursor): HubConfig['transport'] {
  const kind = cursor.peek()?.text;
  if (kind === 'local') {
    cursor.argument('a transport');
    warn(
      cursor,
      'transport local is called transport memory in hubgate; it also replays the last 1000 updates',
    );
    return transportKinds.memory.defaults;
  }
  if (kind !== 'bolt') return transport(cursor);
  cursor.argument('a transport');
  const settings = cursor.options(transportKinds.lmdb.defaults, {
    // A file in another format; hubgate's own directory is in its storage.
    path: (option) => nothing(name(option, 'a file')),
    size: (option) => ({ size: count(option) }),
    cleanup_frequency: (option) => nothing(option.argument('a number')),
  });
  warn(
    cursor,
    'hubgate uses transport lmdb instead of bolt, with a history in its own storage; import the bolt file with hubgate history import --from-bolt',
  );
  return settings;
}

/** An option that is accepted and has no effect here. */
function nothing(_value: unknown): Record<string, never> {
  return {};
}

function warn(cursor: Cursor, message: string): void {
  cursor.warn(cursor.span, 'reference-hub', message, 'docs/from-mercure.md lists all differences');
}
