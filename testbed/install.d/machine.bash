# What the parts of testbed/install share: a word to the user, a place to work in, Debian's packages.

cache=${FLEETGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fleetgate}
as_root=()
if ((EUID != 0)); then
    # Never ask for a password: this also runs where nobody can type one.
    as_root=(sudo -n)
fi
scratch=
build_pid=

say() { printf 'testbed: %s\n' "$*"; }

# Says loudly what cannot be had. The tests that need it then report that they were skipped, which
# is right on a laptop on a train and wrong in CI.
lament() {
    {
        echo
        echo "==================================================================================="
        printf 'testbed: %s\n' "$@"
        echo "testbed: tests that need it will be SKIPPED."
        echo "==================================================================================="
        echo
    } >&2
    if [[ ${CI:-} == true ]]; then
        exit 1
    fi
}

# Waits for its turn and makes a folder to work in, on the file system of the cache: what is ready
# is renamed into place.
begin_to_install() {
    [[ -n $scratch ]] && return
    mkdir -p "$cache"
    exec 9>"$cache/.lock"
    if ! flock --nonblock 9; then
        say "another run is installing; waiting for it"
        flock 9
    fi
    # Left by a run that was killed; holding the lock, we know that nobody works there.
    discard "$cache"/.unfinished.*
    scratch=$(mktemp -d "$cache/.unfinished.XXXXXX")
}

clean_up() {
    # A background job ignores the terminal's interrupt, so it has to be told; and it may still write
    # to the folder that goes next, so it is waited for.
    if [[ -n $build_pid ]] && kill "$build_pid" 2>/dev/null; then
        wait "$build_pid" || true
    fi
    [[ -n $scratch ]] && discard "$scratch"
    return 0
}

# What debootstrap fetched belongs to root until it has ended.
discard() {
    rm -rf "$@" 2>/dev/null || "${as_root[@]}" rm -rf "$@"
}

apt_install() {
    command -v apt-get >/dev/null || return 1
    say "installing $*"
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y)
    "${apt[@]}" install --no-install-recommends "$@" >/dev/null 2>&1 && return 0
    # A fresh machine has no package lists yet.
    "${apt[@]}" update >/dev/null && "${apt[@]}" install --no-install-recommends "$@" >/dev/null
}

# Before a server is installed that the tests start by themselves: Debian would start it at once and at every
# boot. Without systemd it is a container, whose image forbids that of its own (policy-rc.d).
forbid_service() {
    local unit=/etc/systemd/system/$1.service
    [[ -d /run/systemd/system && ! -e $unit && ! -L $unit ]] || return 0
    "${as_root[@]}" ln -s /dev/null "$unit" || true
}

# watch_build WHAT LOG COMMAND...: runs it in the background, its output in LOG, and every ten
# seconds says how far it is. `go build -v` writes a line for each package it compiles.
watch_build() {
    local what=$1 log=$2
    shift 2
    SECONDS=0
    "$@" >"$log" 2>&1 9>&- &
    build_pid=$!
    local said=0
    while kill -0 "$build_pid" 2>/dev/null; do
        sleep 0.5
        if ((SECONDS >= said + 10)); then
            said=$SECONDS
            say "$what: $SECONDS s, $(wc -l <"$log") steps"
        fi
    done
    local status=0
    wait "$build_pid" || status=$?
    build_pid=
    return "$status"
}
