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

std::string all(const ProbedAxis& axis) {
  std::string text;
  for (const std::string& sentence : axis.evidence) text += sentence + "\n";
  return text;
}

// What decide_domain() refuses is no remedy.
TEST(Probe, WhereMsyncMakesNothingLastItAdvisesNoPage) {
  Medium medium;
  EXPECT_NE(all(domain_axis(medium)).find("declare page"), std::string::npos);
  medium.never_lasts = "the file system is mounted with nobarrier";
  medium.remedy = "mount it without nobarrier";
  ASSERT_FALSE(decide_domain(medium, PersistenceDomain::Page).ok());
  for (const MediumKind kind : {MediumKind::PageCache, MediumKind::Dax}) {
    medium.kind = kind;
    const std::string text = all(domain_axis(medium));
    EXPECT_EQ(text.find("declare"), std::string::npos) << text;
    EXPECT_NE(text.find("mounted with nobarrier"), std::string::npos) << text;
    EXPECT_NE(text.find("remedy: mount it without"), std::string::npos) << text;
  }
}

// Caches that survive need a fence and no flush.
TEST(Probe, WithoutAFlushInstructionOnlyDmpIsNotPossible) {
  const std::string text = all(flush_axis(FlushInstruction::None));
  EXPECT_NE(text.find("dmp is not possible; page, mhp, wsp and none are"), std::string::npos);
  EXPECT_EQ(all(flush_axis(FlushInstruction::Clwb)).find("not possible"), std::string::npos);
}

TEST(Probe, SaysWhyAPlaceIsNone) {
  EXPECT_EQ(probe("/no/such/place").code(), ErrorCode::NotFound);
  EXPECT_EQ(probe("/dev/null").code(), ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace perdure::pmem
