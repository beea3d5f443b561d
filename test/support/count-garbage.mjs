// Imported into a gateway by a test that counts its garbage and its objects. Responds to orders over the channel
// of the process: to `start` and `stop`, whose response is the number of bytes that V8 has allocated in the heap
// in between, and to `objects` with the number of objects in the heap that are in use.

import { GCProfiler, getHeapSnapshot, getHeapStatistics } from 'node:v8';

let profiler = new GCProfiler();
let before = 0;

async function countObjects() {
  let head = '';
  for await (const chunk of getHeapSnapshot()) if (head.length < 10_000) head += chunk;
  return Number(/"node_count":(\d+)/.exec(head)?.[1]);
}

process.on('message', (order) => {
  if (order === 'objects') {
    void countObjects().then((count) => process.send(count));
    return;
  }
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
// The channel does not keep a gateway alive whose start has failed.
process.channel.unref();
