#!/bin/sh
# own-machine.sh <directory> <package> <script>: runs a script as on a machine of its own. The caller has made
# namespaces for mounts, processes and the network. All files of this machine are below, and what is written is
# on top, in memory; so dpkg can install, and port 80 is free.
set -eu

ip link set lo up
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --bind /dev "$1/root/dev"
cp "$2" "$1/root/hubgate.deb"
cp "$3" "$1/root/script"
exec chroot "$1/root" /bin/sh /script
