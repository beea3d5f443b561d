import type { HandlerConfig, RequestMatcher, RouteConfig } from '../config/routes.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import { step, oneStep } from '../hubfile/scope.ts';
import { name, triedFiles } from '../hubfile/values.ts';
import { defaultFile } from '../matchers/file.ts';
import { defaultFastcgi, defaultReverseProxy } from '../proxy/proxy-config.ts';
import { PLACEHOLDER, shortName } from '../site/placeholder-names.ts';
import { proxySettings } from './reverse-proxy.ts';
import { FASTCGI_OPTIONS, FASTCGI_UNSUPPORTED } from './reverse-proxy/transport.ts';
import type { Directive } from './directive.ts';

const USAGE = `
php_fastcgi [<matcher>] <upstream…> {
    root <directory>
    resolve_root_symlink
    split <end…>
    index <file>|off
    try_files <file…>
    env <name> <value>
    dial_timeout <duration>
    response_header_timeout <duration>
    read_timeout <duration>
    write_timeout <duration>
    <options of reverse_proxy…>
}
`;

const UNSUPPORTED: Readonly<Record<string, string>> = {
  ...FASTCGI_UNSUPPORTED,
  transport: 'write its options in php_fastcgi itself',
};

export const phpFastcgi: Directive = {
  /** `php_fastcgi` itself has no handler: it becomes a redirect, a `try_files` and a `reverse_proxy`. */
  syntax: {
    usage: USAGE,
    summary: 'sends scripts, and paths without a file, to PHP-FPM',
    read: oneStep((cursor, scope) => {
      let fastcgi = {
        ...defaultFastcgi,
        splitPath: ['.php'] as readonly string[],
        transport: defaultReverseProxy.transport,
      };
      let index: string | null = 'index.php';
      let files: readonly string[] | null = null;
      const seen = new Set<string>();
      const read = (option: Cursor): boolean => {
        const setter = Object.hasOwn(FASTCGI_OPTIONS, option.name)
          ? FASTCGI_OPTIONS[option.name]
          : undefined;
        if (Object.hasOwn(UNSUPPORTED, option.name)) {
          option.failUnsupported(option.span, option.name, UNSUPPORTED[option.name]);
        }
        if (setter === undefined && option.name !== 'index' && option.name !== 'try_files')
          return false;
        if (option.name !== 'env' && seen.has(option.name)) {
          option.fail(option.span, 'duplicate-option', `${option.name} is given twice`);
        }
        seen.add(option.name);
        if (setter !== undefined) fastcgi = { ...fastcgi, ...setter(option, fastcgi) };
        else if (option.name === 'index') index = indexFile(option);
        else files = triedFiles(option, option.several('a path such as {path}'));
        option.end();
        return true;
      };
      const settings = proxySettings(cursor, scope, {
        names: ['index', 'try_files', ...Object.keys(FASTCGI_OPTIONS)],
        read,
      });
      const { transport, ...rest } = fastcgi;
      const proxy = { ...settings, transport, fastcgi: rest };
      cursor.origins.follow(proxy, settings);
      const routes = phpRoutes(cursor, proxy, index, files, rest);
      return { kind: 'route', routes };
    }),
  },
};

/** A text with the short names of its placeholders. */
function withShortNames(text: string): string {
  return text.replace(PLACEHOLDER, (whole: string, name: string | undefined) =>
    name === undefined ? whole : `{${shortName(name)}}`,
  );
}

function indexFile(option: Cursor): string | null {
  const file = name(option, 'a file name, or off');
  return file === 'off' ? null : file;
}

function phpRoutes(
  cursor: Cursor,
  proxy: HandlerConfig,
  index: string | null,
  files: readonly string[] | null,
  { splitPath }: { readonly splitPath: readonly string[] },
): RouteConfig[] {
  // PHP may run `/up.jpg` for `/up.jpg/a.php`, so it only gets requests for existing files.
  const scripts: RequestMatcher = [
    { kind: 'path', paths: splitPath.map((end) => `*${end}`) },
    defaultFile,
  ];
  const answered = step(cursor, scripts, proxy);
  if (index === null) return [answered];
  const inDirectory = `{path}/${index}`;
  const directory: RequestMatcher = [
    { kind: 'not', matchers: [[{ kind: 'path', paths: ['*/'] }]] },
    { ...defaultFile, files: [inDirectory] },
  ];
  const to = '{http.request.orig_uri.path}/{http.request.orig_uri.prefixed_query}';
  const tried = files ?? ['{path}', inDirectory, `/${index}`];
  return [
    ...(tried.map(withShortNames).includes(inDirectory)
      ? [step(cursor, directory, { kind: 'redir', to, status: 308 })]
      : []),
    step(cursor, null, { kind: 'try_files', files: tried, policy: 'first_exist', splitPath }),
    answered,
  ];
}
