#!/bin/sh
# Installs /hubgate.deb, starts the service as its unit says (user, capabilities, directories; systemd itself does
# not run here), reloads and stops it, and removes the package. Any failure ends it.
set -eu

unit=/lib/systemd/system/hubgate.service
# Waits until the service has written a line.
says() {
	until grep -q "$1" /log 2>/dev/null; do
		kill -0 "$process" || { cat /log; exit 1; }
		sleep 0.1
	done
}

dpkg --install /hubgate.deb
id hubgate
systemd-analyze verify "$unit" /lib/systemd/system/hubgate.socket
test -r /usr/share/bash-completion/completions/hubgate
# What the help names is there, and so is what the documents name.
page=$(hubgate run --help | sed -n 's/^See \(.*\)\.$/\1/p')
for file in "$page" /usr/share/doc/hubgate/ops/prometheus-alerts.yml \
	/usr/share/doc/hubgate/examples/live/Hubfile; do
	test -r "$file"
done
for line in State:/var/lib Cache:/var/cache Logs:/var/log; do
	grep -q "^${line%%:*}Directory=hubgate$" "$unit"
	install -d -m 0700 -o hubgate -g hubgate "${line#*:}/hubgate"
done

# systemd resolves a name without a slash before it starts the program, whatever PATH the program gets.
start=$(sed -n 's/^ExecStart=//p' "$unit")
program=$(command -v "${start%% *}")

# The name of another user's HOME, NODE_OPTIONS and the like do not get in.
# shellcheck disable=SC2086
env -i HOME=/var/lib/hubgate PATH=/nonexistent CACHE_DIRECTORY=/var/cache/hubgate \
	/usr/bin/setpriv --reuid hubgate --regid hubgate --init-groups --no-new-privs \
	--bounding-set -all,+net_bind_service --inh-caps -all,+net_bind_service \
	--ambient-caps -all,+net_bind_service \
	"$program" ${start#* } >/log 2>&1 &
process=$!
says 'Listening on'
curl --silent --show-error --fail http://localhost/
echo
sed -i 's/hubgate is installed/It is edited/' /etc/hubgate/Hubfile
kill -HUP "$process"
says 'Configuration reloaded'
curl --silent --show-error --fail http://localhost/
echo
kill "$process"
wait "$process"
echo "stopped with $?"

echo precious >/var/lib/hubgate/precious
dpkg --remove hubgate
test ! -e /usr/bin/hubgate
grep -q 'It is edited' /etc/hubgate/Hubfile
dpkg --purge hubgate
test ! -e /etc/hubgate/Hubfile
test ! -e /var/cache/hubgate
cat /var/lib/hubgate/precious
