const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/([^/?#@\s:[\]]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?$/i;
const HOST = /^(?!\.)[^\s"'<>\\^`{|}%]+$/u;

/**
 * Whether a text is what an `Origin` header can be compared with: `*`, `null`, or
 * `scheme://host[:port]` and nothing behind it. One `*` may stand in the host.
 */
export function isOrigin(text: string): boolean {
  if (text === '*' || text === 'null') return true;
  const [, host = '', port] = ORIGIN.exec(text) ?? [];
  if (host === '' || !HOST.test(host)) return false;
  if (text.split('*').length > 2) return false;
  return port === undefined || (Number(port) >= 1 && Number(port) <= 65_535);
}
