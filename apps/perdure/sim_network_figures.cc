// Figures 4, 12 and 13: BSP against Sync, with the RNIC's persist ACK in both.
#include "core/try.h"
#include "output.h"
#include "sim_figures.h"
#include "sim_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace perdure::app {
namespace {

using memsys::PersistPoint;
using sim::NetworkOptions;

constexpr std::array kPersistPoints{PersistPoint::Accept, PersistPoint::Bus, PersistPoint::Array};

NetworkOptions options_of(const sim::ClientApplication& application, const FigureOptions& options) {
  NetworkOptions run;
  run.shape = application.shape;
  run.clients = application.clients;
  run.transactions = options.network_transactions;
  return run;
}

Error named(const sim::ClientApplication& application, const Error& error) {
  return {error.code, fmt::format("{}: {}", application.name, error.message)};
}

/// simulate_pair, and `status` says of `what` how far it is. Errors  as simulate_pair.
Result<NetworkPair> pair_with_status(StatusLine& status, const std::string& what,
                                     const NetworkSetup& setup, NetworkOptions options) {
  status.show(what);
  options.progress = [&](std::uint64_t begun) {
    status.show(fmt::format("{}: {} %", what, 100 * begun / (2 * options.transactions)));
  };
  return simulate_pair(setup, options);
}

/// What figures 12 and 13 run of an application.
struct ApplicationRuns {
  const sim::ClientApplication& application;
  const NetworkSetup& setup;
  std::string what;
  StatusLine& status;

  /// Errors  as simulate_pair, naming the application.
  Result<NetworkPair> pair_of(const NetworkOptions& options) const {
    auto pair = pair_with_status(status, what, setup, options);
    if (pair.ok()) return pair;
    return named(application, pair.error());
  }
};

/// The application as the file has it; behind it, if its epochs are recalled, with the fewest and
/// the most that are known.
std::vector<sim::ClientApplication> readings_of(const sim::ClientApplication& application) {
  std::vector<sim::ClientApplication> readings{application};
  if (application.epochs_most == 0) return readings;
  for (const std::uint64_t epochs : {application.epochs_least, application.epochs_most}) {
    readings.push_back(application);
    readings.back().shape.epochs = epochs;
    readings.back().stated_transactions = readings.back().meant_transactions = 0;
  }
  return readings;
}

/// As a figure runs it: alone, with its clients at once, and as often as table IV may mean.
Result<void> check_application(const sim::ClientApplication& application, const NetworkSetup& setup,
                               const FigureOptions& options) {
  NetworkOptions alone = options_of(application, options);
  alone.clients = 1;
  std::vector<NetworkOptions> runs{alone, options_of(application, options)};
  for (const std::uint64_t transactions :
       {application.stated_transactions, application.meant_transactions}) {
    if (transactions == 0) continue;
    alone.transactions = transactions;
    runs.push_back(alone);
  }
  for (const NetworkOptions& run : runs) {
    const auto checked = check_pair(setup, run);
    if (!checked.ok()) return named(application, checked.error());
  }
  return {};
}

/// What figure 13 is about.
Result<sim::ClientApplication> hashmap_of(const FigureOptions& options) {
  PERDURE_TRY(applications, applications_of(options.applications));
  const auto hashmap =
      std::find_if(applications.begin(), applications.end(),
                   [](const sim::ClientApplication& each) { return each.name == "hashmap"; });
  if (hashmap != applications.end()) return std::move(*hashmap);
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("{}: has no table [hashmap], which figure 13 is about", options.applications)};
}

/// "100: 3.52"; "-" of an application whose number of transactions is in no doubt.
Result<std::string> gain_of_so_many(const ApplicationRuns& runs, NetworkOptions run,
                                    std::uint64_t transactions) {
  if (transactions == 0) return std::string("-");
  run.transactions = transactions;
  PERDURE_TRY(pair, runs.pair_of(run));
  return fmt::format("{}: {}", transactions, times(pair.gain()));
}

double us(double ps) { return ps / 1e6; }

/// Of the client's CPU, so that BSP is `published` times Sync; nothing: even without any it is not.
/// A transaction takes compute + share * persist under each.
std::optional<double> compute_for(const NetworkPair& pair,
                                  const sim::ClientApplication& application) {
  const double share = static_cast<double>(application.shape.writes_per_mille) / 1000;
  const double gain = application.published;
  const double left = share * (pair.sync.persist.mean() - gain * pair.bsp.persist.mean());
  if (left < 0 || gain <= 1) return std::nullopt;
  return left / (gain - 1);
}

}  // namespace

