import type { HandlerData } from '../../config/handler-data.ts';
import { list, nullable, object } from '../../config/shape.ts';
import { name } from '../../config/shape-values.ts';

export interface FileServerConfig {
  readonly kind: 'file_server';
  /** null: the `root` of the site. */
  readonly root: string | null;
  readonly index: readonly string[];
  readonly hide: readonly string[];
}

export const fileServer: HandlerData<FileServerConfig> = {
  shape: () =>
    object(
      {
        root: nullable(name('a directory')),
        index: list(name('a file name')),
        hide: list(name('a file name or path')),
      },
      { root: null, index: ['index.html'], hide: [] },
    ),
  answersPages: true,
};
