#!/bin/sh
# Checks the prerequisites that the Makefile cannot install: Python 3.10 or newer with virtual
# environments, and Java 17 or newer. Reports all missing ones at once, each with the command that
# installs it.
#
# Usage: check_prerequisites.sh PYTHON [tests]
#
# With "tests", also what only the tests need: the programs of PostgreSQL, which run as no service.

python=${1:-python3}
missing=0

# install_command APT_PACKAGE BREW_FORMULA DNF_PACKAGE
install_command() {
    if command -v apt-get >/dev/null 2>&1; then
        echo "sudo apt-get install $1"
    elif command -v brew >/dev/null 2>&1; then
        echo "brew install $2"
    elif command -v dnf >/dev/null 2>&1; then
        echo "sudo dnf install $3"
    else
        echo "apt-get install $1  (Debian, Ubuntu)  or  brew install $2  (macOS)"
    fi
}

# complain PROBLEM COMMAND
complain() {
    missing=1
    printf 'missing: %s\n  install it with: %s\n' "$1" "$2" >&2
}

# Debian's package for virtual environments is named after the version of Python.
check_python() {
    if ! command -v "$python" >/dev/null 2>&1; then
        complain "Python 3.10 or newer ($python not found)" \
            "$(install_command 'python3 python3-venv' python@3.12 python3.12)"
        return
    fi
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        complain "Python 3.10 or newer ($python is ${version:-broken})" \
            "$(install_command 'python3.11 python3.11-venv' python@3.12 python3.12)"
        echo "  or name another one: make PYTHON=/path/to/python3.11 ..." >&2
        return
    fi
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        complain "virtual environments for Python $version" \
            "$(install_command "python$version-venv" "python@$version" "python$version")"
    fi
}

check_java() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    command=$(install_command openjdk-17-jre-headless openjdk@17 java-17-openjdk-headless)
    if ! command -v "$java" >/dev/null 2>&1; then
        complain "Java 17 or newer ($java not found)" "$command"
        return
    fi
    # The first line reads: openjdk version "17.0.15" 2025-04-15, or "1.8.0_392" before Java 9.
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1)
    major=$(echo "$version" | sed 's/^1\.//; s/[^0-9].*//')
    if [ "${major:-0}" -lt 17 ]; then
        complain "Java 17 or newer ($java is ${version:-broken})" "$command"
    fi
}

check_postgresql() {
    if ! command -v initdb >/dev/null 2>&1 && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
    then
        complain "PostgreSQL (initdb is not there)" \
            "$(install_command postgresql postgresql@16 postgresql-server)"
    fi
}

check_python
check_java
if [ "${2:-}" = tests ]; then
    check_postgresql
fi
exit $missing
