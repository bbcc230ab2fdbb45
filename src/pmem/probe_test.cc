// probe: every axis has a value and a reason, and looking leaves no trace.
#include "pmem/probe.h"

#include <gtest/gtest.h>

#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

TEST(Probe, NamesEveryAxisWithEvidence) {
  TestDirectory directory(kMemoryFileSystem);
  auto report = probe(directory.path());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->domain, PersistenceDomain::None);
  EXPECT_EQ(report->ddio, Ddio::On);
  for (const char* axis : {"persistence domain", "file system", "granularity", "flush instruction",
                           "ddio", "numa", "free space"}) {
    const ProbedAxis* found = report->find(axis);
    ASSERT_NE(found, nullptr) << axis;
    EXPECT_FALSE(found->value.empty()) << axis;
    EXPECT_FALSE(found->evidence.empty()) << axis;
  }
  EXPECT_EQ(report->find("file system")->value, "tmpfs");
  EXPECT_EQ(report->find("colour"), nullptr);
  EXPECT_TRUE(directory.names().empty());  // nothing is left of the trial
}

TEST(Probe, AFileAndItsDirectoryAreTheSamePlace) {
  TestDirectory directory;
  write_all(directory.file("x"), std::vector<char>(4096));
  auto of_file = probe(directory.file("x"));
  auto of_directory = probe(directory.path());
  ASSERT_TRUE(of_file.ok() && of_directory.ok());
  EXPECT_EQ(of_file->domain, of_directory->domain);
}

TEST(Probe, SaysWhyAPlaceIsNone) {
  EXPECT_EQ(probe("/no/such/place").code(), ErrorCode::NotFound);
  EXPECT_EQ(probe("/dev/null").code(), ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace perdure::pmem
