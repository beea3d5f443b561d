import { bindAddresses } from '../hubfile/values.ts';
import type { Directive } from './directive.ts';

const USAGE = `
bind <address…>
bind unix//path/to/socket[|<mode>]
bind fd/<number>
`;

export const bind: Directive = {
  /** The addresses of the site: interfaces, Unix sockets, or sockets that the gateway has inherited. */
  syntax: {
    usage: USAGE,
    summary: 'where the site listens: addresses, Unix sockets, or inherited sockets',
    siteOnly: true,
    once: true,
    read(cursor, scope) {
      const addresses = bindAddresses(cursor);
      cursor.end();
      scope.site.bind = cursor.origins.of(cursor.span, addresses);
      return [];
    },
  },
};
