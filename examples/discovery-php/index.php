<?php
// It uses the Hubfile of ../discovery-python. Start it here with: php -S localhost:3000 index.php
$sessions = ['s-alice' => 'alice', 's-bob' => 'bob'];
$site = getenv('SITE') ?: 'http://localhost:8080';
$user = $sessions[$_COOKIE['session'] ?? ''] ?? null;
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);

if ($path === '/notify') {
    $fields = ['topic' => "$site/users/{$_GET['user']}/notes", 'data' => 'hello', 'private' => 'on'];
    file_get_contents("$site/.well-known/hub", false, stream_context_create(['http' => [
        'method' => 'POST',
        'header' => [
            'Content-Type: application/x-www-form-urlencoded',
            'Authorization: Bearer ' . getenv('HUB_TOKEN'),
        ],
        'content' => http_build_query($fields),
    ]]));
}
if ($user !== null && $path !== '/logout') {
    header("X-User-Id: $user");
}
echo 'hello, ' . ($user ?? 'guest');
