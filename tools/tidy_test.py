#!/usr/bin/env python3
"""Each rule of tidy.py, seen to catch what it forbids and to leave alone what it allows."""

import pathlib
import tempfile
import unittest

import tidy


def messages(path, text):
    return [f"{line}: {message}" for _, line, message in tidy.check_source(path, text)]


class Columns(unittest.TestCase):
    def test_limit_is_exact(self):
        self.assertEqual(messages("src/core/a.cc", "x" * 100), [])
        self.assertEqual(messages("src/core/a.cc", "\n" + "x" * 101),
                         ["2: 101 columns, the limit is 100"])

    def test_the_text_of_a_raw_string_has_its_own_width(self):
        page = 'auto page = R"(\n' + "x" * 120 + '\n)";\n'
        self.assertEqual(messages("src/core/a.cc", page), [])
        self.assertEqual(len(messages("src/core/a.cc", page + "x" * 101)), 1)


class Layers(unittest.TestCase):
    def test_downwards_is_allowed(self):
        self.assertEqual(messages("src/persist/a.cc", '#include "fabric/fabric.h"\n'), [])
        self.assertEqual(messages("src/core/a.cc", '#include "perdure/types.h"\n'), [])
        self.assertEqual(messages("src/fabric/emu/a.cc", '#include "pmem/region.h"\n'), [])

    def test_upwards_and_sideways_are_refused(self):
        for path, header in (
            ("src/core/a.cc", "log/log.h"),
            ("src/fabric/ofi/a.cc", "pmem/region.h"),
            ("src/fabric/fabric.cc", "persist/responder.h"),
            ("src/pmem/a.cc", "fabric/fabric.h"),
        ):
            found = messages(path, f'\n#include "{header}"\n')
            self.assertEqual(len(found), 1, (path, header, found))
            self.assertIn("2: ", found[0])
            self.assertIn("must not include", found[0])

    def test_plan_and_check_are_strangers_even_in_tests(self):
        for path, header in (("src/plan/a_test.cc", "check/c.h"), ("src/check/a.h", "plan/p.h")):
            self.assertEqual(len(messages(path, f'#include "{header}"\n')), 1)

    def test_tests_beside_the_source_may_use_upper_modules(self):
        self.assertEqual(messages("src/fabric/a_test.cc", '#include "persist/responder.h"\n'), [])

    def test_an_include_in_a_comment_does_not_count(self):
        self.assertEqual(messages("src/core/a.cc", '// #include "log/log.h"\n'), [])
        self.assertEqual(messages("src/core/a.cc", '/*\n#include "log/log.h"\n*/\n'), [])


class Headers(unittest.TestCase):
    def test_vendor_headers_stay_in_their_wrapper(self):
        self.assertEqual(messages("src/fabric/ofi/a.cc", "#include <rdma/fi_cm.h>\n"), [])
        self.assertEqual(messages("src/pmem/a.cc", "#include <libpmem2.h>\n"), [])
        self.assertEqual(len(messages("src/log/a.cc", "#include <rdma/fi_cm.h>\n")), 1)
        self.assertEqual(len(messages("src/fabric/ofi/a.cc", "#include <infiniband/verbs.h>\n")), 1)
        self.assertEqual(len(messages("apps/perdure/a.cc", "#include <libpmem2.h>\n")), 1)

    def test_public_headers_need_the_standard_library_only(self):
        good = '#include <cstdint>\n#include "perdure/result.h"\n#include <perdure/types.h>\n'
        self.assertEqual(messages("include/perdure/a.h", good), [])
        self.assertEqual(len(messages("include/perdure/a.h", "#include <fmt/core.h>\n")), 1)
        self.assertEqual(len(messages("include/perdure/a.h", '#include "core/try.h"\n')), 1)