Result<void> check_network_figure(int number, const FigureOptions& options) {
  PERDURE_TRY(setup, read_network_setup(options.files));
  if (number == 4) return check_pair(setup, {});
  if (number == 13) {
    PERDURE_TRY(hashmap, hashmap_of(options));
    return check_application(hashmap, setup, options);
  }
  PERDURE_TRY(applications, applications_of(options.applications));
  for (const sim::ClientApplication& application : applications) {
    for (const sim::ClientApplication& each : readings_of(application)) {
      PERDURE_TRY_VOID(check_application(each, setup, options));
    }
  }
  return {};
}

namespace {

/// Of figure 4, with one memory.
struct Figure4Row {
  std::vector<Claim> claims;
  double round_trip = 0;  // of an epoch with Sync, ps
  double spacing = 0;     // another epoch with BSP, ps
};

/// Simulates it and adds it to the table. Errors  as simulate_pair.
Result<Figure4Row> add_figure_4_row(Figure& figure, StatusLine& status, std::string memory,
                                    const NetworkSetup& setup) {
  constexpr double kPublishedShare = 0.9;
  NetworkOptions run;
  run.transactions = 100;
  NetworkOptions with_nvm = run;
  with_nvm.client_persists = true;
  const auto epochs = static_cast<double>(run.shape.epochs);
  const std::string what = "figure 4: " + memory;
  PERDURE_TRY(pair, pair_with_status(status, what, setup, run));
  PERDURE_TRY(nvm, pair_with_status(status, what + ", client with NVM", setup, with_nvm));
  Figure4Row row;
  row.round_trip = pair.sync.persist.mean() / epochs;
  row.spacing = (pair.bsp.persist.mean() - row.round_trip) / (epochs - 1);
  figure.table.rows.push_back(
      {std::move(memory), times(us(pair.sync.persist.mean())), times(us(pair.bsp.persist.mean())),
       times(pair.gain()), fmt::format("{:.1f}", 100 * pair.sync.network_share()),
       fmt::format("{:.1f}", 100 * row.spacing / row.round_trip), times(nvm.gain())});
  row.claims = {{"6 epochs of 512 bytes, BSP over Sync", kFigure4Gain, pair.gain()},
                {"the network's share of Sync's time", kPublishedShare, pair.sync.network_share(),
                 Tolerance::MoreThan}};
  return row;
}

/// Each epoch in the array before the next may go, and a wire that is as long as the paper's gain
/// implies then. Nothing is added where the gain is more than that already.
Result<void> add_figure_4_long_wire(Figure& figure, StatusLine& status, NetworkSetup setup,
                                    const Figure4Row& at_array, double implied) {
  const double longer = at_array.spacing / implied - at_array.round_trip;
  if (longer <= 0) return {};
  setup.hardware.network.wire += longer / 2 / 1e3;
  std::string name =
      fmt::format("{}, R {:.1f} us", describe_memory(setup), us(at_array.round_trip + longer));
  PERDURE_TRY(row, add_figure_4_row(figure, status, name, setup));
  row.claims.front().by_choice = true;
  figure.assumptions.push_back({std::move(name), std::move(row.claims)});
  return {};
}

}  // namespace

