import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { basename, dirname, isAbsolute, join } from 'node:path';
import * as vscode from 'vscode';

const TIMEOUT_MS = 20_000;
const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;
const MAX_PROBLEMS = 1_000;

/** What `hubgate validate --json` prints of one problem. */
interface Told {
  readonly severity: string;
  readonly code: string;
  readonly message: string;
  readonly file?: string;
  readonly line?: number;
  readonly column?: number;
  readonly hint?: string;
}

/**
 * Has `hubgate validate` read each Hubfile that is saved, if the setting is on and the workspace is
 * trusted; nothing is run otherwise.
 */
export function checkOnSave(): vscode.Disposable {
  const shown = vscode.languages.createDiagnosticCollection('hubgate');
  /** The files that the last check of a document was about. */
  const about = new Map<string, readonly vscode.Uri[]>();
  /** The check of each that counts: an earlier one may answer later. */
  const latest = new Map<string, object>();
  const clear = (document: vscode.TextDocument): void => {
    const key = document.uri.toString();
    for (const uri of about.get(key) ?? []) shown.delete(uri);
    about.delete(key);
    latest.delete(key);
  };
  const check = (document: vscode.TextDocument): void => {
    const command = commandFor(document);
    if (command === null) return clear(document);
    const { fsPath } = document.uri;
    const file = hubfileOf(document);
    const run = {};
    latest.set(document.uri.toString(), run);
    const options = { cwd: dirname(file), timeout: TIMEOUT_MS, maxBuffer: MAX_OUTPUT_BYTES };
    execFile(command, ['validate', '--json', '--config', file], options, (_failed, output) => {
      if (latest.get(document.uri.toString()) !== run) return;
      const problems = problemsOf(output);
      // What is not JSON is not an answer: the last one stays.
      if (problems === null) return;
      clear(document);
      const byFile = byFileOf(problems, file);
      const uris = [...byFile.keys()].map((each) => vscode.Uri.file(each));
      about.set(document.uri.toString(), uris);
      for (const [each, found] of byFile) {
        shown.set(
          vscode.Uri.file(each),
          found.map((problem) => diagnostic(problem, each === fsPath ? document : null)),
        );
      }
    });
  };
  return vscode.Disposable.from(
    shown,
    vscode.workspace.onDidSaveTextDocument(check),
    vscode.workspace.onDidCloseTextDocument(clear),
  );
}

/** The program to run; null where none may be. */
function commandFor({ languageId, uri }: vscode.TextDocument): string | null {
  if (languageId !== 'hubfile' || uri.scheme !== 'file' || !vscode.workspace.isTrusted) return null;
  const settings = vscode.workspace.getConfiguration('hubfile', uri);
  if (settings.get('validateOnSave') !== true) return null;
  const named = settings.get<string>('command') ?? '';
  if (named !== '') return named;
  const folder = vscode.workspace.getWorkspaceFolder(uri)?.uri.fsPath;
  if (folder === undefined) return null;
  const command = join(folder, 'node_modules', '.bin', 'hubgate');
  return existsSync(command) ? command : null;
}

/** What is checked: a part of a configuration, `sites/a.hubfile`, with the Hubfile above it. */
function hubfileOf({ uri }: vscode.TextDocument): string {
  const folder = vscode.workspace.getWorkspaceFolder(uri)?.uri.fsPath;
  if (folder === undefined || basename(uri.fsPath) === 'Hubfile') return uri.fsPath;
  for (let directory = dirname(uri.fsPath); ; directory = dirname(directory)) {
    const file = join(directory, 'Hubfile');
    if (existsSync(file)) return file;
    if (directory === folder || directory === dirname(directory)) return uri.fsPath;
  }
}

function problemsOf(output: string): readonly Told[] | null {
  try {
    const data: unknown = JSON.parse(output);
    return Array.isArray(data) ? data.slice(0, MAX_PROBLEMS).filter(isTold) : null;
  } catch {
    // Another program, or another version of it.
    return null;
  }
}

function isTold(value: unknown): value is Told {
  return typeof value === 'object' && value !== null && 'message' in value && 'severity' in value;
}

/** The editor's Node may be too old for `Map.groupBy`. */
function byFileOf(problems: readonly Told[], saved: string): Map<string, Told[]> {
  const found = new Map<string, Told[]>();
  for (const problem of problems) {
    const file = fileOf(problem.file, saved);
    found.set(file, [...(found.get(file) ?? []), problem]);
  }
  return found;
}

function fileOf(file: string | undefined, saved: string): string {
  if (file === undefined) return saved;
  return isAbsolute(file) ? file : join(dirname(saved), file);
}

function diagnostic(problem: Told, document: vscode.TextDocument | null): vscode.Diagnostic {
  const { severity, code, message, hint, line = 1, column = 1 } = problem;
  const text = document === null || line > document.lineCount ? '' : document.lineAt(line - 1).text;
  // Columns are characters there, and units of UTF-16 here.
  const start =
    Array.from(text)
      .slice(0, column - 1)
      .join('').length || column - 1;
  const length = /^\S*/.exec(text.slice(start))?.[0].length ?? 0;
  const found = new vscode.Diagnostic(
    new vscode.Range(line - 1, start, line - 1, start + Math.max(1, length)),
    hint === undefined ? message : `${message}: ${hint}`,
    severity === 'error' ? vscode.DiagnosticSeverity.Error : vscode.DiagnosticSeverity.Warning,
  );
  found.source = 'hubgate';
  found.code = code;
  return found;
}
