// Imported into a gateway by a test that counts its garbage. Responds to `start` and to `stop` over the channel
// of the process; the second response is the number of bytes that V8 has allocated in the heap in between.

import { GCProfiler, getHeapStatistics } from 'node:v8';

let profiler = new GCProfiler();
let before = 0;

process.on('message', (order) => {
  if (order === 'start') {
    profiler = new GCProfiler();
    profiler.start();
    before = getHeapStatistics().used_heap_size;
    process.send(0);
    return;
  }
  const after = getHeapStatistics().used_heap_size;
  const { statistics } = profiler.stop();
  const freed = statistics.reduce(
    (sum, { beforeGC, afterGC }) =>
      sum + beforeGC.heapStatistics.usedHeapSize - afterGC.heapStatistics.usedHeapSize,
    0,
  );
  process.send(after - before + freed);
});
