import { resolve } from 'node:path';
import type { Config } from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { defaultStorage } from './default-storage.ts';
import { historyNames } from './history-names.ts';

/** Whether the histories that the storage has in force still belong to a hub. */
export function checkHistories(config: Config, report: Report): void {
  const { leftBehind } = historyNames(config, resolve(config.options.storage ?? defaultStorage()));
  for (const name of leftBehind) {
    report(null, {
      severity: 'warning',
      code: 'history-left-behind',
      message: `the history of ${name} is left behind, and the streams of its hub end: no hub here has its name, or an address of its site`,
      hint: 'where the hub is to go on under other addresses only, give it a name first: hub { name … }',
    });
  }
}
