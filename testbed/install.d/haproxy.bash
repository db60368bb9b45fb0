# HAProxy, out of a newer Debian's packages.

# Since 2.9 it can send a TLV of one's own choice. Debian 12 has 2.6, so it comes from the next one.
haproxy_minor_needed=9
haproxy_suite=trixie
haproxy=$cache/haproxy-$haproxy_suite

haproxy_is_there() {
    if [[ -n ${HAPROXY:-} ]]; then
        is_recent_haproxy "$HAPROXY" && say "using HAPROXY ($HAPROXY)" && return
        say "HAPROXY ($HAPROXY) is not HAProxy 2.$haproxy_minor_needed or newer; not using it"
    fi
    is_recent_haproxy haproxy || [[ -x $haproxy/bin/haproxy ]]
}

is_recent_haproxy() {
    local version
    version=$("$1" -v 2>/dev/null | sed -n 's/^HAProxy version \([0-9]*\.[0-9]*\).*$/\1/p') || true
    [[ -n $version ]] && ((${version%.*} > 2 || (${version%.*} == 2 && ${version#*.} >= haproxy_minor_needed)))
}

# Takes HAProxy and the libraries it needs out of a newer Debian's packages. Nothing of that Debian is
# installed, and none of its scripts run.
install_haproxy() {
    begin_to_install
    # Another run may have installed it while we waited.
    [[ -x $haproxy/bin/haproxy ]] && return
    local help="Install HAProxy 2.$haproxy_minor_needed or newer yourself, or set HAPROXY to its path."
    { command -v dpkg-deb && command -v debootstrap; } >/dev/null || apt_install debootstrap debian-archive-keyring || {
        lament "cannot install debootstrap, which fetches HAProxy" "$help"
        return
    }

    say "fetching HAProxy of Debian $haproxy_suite, once per machine: about half a minute"
    local packages=$scratch/packages unpacked=$scratch/unpacked log=$scratch/debootstrap.log
    watch_build "fetching" "$log" "${as_root[@]}" debootstrap --download-only --variant=minbase \
        --include=haproxy "$haproxy_suite" "$packages" || {
        tail -n 5 "$log" >&2
        lament "cannot fetch HAProxy of Debian $haproxy_suite (debootstrap's answer is above)" "$help"
        return
    }
    local package
    for package in "$packages"/var/cache/apt/archives/*.deb; do
        dpkg-deb --extract "$package" "$unpacked"
    done

    local loader
    loader=$(echo "$unpacked"/usr/lib/*-linux-gnu/ld-linux*.so.*)
    mkdir -p "$scratch/haproxy/bin" "$scratch/haproxy/lib"
    cp "$unpacked/usr/sbin/haproxy" "$scratch/haproxy/lib/haproxy"
    cp -L "$loader" "$scratch/haproxy/lib/loader"
    "$loader" --library-path "${loader%/*}" --list "$unpacked/usr/sbin/haproxy" |
        sed -n 's/^.* => \(.*\) (.*$/\1/p' | xargs -d '\n' cp -L -t "$scratch/haproxy/lib"
    # Its libraries are newer than this machine's, and so has to be what loads them.
    cat >"$scratch/haproxy/bin/haproxy" <<'SH'
#!/bin/sh
lib=${0%/*}/../lib
exec "$lib/loader" --library-path "$lib" "$lib/haproxy" "$@"
SH
    chmod +x "$scratch/haproxy/bin/haproxy"
    is_recent_haproxy "$scratch/haproxy/bin/haproxy" || {
        lament "the HAProxy of Debian $haproxy_suite does not run on this machine" "$help"
        return
    }
    discard "$haproxy"
    mv "$scratch/haproxy" "$haproxy"
    say "installed $("$haproxy/bin/haproxy" -v | head -n 1) in $haproxy"
}
