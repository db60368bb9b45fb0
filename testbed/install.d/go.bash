# Programs that are built from source with Go, each from a go.mod of ours that pins all of it.

# k8s.io/kubernetes refuses to build with an older one.
go_minor_needed=26
# From this one on, Go can fetch a newer toolchain for itself.
go_minor_that_upgrades=21

# pinned_version MODULE GO_MOD: go.mod is the only place that names the version; the Rust side reads it there as well.
pinned_version() {
    sed -n "s|^.*$1 \(v[0-9.]*\).*\$|\1|p" "$2" | head -n 1
}

# build_with_go WHAT GO_MOD HELP LD_FLAGS PACKAGE...: leaves the programs in the folder `scratch`. It fails where they
# cannot be had; what is wrong with the checkout ends the script.
build_with_go() {
    local what=$1 module=${2%/go.mod} help=$3 ld_flags=$4 log=$scratch/build.log
    shift 4
    find_go "$what" "$help" || return
    # A workspace or a vendor folder around the checkout must not change what is built.
    export GOWORK=off CGO_ENABLED=0

    say "fetching the source of $what"
    watch_build "fetching" "$log" go -C "$module" list -mod=readonly -deps "$@" || {
        tail -n 30 "$log" >&2
        if grep -q -e 'SECURITY ERROR' -e 'missing go.sum entry' "$log"; then
            say "the source of $what is not the one that $module/go.sum describes" >&2
            exit 1
        fi
        lament "cannot fetch the source of $what (Go's answer is above)" "$help"
        return 1
    }
    say "building $what, once per machine: up to 10 minutes on 2 cores"
    watch_build "building" "$log" go -C "$module" build -v -mod=readonly -buildvcs=false -trimpath \
        -ldflags "-s -w $ld_flags" -o "$scratch/" "$@" || {
        # The others are names of packages.
        grep -A 20 '^#' "$log" >&2 || tail -n 30 "$log" >&2
        say "building $what failed; what Go said is above" >&2
        exit 1
    }
}

# install_with_go PROGRAM MODULE PACKAGE VARIABLE [LD_FLAGS]: one program, built from testbed/PROGRAM/go.mod, unless
# VARIABLE names one of the user's own.
install_with_go() {
    local program=$1 go_mod=$here/$1/go.mod package=$3 variable=$4 ld_flags=${5:-} folder
    folder=$cache/$program-$(pinned_version "$2" "$go_mod")
    if [[ -n ${!variable:-} ]]; then
        [[ -x ${!variable} ]] && say "using $variable (${!variable})" && return
        say "$variable (${!variable}) is not a program; not using it"
    fi
    [[ -x $folder/$program ]] && return
    begin_to_install
    # Another run may have built it while we waited.
    [[ -x $folder/$program ]] && return
    build_with_go "${folder##*/}" "$go_mod" "Set $variable to the path of one." "$ld_flags" "$package" || return 0
    mkdir -p "$folder"
    mv "$scratch/$program" "$folder/$program"
    say "installed $program in $folder"
}

# Leaves a `go` in PATH that can build what we need, or explains why there is none.
find_go() {
    # Where Go's own archive goes; a shell that is not a login shell often does not look there.
    command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
    if ! command -v go >/dev/null && (($(debian_go_minor) >= go_minor_that_upgrades)); then
        apt_install golang-go || true
    fi
    local minor
    minor=$(go_minor)
    ((minor >= go_minor_needed)) && return
    # Debian's Go is told to stay as it is; a newer one comes as a module like everything else.
    if ((minor >= go_minor_that_upgrades)) && [[ -z ${GOTOOLCHAIN:-} ]]; then
        export GOTOOLCHAIN=auto
        return
    fi
    lament "building $1 needs Go 1.$go_minor_needed or newer, or 1.$go_minor_that_upgrades if it may upgrade itself (GOTOOLCHAIN=auto)" \
        "Found: $(go version 2>/dev/null || echo none). Install one, or:" "$2"
    return 1
}

# Prints the Y of the Go 1.Y that Debian offers, 0 if it offers none.
debian_go_minor() {
    local offered
    offered=$(apt-cache policy golang-go 2>/dev/null | sed -n 's/^ *Candidate: [0-9]*:1\.\([0-9]*\).*$/\1/p') || true
    echo "${offered:-0}"
}

# Prints the Y of the Go 1.Y that is installed, 0 if none is.
go_minor() {
    local found
    found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || found=go1.0
    found=${found#go1.}
    echo "${found%%[!0-9]*}"
}
