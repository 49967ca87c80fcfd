#!/bin/sh
# A libvirt guest through narrows: its migration stream is one TCP connection, which a tunnel of pages carries packed.
# libvirt speaks to its peer itself (qemu+ssh), so only the stream is redirected, to a port of this host.
set -eu
case ${1:?serve, or run GUEST DESTINATION} in
    serve)
        # On the destination, whose QEMU listens at 127.0.0.1:49152 as the source's command asks.
        exec narrows migrate serve --listen 0.0.0.0:4242 --to 127.0.0.1:49152 --tls-certificates /etc/narrows/keys
        ;;
    run)
        guest=$2 destination=$3
        narrows migrate tunnel --listen 127.0.0.1:49152 --peer "$destination:4242" --tls-certificates /etc/narrows/keys &
        tunnel=$!
        trap 'kill $tunnel 2>/dev/null' EXIT
        virsh migrate --live --verbose "$guest" "qemu+ssh://$destination/system" \
            --migrateuri tcp://127.0.0.1:49152 --listen-address 127.0.0.1
        ;;
esac
