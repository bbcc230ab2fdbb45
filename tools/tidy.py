#!/usr/bin/env python3
"""The rules of the source tree that no compiler knows; prints each breach as file:line: message.

Layering of includes, vendor headers behind their wrapper, 100 columns, functions of at most 70
lines, banned calls, leftovers, words that have gone, tests that are not built. CONTRIBUTING.md
explains the rules.

A line may break the rule about calls when it carries, on it or on the line above, the comment
`tidy-allow(call): reason`.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
SOURCE_DIRECTORIES = ("src", "include", "apps", "tests", "testing", "bench", "demo", "examples")
SOURCE_SUFFIXES = (".h", ".cc", ".c")
SCRIPTS = ("run", "test", ".ci/run")  # for these and the suffixes below only the rules of text
SCRIPT_SUFFIXES = (".py", ".sh", ".cmake", "CMakeLists.txt")

# Who may include whom. Missing on the left: may include nothing of ours but public headers.
LAYERS = {
    "core": set(),
    "plan": {"core"},
    "check": {"core"},
    "pmem": {"core"},
    "report": {"core"},
    "sim": {"core"},
    "workload": {"core"},
    "memsys": {"core", "sim", "workload"},
    "fabric": {"core"},
    "fabric/emu": {"core", "pmem"},
    "persist": {"core", "fabric", "pmem"},
    "control": {"core", "fabric", "pmem"},
    "client": {"core", "plan", "persist", "fabric", "pmem", "control"},
    "server": {"core", "persist", "fabric", "pmem", "control"},
    "host": {"core", "pmem", "fabric", "control", "server"},
    "log": {"core", "plan", "persist", "fabric", "pmem", "control", "client"},
    "region": {"core", "persist", "fabric", "control", "client"},
    "mirror": {"core", "pmem", "persist", "fabric", "control", "client"},
    "rpc": {"core", "persist", "fabric", "pmem", "control", "client", "server"},
    "rpc/models": {"core", "fabric"},
    "replicated_rpc": {"core"},  # stands on the public C++ API
    "resp": {"core"},
    "kv": {"core"},  # stands on the public C++ API
    "rpmem": {"core", "persist", "fabric", "pmem", "control", "client", "server"},
    "librpmem": {"core", "fabric", "control", "rpmem"},
    "interpose": set(),  # preloaded into programs that are not ours: nothing of Perdure in it
    "capi": {"core"},  # stands on the public C++ API
}
# Two independent witnesses; not even their tests may look at each other's answer.
STRANGERS = ({"plan", "check"},)

# Headers of vendors, and the only places that may include them.
VENDOR_HEADERS = (
    (re.compile(r"rdma/fi\w*\.h|rdma/fabric\.h"), ("src/fabric/ofi/", "bench/bare_ofi")),
    (re.compile(r"infiniband/|rdma/rdma_\w+\.h"),
     ("src/fabric/verbs/", "bench/bare_verbs", "tests/lab/")),
    (re.compile(r"libpmem2?\.h|libpmem2/"), ("src/pmem/", "tests/interpose/")),
    (re.compile(r"toml\+\+"), ("src/core/toml_file.cc",)),
    (re.compile(r"microhttpd\.h"), ("src/server/http_listener.cc",)),
    (re.compile(r"isa-l|isal/"), ("src/core/",)),
)

# Words of our own that have gone, and the field's that stand for them.
OLD_WORDS = (
    (r"\bk?[Cc]ards?(?![a-z])|_cards?\b", "RNIC"),
    (r"\b[Mm]end(s|ed|ing)?\b|Mends(?![a-z])", "repair, resynchronize or patch"),
    (r"\btempting\b", "known unsafe"),
    (r"\bweakenings?\b", "mutant"),
    (r"\btold[- ]implies", "acknowledged-implies"),
    (r"\bgo(es)?[ _]by\b|GoesBy(?![a-z])", "use"),
    (r"\bunder[ _]way|UnderWay(?![a-z])", "in flight"),
    (r"\bdice\b", "PRNG"),
    (r"\breceive_patient\b", "inspect"),
    (r"\b[kK]?[Gg]reet(s|ing|ings)?(?![a-z])", "the header, message or handshake that it is"),
    (r"\blast[ _]words", "what is still to be reported"),
    (r"\b[Ff]or so long\b", "for this long, or how long it is"),
    (r"\bway[ _]out\b|WayOut(?![a-z])", "advice"),
    (r"\blook_for_stalls?\b", "check_timeout"),
    (r"\bthree providers\b", "four providers"),
    (r"\b(channel|peer|record|replica|update|workload)\(s\)", "counted() of core/counted.h"),
)

HOMES_OF_OLD_WORDS = ("tools/tidy.py", "tools/tidy_test.py")
DOCUMENT_SUFFIXES = (".md", ".1", ".8")  # for these only the rule of words

# In src: time comes from Clock, prng from Random, words go through the log callback.
# src/core/support.cc is where core builds Clock and the failed assertion out of the real things.
HOME_OF_CALLS = "src/core/support.cc"
BANNED_CALLS = (
    ("rand", r"\bs?rand\s*\(", "prng come from core's Random"),
    ("random_device", r"\brandom_device\b", "prng come from core's Random"),
    ("system_clock", r"\bsystem_clock\b|\bgettimeofday\s*\(", "time comes from core's Clock"),
    ("steady_clock", r"\bsteady_clock\b|\bclock_gettime\s*\(", "time comes from core's Clock"),
    # A member of that name is no call of the C library's: it has an object or a type before it.
    ("sleep", r"\b(usleep|nanosleep|sleep_for|sleep_until)\s*\(|"
              r"((^|[;{}=()]|\breturn\b)\s*|(^|[\s;{}=()])::)sleep\s*\(",
     "wait for an event, with a deadline"),
    ("getenv", r"\b(secure_)?getenv\s*\(", "the product reads no environment variables"),
    ("cout", r"\bstd::(cout|cerr|clog)\b", "the library speaks through its log callback"),
    ("printf", r"\b(std::)?[vf]*printf\s*\(|\bf?puts\s*\(",
     "the library speaks through its log callback"),
)
LEFTOVERS = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")


class SourceFile:
    """A source: its lines, and the same lines with comments, strings and characters blanked."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self.code = blank_comments_and_literals(text)
        self.code_lines = self.code.split("\n")
        self.raw_lines = raw_string_lines(text) if path.endswith(SOURCE_SUFFIXES) else set()

    def allows(self, line_number, call):
        """True if a comment with a reason excuses `call` on this line."""
        wanted = re.compile(r"tidy-allow\(" + re.escape(call) + r"\):\s*\S")
        around = self.lines[max(0, line_number - 2) : line_number]
        return any(wanted.search(line) for line in around)

    def is_test(self):
        return self.path.endswith("_test.cc")


