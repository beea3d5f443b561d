import { ConfigError, hasError, type Problem, type UnplacedProblem } from '../config/problem.ts';
import { locate, type Span } from './place.ts';

/** Thrown to leave a directive that cannot be understood. It is reported, and reading continues. */
export class LineProblem extends Error {
  readonly finding: UnplacedProblem;
  readonly span: Span;

  constructor(span: Span, finding: UnplacedProblem) {
    super(finding.message);
    this.finding = finding;
    this.span = span;
  }
}

const MAX_PROBLEMS = 200;

/** Collects all errors and warnings while a configuration is read. */
export class Problems {
  readonly #all: Problem[] = [];
  #errors = 0;

  error(span: Span, code: string, message: string, hint?: string): void {
    this.#add(span, finding('error', code, message, hint));
  }

  warn(span: Span, code: string, message: string, hint?: string): void {
    this.#add(span, finding('warning', code, message, hint));
  }

  add(problem: Problem): void {
    if (problem.severity === 'error') this.#errors += 1;
    if (this.#all.length < MAX_PROBLEMS) this.#all.push(problem);
  }

  /** The result of `read`, or undefined if it ended with a fault, which is then reported. */
  attempt<Result>(read: () => Result): Result | undefined {
    try {
      return read();
    } catch (thrown) {
      if (!(thrown instanceof LineProblem)) throw thrown;
      this.#add(thrown.span, thrown.finding);
      return undefined;
    }
  }

  get all(): readonly Problem[] {
    return [...this.#all];
  }

  /** The number of errors, including those beyond the limit. */
  get errors(): number {
    return this.#errors;
  }

  get warnings(): readonly Problem[] {
    return this.#all.filter(({ severity }) => severity === 'warning');
  }

  /** @throws {ConfigError} `invalid-config`, with all problems, if one of them is an error. */
  throwIfAny(): void {
    if (hasError(this.#all)) throw new ConfigError(this.#all);
  }

  #add(span: Span, found: UnplacedProblem): void {
    this.add(locate(found, span));
  }
}

export function finding(
  severity: Problem['severity'],
  code: string,
  message: string,
  hint?: string,
): UnplacedProblem {
  return hint === undefined ? { severity, code, message } : { severity, code, message, hint };
}
