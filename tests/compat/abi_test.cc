// What librpmem.so.1 shows of itself to the loader.
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "testing/process.h"
#include "testing/temporary_directory.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

/// The lines that a program of binutils writes about the library.
std::vector<std::string> lines_of(std::vector<std::string> command) {
  const test::TestDirectory scratch;
  command.insert(command.begin(), {"/usr/bin/env", "LC_ALL=C"});
  command.push_back(std::string(RPMEM_LIBRARY_DIRECTORY) + "/librpmem.so.1");
  auto child = test::ChildProcess::start(command, scratch.file("output"));
  EXPECT_TRUE(child.ok());
  if (!child.ok()) return {};
  child->wait();
  EXPECT_EQ(child->end()->status, 0);
  std::istringstream text(test::read_whole(scratch.file("output")));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

// Programs of PMDK were linked to names with a version, and bring their own ideas of what else is
// in their process: one name more, and it may be taken for one of theirs.
TEST(LibrpmemAbi, ExportsTheTwelveFunctionsAndNothingElse) {
  std::set<std::string> found;
  for (const std::string& line :
       lines_of({"nm", "-D", "--defined-only", "--with-symbol-versions"})) {
    found.insert(line.substr(line.find(' ') + 1));
  }
  const std::set<std::string> wanted = {
      "A LIBRPMEM_1.0",
      "T rpmem_check_version@@LIBRPMEM_1.0",
      "T rpmem_close@@LIBRPMEM_1.0",
      "T rpmem_create@@LIBRPMEM_1.0",
      "T rpmem_deep_persist@@LIBRPMEM_1.0",
      "T rpmem_drain@@LIBRPMEM_1.0",
      "T rpmem_errormsg@@LIBRPMEM_1.0",
      "T rpmem_flush@@LIBRPMEM_1.0",
      "T rpmem_open@@LIBRPMEM_1.0",
      "T rpmem_persist@@LIBRPMEM_1.0",
      "T rpmem_read@@LIBRPMEM_1.0",
      "T rpmem_remove@@LIBRPMEM_1.0",
      "T rpmem_set_attr@@LIBRPMEM_1.0",
  };
  EXPECT_EQ(found, wanted);
}

TEST(LibrpmemAbi, IsCalledAsPmdksLibraryWas) {
  std::string name;
  for (const std::string& line : lines_of({"readelf", "-d", "-W"})) {
    if (line.find("(SONAME)") != std::string::npos) name += line.substr(line.find('['));
  }
  EXPECT_EQ(name, "[librpmem.so.1]");
}

}  // namespace
}  // namespace perdure
