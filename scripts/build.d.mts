import type { BuildOptions } from 'esbuild';

export function build(): Promise<void>;
/** The extension for VS Code, which loads CommonJS; it has no library in it. */
export function editorBundle(outfile: string): BuildOptions;
