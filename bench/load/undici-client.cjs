// What the programs to compare with use of undici: its index brings fetch, WebSocket, caches and mocks as
// well, a megabyte of source that they would read, and 8 MB of memory that they would keep.
exports.Pool = require('../../node_modules/undici/lib/dispatcher/pool.js');
exports.buildConnector = require('../../node_modules/undici/lib/core/connect.js');
