# To be sourced: installs Debian's packages where the machine lacks them.

fail() { echo "peers/$(basename "$0"): $*" >&2; exit 1; }

# apt_install ADVICE PACKAGE…: as root or with sudo that asks nothing; otherwise ends with the advice.
apt_install() {
    local advice=$1 sudo=()
    shift
    command -v apt-get > /dev/null || fail "$advice, or what your system calls them"
    if (( EUID != 0 )); then
        sudo -n true 2> /dev/null || fail "$advice"
        sudo=(sudo -n)
    fi
    echo "installing $* from Debian's packages (about a minute) …"
    # env, because sudo drops variables; RUNLEVEL keeps packages from starting the servers they bring; the lock is waited for, because unattended upgrades may hold it.
    local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq -o DPkg::Lock::Timeout=120)
    "${apt[@]}" update > /dev/null || fail "apt-get update failed, and $advice"
    local package wanted=()
    for package in "$@"; do
        # Newer Debians have left Java 17 behind; what they call default is newer than that.
        [[ $package == openjdk-17-* ]] && ! apt-cache show "$package" > /dev/null 2>&1 && package=${package/openjdk-17/default}
        wanted+=("$package")
    done
    "${apt[@]}" -o Dpkg::Options::=--force-confold install -y --no-install-recommends "${wanted[@]}" > /dev/null ||
        fail "apt-get install failed, and $advice"
    hash -r
}
