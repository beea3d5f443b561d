import type { Cursor, OptionTable } from '../../hubfile/cursor.ts';
import { type DirectiveSyntax, step, takeMatcher } from '../../hubfile/scope.ts';
import { choiceOf, flag, list, name, oneOf, statusCode } from '../../hubfile/values.ts';
import { defaultFileServer, type FileServerConfig, PRECOMPRESSED } from './data.ts';

const USAGE = `
file_server [<matcher>] [browse] {
    root <directory>
    index <file…>
    hide <file…>
    browse
    precompressed [br] [zstd] [gzip]
    status <status>
    pass_thru
}
`;

export const fileServer: DirectiveSyntax = {
  usage: USAGE,
  summary: 'answers with files below the root',
  read(cursor, scope) {
    const matcher = takeMatcher(cursor, scope);
    const browse = cursor.left > 0 && oneOf(cursor, ['browse']) === 'browse';
    const settings = cursor.options({ ...defaultFileServer, browse }, OPTIONS, {
      unsupported: UNSUPPORTED,
    });
    cursor.end();
    return [step(cursor, matcher, settings)];
  },
};

const OPTIONS: OptionTable<FileServerConfig> = {
  root: (option) => ({ root: name(option, 'a directory') }),
  index: (option) => ({ index: list(option, 'a file name') }),
  hide: (option) => ({ hide: list(option, 'a file name or path') }),
  browse: (option) => ({ browse: listing(option) }),
  precompressed: (option) => ({ precompressed: encodings(option) }),
  status: (option) => ({ status: statusCode(option, option.argument('a status')) }),
  pass_thru: () => ({ passThru: flag() }),
};

const UNSUPPORTED: Readonly<Record<string, string>> = {
  disable_canonical_uris: 'rewrite to the directory with its slash instead',
  etag_file_extensions: 'tags are made of size and time of change',
  fs: 'files are those of the operating system',
};

function listing(option: Cursor): true {
  const template = option.peek();
  if (template !== undefined) {
    const message = 'templates of listings are not supported by hubgate';
    const hint = 'ask for the listing with Accept: application/json, and let the app show it';
    option.fail(template.span, 'unsupported-option', message, hint);
  }
  return flag();
}

/** Without a word all that there are. */
function encodings(option: Cursor): FileServerConfig['precompressed'] {
  const words = option.rest();
  return words.length === 0
    ? PRECOMPRESSED
    : words.map((word) => choiceOf(option, word, PRECOMPRESSED));
}