TOKEN_TO_BLANK = re.compile(
    r"""//[^\n]*                                   # line comment
      | /\*.*?\*/                                  # block comment
      | \bR"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"   # raw string
      | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*"           # string
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'        # character; 1'000 is a number
    """,
    re.VERBOSE | re.DOTALL,
)


def blank_comments_and_literals(text):
    """The text with the same lines and columns, where comments and literals are spaces."""

    def blank(match):
        token = match.group(0)
        keep = '"' if token[0] in '"RuUL' else " "
        blanked = re.sub(r"[^\n]", " ", token)
        return keep + blanked[1:-1] + keep if len(token) >= 2 and keep == '"' else blanked

    return TOKEN_TO_BLANK.sub(blank, text)


def raw_string_lines(text):
    """Numbers of the lines that begin inside a raw string: text for elsewhere, not our code."""
    numbers = set()
    for match in TOKEN_TO_BLANK.finditer(text):
        if match.group(0).startswith('R"'):
            first = text.count("\n", 0, match.start()) + 1
            numbers.update(range(first + 1, first + 1 + match.group(0).count("\n")))
    return numbers


# --- rules; each takes a SourceFile and yields (line number, message) -----------------------------


def check_columns(source):
    for number, line in enumerate(source.lines, 1):
        if len(line) > COLUMNS_MAX and number not in source.raw_lines:
            yield number, f"{len(line)} columns, the limit is {COLUMNS_MAX}"


def check_leftovers(source):
    for number, line in enumerate(source.lines, 1):
        match = LEFTOVERS.search(line)
        if match:
            yield number, f"{match.group(0)}: do it, or write it down where work is planned"


def check_words(source):
    for number, line in enumerate(source.lines, 1):
        for pattern, instead in OLD_WORDS:
            match = re.search(pattern, line)
            if match and source.path not in HOMES_OF_OLD_WORDS:
                yield number, f"{match.group(0)}: the field's word is {instead}"


def check_banned_calls(source):
    if not source.path.startswith("src/") or source.is_test() or source.path == HOME_OF_CALLS:
        return
    for number, line in enumerate(source.code_lines, 1):
        for name, pattern, instead in BANNED_CALLS:
            if re.search(pattern, line) and not source.allows(number, name):
                yield number, f"{name} is banned here: {instead}"


def check_json_text(source):
    """The product's documents are written in one way: that of core/json.h."""
    if source.path == "src/core/json.cc" or not source.path.startswith(("src/", "apps/", "bench/")):
        return
    for number, line in enumerate(source.code_lines, 1):
        if re.search(r"\.dump\s*\(", line) and not source.is_test():
            yield number, "dump() throws at text that is not UTF-8: json_text() of core/json.h"


