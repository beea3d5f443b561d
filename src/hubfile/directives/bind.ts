import { isIP } from 'node:net';
import type { Directive } from '../scope.ts';
import { badValue } from '../values.ts';

/** `bind <address…>`: the interfaces that the site listens on. */
export const bind: Directive = {
  siteOnly: true,
  once: true,
  read(cursor, scope) {
    const addresses = cursor.several('an address of this machine').map((word) => {
      const bare = word.text.replace(/^\[(.*)\]$/, '$1');
      const isHost = isIP(bare) !== 0 || /^[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*$/.test(bare);
      return isHost ? bare : badValue(cursor, word, 'an IP address or a host name, without port');
    });
    cursor.end();
    scope.site.bind = cursor.origins.of(cursor.span, addresses);
    return [];
  },
};
