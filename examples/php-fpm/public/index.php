<?php
// The front controller: REQUEST_URI is the address, whatever file it was.
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if ($path !== '/' && !preg_match('#^/\d{4}/[\w-]+/?$#', $path)) {
    http_response_code(404);
}
header('Content-Type: text/html; charset=utf-8');
echo '<h1>', htmlspecialchars($path), '</h1>';