Result<Figure> simulate_figure_4(const FigureOptions& options) {
  PERDURE_TRY(setup, read_network_setup(options.files));
  Figure figure;
  figure.number = 4;
  figure.title = "a transaction of 6 epochs of 512 bytes, one client";
  figure.table.columns = {{"memory", false},
                          {"sync, us"},
                          {"bsp, us"},
                          {"bsp over sync"},
                          {"network, %"},
                          {"another epoch over R, %"},
                          {"over sync, client with NVM"}};
  const sim::TransactionShape shape = NetworkOptions{}.shape;
  StatusLine status;
  NetworkSetup fixed = setup;
  fixed.device.reset();
  PERDURE_TRY(of_fixed, add_figure_4_row(figure, status, describe_memory(fixed), fixed));
  figure.assumptions.push_back({describe_memory(fixed), std::move(of_fixed.claims)});
  const double implied = sim::implied_spacing(kFigure4Gain, shape.epochs);
  fixed.hardware.network = sim::with_spacing(fixed.hardware.network, shape.epoch_bytes, implied);
  std::string at_implied = fmt::format("{}, s/R {:.1f} %", describe_memory(fixed), 100 * implied);
  PERDURE_TRY(of_implied, add_figure_4_row(figure, status, at_implied, fixed));
  of_implied.claims.front().by_choice = true;
  figure.assumptions.push_back({std::move(at_implied), std::move(of_implied.claims)});
  // The paper has one number, and so it is one claim: with the memory that the other figures have.
  for (const PersistPoint point : kPersistPoints) {
    setup.persist_point = point;
    PERDURE_TRY(row, add_figure_4_row(figure, status, describe_memory(setup), setup));
    if (point == PersistPoint::Array) {
      PERDURE_TRY_VOID(add_figure_4_long_wire(figure, status, setup, row, implied));
      figure.claims = std::move(row.claims);
    } else {
      figure.assumptions.push_back({describe_memory(setup), std::move(row.claims)});
    }
  }
  figure.decides =
      "the slowest station: the client's post and the queue pair's gap where memory is fast, the "
      "memory where each epoch has to be in the array before the next may go.";
  figure.remarks = {
      fmt::format("The paper's 4.6 for 6 epochs means that another epoch's time s is {:.1f} % of a "
                  "round trip R: it fixes the ratio and not R. The rows at that s/R have a longer "
                  "wire, or queue pairs with a longer gap, so that it is so: by choice.",
                  100 * implied),
      "How long a round trip takes the paper does not say. Where each epoch has to be in the "
      "array, "
      "4.6 times takes the one of the last row, and the share of the network, for which nothing is "
      "chosen, is more than 90 % then too.",
      "A client with NVM of its own persists each epoch there while it is on its way, before it "
      "posts the next one: Sync hides that behind the persist ACK, and BSP has it between two "
      "posts."};
  return figure;
}

namespace {

/// Simulates a reading of an application and adds it to the table. Errors  as simulate_pair.
Result<Claim> add_figure_12_row(Figure& figure, const ApplicationRuns& runs,
                                const std::string& name, const FigureOptions& options) {
  const sim::ClientApplication& each = runs.application;
  // As the paper measured: a client is delayed by what its own epochs take.
  NetworkOptions run = options_of(each, options);
  run.clients = 1;
  PERDURE_TRY(bare, runs.pair_of(run));
  PERDURE_TRY(stated, gain_of_so_many(runs, run, each.stated_transactions));
  PERDURE_TRY(meant, gain_of_so_many(runs, run, each.meant_transactions));
  const auto compute = compute_for(bare, each);
  run.shape.compute = static_cast<sim::Time>(compute.value_or(0));
  PERDURE_TRY(there, runs.pair_of(run));
  NetworkOptions with_nvm = run;
  with_nvm.client_persists = true;
  PERDURE_TRY(nvm, runs.pair_of(with_nvm));
  NetworkOptions at_once = run;
  at_once.clients = each.clients;
  PERDURE_TRY(together, runs.pair_of(at_once));
  figure.table.rows.push_back(
      {name, std::to_string(each.shape.epochs), std::to_string(each.shape.epoch_bytes),
       times(each.published), times(bare.gain()),
       compute ? fmt::format("{:.1f}", us(*compute)) : "none suffices", times(there.gain()),
       times(nvm.gain()), times(together.gain()), std::move(stated), std::move(meant)});
  return Claim{each.name, each.published, there.gain(), Tolerance::ThirdOfGain,
               compute.has_value()};
}

/// What is recalled beside what is known.
std::string recalled_remark(const std::vector<sim::ClientApplication>& applications) {
  std::string text;
  for (const sim::ClientApplication& each : applications) {
    if (each.epochs_most == 0) continue;
    const bool within =
        each.shape.epochs >= each.epochs_least && each.shape.epochs <= each.epochs_most;
    text += fmt::format("{} {} {} ({} to {}: {})", text.empty() ? "" : ",", each.name,
                        each.shape.epochs, each.epochs_least, each.epochs_most,
                        within ? "within" : "outside");
  }
  if (text.empty()) return text;
  return "Epochs a transaction of these are recalled figures, not verified ones; in brackets what "
         "is known of WHISPER's applications together:" +
         text + ". The rows behind an application have the two bounds instead.";
}

}  // namespace