def includes_of(source):
    """Yields (line number, name, in angle brackets)."""
    for number, line in enumerate(source.lines, 1):
        match = re.match(r'\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', line)
        if match and source.code_lines[number - 1].lstrip().startswith("#"):
            yield number, match.group(1) or match.group(2), match.group(1) is not None


def module_of(path):
    """`core` for src/core/..., `fabric/emu` for src/fabric/emu/..., None outside src."""
    parts = pathlib.PurePosixPath(path).parts
    if len(parts) < 3 or parts[0] != "src":
        return None
    nested = "/".join(parts[1:3])
    return nested if nested in LAYERS else parts[1]


def check_layers(source):
    module = module_of(source.path)
    if module is None:
        return
    top = module.split("/")[0]
    for number, name, angled in includes_of(source):
        target = name.split("/")[0]
        if angled or target == "perdure" or target == top or "/" not in name:
            continue
        if any({top, target} <= pair for pair in STRANGERS):
            yield number, f"{top} and {target} are independent witnesses: no include either way"
        elif target in LAYERS and not source.is_test() and target not in LAYERS.get(module, set()):
            allowed = ", ".join(sorted(LAYERS.get(module, set()))) or "nothing of ours"
            yield number, f"{module} must not include {target}; it may include {allowed}"


def check_public_headers(source):
    """What users include stands on the standard library alone."""
    if not source.path.startswith("include/"):
        return
    for number, name, angled in includes_of(source):
        if not angled and not name.startswith("perdure/"):
            yield number, f"a public header includes only public headers, not {name}"
        elif angled and "/" in name and not name.startswith(("perdure/", "sys/")):
            yield number, f"a public header includes only the standard library, not {name}"


def check_vendor_headers(source):
    for number, name, _ in includes_of(source):
        for pattern, places in VENDOR_HEADERS:
            if pattern.match(name) and not source.path.startswith(places):
                yield number, f"{name} is wrapped by {places[0]}; include the wrapper"


NAMESPACE = re.compile(r'\bnamespace\b|\bextern\s*"\s*"\s*$')
TYPE = re.compile(r"(^|[;\s>])(class|struct|union|enum)\b")
MEMBER_INITIALISER = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:).*[\w>]\s*$", re.DOTALL)


def scope_kind(header, inside):
    """What a brace opens, judged by the text before it and the kind of scope around it."""
    if inside in ("function", "block"):
        return "block"
    if inside == "initialiser":
        return "initialiser"
    if NAMESPACE.search(header):
        return "namespace"
    if MEMBER_INITIALISER.search(header):
        return "initialiser"  # Thing() : member_{1} {...}: the body comes later
    if re.search(r"\)[^()=;]*$|\)\s*->[^;=]*$", header) and not re.search(r"=\s*$", header):
        return "function"
    if TYPE.search(header):
        return "type"
    return "initialiser"


def functions_of(source):
    """Yields (name, first line, last line) of each function that stands at file or type level."""
    code = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                  lambda m: re.sub(r"[^\n]", " ", m.group(0)), source.code)
    scopes = []  # (kind, header, line of the header)
    header, header_line, line = "", None, 1
    for character in code:
        if character == "\n":
            line += 1
        inside = scopes[-1][0] if scopes else "namespace"
        if character == "{":
            kind = scope_kind(header, inside)
            scopes.append((kind, header, header_line or line))
            if kind != "initialiser":
                header, header_line = "", None
        elif character == "}":
            if not scopes:
                return  # unbalanced through the preprocessor: nothing more can be said
            kind, opened_by, first_line = scopes.pop()
            if kind == "function":
                yield function_name(opened_by), first_line, line
            if kind == "initialiser":
                header, header_line = opened_by + "{}", first_line
            else:
                header, header_line = "", None
        elif character == ";" and inside != "initialiser":
            header, header_line = "", None
        elif inside != "initialiser":
            if header_line is None and not character.isspace():
                header_line = line
            header += character
            if character == ":" and re.search(r"\b(public|private|protected)\s*:$", header):
                header, header_line = "", None


def function_name(header):
    before = header.split("(")[0].split()
    name = before[-1] if before else "function"
    if name.isupper() or name in ("TEST_F", "TEST_P"):
        inside = header.split("(", 1)[1].split(")")[0]
        return f"{name}({' '.join(inside.split())})"
    return name


def check_function_length(source):
    if source.path.endswith(".c") and not source.path.startswith(("src/", "apps/", "examples/")):
        return
    for name, first, last in functions_of(source):
        length = last - first + 1
        if length > FUNCTION_LINES_MAX:
            yield first, f"{name} has {length} lines, the limit is {FUNCTION_LINES_MAX}"


RULES_OF_TEXT = (
    check_columns,
    check_leftovers,
    check_words,
)
RULES = RULES_OF_TEXT + (
    check_banned_calls,
    check_json_text,
    check_layers,
    check_public_headers,
    check_vendor_headers,
    check_function_length,
)


