<?php
// Read before every script of DokuWiki: where its settings and pages are, of which Debian has its own.
define('DOKU_MAIN_CONF', getenv('WIKI_CONF') . '/');
define('DOKU_CONF', getenv('WIKI_CONF') . '/');
// DokuWiki reads its caches while another request writes them, and then shows an empty page (8 of 180
// requests right after an edit, without hubgate). One request at a time, until the script has ended.
$oneAtATime = fopen(getenv('WIKI_CONF') . '/one-at-a-time', 'c');
flock($oneAtATime, LOCK_EX);
