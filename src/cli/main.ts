#!/usr/bin/env node
import { enableCompileCache } from './compile-cache.ts';

enableCompileCache();
// Only now: what is loaded before is compiled anew at each start.
const { runProgram } = await import('./program.ts');
await runProgram(process.argv.slice(2));
