"""The environment of child processes: a list of variables that programs need to start, and what the settings name."""

from collections.abc import Iterable, Mapping

from agentv.lazy_regex import lazy_regex
from agentv.model.environment import Environment, address_secrets

_LIST = """
# The user and the system
PATH HOME USER LOGNAME SHELL SHLVL PWD OLDPWD HOSTNAME LANG LANGUAGE TZ TMPDIR TMP TEMP XDG_CACHE_HOME
XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_RUNTIME_DIR XDG_DATA_DIRS XDG_CONFIG_DIRS

# The terminal
TERM TERMINFO COLORTERM NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE PY_COLORS COLUMNS LINES

# Continuous integration
CI GITHUB_ACTIONS GITLAB_CI TF_BUILD BUILDKITE CIRCLECI TRAVIS APPVEYOR TEAMCITY_VERSION BUILD_NUMBER
DEBIAN_FRONTEND

# Certificates
SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO PIP_CERT
AWS_CA_BUNDLE

# Libraries and compilers
LD_LIBRARY_PATH LIBRARY_PATH CPATH PKG_CONFIG_PATH CC CXX CFLAGS CXXFLAGS LDFLAGS MAKEFLAGS SOURCE_DATE_EPOCH
CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES HF_HOME TORCH_HOME TOKENIZERS_PARALLELISM

# Python, Node, Java, Go, Rust, Ruby, PHP, .NET, and their version managers
VIRTUAL_ENV POETRY_HOME PIPX_HOME PIP_CACHE_DIR UV_CACHE_DIR UV_PYTHON UV_PROJECT_ENVIRONMENT UV_OFFLINE NVM_DIR
NVM_BIN NVM_INC NODE_PATH NODE_OPTIONS NODE_ENV VOLTA_HOME FNM_DIR FNM_MULTISHELL_PATH N_PREFIX PNPM_HOME
BUN_INSTALL DENO_DIR DENO_INSTALL COREPACK_HOME NPM_CONFIG_CACHE NPM_CONFIG_PREFIX JAVA_HOME JDK_HOME JRE_HOME
SDKMAN_DIR MAVEN_HOME M2_HOME GRADLE_HOME GRADLE_USER_HOME GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOFLAGS
GOPROXY GOTOOLCHAIN CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN GEM_HOME GEM_PATH RBENV_ROOT RUBYLIB RUBYOPT
BUNDLE_GEMFILE BUNDLE_PATH COMPOSER_HOME DOTNET_ROOT DOTNET_CLI_HOME ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR
MISE_SHELL HOMEBREW_PREFIX HOMEBREW_CELLAR HOMEBREW_REPOSITORY PERL5LIB R_LIBS

# Git's identity, and Playwright's browsers
GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM
PLAYWRIGHT_BROWSERS_PATH

# Windows
SYSTEMROOT WINDIR COMSPEC PATHEXT SYSTEMDRIVE PROGRAMFILES PROGRAMFILES(X86) PROGRAMW6432 PROGRAMDATA APPDATA
LOCALAPPDATA USERPROFILE USERNAME USERDOMAIN HOMEDRIVE HOMEPATH NUMBER_OF_PROCESSORS PROCESSOR_ARCHITECTURE OS
PUBLIC ALLUSERSPROFILE COMMONPROGRAMFILES
"""
_NAMES = frozenset(name for line in _LIST.splitlines() if not line.startswith("#") for name in line.split())
_BEGINNINGS = ("LC_", "PYTHON", "PYENV_", "CONDA_", "NIX_", "AGENTV_", "DYLD_")
_ENDS = ("_PROXY", "_NUM_THREADS")


def child_environment(
    pass_env: Iterable[str] = (), env: Mapping[str, str] = {}, environment: Environment | None = None
) -> dict[str, str]:
    """Return the variables for a child process: those that programs need, plus those in `pass_env` and `env`.

    Of a variable on the list, a value with a secret or an address with a password is left out too.
    """
    environment = Environment() if environment is None else environment
    variables, secrets, passed = environment.variables, environment.secrets, {*pass_env, *environment.pass_env}
    child = {
        name: value
        for name, value in variables.items()
        if name in passed or (_is_listed(name) and not environment.is_secret(name) and not _has_secret(value, secrets))
    }
    note_withheld(name for name in variables if name not in child)
    return {**child, **env}


def _is_listed(name: str) -> bool:
    upper = name.upper()
    return upper in _NAMES or upper.startswith(_BEGINNINGS) or upper.endswith(_ENDS)


def _has_secret(value: str, secrets: frozenset[str]) -> bool:
    return value in secrets or ("://" in value and any(address_secrets(value)))


_NAME = lazy_regex(r"[A-Za-z_][A-Za-z0-9_]*")
_names: set[str] = set()


def note_withheld(names: Iterable[str]) -> None:
    """Note variables that were left out of the environment of a program."""
    _names.update(names)


def withheld_hint(output: str, env: Mapping[str, str]) -> str:
    """Return a hint on the variables that a program's output names, that are set, and that it did not get."""
    missing = [name for name in dict.fromkeys(_NAME.findall(output)) if name in _names and name not in env]
    if not missing:
        return ""
    verb = "is set, but was" if len(missing) == 1 else "are set, but were"
    return f" ({', '.join(missing)} {verb} not passed to the program: list it in `pass_env`)"