def check_source(path, text):
    """All breaches of one file, as (path, line, message), in the order of lines."""
    source = SourceFile(path, text)
    rules = RULES if path.endswith(SOURCE_SUFFIXES) else RULES_OF_TEXT
    if path.endswith(DOCUMENT_SUFFIXES):
        rules = (check_words,)
    return sorted((path, line, message) for rule in rules for line, message in rule(source))


def check_tests_built(paths, compiled):
    """Every *_test.cc is among the files that the build compiles."""
    for path in paths:
        if path.endswith("_test.cc") and path not in compiled:
            yield path, 1, "this test is not built: no target compiles it"


# Of the Linux kernel, and of rpma's guide.
PATHS_OF_OTHERS = ("include/rdma/", "include/uapi/", "tools/ddio.sh")
PATH_NAMED = re.compile(
    r"(?<![\w./-])((?:apps|bench|configs|demo|docs|examples|hardware|include|src|testing|tests|"
    r"tools)/[\w./-]*\.(?:cc|h|c|py|md|toml|json|pml|cpp|sh|proto))\b(?![*{<])")


def check_paths_named(path, text, names):
    """Files of the tree that a comment or a document names are there."""
    for number, line in enumerate(text.split("\n"), 1):
        for match in PATH_NAMED.finditer(line):
            if match.group(1) not in names and not match.group(1).startswith(PATHS_OF_OTHERS):
                yield path, number, f"{match.group(1)} is named here, and there is no such file"


MODULE_ROW = re.compile(r"^\| `([\w/]+)` \| .* \| (.*) \|$", re.MULTILINE)


def check_table_of_modules(contributing):
    """CONTRIBUTING.md lists every module with what it may include."""
    rows = dict(MODULE_ROW.findall(contributing))
    for module, allowed in sorted(LAYERS.items()):
        if "/" in module:
            continue
        if module not in rows:
            yield "CONTRIBUTING.md", 1, f"its table of modules lacks {module}"
            continue
        said = set(re.findall(r"\w+", re.split("[;:]", rows[module])[0])) & set(LAYERS)
        if said != allowed:
            wanted = " ".join(sorted(allowed)) or "nothing of ours"
            yield "CONTRIBUTING.md", 1, f"{module} may include: {wanted}"


# --- the tree -------------------------------------------------------------------------------------


def tracked_files(root):
    """Files that are in the repository or about to be, relative to root; all without git."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names = listing.splitlines()
    except (OSError, subprocess.CalledProcessError):
        found = (path for top in SOURCE_DIRECTORIES for path in (root / top).rglob("*"))
        names = [str(path.relative_to(root)) for path in found]
    return sorted(set(names))


def source_files(root):
    for name in tracked_files(root):
        known = name.startswith(tuple(d + "/" for d in SOURCE_DIRECTORIES))
        source = known and name.endswith(SOURCE_SUFFIXES)
        script = name in SCRIPTS or name.endswith(SCRIPT_SUFFIXES)
        document = name.endswith(DOCUMENT_SUFFIXES)
        if (source or script or document) and (root / name).is_file():
            yield name


def compiled_files(root, compile_commands):
    """What the build compiles; of a unity source (docs/decisions/0012), what it includes."""
    files = set()
    for entry in json.loads(pathlib.Path(compile_commands).read_text(encoding="utf-8")):
        file = pathlib.Path(entry["directory"], entry["file"]).resolve()
        files.add(file)
        if file.parent.name == "Unity" and file.is_file():
            included = re.findall(r'^#include "(.+)"$', file.read_text(encoding="utf-8"), re.M)
            files.update(pathlib.Path(name).resolve() for name in included)
    return {str(f.relative_to(root)) for f in files if f.is_relative_to(root)}


def main(arguments):
    parser = argparse.ArgumentParser(description="Checks the rules of the source tree.")
    parser.add_argument("--root", default=".", help="top of the tree")
    parser.add_argument("--compile-commands", help="compile_commands.json: which tests are built")
    options = parser.parse_args(arguments)

    root = pathlib.Path(options.root).resolve()
    paths = list(source_files(root))
    names = set(tracked_files(root))
    breaches = []
    for path in paths:
        text = (root / path).read_text(encoding="utf-8")
        breaches += check_source(path, text)
        if not path.endswith("_test.py"):
            breaches += check_paths_named(path, text, names)
        if path == "CONTRIBUTING.md":
            breaches += check_table_of_modules(text)
    if options.compile_commands:
        breaches += check_tests_built(paths, compiled_files(root, options.compile_commands))

    for path, line, message in breaches:
        print(f"{path}:{line}: {message}")
    print(f"tidy: {len(paths)} files, {len(breaches)} breaches")
    return 1 if breaches or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
