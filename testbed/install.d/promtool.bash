# promtool, out of Debian's package of Prometheus.

promtool=$cache/promtool

# Takes the one program out of the package: nothing is installed, so that no Prometheus is started.
install_promtool() {
    command -v promtool >/dev/null || [[ -x $promtool/promtool ]] && return
    begin_to_install
    # Another run may have installed it while we waited.
    [[ -x $promtool/promtool ]] && return
    local packages=$scratch/prometheus unpacked=$scratch/promtool help="Install Debian's prometheus, or put promtool into PATH."
    mkdir -p "$packages"
    say "fetching promtool of Debian's prometheus"
    (
        cd "$packages"
        apt-get -qq download prometheus 2>/dev/null ||
            { "${as_root[@]}" apt-get -qq update && apt-get -qq download prometheus; }
    ) >/dev/null 2>&1 || {
        lament "cannot fetch Debian's package prometheus" "$help"
        return 0
    }
    dpkg-deb --extract "$packages"/prometheus_*.deb "$unpacked"
    "$unpacked/usr/bin/promtool" --version >/dev/null 2>&1 || {
        lament "the promtool of Debian's package prometheus does not run on this machine" "$help"
        return 0
    }
    mkdir -p "$promtool"
    mv "$unpacked/usr/bin/promtool" "$promtool/promtool"
    say "installed promtool in $promtool"
}
