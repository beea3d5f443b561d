// Beside the unpacked files, because the script inside an executable cannot import from the disk.
'use strict';

const { pathToFileURL } = require('node:url');

module.exports = (program) => import(pathToFileURL(program).href);
