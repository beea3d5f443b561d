import { BIND_FORMS, parseBindAddress } from '../config/bind-address.ts';
import type { DirectiveSyntax } from '../hubfile/scope.ts';
import { badValue } from '../hubfile/values.ts';
import type { Directive } from './directive.ts';

const USAGE = `
bind <address…>
bind unix//path/to/socket[|<mode>]
bind fd/<number>
`;

/** The addresses of the site: interfaces, Unix sockets, or sockets that the gateway has inherited. */
const syntax: DirectiveSyntax = {
  usage: USAGE,
  summary: 'where the site listens: addresses, Unix sockets, or inherited sockets',
  siteOnly: true,
  once: true,
  read(cursor, scope) {
    const addresses = cursor
      .several('an address of this machine')
      .map((word) => parseBindAddress(word.text) ?? badValue(cursor, word, BIND_FORMS));
    cursor.end();
    scope.site.bind = cursor.origins.of(cursor.span, addresses);
    return [];
  },
};

export const bind: Directive = { syntax };
