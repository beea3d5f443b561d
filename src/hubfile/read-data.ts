import { placeText, whyUnreadable } from '../config/problem.ts';
import { resolve } from 'node:path';
import { decodeConfig } from '../config/serialize.ts';
import type { ConfigRegistry } from '../config/routes.ts';
import { defaultOptions } from '../config/defaults.ts';
import type { DataNode, SourceRange } from '../config/shape.ts';
import type { HubfileIo } from './expand.ts';
import { readJson } from './json.ts';
import { loaded, type ReadConfig } from './loaded.ts';
import { locate, Origins, placeOf, type Span } from './place.ts';
import { Problems } from './problems.ts';
import { decodeText, type Source, TextProblem } from './source.ts';
import { readYaml } from './yaml.ts';

/**
 * Reads a configuration in YAML or JSON, in the format of `adapt`. Every member with a default may be left
 * out. `{$VAR}` exists only in the Hubfile; `{env.X}` and `{file.X}` work everywhere.
 */
export function readData(
  file: string,
  io: HubfileIo,
  language: 'yaml' | 'json',
  registry: ConfigRegistry,
): ReadConfig {
  const problems = new Problems();
  const origins = new Origins();
  const path = resolve(file);
  const { text, source, readable } = readText(file, path, io, problems);
  const spanOf = ({ start, end }: SourceRange): Span => ({ source, start, end, via: null });
  const data = readable ? parse(text, language, spanOf, problems) : null;
  const sound = new Set<object>();
  let inSites = 0;
  const config =
    data === null
      ? null
      : decodeConfig(data, registry, {
          report: (at, finding) => problems.add(locate(finding, spanOf(at))),
          mark: (part, at, fields) => {
            const places = [...fields].map(([name, each]) => [name, spanOf(each)] as const);
            origins.mark(part, spanOf(at), new Map(places));
          },
          site: (part, findings) => {
            inSites += findings;
            if (findings === 0) sound.add(part);
          },
          inClear: false,
        });
  const { options, sites } = config ?? { options: defaultOptions, sites: [] };
  // An invalid value is missing. Outside of the sites, one of the sites may need it.
  const whole = problems.errors === inSites;
  const good = whole
    ? { options, sites: sites.filter((site) => sound.has(site)) }
    : { options: defaultOptions, sites: [] };
  const files = [path];
  return loaded({ options, sites }, problems, origins, {
    files,
    globs: [],
    fromEnvironment: [],
    sound: good,
    readable: good,
  });
}

function readText(
  file: string,
  path: string,
  io: HubfileIo,
  problems: Problems,
): { readonly text: string; readonly source: Source; readonly readable: boolean } {
  const sourceOf = (text: string): Source => ({
    file,
    path,
    raw: text,
    text,
    pieces: [],
    fromEnvironment: [],
    language: 'data',
  });
  try {
    const { text, fault } = decodeText(io.read(path));
    const source = sourceOf(text);
    if (fault === undefined) return { text, source, readable: true };
    const span = { source, start: fault.at, end: fault.at + 1, via: null };
    problems.error(span, fault.code, fault.message, fault.hint);
  } catch (thrown) {
    const message = `cannot read ${file}: ${whyUnreadable(thrown)}`;
    problems.add({ severity: 'error', code: 'unreadable-file', message });
  }
  return { text: '', source: sourceOf(''), readable: false };
}

function parse(
  text: string,
  language: 'yaml' | 'json',
  spanOf: (at: SourceRange) => Span,
  problems: Problems,
): DataNode | null {
  try {
    return language === 'json' ? readJson(text) : readYaml(text);
  } catch (thrown) {
    if (!(thrown instanceof TextProblem)) throw thrown;
    const { at, code, message, first } = thrown;
    const spot = (start: number): Span => spanOf({ start, end: start + 1 });
    const other = first === undefined ? '' : `; the first is at ${placeText(placeOf(spot(first)))}`;
    problems.error(spot(at), code, message + other);
    return null;
  }
}
