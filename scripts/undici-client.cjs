// What the proxy uses of undici, for the bundle: its index brings fetch, WebSocket, caches and mocks as
// well, a megabyte of source that every gateway would read, and 8 MB of memory that it would keep.
exports.Pool = require('../node_modules/undici/lib/dispatcher/pool.js');
exports.buildConnector = require('../node_modules/undici/lib/core/connect.js');
