import type { HandlerData } from '../../config/handler-data.ts';
import type { Report } from '../../config/problem.ts';
import { list, object } from '../../config/shape.ts';
import { name, oneOf, text } from '../../config/shape-values.ts';
import {
  isTriedFile,
  misplacedStatus,
  TRY_POLICIES,
  type TryPolicy,
} from '../../config/try-files.ts';

export interface TryFilesConfig {
  readonly kind: 'try_files';
  /** Paths below the root, with placeholders, each maybe with a query; the last maybe `=404`. */
  readonly files: readonly string[];
  readonly policy: TryPolicy;
  /** Ends of names after which the rest of the path is no file's; only of `php_fastcgi`. */
  readonly splitPath: readonly string[];
}

export const tryFiles: HandlerData<TryFilesConfig> = {
  shape: () =>
    object(
      {
        files: list(text('a path, or a status such as =404', isTriedFile), { min: 1 }),
        policy: oneOf(...TRY_POLICIES),
        splitPath: list(name('the end of a name such as .php')),
      },
      { policy: 'first_exist', splitPath: [] },
    ),
  check(handler: TryFilesConfig, report: Report): void {
    const message = misplacedStatus(handler.files, handler.policy);
    if (message !== null) report(handler, { severity: 'error', code: 'misplaced-status', message });
  },
};
