// A machine that is made up file by file.
#include "tests/host/machine.h"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

namespace perdure::host {
namespace {

namespace fs = std::filesystem;

bool needs_something(Verdict verdict) {
  return verdict == Verdict::Advice || verdict == Verdict::NotKnown || verdict == Verdict::Problem;
}

}  // namespace

Machine::Machine() : root_(std::make_shared<pmem::TestDirectory>()) {
  pool_on(pmem::MediumKind::PageCache, PersistenceDomain::Page, "ext4");
}

std::string Machine::at(const std::string& path) const { return root_->path() + path; }

Machine& Machine::file(const std::string& path, std::string_view text) {
  fs::create_directories(fs::path(at(path)).parent_path());
  std::ofstream(at(path), std::ios::binary) << text;
  return *this;
}

Machine& Machine::unreadable(const std::string& path) {
  remove(path);
  return directory(path);
}

Machine& Machine::directory(const std::string& path) {
  fs::create_directories(at(path));
  return *this;
}

Machine& Machine::link(const std::string& path, const std::string& to) {
  fs::create_directories(fs::path(at(path)).parent_path());
  fs::create_directories(at(to));
  fs::create_symlink(at(to), at(path));
  return *this;
}

Machine& Machine::remove(const std::string& path) {
  fs::remove_all(at(path));
  return *this;
}

Machine& Machine::rdma(const MadeUpRdma& device) {
  const std::string path = "/sys/class/infiniband/" + device.name;
  file(path + "/node_desc", device.description + "\n");
  file(path + "/node_type", device.node_type + "\n");
  file(path + "/fw_ver", "16.35.2000\n");
  file(path + "/ports/1/link_layer", device.link_layer + "\n");
  file(path + "/ports/1/state", device.state + "\n");
  if (!device.net_device.empty()) {
    file(path + "/ports/1/gid_attrs/ndevs/0", device.net_device + "\n");
  }
  link(path + "/device", kRnicPath);
  if (!fs::exists(at(std::string(kRnicPath) + "/driver"))) {
    link(std::string(kRnicPath) + "/driver", "/sys/bus/pci/drivers/" + device.driver);
  }
  return *this;
}

Machine& Machine::root_port(const std::string& device, unsigned low, unsigned high,
                            std::size_t bytes) {
  const std::string port = kRootPort;
  std::string config(4096, '\0');
  config[0x180] = static_cast<char>(low);
  config[0x185] = static_cast<char>(high);
  return file(port + "/vendor", "0x8086\n")
      .file(port + "/device", device + "\n")
      .file(port + "/config", config.substr(0, bytes));
}

Machine& Machine::pool_on(pmem::MediumKind kind, PersistenceDomain found,
                          const std::string& file_system) {
  place_.path = "/pools";
  place_.device = makedev(8, 1);
  place_.medium.kind = kind;
  place_.medium.found = found;
  place_.medium.file_system = file_system;
  place_.medium.evidence = {"the file system is " + file_system};
  place_.medium.drives.clear();
  place_.medium.mount_options = "rw,relatime";
  if (kind == pmem::MediumKind::PageCache) drive(pmem::DriveKind::Disk, "sda", "write back");
  if (kind == pmem::MediumKind::Dax && found == PersistenceDomain::Dmp) {
    place_.medium.platform = pmem::PlatformDomain::MemoryController;
  }
  return *this;
}

Machine& Machine::pool_on_device_dax() {
  pool_on(pmem::MediumKind::Dax, PersistenceDomain::Dmp, "device dax");
  place_.medium.is_device = true;
  return *this;
}

Machine& Machine::drive(pmem::DriveKind kind, const std::string& name,
                        const std::string& write_cache) {
  place_.medium.drives = {{name,
                           kind,
                           write_cache,
                           pmem::PlatformDomain::Silent,
                           "drive " + name + " is below",
                           {},
                           false,
                           ""}};
  return *this;
}

Machine& Machine::image(const std::string& file, const std::string& mount_options) {
  place_.medium.drives.at(0).images = {{file, mount_options}};
  return *this;
}

Machine& Machine::stacked_on(const std::string& swallows) {
  place_.medium.drives.at(0).stacked = true;
  place_.medium.drives.at(0).swallowed_by = swallows;
  return *this;
}

Machine& Machine::in_a_virtual_machine() {
  place_.medium.is_virtual = true;
  return *this;
}

Machine& Machine::leaves_caches() {
  place_.medium.drives.at(0).leaves_caches = true;
  pmem::conclude_dax(place_.medium);
  return *this;
}

Machine& Machine::mount_options(const std::string& options) {
  place_.medium.mount_options = options;
  pmem::conclude_page_cache(place_.medium);
  return *this;
}

Machine& Machine::pool(const PoolThere& pool) {
  place_.pools.push_back(pool);
  return *this;
}

Machine& Machine::pool_bytes(std::uint64_t bytes) {
  place_.pool_bytes = bytes;
  return *this;
}

Machine& Machine::disk(const std::string& disk) {
  const std::string whole = "/sys/devices/virtual/block/" + disk;
  directory(whole + "/queue");
  return link("/sys/dev/block/8:1", whole + "/" + disk + "1");
}

Machine& Machine::config(std::string_view toml) { return file("/etc/perdure/perdured.toml", toml); }

InspectedHost Machine::inspected() const {
  InspectedHost inspected;
  inspected.tree = SystemTree(root_->path());
  inspected.place = place_;
  inspected.config = server::load_config(at("/etc/perdure/perdured.toml"));
  return inspected;
}

void expect_whole(const Check& check) {
  EXPECT_NE(check.name, "");
  EXPECT_NE(check.finding, "") << check.name;
  EXPECT_FALSE(check.evidence.empty()) << check.name << ": " << check.finding;
  EXPECT_EQ(check.advice.empty(), !needs_something(check.verdict)) << check.name;
  EXPECT_EQ(check.commands.empty(), !needs_something(check.verdict)) << check.name;
}

void expect(Check (*check)(const InspectedHost&), const Machine& machine, Verdict verdict,
            const std::string& finding) {
  const Check answer = check(machine.inspected());
  expect_whole(answer);
  EXPECT_EQ(to_string(answer.verdict), to_string(verdict)) << answer.name << ": " << answer.finding;
  EXPECT_NE(answer.finding.find(finding), std::string::npos)
      << answer.name << ": " << answer.finding << "\nexpected: " << finding;
}

}  // namespace perdure::host
