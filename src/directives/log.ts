import { placeText } from '../config/problem.ts';
import { defaultAccessLog } from '../config/shape-config.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { placeOf } from '../hubfile/place.ts';
import { FORMAT_USAGE, logFormat } from '../hubfile/log-format.ts';
import { logLevel, logName, logOutput } from '../hubfile/log-options.ts';
import { badValue, flag } from '../hubfile/values.ts';
import type { Directive } from './directive.ts';

const USAGE = `
log [<name>] {
    level debug|info|warn|error
    hostnames <host…>
    no_hostname
    output stderr|stdout|discard
    output file <path> {
        mode <mode>
        roll_size <size>
        roll_keep <count>
        roll_keep_for <duration>
        roll_interval <duration>
        roll_disabled
    }
    ${FORMAT_USAGE.replaceAll('\n    ', '\n')}
}
`;

export const log: Directive = {
  syntax: {
    usage: USAGE,
    summary: 'an access log of the site',
    siteOnly: true,
    read(cursor, scope) {
      const name = cursor.left === 0 ? null : logName(cursor);
      const known = scope.site.accessLogs.find((log) => log.name === name);
      if (known !== undefined) {
        const first = cursor.origins.find(known);
        const where = first === undefined ? '' : `; the first is at ${placeText(placeOf(first))}`;
        const message = `this site has a log ${name === null ? 'without a name' : name} already${where}`;
        cursor.fail(
          cursor.span,
          'duplicate-directive',
          message,
          'give each a name: log <name> { … }',
        );
      }
      let isDiscarded = false;
      const settings = cursor.options(
        { ...defaultAccessLog, name },
        {
          level: (option) => ({ level: logLevel(option) }),
          hostnames: (option) => ({ hosts: hosts(option) }),
          no_hostname: () => ({ onlyNamed: flag() }),
          output: (option) => {
            if (option.peek()?.text !== 'discard') return logOutput(option);
            option.optional();
            isDiscarded = true;
            return {};
          },
          format: (option) => logFormat(option),
        },
        {
          unsupported: {
            include:
              'a log of a site has the lines of that site; include is for logs of the global options',
            exclude: 'use log_skip with a matcher to leave requests out',
          },
        },
      );
      cursor.end();
      if (!isDiscarded) scope.site.accessLogs.push(settings);
      return [];
    },
  },
};

function hosts(cursor: Cursor): readonly string[] {
  return cursor.several('a host').map((word) => {
    const host = word.text.toLowerCase();
    return /^[^\s/:]+$/.test(host) ? host : badValue(cursor, word, 'a host such as example.com');
  });
}
