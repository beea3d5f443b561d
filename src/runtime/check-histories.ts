import { join, resolve } from 'node:path';
import type { Config } from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { defaultStorage } from './default-storage.ts';
import { historyNames } from './history-names.ts';

/**
 * Whether the histories that a project had when it was last in force still belong to a hub, and whether it
 * shares one with another project.
 *
 * @param project the configuration file, absolute
 */
export function checkHistories(config: Config, project: string, report: Report): void {
  const storage = resolve(config.options.storage ?? defaultStorage());
  const { leftBehind, shared } = historyNames(config, storage, project);
  for (const name of leftBehind) {
    report(null, {
      severity: 'warning',
      code: 'history-left-behind',
      message: `hub ${name} is no longer configured: its history stays in ${join(storage, 'history')}, unused, and its streams end`,
      hint: 'where the hub is to go on under other addresses only, give it a name first: hub { name … }',
    });
  }
  for (const [name, other] of shared) {
    report(null, {
      severity: 'warning',
      code: 'history-shared',
      message: `the history of ${name} in ${join(storage, 'history')} belongs to ${other} too`,
      hint: 'give this project a storage of its own: storage .hubgate in the global options',
    });
  }
}