class BannedCalls(unittest.TestCase):
    def test_each_is_caught(self):
        for call in ("int a = rand();", "std::random_device d;", "usleep(3);", "  sleep(3);",
                     "if (a) ::sleep(3);", "std::cout << 1;",
                     "auto n = std::chrono::system_clock::now();", "getenv(\"X\");",
                     "std::this_thread::sleep_for(x);", "printf(\"x\");", "fprintf(stderr, s);",
                     "auto n = steady_clock::now();"):
            self.assertEqual(len(messages("src/log/a.cc", call)), 1, call)

    def test_look_alikes_and_other_places_are_left_alone(self):
        for text in ("void sleep(Nanoseconds slice);", "void S::sleep(Nanoseconds slice) {",
                     "session.sleep(slice);", "operand(3);", "asleep();", "snprintf(b, 3, s);",
                     "// call rand() here", "Uuid::random();",
                     'log("getenv(x)");', "char c = '\"'; int rand_count;", "strand(1);"):
            self.assertEqual(messages("src/log/a.cc", text), [], text)
        self.assertEqual(messages("apps/perdure/a.cc", "std::cout << 1;"), [])
        self.assertEqual(messages("src/log/a_test.cc", "getenv(x);"), [])

    def test_documents_are_written_in_one_way(self):
        for path in ("src/log/a.cc", "apps/perdure/a.cc", "bench/a.cc"):
            self.assertEqual(len(messages(path, "print(json.dump(2));")), 1, path)
            self.assertEqual(messages(path, "print(json_text(json, 2));"), [], path)
        self.assertEqual(messages("src/core/json.cc", "return document.dump(2);"), [])
        self.assertEqual(messages("tests/cli/a_test.cc", "json.dump();"), [])

    def test_an_exception_needs_its_name_and_a_reason(self):
        call = "usleep(3);"
        self.assertEqual(messages("src/a/a.cc", f"// tidy-allow(sleep): hardware\n{call}"), [])
        self.assertEqual(len(messages("src/a/a.cc", f"// tidy-allow(sleep):\n{call}")), 1)
        self.assertEqual(len(messages("src/a/a.cc", f"// tidy-allow(rand): hardware\n{call}")), 1)


class Leftovers(unittest.TestCase):
    def test_they_are_caught_everywhere(self):
        for word in ("TO" + "DO", "FIX" + "ME"):
            self.assertEqual(len(messages("tests/a.cc", f"// {word}: later")), 1)
        self.assertEqual(messages("tests/a.cc", "auto todo_list = 1;"), [])


class OldWords(unittest.TestCase):
    def test_they_are_caught_in_names_words_and_documents(self):
        for text in ("int under_way = 0;", "TEST(Log, RepairMendsIt) {}", "// of the card",
                     "kCardPath", "rdma_cards(tree);", "// it goes by the profile",
                     '"{} record(s)"', "// the way out"):
            self.assertEqual(len(messages("tests/a.cc", text)), 1, text)
        self.assertEqual(len(messages("docs/a.md", "drives them with dice")), 1)

    def test_what_only_looks_like_one_is_not(self):
        for text in ("discard(it);", "wildcard", "amends", "recommended", "// passes by",
                     "last_word = 1;", "parse(s);"):
            self.assertEqual(messages("tests/a.cc", text), [], text)
        self.assertEqual(messages("docs/a.md", "x" * 200), [])


def function_with(lines, head="Result<void> Log::open(int a) {"):
    return head + "\n" + "  a();\n" * (lines - 2) + "}\n"


