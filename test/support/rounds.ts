/**
 * How often a test of random orders, races or failures repeats. A few rounds find most bugs that a change brings.
 * `HUBGATE_ROUNDS=all`, as in `.ci/nightly`, asks for those that find a rare one.
 */
export function rounds(few: number, all: number): number {
  return process.env['HUBGATE_ROUNDS'] === 'all' ? all : few;
}
