<?php
// Read before every script of DokuWiki: where its settings and pages are, of which Debian has its own.
define('DOKU_MAIN_CONF', getenv('WIKI_CONF') . '/');
define('DOKU_CONF', getenv('WIKI_CONF') . '/');