Result<Figure> simulate_figure_12(const FigureOptions& options) {
  constexpr double kPublishedMean = 1.93;
  PERDURE_TRY(setup, read_network_setup(options.files));
  PERDURE_TRY(applications, applications_of(options.applications));
  Figure figure;
  figure.number = 12;
  figure.title = "clients' transactions, BSP over Sync; memory: " + describe_memory(setup);
  figure.table.columns = {{"application", false},
                          {"epochs"},
                          {"bytes"},
                          {"paper"},
                          {"without compute"},
                          {"compute that it takes, us"},
                          {"simulated there"},
                          {"client with NVM"},
                          {"its clients at once"},
                          {"so many as stated"},
                          {"as surely meant"}};
  StatusLine status;
  double logs = 0;
  for (const sim::ClientApplication& application : applications) {
    const auto readings = readings_of(application);
    for (const sim::ClientApplication& each : readings) {
      const bool known = &each != &readings.front();
      const std::string name =
          known ? fmt::format("{}, {} epochs", each.name, each.shape.epochs) : each.name;
      const ApplicationRuns runs{each, setup, "figure 12: " + name, status};
      PERDURE_TRY(claim, add_figure_12_row(figure, runs, name, options));
      if (known) continue;
      logs += std::log(claim.simulated);
      figure.claims.push_back(std::move(claim));
    }
  }
  const bool any_chosen = std::any_of(figure.claims.begin(), figure.claims.end(),
                                      [](const Claim& c) { return c.by_choice; });
  figure.claims.push_back({"geometric mean", kPublishedMean,
                           std::exp(logs / static_cast<double>(applications.size())),
                           Tolerance::ThirdOfGain, any_chosen});
  figure.decides =
      "how long a client computes between its writes, which the paper does not say: without "
      "compute BSP gains more, with enough of it nothing.";
  figure.remarks = {
      "The column of compute says what the paper's number takes; that ours agrees there is by this "
      "choice, and no finding.",
      "The paper delays each client by what its own epochs take; so do the columns before the "
      "last. At once, clients share the server's link, the RNIC's persist buffer and the banks.",
      "Table IV has 100 INSERT transactions of ctree and of hashmap, and surely means 100 K, "
      "102400, as in WHISPER's scripts. The last two columns have the gain without compute with so "
      "many."};
  if (std::string recalled = recalled_remark(applications); !recalled.empty()) {
    figure.remarks.push_back(std::move(recalled));
  }
  return figure;
}

Result<Figure> simulate_figure_13(const FigureOptions& options) {
  PERDURE_TRY(setup, read_network_setup(options.files));
  PERDURE_TRY(hashmap, hashmap_of(options));
  NetworkOptions run = options_of(hashmap, options);
  run.clients = 1;
  StatusLine status;
  ApplicationRuns runs{hashmap, setup, "figure 13: compute", status};
  PERDURE_TRY(bare, runs.pair_of(run));
  run.shape.compute = static_cast<sim::Time>(compute_for(bare, hashmap).value_or(0));
  Figure figure;
  figure.number = 13;
  figure.title =
      fmt::format("one client's hashmap by the size of an epoch's data, {:.1f} us of compute; {}",
                  us(static_cast<double>(run.shape.compute)), describe_memory(setup));
  figure.table.columns = {
      {"bytes"}, {"sync, per us"}, {"bsp, per us"}, {"bsp over sync"}, {"client with NVM"}};
  std::vector<double> gains;
  for (std::uint64_t bytes = 128; bytes <= 16384; bytes *= 2) {
    runs.what = fmt::format("figure 13: epochs of {} bytes", bytes);
    run.shape.epoch_bytes = bytes;
    PERDURE_TRY(pair, runs.pair_of(run));
    NetworkOptions with_nvm = run;
    with_nvm.client_persists = true;
    PERDURE_TRY(nvm, runs.pair_of(with_nvm));
    figure.table.rows.push_back({std::to_string(bytes),
                                 fmt::format("{:.4f}", pair.sync.transactions_per_us()),
                                 fmt::format("{:.4f}", pair.bsp.transactions_per_us()),
                                 times(pair.gain()), times(nvm.gain())});
    gains.push_back(pair.gain());
  }
  const bool effective =
      std::all_of(gains.begin(), gains.begin() + 6, [](double gain) { return gain > 1.1; });
  figure.decides = "where a write is persisted, and how long the client computes (figure 12).";
  figure.remarks = {
      fmt::format("The paper says that BSP is effective from 128 to 4096 bytes: {} (more than 1.1 "
                  "at each of them: {:.2f} to {:.2f}).",
                  effective ? "so it is here" : "it is not here", gains.front(), gains[5]),
      fmt::format("It says that BSP is less effective as data grow beyond: {} ({:.2f} at 16384).",
                  gains.back() < gains.front() ? "so it is here" : "it is not here", gains.back()),
      "A client with NVM of its own persists each epoch there before it posts the next one, as in "
      "figure 4.",
      "Its text has no number for this figure."};
  return figure;
}

}  // namespace perdure::app
