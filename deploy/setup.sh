#!/bin/sh
# Makes what containers need before their first start, each thing once: a private CA, a certificate for each of them, and
# the first key. Later it renews the certificates that are due, which running containers read by themselves.
#
#   setup.sh one|five [DIRECTORY]
#
# DIRECTORY has a directory for each container, which is its /var/lib/tavern; `authority` for the CA, which no container
# is given; and `operator` for the first key and the certificate of the CA.
set -eu
directory=${2:-/var/lib/setup}
case "${1:-}" in
  one) stores_keys=tavern containers="tavern:gateway" ;;
  five)
    stores_keys=tool-registry
    containers="gateway:gateway tool-registry:registry workflow-execution:workflow script-sandbox:sandbox
      agent-runtime:agent"
    ;;
  *) echo "usage: setup.sh one|five [DIRECTORY]" >&2; exit 64 ;;
esac
authority=$directory/authority
[ -e "$authority/ca.pem" ] || tavern certs init --dir "$authority"
for container in $containers; do
  service=${container#*:}
  certs=$directory/${container%:*}/certs
  if [ -e "$certs/$service.pem" ]; then
    tavern certs renew --dir "$authority" --out "$certs"
  else
    tavern certs issue "$service" --dir "$authority" --out "$certs"
  fi
done
cp "$authority/ca.pem" "$directory/operator/ca.pem"
[ -e "$directory/operator/admin.key" ] ||
  tavern keys bootstrap --data-dir "$directory/$stores_keys" --out "$directory/operator/admin.key"
