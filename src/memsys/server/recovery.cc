// What becomes of writes that are ahead of their order: see recovery.h.
#include "memsys/server/recovery.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::memsys {

Recovery::Way Recovery::admit(std::uint32_t controller, const PersistEntry& entry, bool safe) {
  if (!safe && mutant_.keeps_no_old_value) return Way::Write;
  if (!safe) return admit_ahead(controller, entry);
  // It says that its epoch is safe.
  commit(controller, entry.id.thread, entry.epoch);
  Table& table = tables_[controller];
  const bool later = std::any_of(table.begin(), table.end(), [&](const Record& r) {
    return r.line == entry.line && !r.undo && r.stage == Stage::Committed;
  });
  if (later) return Way::Later;
  Record* const undo = undo_of(table, entry.line);
  if (undo == nullptr || mutant_.writes_over_newer) return Way::Write;
  // Memory has a value that comes after this one.
  undo->version = {entry.order, entry.id};
  ++counts_.absorbed;
  return Way::Recorded;
}

Recovery::Way Recovery::admit_ahead(std::uint32_t controller, const PersistEntry& entry) {
  Table& table = tables_[controller];
  bool recorded = false;
  for (Record& record : table) {
    if (record.line != entry.line) continue;
    recorded = true;
    const bool own = !record.undo && record.stage == Stage::Open &&
                     record.thread == entry.id.thread && record.epoch == entry.epoch;
    if (!own) continue;
    record.version = {entry.order, entry.id};
    return Way::Recorded;
  }
  if (table.size() >= entries_) {
    ++counts_.refused;
    return Way::Refused;
  }
  Record record;
  record.line = entry.line;
  record.undo = !recorded;
  record.thread = entry.id.thread;
  record.epoch = entry.epoch;
  record.version = recorded ? LineVersion{entry.order, entry.id} : images_[entry.line].entered;
  table.push_back(record);
  ++(recorded ? counts_.delay : counts_.undo);
  counts_.most = std::max(counts_.most, table.size());
  return recorded ? Way::Recorded : Way::Undo;
}

Recovery::Record* Recovery::undo_of(Table& table, std::uint64_t line) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Record& r) { return r.undo && r.line == line; });
  return found == table.end() ? nullptr : &*found;
}

void Recovery::commit(std::uint32_t controller, std::uint32_t thread, std::uint64_t epoch) {
  Table& table = tables_[controller];
  const auto of_epoch = [&](const Record& r) {
    return r.thread == thread && r.epoch == epoch && r.stage == Stage::Open;
  };
  std::erase_if(table, [&](const Record& r) { return of_epoch(r) && r.undo; });
  for (std::size_t i = 0; i < table.size();) {
    Record& record = table[i];
    if (!of_epoch(record)) {
      ++i;
      continue;
    }
    if (Record* const undo = undo_of(table, record.line); undo != nullptr) {
      undo->version = record.version;
      table.erase(table.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    record.stage = Stage::Committed;
    drains_.push_back({controller, record.line, record.version});
    ++i;
  }
}

void Recovery::pop_drain() {
  const Drain drain = drains_.front();
  drains_.pop_front();
  for (Record& r : tables_[drain.controller]) {
    if (r.line == drain.line && !r.undo && r.version.order == drain.version.order) {
      r.stage = Stage::Entered;
    }
  }
}

void Recovery::entered(std::uint64_t line, LineVersion version) {
  Image& image = images_[line];
  image.entered = version;
  image.on_the_way.push_back(version);
}

void Recovery::landed(std::uint64_t line, std::uint64_t order) {
  Image& image = images_[line];
  const auto found = std::find_if(image.on_the_way.begin(), image.on_the_way.end(),
                                  [&](const LineVersion& v) { return v.order == order; });
  if (found == image.on_the_way.end()) return;  // a record has it
  image.landed = *found;
  image.on_the_way.erase(found);
}

void Recovery::drained(std::uint32_t controller, std::uint64_t line, std::uint64_t order) {
  std::erase_if(tables_[controller], [&](const Record& r) {
    return r.line == line && !r.undo && r.stage == Stage::Entered && r.version.order == order;
  });
}

LineVersion Recovery::recovered(std::uint64_t line) const {
  LineVersion newest;
  for (const Table& table : tables_) {
    for (const Record& record : table) {
      if (record.line != line) continue;
      if (record.undo) return record.version;
      const bool redone = record.stage != Stage::Open;
      if (redone && record.version.order > newest.order) newest = record.version;
    }
  }
  if (newest.order > 0) return newest;
  const auto image = images_.find(line);
  return image == images_.end() ? LineVersion{} : image->second.landed;
}

bool Recovery::forget(std::uint64_t line) {
  const auto image = images_.find(line);
  if (image != images_.end() && !image->second.on_the_way.empty()) return false;
  for (const Table& table : tables_) {
    for (const Record& record : table) {
      if (record.line == line) return false;
    }
  }
  if (image != images_.end()) images_.erase(image);
  return true;
}

void RecoveryLaw::on_counted(std::uint64_t line, std::uint64_t order) {
  std::uint64_t& newest = counted_[line];
  newest = std::max(newest, order);
}

std::uint64_t RecoveryLaw::counted(std::uint64_t line) const {
  const auto found = counted_.find(line);
  return found == counted_.end() ? 0 : found->second;
}

void RecoveryLaw::check(std::uint64_t line, std::uint64_t restored, bool allowed, Time at) {
  ++checked_;
  if (!broken_.empty()) return;
  const std::uint64_t persisted = counted(line);
  if (restored < persisted) {
    broken_ = fmt::format(
        "after a power failure at {} ps line {} would hold an older value than "
        "that of write {}, which counts as persisted",
        at, line, persisted);
  } else if (restored > persisted && !allowed) {
    broken_ = fmt::format(
        "after a power failure at {} ps line {} would hold the value of write "
        "{}, of which not all before it is persisted",
        at, line, restored);
  }
}

}  // namespace perdure::memsys
