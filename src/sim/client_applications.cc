// Reading client applications: see client_applications.h.
#include "sim/client_applications.h"

#include "core/parameter_file.h"
#include "core/printable.h"
#include "core/try.h"

#include <cmath>

namespace perdure::sim {
namespace {

constexpr double kTransactionsMax = 1e8;
constexpr double kEpochsMax = 4096;

Result<std::vector<ClientApplication>> applications_of(ParameterFile& file) {
  std::vector<ClientApplication> applications;
  for (const std::string& table : file.tables_in("")) {
    using Need = ParameterFile::Need;
    const auto real = [&](std::string_view key, std::string_view unit, double min, double max,
                          Need need = Need::Required) {
      double value = need == Need::Required ? min : 0;
      file.quantity(table, key, need, unit, min, max, value);
      return value;
    };
    const auto count = [&](std::string_view key, std::string_view unit, double max,
                           Need need = Need::Required) {
      const double value = real(key, unit, 1, max, need);
      if (value != std::floor(value)) file.problem(table, key, "must be a whole number");
      return static_cast<std::uint64_t>(value);
    };
    ClientApplication& each = applications.emplace_back();
    each.name = printable_name(table);
    each.shape.epochs = count("epochs", "epochs", kEpochsMax);
    each.epochs_least = count("epochs_least", "epochs", kEpochsMax, Need::Optional);
    each.epochs_most = count("epochs_most", "epochs", kEpochsMax, Need::Optional);
    const bool both = (each.epochs_least == 0) == (each.epochs_most == 0);
    if (!both || each.epochs_least > each.epochs_most) {
      file.problem(table, each.epochs_most == 0 ? "epochs_least" : "epochs_most",
                   "must come with the other, epochs_least no more than epochs_most");
    }
    each.shape.epoch_bytes = count("epoch_bytes", "bytes", 1 << 20);
    each.shape.writes_per_mille =
        static_cast<std::uint64_t>(std::llround(10 * real("writes", "%", 0.1, 100)));
    each.clients = static_cast<std::uint32_t>(count("clients", "clients", 256));
    each.published = real("published", "times", 1, 1000);
    const auto transactions = [&](std::string_view key) {
      return count(key, "transactions", kTransactionsMax, Need::Optional);
    };
    each.stated_transactions = transactions("stated_transactions");
    each.meant_transactions = transactions("meant_transactions");
  }
  if (applications.empty()) file.problem_at(1, "has no table of an application");
  PERDURE_TRY_VOID(file.outcome());
  return applications;
}

}  // namespace

Result<std::vector<ClientApplication>> read_client_applications(const std::string& path) {
  PERDURE_TRY(file, ParameterFile::read(path));
  return applications_of(file);
}

Result<std::vector<ClientApplication>> parse_client_applications(std::string_view text,
                                                                 std::string name) {
  PERDURE_TRY(file, ParameterFile::parse(text, std::move(name)));
  return applications_of(file);
}

}  // namespace perdure::sim
