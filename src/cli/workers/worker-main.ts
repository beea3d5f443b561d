// The program of a worker process. Everything else is imported only after V8 knows that it is being loaded.
import { loadingBegins, loadingEnds } from '../../kernel/v8-memory.ts';
import { ignoreEarlySignals } from '../user-signals.ts';

ignoreEarlySignals();
loadingBegins();
await import('./worker-process.ts');
loadingEnds();
