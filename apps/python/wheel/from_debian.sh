#!/usr/bin/env bash
# usage: from_debian.sh source FOLDER PACKAGE
#        from_debian.sh SUITE FOLDER PACKAGE...
# Puts into FOLDER the source of the installed PACKAGE; or what packages of another release of Debian contain, unpacked
# below it. The archive is that of this system's packages, and the system stays as it is.
set -euo pipefail
suite=$1
mkdir -p "$2"
folder=$(realpath "$2")
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"

if [ "$suite" = source ]; then kind=deb-src known=$1; else kind=deb known=debian-archive-keyring; fi
# Name | version | archive release/part architecture Packages
read -r archive release < <(apt-cache madison "$known" | awk '$NF == "Packages" { print $5, $6; exit }') ||
  { echo "apt has no list of packages with $known: apt-get update" >&2; exit 1; }
if [ "$suite" = source ]; then suite=${release%%/*}; fi
echo "$kind $archive $suite main" >"$work/sources.list"

own_apt() {
  local options=(Dir::Etc::SourceList="$work/sources.list" Dir::Etc::SourceParts=- Dir::State::Lists="$work/lists"
    Dir::Cache="$work/cache" APT::Sandbox::User=root Acquire::Languages=none)
  apt-get -qq "${options[@]/#/-o}" "$@"
}
own_apt update
cd "$work/cache"
if [ "$kind" = deb-src ]; then
  own_apt source --download-only "$(dpkg-query -W -f '${source:Package}=${source:Version}' "$1")"
  cp ./*.orig.tar.* "$folder"
else
  own_apt -oDir::State::status=/dev/null download "$@"
  for package in ./*.deb; do dpkg -x "$package" "$folder"; done
fi
