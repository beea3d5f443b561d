// The program of a worker process. Everything else is imported only after V8 knows that it is being loaded.
import { loadingBegins, loadingEnds } from '../../kernel/v8-memory.ts';

// They are for the main process. Until the worker handles them, Node would end it, or open a debugger.
for (const signal of ['SIGHUP', 'SIGUSR1', 'SIGUSR2']) process.on(signal, () => {});
loadingBegins();
await import('./worker-process.ts');
loadingEnds();
