// Imported into a gateway by a test that counts its garbage and its objects. Responds to orders over the channel
// of the process: to `start` and `stop`, whose response is the number of bytes that V8 has allocated in the heap
// in between, to `objects` with the number of objects in the heap that are in use, and to `classes` with a list of the
// names of their classes, each as often as there are objects.

import { GCProfiler, getHeapSnapshot, getHeapStatistics } from 'node:v8';

let profiler = new GCProfiler();
let before = 0;

async function classesOfObjects() {
  let text = '';
  for await (const chunk of getHeapSnapshot()) text += chunk;
  const { snapshot, nodes, strings } = JSON.parse(text);
  const { node_fields: fields, node_types: types } = snapshot.meta;
  const [type, name] = [fields.indexOf('type'), fields.indexOf('name')];
  const found = [];
  for (let at = 0; at < nodes.length; at += fields.length) {
    if (types[type][nodes[at + type]] === 'object') found.push(strings[nodes[at + name]]);
  }
  return found;
}

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
  if (order === 'classes') {
    void classesOfObjects().then((classes) => process.send(classes));
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
