<?php
header('Content-Type: text/html; charset=utf-8');
echo '<h1>Dashboard</h1>', htmlspecialchars($_SERVER['REMOTE_ADDR']);