class FunctionLength(unittest.TestCase):
    def long_functions(self, text):
        return [m for m in messages("src/log/a.cc", text) if "lines, the limit" in m]

    def test_limit_is_exact(self):
        self.assertEqual(self.long_functions(function_with(70)), [])
        self.assertEqual(self.long_functions("\n" + function_with(71)),
                         ["2: Log::open has 71 lines, the limit is 70"])

    def test_heads_of_many_shapes(self):
        for head in (
            "int f(int a) const noexcept override {",
            "auto f(int a) -> std::vector<int> {",
            "template <typename T>\nrequires Small<T>\nvoid f(T a) {",
            "Thing::Thing(int a) : first_(a), second_{a} {",
            "Thing::Thing(int a) noexcept\n    : first_{a},\n      second_{} {",
            "TEST(LogRecovery, TornTailIsIgnored) {",
            "bool operator==(const A& a, const B& b) {",
            "static struct sockaddr_in address_of(int a) {",
            "Result<void> f(std::span<const std::byte> a = {}) {",
        ):
            lines = function_with(60, head=head).rstrip("\n").count("\n") + 1
            self.assertEqual(self.long_functions(function_with(60, head=head)), [], head)
            found = self.long_functions(function_with(80, head=head))
            self.assertEqual(len(found), 1, head)
            self.assertIn(f"{lines + 20} lines", found[0], head)

    def test_functions_inside_types_and_namespaces(self):
        method = function_with(75, head="void step(int a) {")
        text = "namespace perdure {\nclass A final : public B {\n public:\n" + method + "};\n}\n"
        self.assertEqual(self.long_functions(text), ["4: step has 75 lines, the limit is 70"])

    def test_long_things_that_are_no_functions(self):
        table = "constexpr Row kRows[] = {\n" + "  {1, f(2)},\n" * 200 + "};\n"
        self.assertEqual(self.long_functions(table), [])
        self.assertEqual(self.long_functions("namespace a {\n" + "int b(int);\n" * 200 + "}\n"), [])
        self.assertEqual(self.long_functions("enum class E {\n" + "A,\n" * 200 + "};\n"), [])
        self.assertEqual(self.long_functions("struct S : T {\n" + "int a;\n" * 200 + "};\n"), [])

    def test_braces_in_text_do_not_count(self):
        odd = 'void f() {\n  auto a = "}{{";\n  char b = \'{\';\n  auto c = R"(}}})";  // }\n'
        self.assertEqual(self.long_functions(odd + "  int d = 1'000;\n" * 60 + "}\n"), [])
        self.assertEqual(len(self.long_functions(odd + "  int d = 1'000;\n" * 70 + "}\n")), 1)


class Tree(unittest.TestCase):
    def test_a_test_that_no_target_compiles_is_named(self):
        paths = ["src/a/a.cc", "src/a/a_test.cc", "tests/b/b_test.cc"]
        found = list(tidy.check_tests_built(paths, {"src/a/a.cc", "src/a/a_test.cc"}))
        self.assertEqual([path for path, _, _ in found], ["tests/b/b_test.cc"])

    def test_a_path_that_is_named_is_there(self):
        names = {"src/a/a.cc", "docs/a.md"}
        text = "see docs/a.md and src/a/a.cc,\nbut docs/b.md; include/rdma/x.h is the kernel's\n"
        found = list(tidy.check_paths_named("README.md", text, names))
        self.assertEqual([(path, line) for path, line, _ in found], [("README.md", 2)])
        self.assertIn("docs/b.md", found[0][2])

    def test_the_table_of_modules_has_all_and_says_what_they_include(self):
        rows = [f"| `{module}` | verb | {' '.join(sorted(allowed)) or 'nothing of ours'} |"
                for module, allowed in tidy.LAYERS.items() if "/" not in module]
        self.assertEqual(list(tidy.check_table_of_modules("\n".join(rows))), [])
        self.assertEqual(len(list(tidy.check_table_of_modules("\n".join(rows[1:])))), 1)
        wrong = [row.replace("core", "core sim") if "`plan`" in row else row for row in rows]
        self.assertEqual(len(list(tidy.check_table_of_modules("\n".join(wrong)))), 1)

    def test_the_whole_run_says_where_and_fails(self):
        with tempfile.TemporaryDirectory() as root:
            source = pathlib.Path(root, "src", "core", "a.cc")
            source.parent.mkdir(parents=True)
            source.write_text("int a;\n")
            self.assertEqual(tidy.main(["--root", root]), 0)
            source.write_text("int a = rand();\n")
            self.assertEqual(tidy.main(["--root", root]), 1)

    def test_an_empty_tree_is_no_success(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(tidy.main(["--root", root]), 1)


if __name__ == "__main__":
    unittest.main()
